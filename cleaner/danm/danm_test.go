package danm

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// parse reads an object as a client would: from JSON, so that numbers have the
// types that the API machinery gives them.
func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestParseAddress(t *testing.T) {
	addr := netip.MustParseAddr
	tests := []struct {
		name, in string
		want     netip.Addr
		wantOK   bool
		wantErr  string
	}{
		{name: "empty is no address", in: ""},
		{name: "none is no address", in: "none"},
		{name: "IPv4 with the network's length", in: "10.10.10.15/24", want: addr("10.10.10.15"), wantOK: true},
		{name: "IPv4 without length", in: "10.10.10.15", want: addr("10.10.10.15"), wantOK: true},
		{name: "IPv6 with the network's length", in: "2001:db8::15/64", want: addr("2001:db8::15"), wantOK: true},
		{name: "a zone is not part of an allocation", in: "fe80::1%eth0", want: addr("fe80::1"), wantOK: true},
		{name: "mapped IPv4 is IPv4", in: "::ffff:10.0.0.1", want: addr("10.0.0.1"), wantOK: true},
		{name: "dynamic was never resolved", in: "dynamic", wantErr: `"dynamic" is not an IP address`},
		{name: "length alone", in: "/24", wantErr: `"/24" is not an IP address`},
		{name: "None in another case is not none", in: "None", wantErr: `"None" is not an IP address`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok, err := ParseAddress(tt.in)
			if got != tt.want || ok != tt.wantOK {
				t.Errorf("got %v %v, want %v %v", got, ok, tt.want, tt.wantOK)
			}
			if message(err) != tt.wantErr {
				t.Errorf("error %q, want %q", message(err), tt.wantErr)
			}
		})
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestEndpointAddressesNameTheField(t *testing.T) {
	ep := &Endpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "e"}}
	ep.Spec.Interface = EndpointInterface{Address: "10.0.0.1/24", AddressIPv6: "2001:db8::1/64"}
	got, err := ep.Addresses()
	want := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::1")}
	if err != nil || !cmp.Equal(got, want, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	ep.Spec.Interface.AddressIPv6 = "2001:db8::x"
	_, err = ep.Addresses()
	if want := `DanmEp ns/e: spec.Interface.AddressIPv6: "2001:db8::x" is not an IP address`; message(err) != want {
		t.Errorf("error %q, want %q", message(err), want)
	}
}

