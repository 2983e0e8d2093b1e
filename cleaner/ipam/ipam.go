package ipam

import (
	"encoding/base64"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
)

// hostBitsMax limits a pool to 2^23 addresses, DANM's own limit: IPv4 /9 and
// IPv6 /105. A larger bitmap would not fit into an etcd value.
const hostBitsMax = 23

// Bitmap is DANM's allocation bitmap, decoded. Bit i is the i-th bit from the
// left: b[i/8] & (0x80 >> i%8).
type Bitmap []byte

// Decode reads the base64 form that networks carry.
func Decode(s string) (Bitmap, error) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, fmt.Errorf("not base64: %w", err)
	}
	return b, nil
}

// Encode returns the base64 form that networks carry.
func (b Bitmap) Encode() string { return base64.StdEncoding.EncodeToString(b) }

// Len returns the number of bits, a multiple of 8.
func (b Bitmap) Len() int { return len(b) * 8 }

// IsSet tells whether bit i exists and is set.
func (b Bitmap) IsSet(i int) bool {
	return i >= 0 && i < b.Len() && b[i/8]&(0x80>>(i%8)) != 0
}

// Set sets bit i. It panics if there is no such bit.
func (b Bitmap) Set(i int) { b[i/8] |= 0x80 >> (i % 8) }

// Clear clears bit i. It panics if there is no such bit.
func (b Bitmap) Clear(i int) { b[i/8] &^= 0x80 >> (i % 8) }

// next returns the first bit at or after i that is set, Len if there is none.
func (b Bitmap) next(i int) int {
	for i < b.Len() {
		if rest := b[i/8] << (i % 8); rest != 0 {
			return i + bits.LeadingZeros8(rest)
		}
		i += 8 - i%8
	}
	return b.Len()
}

// count returns how many bits in [from, to) are set.
func (b Bitmap) count(from, to int) int {
	n := 0
	for i := b.next(from); i < to; i = b.next(i + 1) {
		n++
	}
	return n
}

// Spec is one family of a network as its object states it.
type Spec struct {
	Object     string // the network, for errors
	IPv6       bool
	CIDR       string
	Alloc      string
	Start, End string
	Gateways   []string
}

func (s Spec) fields() (cidr, alloc, pool, routes string) {
	if s.IPv6 {
		return "spec.Options.allocation_pool_v6.cidr", "spec.Options.alloc6", "spec.Options.allocation_pool_v6", "spec.Options.routes6"
	}
	return "spec.Options.cidr", "spec.Options.alloc", "spec.Options.allocation_pool", "spec.Options.routes"
}

// Pool is one family of a network, parsed: a prefix and the bits over it.
type Pool struct {
	prefix     netip.Prefix
	bits       Bitmap
	start, end int // dynamic pool, inclusive
	reserved   []reservation
}

// reservation is a bit that no pod ever owns. There are few of them, each once.
type reservation struct {
	index  int
	reason string
}

// Open parses a spec. Every error names the object and the field.
func Open(s Spec) (*Pool, error) {
	cidrField, allocField, poolField, routesField := s.fields()
	wrap := func(field string, err error) error { return fmt.Errorf("%s: %s: %w", s.Object, field, err) }
	prefix, err := parsePrefix(s.CIDR, s.IPv6)
	if err != nil {
		return nil, wrap(cidrField, err)
	}
	bits, err := Decode(s.Alloc)
	if err != nil {
		return nil, wrap(allocField, err)
	}
	p := &Pool{prefix: prefix, bits: bits}
	if bits.Len() < p.Size() {
		return nil, wrap(allocField, fmt.Errorf("%d bits, but %s has %d addresses", bits.Len(), prefix, p.Size()))
	}
	if p.start, err = p.bound(s.Start, 0); err != nil {
		return nil, wrap(poolField+".start", err)
	}
	if p.end, err = p.bound(s.End, p.Size()-1); err != nil {
		return nil, wrap(poolField+".end", err)
	}
	if err := p.reserve(s.Gateways); err != nil {
		return nil, wrap(routesField, err)
	}
	return p, nil
}

func parsePrefix(cidr string, wantIPv6 bool) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR", cidr)
	}
	switch {
	case prefix.Addr().Is4() == wantIPv6 || prefix.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("%q is of the wrong address family", cidr)
	case prefix.Addr().BitLen()-prefix.Bits() > hostBitsMax:
		return netip.Prefix{}, fmt.Errorf("%q has more than 2^%d addresses", cidr, hostBitsMax)
	}
	return prefix.Masked(), nil
}

// bound returns the index of a pool limit, or whenEmpty if none is stated.
func (p *Pool) bound(s string, whenEmpty int) (int, error) {
	if s == "" {
		return whenEmpty, nil
	}
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not an IP address", s)
	}
	i, ok := p.Index(addr)
	if !ok {
		return 0, fmt.Errorf("%s is not in %s", s, p.prefix)
	}
	return i, nil
}

// reserve notes the bits that no pod ever owns. DANM presets the first and the
// last bit of the array; in a pool of fewer than eight addresses the array is
// longer than the pool, so its last address is reserved besides.
func (p *Pool) reserve(gateways []string) error {
	p.reserved = make([]reservation, 0, 3+len(gateways))
	p.reserveBit(0, "network address")
	p.reserveBit(p.Size()-1, "last address")
	p.reserveBit(p.bits.Len()-1, "last bit")
	for _, g := range gateways {
		addr, err := netip.ParseAddr(g)
		if err != nil {
			return fmt.Errorf("gateway %q is not an IP address", g)
		}
		if i, ok := p.Index(addr); ok {
			p.reserveBit(i, "gateway")
		}
	}
	return nil
}

