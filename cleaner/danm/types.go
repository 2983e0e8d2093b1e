package danm

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Group is the API group that serves DANM's objects. A cluster runs one of
// them; both at once means that a migration is under way.
type Group string

// The two groups that DANM has used: danm.k8s.io up to release 4.3, danm.io
// after it.
const (
	GroupDanmIO    Group = "danm.io"
	GroupDanmK8sIO Group = "danm.k8s.io"
)

// Version is the only API version that either group serves.
const Version = "v1"

// Groups lists every known group, newest first.
func Groups() []Group { return []Group{GroupDanmIO, GroupDanmK8sIO} }

// ParseGroup returns the group named s, or an error that lists the known ones.
func ParseGroup(s string) (Group, error) {
	for _, g := range Groups() {
		if s == string(g) {
			return g, nil
		}
	}
	return "", fmt.Errorf("unknown DANM API group %q: use %s or %s", s, GroupDanmIO, GroupDanmK8sIO)
}

// Other returns the group that is not g.
func (g Group) Other() Group {
	if g == GroupDanmIO {
		return GroupDanmK8sIO
	}
	return GroupDanmIO
}

// InterfacesAnnotation is the pod annotation that asks for DANM interfaces.
func (g Group) InterfacesAnnotation() string { return string(g) + "/interfaces" }

// Resource returns the resource of that plural name in the group.
func (g Group) Resource(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: string(g), Version: Version, Resource: plural}
}

// GroupVersion returns "group/v1", as objects carry it in apiVersion.
func (g Group) GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: string(g), Version: Version}
}

// Plural names of the resources, as in URLs.
const (
	EndpointResource       = "danmeps"
	DanmNetResource        = "danmnets"
	TenantNetworkResource  = "tenantnetworks"
	ClusterNetworkResource = "clusternetworks"
	ReservedIPResource     = "reservedips"
)

// EndpointKind is the kind of an endpoint object.
const EndpointKind = "DanmEp"

// NetworkKind says which of DANM's three network types an object is.
type NetworkKind string

// The three kinds of network. DanmNet and TenantNetwork live in a namespace,
// ClusterNetwork does not.
const (
	DanmNet        NetworkKind = "DanmNet"
	TenantNetwork  NetworkKind = "TenantNetwork"
	ClusterNetwork NetworkKind = "ClusterNetwork"
)

// NetworkKinds lists the kinds in a fixed order.
func NetworkKinds() []NetworkKind { return []NetworkKind{DanmNet, TenantNetwork, ClusterNetwork} }

// Resource returns the plural name of the kind's resource.
func (k NetworkKind) Resource() string {
	switch k {
	case TenantNetwork:
		return TenantNetworkResource
	case ClusterNetwork:
		return ClusterNetworkResource
	default:
		return DanmNetResource
	}
}

// IsNamespaced tells whether objects of the kind live in a namespace.
func (k NetworkKind) IsNamespaced() bool { return k != ClusterNetwork }

// NetworkKindOf returns the kind whose plural resource name is given.
func NetworkKindOf(resource string) (NetworkKind, bool) {
	for _, k := range NetworkKinds() {
		if k.Resource() == resource {
			return k, true
		}
	}
	return "", false
}

// NetworkRef names one network object.
type NetworkRef struct {
	Kind      NetworkKind `json:"kind"`
	Namespace string      `json:"namespace,omitempty"` // empty for ClusterNetwork
	Name      string      `json:"name"`
}

// String returns "DanmNet namespace/name" or "ClusterNetwork name".
func (r NetworkRef) String() string {
	if r.Namespace == "" {
		return string(r.Kind) + " " + r.Name
	}
	return string(r.Kind) + " " + r.Namespace + "/" + r.Name
}

// Endpoint is a DanmEp: one interface of one pod.
type Endpoint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              EndpointSpec `json:"spec"`
}

// EndpointSpec has DANM's own field names, capitals included.
type EndpointSpec struct {
	NetworkName string            `json:"NetworkName"`
	NetworkType string            `json:"NetworkType"`
	EndpointID  string            `json:"EndpointID"`
	Interface   EndpointInterface `json:"Interface"`
	Host        string            `json:"Host,omitempty"` // os.Hostname of the node, which may differ from the node's name
	Pod         string            `json:"Pod"`
	PodUID      types.UID         `json:"PodUID,omitempty"` // empty in endpoints written before DANM 4.2
	CID         string            `json:"CID,omitempty"`    // container ID of the pod's sandbox
	Netns       string            `json:"netns,omitempty"`
	APIType     string            `json:"apiType,omitempty"` // a NetworkKind; empty means DanmNet
}

// EndpointInterface describes the interface inside the pod. Address and
// AddressIPv6 are "", "none", or an address with the network's prefix length.
type EndpointInterface struct {
	Name        string            `json:"Name"`
	Address     string            `json:"Address"`
	AddressIPv6 string            `json:"AddressIPv6"`
	MacAddress  string            `json:"MacAddress,omitempty"`
	Proutes     map[string]string `json:"proutes,omitempty"`
	Proutes6    map[string]string `json:"proutes6,omitempty"`
	DeviceID    string            `json:"DeviceID,omitempty"`
}

// Network returns the network that the endpoint belongs to. The kind follows
// DANM's rule: an empty apiType means DanmNet.
func (e *Endpoint) Network() NetworkRef {
	switch NetworkKind(e.Spec.APIType) {
	case ClusterNetwork:
		return NetworkRef{Kind: ClusterNetwork, Name: e.Spec.NetworkName}
	case TenantNetwork:
		return NetworkRef{Kind: TenantNetwork, Namespace: e.Namespace, Name: e.Spec.NetworkName}
	default:
		return NetworkRef{Kind: DanmNet, Namespace: e.Namespace, Name: e.Spec.NetworkName}
	}
}

