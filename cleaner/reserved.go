package cleaner

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// reservedIPs are all ReservedIPs, by one complete live list. No cache holds
// them: they matter only when a bit is about to be cleared, where a cache that is
// behind would free what is set aside, and when an address is held twice.
type reservedIPs []*unstructured.Unstructured

func (c *controller) liveReservedIPs(ctx context.Context) (reservedIPs, error) {
	if !c.found.resources[danm.ReservedIPResource] {
		return nil, nil // the cluster has none
	}
	var all reservedIPs
	list := c.danm.Dynamic.Resource(c.danm.Group.Resource(danm.ReservedIPResource)).List
	if err := eachPage(ctx, list, func(u *unstructured.Unstructured) error { all = append(all, u); return nil }); err != nil {
		return nil, fmt.Errorf("listing ReservedIPs: %w", err)
	}
	return all, nil
}

// setAside tells whether a ReservedIP keeps an address of a network.
type setAside func(danm.NetworkRef, netip.Addr) bool

func (r reservedIPs) setAside(ref danm.NetworkRef, a netip.Addr) bool {
	return slices.ContainsFunc(r, func(u *unstructured.Unstructured) bool { return danm.ReservesAddress(u, ref, a) })
}

// share tells whether a ReservedIP lets several pods hold an address of a network.
func (r reservedIPs) share(ref danm.NetworkRef, a netip.Addr) bool {
	return slices.ContainsFunc(r, func(u *unstructured.Unstructured) bool { return danm.SharesAddress(u, ref, a) })
}