// reserveBit notes the last reason that is given for a bit.
func (p *Pool) reserveBit(i int, reason string) {
	for k := range p.reserved {
		if p.reserved[k].index == i {
			p.reserved[k].reason = reason
			return
		}
	}
	p.reserved = append(p.reserved, reservation{i, reason})
}

func (p *Pool) isReserved(i int) bool {
	return slices.ContainsFunc(p.reserved, func(r reservation) bool { return r.index == i })
}

// Size returns the number of addresses in the prefix.
func (p *Pool) Size() int { return 1 << (p.prefix.Addr().BitLen() - p.prefix.Bits()) }

// Prefix returns the prefix that the bitmap covers.
func (p *Pool) Prefix() netip.Prefix { return p.prefix }

// Index returns the bit of an address, or false if the pool does not cover it.
func (p *Pool) Index(a netip.Addr) (int, bool) {
	a = a.Unmap()
	if !p.prefix.Contains(a) {
		return 0, false
	}
	// The prefix leaves at most 23 host bits, so the difference of the last
	// four bytes is the whole difference.
	first, last := p.prefix.Addr().AsSlice(), a.AsSlice()
	return int(low32(last) - low32(first)), true
}

func low32(b []byte) uint32 {
	b = b[len(b)-4:]
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// Addr returns the address of bit i, which must be in [0, Size).
func (p *Pool) Addr(i int) netip.Addr {
	if i < 0 || i >= p.Size() {
		panic(fmt.Sprintf("ipam: bit %d is outside %s", i, p.prefix))
	}
	b := p.prefix.Addr().AsSlice()
	v := low32(b) + uint32(i)
	n := len(b)
	b[n-4], b[n-3], b[n-2], b[n-1] = byte(v>>24), byte(v>>16), byte(v>>8), byte(v)
	addr, _ := netip.AddrFromSlice(b)
	return addr
}

// Reserved returns why bit i belongs to no pod, or false if it may.
func (p *Pool) Reserved(i int) (reason string, ok bool) {
	if i < 0 || i >= p.Size() {
		return "outside the prefix", true
	}
	for _, r := range p.reserved {
		if r.index == i {
			return r.reason, true
		}
	}
	return "", false
}

// IsDynamic tells whether DANM hands out bit i by itself. Bits outside the
// dynamic pool are for static addresses only.
func (p *Pool) IsDynamic(i int) bool { return i >= p.start && i <= p.end }

// IsSet tells whether the address of bit i is allocated.
func (p *Pool) IsSet(i int) bool { return p.bits.IsSet(i) }

// Allocated returns the set bits that are not reserved, in ascending order.
func (p *Pool) Allocated() []int {
	var out []int
	for i := p.bits.next(0); i < p.Size(); i = p.bits.next(i + 1) {
		if !p.isReserved(i) {
			out = append(out, i)
		}
	}
	return out
}

// Usage counts the addresses of a pool, reserved ones left out.
type Usage struct {
	Total     int // addresses that a pod may own
	Allocated int // of those, the ones whose bit is set
	Free      int // of those, the ones that DANM can still hand out by itself
}

// Usage returns the pool's counts. Total may exceed Allocated and Free together:
// a free address outside the dynamic pool waits for somebody to ask for it.
func (p *Pool) Usage() Usage {
	u := Usage{
		Total:     p.Size(),
		Allocated: p.bits.count(0, p.Size()),
		Free:      max(0, p.end+1-p.start) - p.bits.count(p.start, p.end+1),
	}
	for _, r := range p.reserved {
		switch {
		case r.index >= p.Size():
			continue
		case p.bits.IsSet(r.index):
			u.Allocated--
		case p.IsDynamic(r.index):
			u.Free--
		}
		u.Total--
	}
	return u
}

// Encode returns the bitmap in wire form.
func (p *Pool) Encode() string { return p.bits.Encode() }

// Clear marks the address of bit i free. It panics if the bit is reserved or
// not set: either means that the caller lost track, and the write that would
// follow cannot be undone.
func (p *Pool) Clear(i int) {
	if reason, ok := p.Reserved(i); ok {
		panic(fmt.Sprintf("ipam: clearing reserved bit %d (%s)", i, reason))
	}
	if !p.bits.IsSet(i) {
		panic(fmt.Sprintf("ipam: clearing bit %d, which is not set", i))
	}
	p.bits.Clear(i)
}

// Set marks the address of bit i allocated. It panics outside the prefix.
func (p *Pool) Set(i int) {
	if i < 0 || i >= p.Size() {
		panic(fmt.Sprintf("ipam: setting bit %d outside %s", i, p.prefix))
	}
	p.bits.Set(i)
}

// Empty returns the bitmap of a new pool in wire form, with the bits that DANM
// presets: the first, the last and the gateways.
func Empty(s Spec) (string, error) {
	cidrField, _, _, routesField := s.fields()
	prefix, err := parsePrefix(s.CIDR, s.IPv6)
	if err != nil {
		return "", fmt.Errorf("%s: %s: %w", s.Object, cidrField, err)
	}
	p := &Pool{prefix: prefix}
	p.bits = make(Bitmap, (p.Size()+7)/8)
	if err := p.reserve(s.Gateways); err != nil {
		return "", fmt.Errorf("%s: %s: %w", s.Object, routesField, err)
	}
	for _, r := range p.reserved {
		p.bits.Set(r.index)
	}
	return p.Encode(), nil
}
