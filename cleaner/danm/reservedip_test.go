package danm

import (
	"net/netip"
	"testing"
)

func TestReservesAddress(t *testing.T) {
	const address = "10.0.0.7"
	tenant := NetworkRef{Kind: TenantNetwork, Namespace: "a", Name: "n"}
	cluster := NetworkRef{Kind: ClusterNetwork, Name: "n"}
	object := func(namespace, spec string) string {
		return `{"kind":"ReservedIP","metadata":{"name":"r","namespace":"` + namespace + `"},"spec":` + spec + `}`
	}
	tests := []struct {
		name, object string
		ref          NetworkRef
		want         bool
	}{
		{"its address", object("a", `{"network":{"name":"n","type":"TenantNetwork"},"ips":[{"address":"10.0.0.8"},{"address":"10.0.0.7"}]}`), tenant, true},
		{"its address with a length", object("a", `{"network":{"name":"n","type":"TenantNetwork"},"ips":[{"address":"10.0.0.7/24"}]}`), tenant, true},
		{"another address", object("a", `{"network":{"name":"n","type":"TenantNetwork"},"ips":[{"address":"10.0.0.8"}]}`), tenant, false},
		{"another network", object("a", `{"network":{"name":"m","type":"TenantNetwork"},"ips":[{"address":"10.0.0.7"}]}`), tenant, false},
		{"another kind of network", object("a", `{"network":{"name":"n","type":"ClusterNetwork"},"ips":[{"address":"10.0.0.7"}]}`), tenant, false},
		{"another namespace", object("b", `{"network":{"name":"n","type":"TenantNetwork"},"ips":[{"address":"10.0.0.7"}]}`), tenant, false},
		{"a cluster network from any namespace", object("b", `{"network":{"name":"n","type":"ClusterNetwork"},"ips":[{"address":"10.0.0.7"}]}`), cluster, true},
		{"no kind stated: may be ours", object("a", `{"network":{"name":"n"},"ips":[{"address":"10.0.0.7"}]}`), tenant, true},
		{"no addresses", object("a", `{"network":{"name":"n"}}`), tenant, false},
		{"an address that is none: may be ours", object("a", `{"network":{"name":"n"},"ips":[{"address":"10.0.0.300"}]}`), tenant, true},
		{"a number as address: may be ours", object("a", `{"network":{"name":"n"},"ips":[{"address":7}]}`), tenant, true},
		{"addresses that are no list: may be ours", object("a", `{"network":{"name":"n"},"ips":"10.0.0.7"}`), tenant, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := ReservesAddress(parse(t, tt.object), tt.ref, netip.MustParseAddr(address)); got != tt.want {
				t.Errorf("reserves: %v, want %v", got, tt.want)
			}
		})
	}
}

func TestSharesAddress(t *testing.T) {
	ref := NetworkRef{Kind: DanmNet, Namespace: "a", Name: "n"}
	for _, tt := range []struct {
		name, ips string
		want      bool
	}{
		{"shareable", `[{"address":"10.0.0.7","shareable":true}]`, true},
		{"for one pod", `[{"address":"10.0.0.7","shareable":false}]`, false},
		{"not stated", `[{"address":"10.0.0.7"}]`, false},
		{"another address is shareable", `[{"address":"10.0.0.7"},{"address":"10.0.0.8","shareable":true}]`, false},
		{"stated as text: may be", `[{"address":"10.0.0.7","shareable":"true"}]`, true},
		{"an address that is none: may be", `[{"address":"10.0.0.300"}]`, true},
		{"not its address", `[{"address":"10.0.0.8","shareable":true}]`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			object := `{"kind":"ReservedIP","metadata":{"name":"r","namespace":"a"},"spec":{"network":{"name":"n","type":"DanmNet"},"ips":` + tt.ips + `}}`
			if got := SharesAddress(parse(t, object), ref, netip.MustParseAddr("10.0.0.7")); got != tt.want {
				t.Errorf("shares: %v, want %v", got, tt.want)
			}
		})
	}
}
