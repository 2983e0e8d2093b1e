package danmcni

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
)

// grant is the answer to the address request of one family. A grant without
// bit stands outside the bitmap: DANM hands out a static IPv6 address that is
// in net6 but not in the pool without noting it anywhere.
type grant struct {
	family danm.Family
	addr   netip.Addr
	prefix netip.Prefix // addr with the prefix length of the network
	hasBit bool
	change danm.AllocChange // of the bitmap; only with hasBit
}

// allocate finds addresses for an interface in the network as read. It is
// DANM 4.3's allocator: dynamic addresses are first fit from the start of the
// pool, because that release never managed to read its own lastIp.
func allocate(n *danm.Network, r danm.InterfaceRequest) ([]grant, error) {
	var grants []grant
	for _, f := range []struct {
		family  danm.Family
		request danm.AddressRequest
	}{{danm.IPv4, r.IPv4}, {danm.IPv6, r.IPv6}} {
		if !f.request.WantsAddress() {
			continue
		}
		g, err := allocateFamily(n, f.family, f.request)
		if err != nil {
			return nil, err
		}
		grants = append(grants, g)
	}
	return grants, nil
}

func allocateFamily(n *danm.Network, family danm.Family, r danm.AddressRequest) (grant, error) {
	pool, old, err := openPool(n, family)
	if err != nil {
		return grant{}, err
	}
	if pool == nil {
		return grant{}, fmt.Errorf("%s: IPv%d address requested from a network that has no IPv%d pool", n.Ref(), family, family)
	}
	g := grant{family: family, addr: r.Addr}
	i := 0
	if r.Kind == danm.Dynamic {
		if i, err = firstFree(pool); err != nil {
			return grant{}, fmt.Errorf("%s: IPv%d: %w", n.Ref(), family, err)
		}
		g.addr, g.hasBit = pool.Addr(i), true
	} else {
		i, g.hasBit = pool.Index(r.Addr)
	}
	if g.prefix, err = networkPrefix(n, family, pool, g.addr); err != nil {
		return grant{}, err
	}
	if !g.hasBit {
		return g, nil
	}
	if pool.IsSet(i) {
		return grant{}, fmt.Errorf("%s: static address %s is already in use", n.Ref(), g.addr)
	}
	pool.Set(i)
	g.change = danm.AllocChange{Family: family, Old: old, New: pool.Encode()}
	return g, nil
}

// firstFree returns the first bit of the dynamic pool that is neither set nor
// reserved.
func firstFree(pool *ipam.Pool) (int, error) {
	for i := range pool.Size() {
		if _, reserved := pool.Reserved(i); !reserved && pool.IsDynamic(i) && !pool.IsSet(i) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("all addresses are reserved in %s", pool.Prefix())
}

// networkPrefix gives an address the prefix length that DANM writes into the
// endpoint: that of cidr, or that of net6, which is wider than the IPv6 pool.
func networkPrefix(n *danm.Network, family danm.Family, pool *ipam.Pool, addr netip.Addr) (netip.Prefix, error) {
	within := pool.Prefix()
	if net6 := n.Spec.Options.Net6; family == danm.IPv6 && net6 != "" {
		parsed, err := netip.ParsePrefix(net6)
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("%s: spec.Options.net6: %q is not a CIDR", n.Ref(), net6)
		}
		within = parsed
	}
	if !within.Contains(addr) {
		return netip.Prefix{}, fmt.Errorf("%s: address %s is not in %s", n.Ref(), addr, within.Masked())
	}
	return netip.PrefixFrom(addr, within.Bits()), nil
}

// openPool returns the family's pool and its bitmap as read, or nil if the
// network keeps none. A malformed bitmap is an error; upstream panics.
func openPool(n *danm.Network, family danm.Family) (*ipam.Pool, string, error) {
	for _, spec := range n.Pools() {
		if spec.Family == family {
			pool, err := ipam.Open(ipam.Spec(spec.Fields))
			return pool, spec.Fields.Alloc, err
		}
	}
	return nil, "", nil
}

// release returns the change that clears the address's bit, or false if there
// is nothing to clear: no such bit, not set, or reserved.
func release(n *danm.Network, addr netip.Addr) (danm.AllocChange, bool, error) {
	family := danm.FamilyOf(addr)
	pool, old, err := openPool(n, family)
	if err != nil || pool == nil {
		return danm.AllocChange{}, false, err
	}
	i, ok := pool.Index(addr)
	if !ok || !pool.IsSet(i) {
		return danm.AllocChange{}, false, nil
	}
	if _, reserved := pool.Reserved(i); reserved {
		return danm.AllocChange{}, false, nil
	}
	pool.Clear(i)
	return danm.AllocChange{Family: family, Old: old, New: pool.Encode()}, true, nil
}

// poolField is the field of spec.Options that holds the family's pool.
func poolField(f danm.Family) string {
	if f == danm.IPv6 {
		return "allocation_pool_v6"
	}
	return "allocation_pool"
}

// noteGrants writes the new bitmaps and DANM's lastIp into the object as read.
// All else stays as it was, fields that nobody here knows included.
func noteGrants(u *unstructured.Unstructured, grants []grant) error {
	for _, g := range grants {
		if !g.hasBit {
			continue
		}
		if err := noteChange(u, g.change); err != nil {
			return err
		}
		err := unstructured.SetNestedField(u.Object, g.prefix.String(), "spec", "Options", poolField(g.family), "lastIp")
		if err != nil {
			return fmt.Errorf("setting lastIp: %w", err)
		}
	}
	return nil
}

func noteChange(u *unstructured.Unstructured, c danm.AllocChange) error {
	if err := unstructured.SetNestedField(u.Object, c.New, "spec", "Options", c.Family.Field()); err != nil {
		return fmt.Errorf("setting %s: %w", c.Family.Field(), err)
	}
	return nil
}