// Addresses returns the IPv4 and IPv6 addresses that the endpoint holds, in
// that order. An interface without an address of a family ("" or "none") has
// none. The error names the endpoint and the field.
func (e *Endpoint) Addresses() ([]netip.Addr, error) {
	var addrs []netip.Addr
	for _, f := range []struct{ name, value string }{
		{"spec.Interface.Address", e.Spec.Interface.Address},
		{"spec.Interface.AddressIPv6", e.Spec.Interface.AddressIPv6},
	} {
		addr, ok, err := ParseAddress(f.value)
		if err != nil {
			return nil, fmt.Errorf("DanmEp %s/%s: %s: %w", e.Namespace, e.Name, f.name, err)
		}
		if ok {
			addrs = append(addrs, addr)
		}
	}
	return addrs, nil
}

// ParseAddress reads an interface address as DANM writes it: "" and "none"
// are no address, else an address that may carry a prefix length.
func ParseAddress(s string) (addr netip.Addr, ok bool, err error) {
	if s == "" || s == "none" {
		return netip.Addr{}, false, nil
	}
	host, _, _ := strings.Cut(s, "/")
	addr, err = netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}, false, fmt.Errorf("%q is not an IP address", s)
	}
	return addr.Unmap().WithZone(""), true, nil
}

// Network is a DanmNet, TenantNetwork or ClusterNetwork. Only the fields that
// matter here are read; nothing is ever written back from here.
type Network struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              NetworkSpec `json:"spec"`
}

// NetworkSpec is the part of a network's spec that concerns addresses.
type NetworkSpec struct {
	NetworkID   string         `json:"NetworkID"`
	NetworkType string         `json:"NetworkType,omitempty"`
	Options     NetworkOptions `json:"Options,omitempty"`
}

// NetworkOptions holds prefixes, bitmaps, pools and gateways.
type NetworkOptions struct {
	CIDR    string            `json:"cidr,omitempty"`
	Alloc   string            `json:"alloc,omitempty"`
	Pool    IPPool            `json:"allocation_pool,omitempty"`
	Net6    string            `json:"net6,omitempty"`
	Alloc6  string            `json:"alloc6,omitempty"`
	PoolV6  IPPoolV6          `json:"allocation_pool_v6,omitempty"`
	Routes  map[string]string `json:"routes,omitempty"`
	Routes6 map[string]string `json:"routes6,omitempty"`
	HostDev string            `json:"host_device,omitempty"` // parent device of an ipvlan or macvlan
}

// IPPool bounds dynamic IPv4 allocation; LastIP is DANM's own note.
type IPPool struct {
	Start  string `json:"start,omitempty"`
	End    string `json:"end,omitempty"`
	LastIP string `json:"lastIp,omitempty"`
}

// IPPoolV6 bounds dynamic IPv6 allocation. CIDR is the prefix that alloc6
// covers, which is not net6.
type IPPoolV6 struct {
	Start  string `json:"start,omitempty"`
	End    string `json:"end,omitempty"`
	CIDR   string `json:"cidr,omitempty"`
	LastIP string `json:"lastIp,omitempty"`
}

// Ref returns the name of the network. The kind is taken from TypeMeta.
func (n *Network) Ref() NetworkRef {
	return NetworkRef{Kind: NetworkKind(n.Kind), Namespace: n.Namespace, Name: n.Name}
}

// Family is 4 or 6.
type Family int

// The two address families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// FamilyOf returns the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() || a.Is4In6() {
		return IPv4
	}
	return IPv6
}

// Field returns the JSON field of spec.Options that holds the family's bitmap.
func (f Family) Field() string {
	if f == IPv6 {
		return "alloc6"
	}
	return "alloc"
}

// PoolSpec is one family of a network as the object states it, unparsed. Its
// Fields convert to ipam.Spec.
type PoolSpec struct {
	Family Family
	Fields PoolFields
}

// PoolFields is what package ipam needs to open a pool.
type PoolFields struct {
	Object     string // the network, for errors
	IPv6       bool
	CIDR       string   // prefix whose first address is bit 0
	Alloc      string   // base64 bitmap
	Start, End string   // dynamic pool, may be empty
	Gateways   []string // next hops of the routes, sorted
}

// Pools returns the families for which the network keeps a bitmap, IPv4 first.
// A network without bitmaps (L2, or foreign IPAM) has none.
func (n *Network) Pools() []PoolSpec {
	o, object := n.Spec.Options, n.Ref().String()
	var pools []PoolSpec
	if o.CIDR != "" || o.Alloc != "" {
		pools = append(pools, PoolSpec{IPv4, PoolFields{
			Object: object, CIDR: o.CIDR, Alloc: o.Alloc,
			Start: o.Pool.Start, End: o.Pool.End, Gateways: sortedValues(o.Routes),
		}})
	}
	if o.PoolV6.CIDR != "" || o.Alloc6 != "" {
		pools = append(pools, PoolSpec{IPv6, PoolFields{
			Object: object, IPv6: true, CIDR: o.PoolV6.CIDR, Alloc: o.Alloc6,
			Start: o.PoolV6.Start, End: o.PoolV6.End, Gateways: sortedValues(o.Routes6),
		}})
	}
	return pools
}

func sortedValues(m map[string]string) []string { return slices.Sorted(maps.Values(m)) }
