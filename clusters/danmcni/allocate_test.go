package danmcni

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

func networkWith(o danm.NetworkOptions) *danm.Network {
	return &danm.Network{
		TypeMeta:   metav1.TypeMeta{Kind: string(danm.DanmNet)},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "net"},
		Spec:       danm.NetworkSpec{Options: o},
	}
}

func staticAddress(s string) danm.AddressRequest {
	return danm.AddressRequest{Kind: danm.Static, Addr: netip.MustParseAddr(s)}
}

func TestAllocate(t *testing.T) {
	dynamic := danm.AddressRequest{Kind: danm.Dynamic}
	pool := func(start, end string) danm.IPPool { return danm.IPPool{Start: start, End: end, LastIP: "10.0.0.6/29"} }
	v4 := func(p danm.IPPool, addrs ...string) danm.NetworkOptions {
		return danm.NetworkOptions{CIDR: "10.0.0.0/29", Alloc: bitmap(t, "10.0.0.0/29", addrs...), Pool: p}
	}
	v6 := danm.NetworkOptions{
		Net6: "2001:db8::/64", Alloc6: bitmap(t, "2001:db8::100/120"), PoolV6: danm.IPPoolV6{CIDR: "2001:db8::100/120"},
	}
	withGateway := v4(pool("10.0.0.1", "10.0.0.6"))
	withGateway.Routes = map[string]string{"0.0.0.0/0": "10.0.0.1"}
	for _, tc := range []struct {
		name    string
		options danm.NetworkOptions
		request danm.InterfaceRequest
		want    string // addresses with prefix length; "!" marks one without bit; or an error
	}{
		{"first fit from the start of the pool, whatever lastIp says", v4(pool("10.0.0.2", "10.0.0.5"), "10.0.0.2"), danm.InterfaceRequest{IPv4: dynamic}, "10.0.0.3/29"},
		{"the whole network where no pool is stated", v4(danm.IPPool{}), danm.InterfaceRequest{IPv4: dynamic}, "10.0.0.1/29"},
		{"never a gateway, even if its bit is clear", withGateway, danm.InterfaceRequest{IPv4: dynamic}, "10.0.0.2/29"},
		{"a full pool", v4(pool("10.0.0.2", "10.0.0.3"), "10.0.0.2", "10.0.0.3"), danm.InterfaceRequest{IPv4: dynamic}, "all addresses are reserved"},
		{"a static address outside the pool", v4(pool("10.0.0.2", "10.0.0.3")), danm.InterfaceRequest{IPv4: staticAddress("10.0.0.6")}, "10.0.0.6/29"},
		{"a static address that is taken", v4(pool("", ""), "10.0.0.6"), danm.InterfaceRequest{IPv4: staticAddress("10.0.0.6")}, "already in use"},
		{"a static address of another network", v4(pool("", "")), danm.InterfaceRequest{IPv4: staticAddress("10.0.1.6")}, "is not in 10.0.0.0/29"},
		{"a dynamic IPv6 address with the prefix of net6", v6, danm.InterfaceRequest{IPv6: dynamic}, "2001:db8::101/64"},
		{"a static IPv6 address outside the pool has no bit", v6, danm.InterfaceRequest{IPv6: staticAddress("2001:db8::5")}, "2001:db8::5/64!"},
		{"a static IPv6 address outside net6", v6, danm.InterfaceRequest{IPv6: staticAddress("2001:db9::5")}, "is not in 2001:db8::/64"},
		{"none and nothing need no pool", danm.NetworkOptions{}, danm.InterfaceRequest{IPv4: danm.AddressRequest{Kind: danm.LayerTwo}}, ""},
		{"dynamic from an L2 network", danm.NetworkOptions{}, danm.InterfaceRequest{IPv4: dynamic}, "no IPv4 pool"},
		{"a malformed bitmap", danm.NetworkOptions{CIDR: "10.0.0.0/29", Alloc: "%"}, danm.InterfaceRequest{IPv4: dynamic}, "DanmNet ns/net: spec.Options.alloc"},
		{"a bitmap shorter than its network", danm.NetworkOptions{CIDR: "10.0.0.0/24", Alloc: "gA=="}, danm.InterfaceRequest{IPv4: dynamic}, "8 bits"},
		{"a malformed IPv6 bitmap does not matter to IPv4", func() danm.NetworkOptions {
			o := v4(pool("", ""))
			o.Alloc6 = "%"
			return o
		}(), danm.InterfaceRequest{IPv4: dynamic}, "10.0.0.1/29"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			grants, err := allocate(networkWith(tc.options), tc.request)
			var texts []string
			for _, g := range grants {
				text := g.prefix.String()
				if !g.hasBit {
					text += "!"
				}
				texts = append(texts, text)
			}
			got := strings.Join(texts, " ")
			if err != nil {
				if tc.want == "" || !strings.Contains(err.Error(), tc.want) {
					t.Fatalf("error %q, want %q", err, tc.want)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("grants (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReleaseUndoesAllocateAndNothingElse(t *testing.T) {
	taken := bitmap(t, "10.0.0.0/29", "10.0.0.3")
	n := networkWith(danm.NetworkOptions{
		CIDR: "10.0.0.0/29", Alloc: taken, Routes: map[string]string{"0.0.0.0/0": "10.0.0.3"},
	})
	for _, tc := range []struct{ name, addr string }{
		{"a bit that is not set", "10.0.0.2"},
		{"a gateway", "10.0.0.3"},
		{"the first address", "10.0.0.0"},
		{"another network", "10.0.1.3"},
		{"a family without pool", "2001:db8::1"},
	} {
		t.Run(tc.name+" is left alone", func(t *testing.T) {
			if change, ok, err := release(n, netip.MustParseAddr(tc.addr)); ok || err != nil {
				t.Errorf("change %+v, error %v", change, err)
			}
		})
	}
	n.Spec.Options.Routes = nil
	change, ok, err := release(n, netip.MustParseAddr("10.0.0.3"))
	want := danm.AllocChange{Family: danm.IPv4, Old: taken, New: bitmap(t, "10.0.0.0/29")}
	if err != nil || !ok {
		t.Fatalf("released %v, error %v", ok, err)
	}
	if diff := cmp.Diff(want, change); diff != "" {
		t.Errorf("change (-want +got):\n%s", diff)
	}
}

func FuzzAllocate(f *testing.F) {
	f.Add("10.0.0.0/29", "gQ==", "10.0.0.2", "10.0.0.5")
	f.Add("10.0.0.0/9", "", "", "")
	f.Fuzz(func(t *testing.T, cidr, alloc, start, end string) {
		n := networkWith(danm.NetworkOptions{CIDR: cidr, Alloc: alloc, Pool: danm.IPPool{Start: start, End: end}})
		grants, err := allocate(n, danm.InterfaceRequest{IPv4: danm.AddressRequest{Kind: danm.Dynamic}})
		if err != nil {
			return
		}
		// The text of alloc need not be canonical base64, so bits are compared.
		before := reencoded(t, n, alloc)
		n.Spec.Options.Alloc = grants[0].change.New
		change, ok, err := release(n, grants[0].addr)
		if err != nil || !ok || change.New != before {
			t.Errorf("granted %s, released %v, error %v: %q became %q", grants[0].addr, ok, err, before, change.New)
		}
	})
}

// reencoded returns the bitmap in canonical form.
func reencoded(t *testing.T, n *danm.Network, alloc string) string {
	n.Spec.Options.Alloc = alloc
	pool, _, err := openPool(n, danm.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	return pool.Encode()
}