func TestEndpointNamesItsNetwork(t *testing.T) {
	tests := []struct {
		name, apiType, want string
	}{
		{"no type means DanmNet", "", "DanmNet ns/n"},
		{"DanmNet", "DanmNet", "DanmNet ns/n"},
		{"TenantNetwork", "TenantNetwork", "TenantNetwork ns/n"},
		{"ClusterNetwork has no namespace", "ClusterNetwork", "ClusterNetwork n"},
		{"an unknown type means DanmNet, as DANM reads it", "Other", "DanmNet ns/n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ep := &Endpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}
			ep.Spec.NetworkName, ep.Spec.APIType = "n", tt.apiType
			if got := ep.Network().String(); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestNetworkStatesItsPools(t *testing.T) {
	const dual = `{"apiVersion":"danm.io/v1","kind":"ClusterNetwork","metadata":{"name":"n"},"spec":{"NetworkID":"n","Options":{
		"cidr":"10.0.0.0/24","alloc":"A4","allocation_pool":{"start":"10.0.0.2","end":"10.0.0.9"},"routes":{"b":"10.0.0.254","a":"10.0.0.1"},
		"net6":"2001:db8::/64","alloc6":"A6","allocation_pool_v6":{"start":"2001:db8::2","cidr":"2001:db8::/120"},"routes6":{"a":"2001:db8::1"}}}}`
	n, err := ToNetwork(parse(t, dual))
	if err != nil {
		t.Fatal(err)
	}
	want := []PoolSpec{
		{IPv4, PoolFields{Object: "ClusterNetwork n", CIDR: "10.0.0.0/24", Alloc: "A4", Start: "10.0.0.2", End: "10.0.0.9", Gateways: []string{"10.0.0.1", "10.0.0.254"}}},
		{IPv6, PoolFields{Object: "ClusterNetwork n", IPv6: true, CIDR: "2001:db8::/120", Alloc: "A6", Start: "2001:db8::2", Gateways: []string{"2001:db8::1"}}},
	}
	if diff := cmp.Diff(want, n.Pools()); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
}

func TestALayer2NetworkHasNoPool(t *testing.T) {
	n, err := ToNetwork(parse(t, `{"apiVersion":"danm.io/v1","kind":"DanmNet","metadata":{"name":"n","namespace":"a"},"spec":{"NetworkID":"n","Options":{"vlan":5,"net6":"2001:db8::/64"}}}`))
	if err != nil || n.Pools() != nil {
		t.Errorf("got %v, %v; want no pool", n.Pools(), err)
	}
}

// TestABitmapWithoutPrefixIsNotOverlooked: the pool must come out, so that
// opening it fails and names the missing field.
func TestABitmapWithoutPrefixIsNotOverlooked(t *testing.T) {
	n, err := ToNetwork(parse(t, `{"apiVersion":"danm.io/v1","kind":"DanmNet","metadata":{"name":"n","namespace":"a"},"spec":{"Options":{"alloc":"gA==","alloc6":"gA=="}}}`))
	if err != nil || len(n.Pools()) != 2 {
		t.Errorf("got %v, %v; want two pools", n.Pools(), err)
	}
}

func TestAWrongTypeIsNamedByObjectAndField(t *testing.T) {
	network := func(u *unstructured.Unstructured) error { _, err := ToNetwork(u); return err }
	endpoint := func(u *unstructured.Unstructured) error { _, err := ToEndpoint(u); return err }
	tests := []struct {
		name, object, want string
		convert            func(*unstructured.Unstructured) error
	}{
		{"a number for alloc", `{"kind":"DanmNet","metadata":{"name":"n","namespace":"a"},"spec":{"Options":{"alloc":7}}}`,
			"DanmNet a/n: spec.Options.alloc: number where string is expected", network},
		{"a text for Options", `{"kind":"ClusterNetwork","metadata":{"name":"n"},"spec":{"Options":"x"}}`,
			"ClusterNetwork n: spec.Options: string where danm.NetworkOptions is expected", network},
		{"an object as gateway", `{"kind":"TenantNetwork","metadata":{"name":"n","namespace":"a"},"spec":{"Options":{"routes":{"x":{}}}}}`,
			"TenantNetwork a/n: spec.Options.routes: object where string is expected", network},
		{"a list for an address", `{"kind":"DanmEp","metadata":{"name":"e","namespace":"a"},"spec":{"Interface":{"Address":[]}}}`,
			"DanmEp a/e: spec.Interface.Address: array where string is expected", endpoint},
		{"a number for the owner", `{"kind":"DanmEp","metadata":{"name":"e","namespace":"a"},"spec":{"PodUID":1}}`,
			"DanmEp a/e: spec.PodUID: number where types.UID is expected", endpoint},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := message(tt.convert(parse(t, tt.object))); got != tt.want {
				t.Errorf("error %q, want %q", got, tt.want)
			}
		})
	}
}

func TestUnknownFieldsAreNoError(t *testing.T) {
	_, err := ToNetwork(parse(t, `{"kind":"DanmNet","metadata":{"name":"n","namespace":"a"},"spec":{"Options":{"mtu":9000,"alloc":"gA=="},"later":[1]},"status":{}}`))
	if err != nil {
		t.Error(err)
	}
}

func TestAnEndpointSurvivesTheWire(t *testing.T) {
	ep := &Endpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "e"}}
	ep.Spec = EndpointSpec{NetworkName: "n", NetworkType: "ipvlan", EndpointID: "e", Pod: "p", PodUID: "u", CID: "c", APIType: "TenantNetwork",
		Interface: EndpointInterface{Name: "eth0", Address: "10.0.0.1/24", Proutes: map[string]string{"10.1.0.0/16": "10.0.0.254"}}}
	for _, g := range Groups() {
		u, err := ep.ToUnstructured(g)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := u.GetAPIVersion(), string(g)+"/v1"; got != want {
			t.Errorf("apiVersion %s, want %s", got, want)
		}
		data, err := json.Marshal(u)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ToEndpoint(parse(t, string(data)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(ep.Spec, back.Spec); diff != "" {
			t.Errorf("%s (-sent +received):\n%s", g, diff)
		}
	}
}

func TestParseGroup(t *testing.T) {
	for _, g := range Groups() {
		if got, err := ParseGroup(string(g)); got != g || err != nil {
			t.Errorf("%s: got %s, %v", g, got, err)
		}
		if g.Other() == g || g.Other().Other() != g {
			t.Errorf("%s: the other is %s, whose other is %s", g, g.Other(), g.Other().Other())
		}
	}
	_, err := ParseGroup("danm.org")
	if want := `unknown DANM API group "danm.org": use danm.io or danm.k8s.io`; message(err) != want {
		t.Errorf("error %q, want %q", message(err), want)
	}
}

func TestNetworkKindsAndResourcesPairUp(t *testing.T) {
	for _, k := range NetworkKinds() {
		if back, ok := NetworkKindOf(k.Resource()); !ok || back != k {
			t.Errorf("%s: resource %s is kind %s (%v)", k, k.Resource(), back, ok)
		}
	}
	if k, ok := NetworkKindOf(EndpointResource); ok {
		t.Errorf("%s is the network kind %s", EndpointResource, k)
	}
}

func TestMetadataBeyondTheCommonIsConvertedButManagedFieldsAreLeftOut(t *testing.T) {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(`{"kind":"DanmEp","metadata":{"name":"x","deletionTimestamp":"2026-11-30T10:00:00Z",` +
		`"finalizers":["f"],"managedFields":[{"manager":"m"}]},"spec":{"Pod":"p"}}`)); err != nil {
		t.Fatal(err)
	}
	ep, err := ToEndpoint(u)
	if err != nil {
		t.Fatal(err)
	}
	if ep.DeletionTimestamp == nil || len(ep.Finalizers) != 1 || ep.ManagedFields != nil || ep.Spec.Pod != "p" {
		t.Errorf("got %+v", ep)
	}
}
