package audit

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
)

// States of an allocation.
const (
	StateInUse    = "in use"
	StateLeaked   = "leaked"
	StateHeld     = "held"
	StateOrphan   = "orphan"
	StateStatic   = "static"
	StateReserved = "ReservedIP"
)

// Allocations lists every address and who has it, and every interface without
// address, by network and address.
func Allocations(w World, p ownership.Policy) []Allocation {
	x := newIndex(w, p)
	var all []Allocation
	for _, ep := range w.Endpoints {
		addrs, _ := ep.Addresses()
		if len(addrs) == 0 {
			addrs = []netip.Addr{{}}
		}
		for _, a := range addrs {
			all = append(all, x.allocation(ep, a))
		}
	}
	for _, n := range w.Networks {
		all = append(all, x.unclaimed(n)...)
	}
	slices.SortStableFunc(all, compareAllocations)
	return all
}

func compareAllocations(a, b Allocation) int {
	first, _ := netip.ParseAddr(a.Address)
	second, _ := netip.ParseAddr(b.Address)
	return cmp.Or(compareRefs(a.Network, b.Network), first.Compare(second), cmp.Compare(a.Endpoint, b.Endpoint))
}

func (x *index) allocation(ep *danm.Endpoint, a netip.Addr) Allocation {
	out := Allocation{
		Network: ep.Network(), Endpoint: objectName(ep.Namespace, ep.Name), Interface: ep.Spec.Interface.Name,
		Pod: objectName(ep.Namespace, ep.Spec.Pod), PodUID: ep.Spec.PodUID, Node: ep.Spec.Host, State: StateInUse,
	}
	if a.IsValid() {
		out.Address = a.String()
	}
	if name, _ := x.node(ep); name != "" {
		out.Node = name
	}
	switch _, last := x.decide(ep); last.Action {
	case ownership.Release:
		out.State = StateLeaked
	case ownership.Wait:
		out.State = StateHeld
	}
	return out
}

// unclaimed lists the set bits of a network that no endpoint has.
func (x *index) unclaimed(n *danm.Network) []Allocation {
	var all []Allocation
	ref := n.Ref()
	for _, pool := range x.pools[ref] {
		for _, i := range pool.Allocated() {
			key := claim{ref, pool.Addr(i)}
			if len(x.claims[key]) > 0 {
				continue
			}
			state := StateOrphan
			switch {
			case x.whyUnjudged(ref) != "":
				state = StateHeld
			case x.isReservedIP(key):
				state = StateReserved
			case !pool.IsDynamic(i):
				state = StateStatic
			}
			all = append(all, Allocation{Network: ref, Address: key.address.String(), State: state})
		}
	}
	return all
}
