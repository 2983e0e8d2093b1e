package netplugin

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares a value, as JSON, with a file in testdata.
func golden(t *testing.T, name string, value any) {
	t.Helper()
	got, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("%s (-want +got):\n%s", path, cmp.Diff(string(want), string(got)))
	}
}

func made(name, network string, prefixes ...string) danmcni.Interface {
	m := danmcni.Interface{
		Name: name, Endpoint: "id-of-" + name, HostDevice: "ens4", Routes: map[string]string{},
		Network: danm.NetworkRef{Kind: danm.DanmNet, Namespace: "ns", Name: network},
	}
	for _, p := range prefixes {
		m.Prefixes = append(m.Prefixes, netip.MustParsePrefix(p))
	}
	return m
}

func withRoutes(m danmcni.Interface, routes ...string) danmcni.Interface {
	for _, r := range routes {
		target, via, _ := strings.Cut(r, " via ")
		m.Routes[target] = via
	}
	return m
}

func TestPlanInterfaces(t *testing.T) {
	for _, tc := range []struct {
		name, golden, attach string
		made                 []danmcni.Interface
	}{
		{
			"a bridge for each network, and each route once", "plan_bridge.json", `{"type":"bridge","mtu":1400}`,
			[]danmcni.Interface{
				withRoutes(made("eth0", "a", "10.10.10.10/24", "2001:db8::10/64"), "10.20.0.0/16 via 10.10.10.12", "2001:db8:20::/64 via 2001:db8::12"),
				withRoutes(made("eth1", "a", "10.10.10.11/24"), "10.20.0.0/16 via 10.10.10.12", "2001:db8:20::/64 via 2001:db8::12"),
				made("eth2", "b"),
			},
		},
		{"a bridge that the user names", "plan_named_bridge.json", `{"type":"bridge","bridge":"br0"}`, []danmcni.Interface{made("eth0", "a", "10.10.10.10/24")}},
		{
			"ptp with link-local gateways and without routes", "plan_ptp.json", `{"type":"ptp"}`,
			[]danmcni.Interface{
				withRoutes(made("eth0", "a", "10.10.10.10/24", "2001:db8::10/64"), "10.20.0.0/16 via 10.10.10.12"),
				made("eth1", "b", "10.10.20.10/24", "2001:db8:1::10/64"),
			},
		},
		{"macvlan on the device that the network names", "plan_macvlan.json", `{"type":"macvlan"}`, []danmcni.Interface{made("eth0", "a", "10.10.10.10/24")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := parseConfig([]byte(minimal + `,"attach":` + tc.attach + `}`))
			if err != nil {
				t.Fatal(err)
			}
			plan, err := planInterfaces(c, tc.made)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, tc.golden, plan)
		})
	}
}

func TestPlanInterfacesNamesWhatItCannotCarry(t *testing.T) {
	for _, tc := range []struct {
		name, attach, want string
		made               []danmcni.Interface
	}{
		{"ptp on layer two", `{"type":"ptp"}`, "ptp carries no interface without address", []danmcni.Interface{made("eth0", "a")}},
		{"two of a network by ptp", `{"type":"ptp"}`, "eth1: DanmNet ns/a: ptp carries one", []danmcni.Interface{made("eth0", "a", "10.0.0.1/24"), made("eth1", "a", "10.0.0.2/24")}},
		{"a route to nowhere", `{"type":"bridge"}`, `DanmNet ns/a: route to "x"`, []danmcni.Interface{withRoutes(made("eth0", "a", "10.0.0.1/24"), "x via 10.0.0.2")}},
		{"a route via a name", `{"type":"bridge"}`, `gateway "y" is not`, []danmcni.Interface{withRoutes(made("eth0", "a", "10.0.0.1/24"), "10.1.0.0/16 via y")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := parseConfig([]byte(minimal + `,"attach":` + tc.attach + `}`))
			if err != nil {
				t.Fatal(err)
			}
			_, err = planInterfaces(c, tc.made)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v lacks %q", err, tc.want)
			}
		})
	}
}

func TestNetworksWithTheSameNameElsewhereHaveOtherBridges(t *testing.T) {
	a := bridgeName(danm.NetworkRef{Kind: danm.DanmNet, Namespace: "ns", Name: "net"})
	b := bridgeName(danm.NetworkRef{Kind: danm.DanmNet, Namespace: "ns2", Name: "net"})
	if a == b || len(a) > linuxNameMax || len(b) > linuxNameMax {
		t.Errorf("bridges %q and %q", a, b)
	}
}
