package sim

import (
	"net/http"
	"net/netip"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
)

const (
	reservedIPKind = "ReservedIP"
	reservedIPName = "virtual-ip"
)

// reserveAddress has somebody set the last free address of the network aside: a
// ReservedIP says so, and then its bit is set, so that DANM gives it to nobody.
// The second time the object is changed to another address. What it kept before
// then nobody needs any more.
func (w *world) reserveAddress() bool {
	if w.bits == nil || w.isDraining {
		return false
	}
	field, addr, bits, ok := w.lastFree()
	if !ok {
		return false
	}
	spec := map[string]any{
		"network": map[string]any{"name": networkName, "type": string(w.network.Kind)},
		"ips":     []any{map[string]any{"address": addr.String()}},
	}
	group := w.ownGroup()
	path := pathOf(group, namespaceName, danm.ReservedIPResource)
	if w.reservedIP == nil {
		w.do(userAdmin, http.MethodPost, path, map[string]any{
			"apiVersion": group.GroupVersion().String(), "kind": reservedIPKind,
			"metadata": map[string]any{"namespace": namespaceName, "name": reservedIPName}, "spec": spec,
		})
	} else {
		w.patchObject(path+"/"+reservedIPName, map[string]any{"spec": spec})
		w.reach(setAsideAnew)
	}
	w.mergePatch(map[string]any{"spec": map[string]any{optionsOfSpec: map[string]any{field: bits}}})
	return true
}

// lastFree returns the last address of the first family's pool that is free, with
// the bitmap in which it is set.
func (w *world) lastFree() (field string, addr netip.Addr, bits string, ok bool) {
	for _, spec := range w.bits.Pools() {
		pool, err := ipam.Open(ipam.Spec(spec.Fields))
		if err != nil {
			w.fail(err)
			return "", addr, "", false
		}
		for i := pool.Size() - 1; i >= 0; i-- {
			if _, reserved := pool.Reserved(i); reserved || pool.IsSet(i) || !pool.IsDynamic(i) {
				continue
			}
			pool.Set(i)
			return spec.Family.Field(), pool.Addr(i), pool.Encode(), true
		}
	}
	return "", addr, "", false
}

// isSetAside tells whether the ReservedIP keeps the address.
func (w *world) isSetAside(a netip.Addr) bool {
	return w.reservedIP != nil && danm.ReservesAddress(w.reservedIP, w.network, a)
}
