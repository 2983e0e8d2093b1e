package danm

import (
	"encoding/json"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// AddressKind says how an interface asks for an address of one family.
type AddressKind int

// NoAddress: the family is not mentioned. LayerTwo: "none", explicitly without
// address. Dynamic: any free address of the pool. Static: the one that is named.
const (
	NoAddress AddressKind = iota
	LayerTwo
	Dynamic
	Static
)

// AddressRequest is what an interface asks for in one family. Addr is set for
// Static only.
type AddressRequest struct {
	Kind AddressKind
	Addr netip.Addr
}

// WantsAddress tells whether an address has to be found.
func (r AddressRequest) WantsAddress() bool { return r.Kind == Dynamic || r.Kind == Static }

// InterfaceRequest is one interface of a pod's annotation.
type InterfaceRequest struct {
	Network NetworkRef
	IPv4    AddressRequest
	IPv6    AddressRequest
}

// annotated is one interface as the annotation spells it. Pointers tell an
// absent key from an empty one. Keys that concern no address are ignored, as
// DANM has several.
type annotated struct {
	Network        *string `json:"network"`
	TenantNetwork  *string `json:"tenantNetwork"`
	ClusterNetwork *string `json:"clusterNetwork"`
	IP             string  `json:"ip"`
	IP6            string  `json:"ip6"`
}

// Requests reads the interfaces that a pod asks for, in the order in which
// they become eth0, eth1 and so on. A pod without the group's annotation asks
// for none; the other group's annotation is not looked at, as a DANM of this
// group does not see it either. Errors name the pod and the interface.
func Requests(g Group, pod *corev1.Pod) ([]InterfaceRequest, error) {
	text, ok := pod.Annotations[g.InterfacesAnnotation()]
	if !ok {
		return nil, nil
	}
	requests, err := parseAnnotation(text, pod.Namespace)
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s: annotation %s: %w", pod.Namespace, pod.Name, g.InterfacesAnnotation(), err)
	}
	return requests, nil
}

// RequestsInEitherSpelling is Requests for nodes whose pods may carry the
// annotation of either group, as during a migration. That of g wins.
func RequestsInEitherSpelling(g Group, pod *corev1.Pod) ([]InterfaceRequest, error) {
	if _, ok := pod.Annotations[g.InterfacesAnnotation()]; ok {
		return Requests(g, pod)
	}
	return Requests(g.Other(), pod)
}

func parseAnnotation(text, namespace string) ([]InterfaceRequest, error) {
	var list []annotated
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("not a JSON list of interfaces: %w", err)
	}
	var requests []InterfaceRequest
	for i, a := range list {
		r, err := a.request(namespace)
		if err != nil {
			return nil, fmt.Errorf("interface %d: %w", i, err)
		}
		requests = append(requests, r)
	}
	return requests, nil
}

func (a annotated) request(namespace string) (InterfaceRequest, error) {
	network, err := a.network(namespace)
	if err != nil {
		return InterfaceRequest{}, err
	}
	ip, err := parseAddressRequest(a.IP, IPv4)
	if err != nil {
		return InterfaceRequest{}, fmt.Errorf("ip: %w", err)
	}
	ip6, err := parseAddressRequest(a.IP6, IPv6)
	if err != nil {
		return InterfaceRequest{}, fmt.Errorf("ip6: %w", err)
	}
	return InterfaceRequest{Network: network, IPv4: ip, IPv6: ip6}, nil
}

func (a annotated) network(namespace string) (NetworkRef, error) {
	var refs []NetworkRef
	for _, key := range []struct {
		kind NetworkKind
		name *string
	}{
		{DanmNet, a.Network}, {TenantNetwork, a.TenantNetwork}, {ClusterNetwork, a.ClusterNetwork},
	} {
		if key.name == nil || *key.name == "" {
			continue
		}
		ref := NetworkRef{Kind: key.kind, Name: *key.name}
		if key.kind.IsNamespaced() {
			ref.Namespace = namespace
		}
		refs = append(refs, ref)
	}
	if len(refs) != 1 {
		return NetworkRef{}, fmt.Errorf("%d networks named: exactly one of network, tenantNetwork and clusterNetwork is needed", len(refs))
	}
	return refs[0], nil
}

// parseAddressRequest reads "", "none", "dynamic", or an address that may
// carry a prefix length. DANM takes the length from the network, so that of
// the annotation is checked and dropped.
func parseAddressRequest(s string, family Family) (AddressRequest, error) {
	switch s {
	case "":
		return AddressRequest{Kind: NoAddress}, nil
	case "none":
		return AddressRequest{Kind: LayerTwo}, nil
	case "dynamic":
		return AddressRequest{Kind: Dynamic}, nil
	}
	addr, err := netip.ParseAddr(s)
	if err != nil {
		var prefix netip.Prefix
		if prefix, err = netip.ParsePrefix(s); err != nil {
			return AddressRequest{}, fmt.Errorf("%q is not none, dynamic or an address", s)
		}
		addr = prefix.Addr()
	}
	if addr.Zone() != "" || addr.Is4In6() || FamilyOf(addr) != family {
		return AddressRequest{}, fmt.Errorf("%q is not an IPv%d address", s, family)
	}
	return AddressRequest{Kind: Static, Addr: addr}, nil
}
