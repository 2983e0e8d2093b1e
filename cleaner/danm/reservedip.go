package danm

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ReservesAddress tells whether a ReservedIP object sets the address of the
// network aside. An object that cannot be read for certain reserves: it has
// no network type, or an address that is none.
func ReservesAddress(u *unstructured.Unstructured, ref NetworkRef, a netip.Addr) bool {
	name, _, _ := unstructured.NestedString(u.Object, "spec", "network", "name")
	kind, _, _ := unstructured.NestedString(u.Object, "spec", "network", "type")
	if name != ref.Name || kind != "" && NetworkKind(kind) != ref.Kind {
		return false
	}
	if ref.Kind.IsNamespaced() && u.GetNamespace() != ref.Namespace {
		return false
	}
	return anyReserved(u, func(reserved netip.Addr, ok bool, _ map[string]any) bool { return ok && reserved == a })
}

// SharesAddress tells whether a ReservedIP object lets several pods hold the
// address of the network. An object that cannot be read for certain shares it,
// as it reserves it.
func SharesAddress(u *unstructured.Unstructured, ref NetworkRef, a netip.Addr) bool {
	if !ReservesAddress(u, ref, a) {
		return false
	}
	return anyReserved(u, func(reserved netip.Addr, ok bool, ip map[string]any) bool {
		shareable, _, err := unstructured.NestedBool(ip, "shareable")
		return ok && reserved == a && (shareable || err != nil)
	})
}

// anyReserved tells whether one of the object's addresses is meant. One that
// cannot be read for certain is.
func anyReserved(u *unstructured.Unstructured, isMeant func(addr netip.Addr, ok bool, ip map[string]any) bool) bool {
	ips, _, err := unstructured.NestedSlice(u.Object, "spec", "ips")
	if err != nil {
		return true
	}
	for _, item := range ips {
		ip, _ := item.(map[string]any)
		text, _, err := unstructured.NestedString(ip, "address")
		addr, ok, parseErr := ParseAddress(text)
		if err != nil || parseErr != nil || isMeant(addr, ok, ip) {
			return true
		}
	}
	return false
}
