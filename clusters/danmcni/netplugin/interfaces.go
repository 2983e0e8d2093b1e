package netplugin

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
)

// Gateways that ptp puts on the node's end of a pod's first link; each further
// link of a pod gets the next one. They are link-local, so they never collide
// with an address of a network.
var (
	ptpGateway4 = netip.MustParseAddr("169.254.1.1")
	ptpGateway6 = netip.MustParseAddr("fe80::1")
)

// linuxNameMax is the longest name that the kernel gives an interface.
const linuxNameMax = 15

// staticIPAM is the configuration of the IPAM plugin "static".
type staticIPAM struct {
	Type      string          `json:"type"`
	Addresses []staticAddress `json:"addresses"`
	Routes    []staticRoute   `json:"routes,omitempty"`
}

type staticAddress struct {
	Address netip.Prefix `json:"address"`
	Gateway string       `json:"gateway,omitempty"`
}

type staticRoute struct {
	Target  netip.Prefix `json:"dst"`
	Gateway netip.Addr   `json:"gw"`
}

// planInterfaces returns what has to be executed for the interfaces that DANM
// reserved, in their order.
func planInterfaces(c Config, made []danmcni.Interface) ([]delegation, error) {
	var plan []delegation
	routed := map[netip.Prefix]bool{}
	for i, m := range made {
		routes, err := routesOf(m, routed)
		if err != nil {
			return nil, err
		}
		if err := checkCarried(c.Attach.pluginType(), made[:i+1]); err != nil {
			return nil, fmt.Errorf("interface %s: %w", m.Name, err)
		}
		config, err := interfaceConfig(c, i, m, routes)
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", m.Name, err)
		}
		plan = append(plan, delegation{
			Plugin: c.Attach.pluginType(), IfName: m.Name, Config: config, Endpoint: m.Endpoint, Addresses: m.Prefixes,
		})
	}
	return plan, nil
}

// routesOf returns the routes of an interface's network, sorted. A target that
// an earlier interface of the pod routes already is left to it.
func routesOf(m danmcni.Interface, routed map[netip.Prefix]bool) ([]staticRoute, error) {
	var routes []staticRoute
	for _, text := range slices.Sorted(maps.Keys(m.Routes)) {
		target, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%s: route to %q: not a CIDR", m.Network, text)
		}
		gateway, err := netip.ParseAddr(m.Routes[text])
		if err != nil {
			return nil, fmt.Errorf("%s: route to %s: gateway %q is not an address", m.Network, text, m.Routes[text])
		}
		if routed[target.Masked()] || !reaches(m, gateway) {
			continue
		}
		routed[target.Masked()] = true
		routes = append(routes, staticRoute{Target: target.Masked(), Gateway: gateway})
	}
	return routes, nil
}

// reaches tells whether the gateway is on the link of the interface. The kernel
// refuses any other, and with it the pod: one that asked for IPv4 only does not
// want the routes of IPv6.
func reaches(m danmcni.Interface, gateway netip.Addr) bool {
	return slices.ContainsFunc(m.Prefixes, func(p netip.Prefix) bool { return p.Contains(gateway) })
}

// checkCarried refuses what ptp cannot do for the last of the interfaces, before
// half of them are made.
func checkCarried(pluginType string, made []danmcni.Interface) error {
	if pluginType != ptpType {
		return nil
	}
	m := made[len(made)-1]
	if len(m.Prefixes) == 0 {
		return fmt.Errorf("%s: ptp carries no interface without address: use bridge or macvlan", m.Network)
	}
	for _, earlier := range made[:len(made)-1] {
		if earlier.Network == m.Network {
			return fmt.Errorf("%s: ptp carries one interface of a pod in each network: use bridge or macvlan", m.Network)
		}
	}
	return nil
}

// interfaceConfig fills the template for interface i of a pod. An interface
// without address stays on layer two.
func interfaceConfig(c Config, i int, m danmcni.Interface, routes []staticRoute) (json.RawMessage, error) {
	config := maps.Clone(c.Attach)
	config["cniVersion"], config["name"] = c.CNIVersion, c.Name
	switch c.Attach.pluginType() {
	case bridgeType:
		setDefault(config, "bridge", bridgeName(m.Network))
	case macvlanType:
		setDefault(config, "master", m.HostDevice)
	case ptpType:
		// All the pod can reach goes by the node, which knows no further way
		// into a network that is nowhere else.
		routes = nil
	}
	if len(m.Prefixes) > 0 {
		config["ipam"] = staticIPAM{Type: "static", Addresses: c.addressesOf(i, m), Routes: routes}
	}
	data, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encoding the configuration of %s: %w", c.Attach.pluginType(), err)
	}
	return data, nil
}

func setDefault(t template, key, value string) {
	if _, ok := t[key]; !ok && value != "" {
		t[key] = value
	}
}

func (c Config) addressesOf(i int, m danmcni.Interface) []staticAddress {
	gateway4, gateway6 := ptpGateway4, ptpGateway6
	for range i {
		gateway4, gateway6 = gateway4.Next(), gateway6.Next()
	}
	var addresses []staticAddress
	for _, p := range m.Prefixes {
		a := staticAddress{Address: p}
		switch {
		case c.Attach.pluginType() != ptpType:
		case p.Addr().Is6():
			a.Gateway = gateway6.String()
		default:
			a.Gateway = gateway4.String()
		}
		addresses = append(addresses, a)
	}
	return addresses
}

// bridgeName gives every network a bridge of its own, so that two networks may
// use the same addresses.
func bridgeName(ref danm.NetworkRef) string {
	sum := sha256.Sum256([]byte(ref.String()))
	return ("danm" + hex.EncodeToString(sum[:]))[:linuxNameMax]
}
