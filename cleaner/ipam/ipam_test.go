package ipam

import (
	"encoding/base64"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// reported is the bitmap of the report that this project answers: a pod runs
// on 10.10.10.15, and its bit is not set.
const reported = "gDwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE="

// zeros returns the wire form of a bitmap of n bytes without a set bit.
func zeros(n int) string { return base64.StdEncoding.EncodeToString(make([]byte, n)) }

func mustOpen(t *testing.T, s Spec) *Pool {
	t.Helper()
	p, err := Open(s)
	if err != nil {
		t.Fatalf("opening %+v: %v", s, err)
	}
	return p
}

func setBits(p *Pool) []int {
	var out []int
	for i := range p.Size() {
		if p.IsSet(i) {
			out = append(out, i)
		}
	}
	return out
}

func TestBitmapOfTheReport(t *testing.T) {
	p := mustOpen(t, Spec{Object: "DanmNet default/test-net1", CIDR: "10.10.10.0/24", Alloc: reported})
	if diff := cmp.Diff([]int{0, 10, 11, 12, 13, 255}, setBits(p)); diff != "" {
		t.Errorf("set bits (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{10, 11, 12, 13}, p.Allocated()); diff != "" {
		t.Errorf("allocated bits (-want +got):\n%s", diff)
	}
	if got := p.Encode(); got != reported {
		t.Errorf("encoded again: %s, want %s", got, reported)
	}
	i, ok := p.Index(netip.MustParseAddr("10.10.10.15"))
	if !ok || i != 15 || p.IsSet(i) {
		t.Errorf("10.10.10.15 is bit %d (%v), set: %v; want bit 15, free", i, ok, p.IsSet(i))
	}
}

func TestEmptyPresetsWhatDANMPresets(t *testing.T) {
	tests := []struct {
		name string
		spec Spec
		want []int // reserved indexes within the prefix
	}{
		{"a /24 reserves its first and last address", Spec{CIDR: "10.10.10.0/24"}, []int{0, 255}},
		{"a /24 reserves its gateway", Spec{CIDR: "10.10.10.0/24", Gateways: []string{"10.10.10.1"}}, []int{0, 1, 255}},
		{"a gateway outside the prefix reserves nothing", Spec{CIDR: "10.10.10.0/24", Gateways: []string{"10.10.11.1"}}, []int{0, 255}},
		{"host bits in the CIDR are masked", Spec{CIDR: "10.10.10.77/24"}, []int{0, 255}},
		{"a /29 fills its byte exactly", Spec{CIDR: "10.0.0.0/29"}, []int{0, 7}},
		{"a /30 reserves its last address besides the last bit", Spec{CIDR: "10.0.0.0/30"}, []int{0, 3}},
		{"a /31 has no address to give", Spec{CIDR: "10.0.0.0/31"}, []int{0, 1}},
		{"a /32 has no address to give", Spec{CIDR: "10.0.0.1/32"}, []int{0}},
		{"a /120 is like a /24", Spec{IPv6: true, CIDR: "2001:db8::/120", Gateways: []string{"2001:db8::1"}}, []int{0, 1, 255}},
		{"a /126 is like a /30", Spec{IPv6: true, CIDR: "2001:db8::/126"}, []int{0, 3}},
		{"a /128 is like a /32", Spec{IPv6: true, CIDR: "2001:db8::1/128"}, []int{0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			alloc, err := Empty(tt.spec)
			if err != nil {
				t.Fatal(err)
			}
			tt.spec.Alloc = alloc
			p := mustOpen(t, tt.spec)
			if diff := cmp.Diff(tt.want, setBits(p)); diff != "" {
				t.Errorf("set bits (-want +got):\n%s", diff)
			}
			if got := p.Allocated(); got != nil {
				t.Errorf("a new pool has allocations: %v", got)
			}
			for _, i := range tt.want {
				if _, ok := p.Reserved(i); !ok {
					t.Errorf("bit %d is not reserved", i)
				}
			}
			if !p.bits.IsSet(p.bits.Len() - 1) {
				t.Errorf("the last bit of the array, %d, is not set", p.bits.Len()-1)
			}
		})
	}
}

func TestOpenNamesObjectAndField(t *testing.T) {
	const object = "DanmNet default/n"
	tests := []struct {
		name string
		spec Spec
		want string
	}{
		{"CIDR missing", Spec{Alloc: reported}, `spec.Options.cidr: "" is not a CIDR`},
		{"CIDR without length", Spec{CIDR: "10.0.0.0", Alloc: reported}, `spec.Options.cidr: "10.0.0.0" is not a CIDR`},
		{"CIDR of IPv6 for IPv4", Spec{CIDR: "2001:db8::/120", Alloc: reported}, `spec.Options.cidr: "2001:db8::/120" is of the wrong address family`},
		{"CIDR of IPv4 for IPv6", Spec{IPv6: true, CIDR: "10.0.0.0/24", Alloc: reported}, `spec.Options.allocation_pool_v6.cidr: "10.0.0.0/24" is of the wrong address family`},
		{"CIDR of a mapped IPv4 for IPv6", Spec{IPv6: true, CIDR: "::ffff:10.0.0.0/120", Alloc: reported}, `spec.Options.allocation_pool_v6.cidr: "::ffff:10.0.0.0/120" is of the wrong address family`},
		{"a /8 is over DANM's limit", Spec{CIDR: "10.0.0.0/8", Alloc: reported}, `spec.Options.cidr: "10.0.0.0/8" has more than 2^23 addresses`},
		{"a /104 is over DANM's limit", Spec{IPv6: true, CIDR: "2001:db8::/104", Alloc: reported}, `spec.Options.allocation_pool_v6.cidr: "2001:db8::/104" has more than 2^23 addresses`},
		{"a /64 is over DANM's limit", Spec{IPv6: true, CIDR: "2001:db8::/64"}, `spec.Options.allocation_pool_v6.cidr: "2001:db8::/64" has more than 2^23 addresses`},
		{"bitmap empty", Spec{CIDR: "10.0.0.0/24"}, `spec.Options.alloc: 0 bits, but 10.0.0.0/24 has 256 addresses`},
		{"bitmap one byte short", Spec{CIDR: "10.0.0.0/24", Alloc: zeros(31)}, `spec.Options.alloc: 248 bits, but 10.0.0.0/24 has 256 addresses`},
		{"bitmap empty for a single address", Spec{CIDR: "10.0.0.0/32"}, `spec.Options.alloc: 0 bits, but 10.0.0.0/32 has 1 addresses`},
		{"bitmap not base64", Spec{CIDR: "10.0.0.0/24", Alloc: "no base64!"}, `spec.Options.alloc: not base64: illegal base64 data at input byte 2`},
		{"bitmap without padding", Spec{IPv6: true, CIDR: "2001:db8::/120", Alloc: strings.TrimRight(reported, "=")}, `spec.Options.alloc6: not base64: illegal base64 data at input byte 40`},
		{"pool start not an address", Spec{CIDR: "10.0.0.0/24", Alloc: reported, Start: "10.0.0"}, `spec.Options.allocation_pool.start: "10.0.0" is not an IP address`},
		{"pool start outside the CIDR", Spec{CIDR: "10.0.0.0/24", Alloc: reported, Start: "10.0.1.0"}, `spec.Options.allocation_pool.start: 10.0.1.0 is not in 10.0.0.0/24`},
		{"pool end outside the CIDR", Spec{IPv6: true, CIDR: "2001:db8::/120", Alloc: reported, End: "2001:db8::100"}, `spec.Options.allocation_pool_v6.end: 2001:db8::100 is not in 2001:db8::/120`},
		{"gateway not an address", Spec{CIDR: "10.0.0.0/24", Alloc: reported, Gateways: []string{"gw"}}, `spec.Options.routes: gateway "gw" is not an IP address`},
		{"IPv6 gateway not an address", Spec{IPv6: true, CIDR: "2001:db8::/120", Alloc: reported, Gateways: []string{""}}, `spec.Options.routes6: gateway "" is not an IP address`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.spec.Object = object
			_, err := Open(tt.spec)
			if err == nil {
				t.Fatal("opened")
			}
			if diff := cmp.Diff(object+": "+tt.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEmptyNamesObjectAndField(t *testing.T) {
	for want, spec := range map[string]Spec{
		`DanmNet a/n: spec.Options.cidr: "x" is not a CIDR`:                     {CIDR: "x"},
		`DanmNet a/n: spec.Options.routes: gateway "gw" is not an IP address`:   {CIDR: "10.0.0.0/24", Gateways: []string{"gw"}},
		`DanmNet a/n: spec.Options.allocation_pool_v6.cidr: "" is not a CIDR`:   {IPv6: true},
		`DanmNet a/n: spec.Options.routes6: gateway "gw6" is not an IP address`: {IPv6: true, CIDR: "2001:db8::/120", Gateways: []string{"gw6"}},
	} {
		spec.Object = "DanmNet a/n"
		if _, err := Empty(spec); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestLargestPools(t *testing.T) {
	for _, s := range []Spec{{CIDR: "10.0.0.0/9"}, {IPv6: true, CIDR: "2001:db8::/105"}} {
		alloc, err := Empty(s)
		if err != nil {
			t.Fatal(err)
		}
		s.Alloc = alloc
		p := mustOpen(t, s)
		if p.Size() != 1<<23 {
			t.Errorf("%s: %d addresses, want 2^23", s.CIDR, p.Size())
		}
		last := p.Size() - 1
		if i, ok := p.Index(p.Addr(last)); !ok || i != last || !p.IsSet(last) {
			t.Errorf("%s: last address %s is bit %d (%v)", s.CIDR, p.Addr(last), i, ok)
		}
	}
}

func TestPoolBoundsAreInclusive(t *testing.T) {
	p := mustOpen(t, Spec{CIDR: "10.0.0.0/24", Alloc: reported, Start: "10.0.0.10", End: "10.0.0.20"})
	for i, want := range map[int]bool{0: false, 9: false, 10: true, 15: true, 20: true, 21: false, 255: false} {
		if got := p.IsDynamic(i); got != want {
			t.Errorf("bit %d dynamic: %v, want %v", i, got, want)
		}
	}
	if p := mustOpen(t, Spec{CIDR: "10.0.0.0/24", Alloc: reported}); !p.IsDynamic(0) || !p.IsDynamic(255) || p.IsDynamic(256) {
		t.Error("without bounds, the pool is not exactly the prefix")
	}
}

func TestIndexRefusesWhatThePoolDoesNotCover(t *testing.T) {
	p := mustOpen(t, Spec{IPv6: true, CIDR: "2001:db8::/120", Alloc: reported})
	for _, a := range []netip.Addr{
		{}, netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::100"),
		netip.MustParseAddr("2001:db8:1::1"), netip.MustParseAddr("2001:db8::1%eth0"),
	} {
		if i, ok := p.Index(a); ok {
			t.Errorf("%v is bit %d of %s", a, i, p.Prefix())
		}
	}
	if _, ok := mustOpen(t, Spec{CIDR: "10.0.0.0/24", Alloc: reported}).Index(netip.MustParseAddr("::ffff:10.0.0.7")); !ok {
		t.Error("an IPv4 address in its IPv6 form is not found in its pool")
	}
}

// TestIndexAndAddrAreInverse draws pools from a seed and compares the two
// conversions with each other and with plain counting.
func TestIndexAndAddrAreInverse(t *testing.T) {
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		p := drawPool(t, rng)
		i := rng.IntN(p.Size())
		a := p.Addr(i)
		if back, ok := p.Index(a); !ok || back != i {
			t.Fatalf("%s: bit %d is %s, which is bit %d (%v)", p.Prefix(), i, a, back, ok)
		}
		if i+1 < p.Size() && p.Addr(i+1) != a.Next() {
			t.Fatalf("%s: bit %d is %s, bit %d is %s", p.Prefix(), i, a, i+1, p.Addr(i+1))
		}
	}
}

func drawPool(t *testing.T, rng *rand.Rand) *Pool {
	t.Helper()
	isIPv6 := rng.IntN(2) == 1
	b := make([]byte, 4)
	if isIPv6 {
		b = make([]byte, 16)
	}
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	b[0] |= 0x20 // never ::ffff:0:0/96, which is IPv4
	addr, _ := netip.AddrFromSlice(b)
	prefix := netip.PrefixFrom(addr, addr.BitLen()-rng.IntN(13))
	s := Spec{Object: "drawn", IPv6: isIPv6, CIDR: prefix.String()}
	alloc, err := Empty(s)
	if err != nil {
		t.Fatal(err)
	}
	s.Alloc = alloc
	return mustOpen(t, s)
}

func TestClearUndoesSet(t *testing.T) {
	p := mustOpen(t, Spec{CIDR: "10.10.10.0/24", Alloc: reported})
	p.Set(15)
	if diff := cmp.Diff([]int{10, 11, 12, 13, 15}, p.Allocated()); diff != "" {
		t.Errorf("after setting 15 (-want +got):\n%s", diff)
	}
	p.Clear(15)
	if got := p.Encode(); got != reported {
		t.Errorf("after clearing 15: %s", got)
	}
}

func TestWhatCannotBeUndonePanicsFirst(t *testing.T) {
	p := mustOpen(t, Spec{CIDR: "10.10.10.0/24", Alloc: reported, Gateways: []string{"10.10.10.12"}})
	for name, act := range map[string]func(){
		"clearing the first bit":           func() { p.Clear(0) },
		"clearing the last bit":            func() { p.Clear(255) },
		"clearing a gateway":               func() { p.Clear(12) },
		"clearing a free bit":              func() { p.Clear(15) },
		"clearing a negative bit":          func() { p.Clear(-1) },
		"clearing beyond the prefix":       func() { p.Clear(256) },
		"setting beyond the prefix":        func() { p.Set(256) },
		"naming an address of bit -1":      func() { p.Addr(-1) },
		"naming an address beyond the /24": func() { p.Addr(256) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("did not panic")
				}
			}()
			act()
		})
	}
	if got := p.Encode(); got != reported {
		t.Errorf("the bitmap changed all the same: %s", got)
	}
}

func TestABitmapLongerThanThePrefixReservesItsTail(t *testing.T) {
	alloc := base64.StdEncoding.EncodeToString([]byte{0xff, 0xff})
	p := mustOpen(t, Spec{CIDR: "10.0.0.0/29", Alloc: alloc})
	if diff := cmp.Diff([]int{1, 2, 3, 4, 5, 6}, p.Allocated()); diff != "" {
		t.Errorf("allocated (-want +got):\n%s", diff)
	}
	for _, i := range []int{-1, 8, 15, 16} {
		if _, ok := p.Reserved(i); !ok {
			t.Errorf("bit %d is outside the prefix and not reserved", i)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"", reported, "gA==", "====", "gDw", "\n", "/w==", "-_-_"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := Decode(s)
		if err != nil {
			return
		}
		for _, i := range []int{-1, 0, b.Len() - 1, b.Len()} {
			if b.IsSet(i) && (i < 0 || i >= b.Len()) {
				t.Errorf("bit %d of %d is set", i, b.Len())
			}
		}
		again, err := Decode(b.Encode())
		if err != nil || again.Encode() != b.Encode() {
			t.Errorf("%q does not survive encoding: %v", s, err)
		}
	})
}

func FuzzOpen(f *testing.F) {
	f.Add(false, "10.10.10.0/24", reported, "", "", "10.10.10.1")
	f.Add(false, "10.0.0.0/30", "kQ==", "10.0.0.1", "10.0.0.2", "")
	f.Add(false, "10.0.0.0/32", "gQ==", "", "", "0.0.0.0")
	f.Add(false, "10.0.0.0/9", reported, "", "", "10.0.0.1")
	f.Add(true, "2001:db8::/126", "kQ==", "2001:db8::1", "2001:db8::2", "2001:db8::3")
	f.Add(false, "10.0.0.0/24", reported, "10.0.0.9", "10.0.0.3", "10.0.0.200")
	f.Add(true, "64:ff9b::/120", reported, "64:ff9b::10", "64:ff9b::ff", "fe80::1%eth0")
	f.Add(true, "::ffff:10.0.0.0/120", reported, "", "", "10.0.0.1")
	f.Add(false, "::/0", "", "x", "y", "z")
	f.Fuzz(func(t *testing.T, isIPv6 bool, cidr, alloc, start, end, gateway string) {
		const object = "DanmNet default/fuzzed"
		p, err := Open(Spec{Object: object, IPv6: isIPv6, CIDR: cidr, Alloc: alloc, Start: start, End: end, Gateways: []string{gateway}})
		if err != nil {
			if !strings.HasPrefix(err.Error(), object+": spec.Options.") {
				t.Errorf("error names neither object nor field: %v", err)
			}
			return
		}
		allocated, usage := bitByBit(p)
		if diff := cmp.Diff(allocated, p.Allocated()); diff != "" {
			t.Errorf("allocated (-want +got):\n%s", diff)
		}
		if got := p.Usage(); got != usage {
			t.Errorf("usage %+v, want %+v", got, usage)
		}
		for _, i := range allocated {
			if back, ok := p.Index(p.Addr(i)); !ok || back != i {
				t.Errorf("%s: bit %d is %s, which is bit %d (%v)", p.Prefix(), i, p.Addr(i), back, ok)
			}
			p.Clear(i)
		}
		if left := p.Allocated(); left != nil {
			t.Errorf("allocations left after clearing all: %v", left)
		}
	})
}

// bitByBit says slowly what Allocated and Usage say.
func bitByBit(p *Pool) (allocated []int, u Usage) {
	for i := range p.Size() {
		_, isReserved := p.Reserved(i)
		switch {
		case isReserved:
			continue
		case p.IsSet(i):
			allocated = append(allocated, i)
			u.Allocated++
		case p.IsDynamic(i):
			u.Free++
		}
		u.Total++
	}
	return allocated, u
}

func TestUsageLeavesReservedAddressesOut(t *testing.T) {
	spec := Spec{CIDR: "10.0.0.0/28", Start: "10.0.0.4", End: "10.0.0.7", Gateways: []string{"10.0.0.5"}}
	alloc, err := Empty(spec)
	if err != nil {
		t.Fatal(err)
	}
	spec.Alloc = alloc
	p := mustOpen(t, spec)
	p.Set(6)  // dynamic
	p.Set(10) // static
	// 16 addresses without first, last and gateway; of 4 to 7, the gateway and 6 are taken.
	if diff := cmp.Diff(Usage{Total: 13, Allocated: 2, Free: 2}, p.Usage()); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
}
