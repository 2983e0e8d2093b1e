package danm

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func podOf(annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-0", Annotations: annotations}}
}

var compareIP = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func TestRequestsReadsWhatDanmReads(t *testing.T) {
	dnet := NetworkRef{Kind: DanmNet, Namespace: "ns", Name: "n"}
	dynamic := AddressRequest{Kind: Dynamic}
	static := func(s string) AddressRequest { return AddressRequest{Kind: Static, Addr: netip.MustParseAddr(s)} }
	for _, tc := range []struct {
		name, annotation string
		want             []InterfaceRequest
	}{
		{"an empty list asks for nothing", `[]`, nil},
		{"a dynamic address", `[{"network":"n","ip":"dynamic"}]`, []InterfaceRequest{{Network: dnet, IPv4: dynamic}}},
		{"no address at all", `[{"network":"n"}]`, []InterfaceRequest{{Network: dnet}}},
		{
			"layer two, explicitly", `[{"network":"n","ip":"none","ip6":"none"}]`,
			[]InterfaceRequest{{Network: dnet, IPv4: AddressRequest{Kind: LayerTwo}, IPv6: AddressRequest{Kind: LayerTwo}}},
		},
		{
			"static addresses with and without prefix length", `[{"network":"n","ip":"10.0.0.5/8","ip6":"2001:db8::5"}]`,
			[]InterfaceRequest{{Network: dnet, IPv4: static("10.0.0.5"), IPv6: static("2001:db8::5")}},
		},
		{
			"one network of each kind, in order",
			`[{"clusterNetwork":"c","ip":"dynamic"},{"tenantNetwork":"t","ip6":"dynamic"},{"network":"n","ip":"dynamic"}]`,
			[]InterfaceRequest{
				{Network: NetworkRef{Kind: ClusterNetwork, Name: "c"}, IPv4: dynamic},
				{Network: NetworkRef{Kind: TenantNetwork, Namespace: "ns", Name: "t"}, IPv6: dynamic},
				{Network: dnet, IPv4: dynamic},
			},
		},
		{
			"keys that concern no address are ignored", `[{"network":"n","ip":"dynamic","proutes":{"10.0.0.0/8":"10.0.0.1"}}]`,
			[]InterfaceRequest{{Network: dnet, IPv4: dynamic}},
		},
	} {
		for _, g := range Groups() {
			t.Run(tc.name+" in "+string(g), func(t *testing.T) {
				got, err := Requests(g, podOf(map[string]string{g.InterfacesAnnotation(): tc.annotation}))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, got, compareIP); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestRequestsIgnoresTheOtherGroup(t *testing.T) {
	for _, g := range Groups() {
		pod := podOf(map[string]string{g.Other().InterfacesAnnotation(): `[{"network":"n","ip":"dynamic"}]`})
		if got, err := Requests(g, pod); err != nil || len(got) != 0 {
			t.Errorf("%s: %v, error %v", g, got, err)
		}
	}
}

func TestRequestsInEitherSpellingPrefersItsOwnGroup(t *testing.T) {
	const own, other = `[{"network":"own"}]`, `[{"network":"other"}]`
	for _, tc := range []struct {
		name        string
		annotations map[string]string
		want        string
	}{
		{"own spelling", map[string]string{"danm.io/interfaces": own}, "own"},
		{"the other spelling", map[string]string{"danm.k8s.io/interfaces": other}, "other"},
		{"both", map[string]string{"danm.io/interfaces": own, "danm.k8s.io/interfaces": other}, "own"},
		{"neither", nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			requests, err := RequestsInEitherSpelling(GroupDanmIO, podOf(tc.annotations))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, r := range requests {
				got += r.Network.Name
			}
			if got != tc.want {
				t.Errorf("network %q, want %q", got, tc.want)
			}
		})
	}
}

func TestRequestsNamesPodAnnotationAndInterfaceInErrors(t *testing.T) {
	for _, tc := range []struct{ name, annotation, want string }{
		{"not JSON", `network=n`, "not a JSON list"},
		{"not a list", `{"network":"n"}`, "not a JSON list"},
		{"no network", `[{"ip":"dynamic"}]`, "interface 0: 0 networks named"},
		{"two networks", `[{"network":"n","clusterNetwork":"c"}]`, "interface 0: 2 networks named"},
		{"an address that is none", `[{"network":"n"},{"network":"n","ip":"10.0.0.256"}]`, `interface 1: ip: "10.0.0.256" is not`},
		{"an address of the other family", `[{"network":"n","ip6":"10.0.0.1"}]`, `ip6: "10.0.0.1" is not an IPv6 address`},
		{"an address with a zone", `[{"network":"n","ip6":"fe80::1%eth0"}]`, "is not an IPv6 address"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Requests(GroupDanmIO, podOf(map[string]string{"danm.io/interfaces": tc.annotation}))
			if err == nil {
				t.Fatal("accepted")
			}
			for _, part := range []string{"pod ns/web-0", "danm.io/interfaces", tc.want} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q lacks %q", err, part)
				}
			}
		})
	}
}

func FuzzAnnotation(f *testing.F) {
	f.Add(`[{"network":"net","ip":"dynamic","ip6":"dynamic"}]`)
	f.Add(`[{"tenantNetwork":"t","ip":"10.0.0.1/24","ip6":"none"}]`)
	f.Add(`[null]`)
	f.Fuzz(func(t *testing.T, text string) {
		requests, err := parseAnnotation(text, "ns")
		if err != nil {
			return
		}
		for _, r := range requests {
			if r.Network.Name == "" || r.Network.Kind.IsNamespaced() != (r.Network.Namespace == "ns") {
				t.Errorf("%q gives network %+v", text, r.Network)
			}
			if (r.IPv4.Kind == Static) != r.IPv4.Addr.Is4() || (r.IPv6.Kind == Static) != r.IPv6.Addr.Is6() {
				t.Errorf("%q gives addresses %+v, %+v", text, r.IPv4, r.IPv6)
			}
		}
	})
}
