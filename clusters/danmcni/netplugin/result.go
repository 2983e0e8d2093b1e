package netplugin

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
)

// mergeResults puts the results of a pod's interfaces into one, in the order
// of the annotation, so that the first address is that of the pod's first
// endpoint. An interface of the node that several share, a bridge, is listed
// once. dns is used if no result has any.
func mergeResults(results []*current.Result, dns types.DNS) *current.Result {
	merged := &current.Result{CNIVersion: current.ImplementedSpecVersion}
	for _, r := range results {
		place := appendInterfaces(merged, r.Interfaces)
		for _, ip := range r.IPs {
			c := ip.Copy()
			if c.Interface != nil && *c.Interface >= 0 && *c.Interface < len(place) {
				c.Interface = current.Int(place[*c.Interface])
			}
			merged.IPs = append(merged.IPs, c)
		}
		for _, route := range r.Routes {
			merged.Routes = append(merged.Routes, route.Copy())
		}
		if merged.DNS.IsEmpty() {
			merged.DNS = *r.DNS.Copy()
		}
	}
	if merged.DNS.IsEmpty() {
		merged.DNS = dns
	}
	return merged
}

// appendInterfaces returns for each interface its index in merged.
func appendInterfaces(merged *current.Result, interfaces []*current.Interface) []int {
	var place []int
	for _, added := range interfaces {
		at := slices.IndexFunc(merged.Interfaces, func(i *current.Interface) bool {
			return i.Name == added.Name && i.Sandbox == added.Sandbox
		})
		if at < 0 {
			at = len(merged.Interfaces)
			merged.Interfaces = append(merged.Interfaces, added.Copy())
		} else {
			// A bridge takes the address of a new port; the last one is right.
			merged.Interfaces[at].Mac = added.Mac
		}
		place = append(place, at)
	}
	return place
}

// checkAddresses compares what a plugin says it configured with what DANM
// reserved. A pod with any other address would be a second owner of it.
func checkAddresses(r *current.Result, want []netip.Prefix) error {
	var got []netip.Prefix
	for _, ip := range r.IPs {
		addr, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			return fmt.Errorf("the result has the address %v", ip.Address)
		}
		ones, _ := ip.Address.Mask.Size()
		got = append(got, netip.PrefixFrom(addr.Unmap(), ones))
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("the result has the addresses %v instead of %v", got, want)
	}
	return nil
}
