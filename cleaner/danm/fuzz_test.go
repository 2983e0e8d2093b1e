package danm

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"", "none", "dynamic", "10.0.0.1/24", "2001:db8::1/64", "fe80::1%eth0", "::ffff:10.0.0.1%x/1", "/", "1/2/3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		addr, ok, err := ParseAddress(s)
		if ok && (err != nil || !addr.IsValid() || addr.Zone() != "" || addr.Is4In6()) {
			t.Errorf("%q: %v, %v", s, addr, err)
		}
		if !ok && addr.IsValid() {
			t.Errorf("%q is no address, yet %v", s, addr)
		}
	})
}

// objectSeeds are specs with something wrong in many places.
var objectSeeds = []string{
	`{"NetworkID":"n","Options":{"cidr":"10.0.0.0/24","alloc":"gA==","routes":{"0.0.0.0/0":"10.0.0.1"}}}`,
	`{"NetworkName":"n","PodUID":"u","Interface":{"Address":"10.0.0.1/24","AddressIPv6":"none"}}`,
	`{"Options":{"alloc":1}}`, `{"Options":[]}`, `{"Options":{"routes":{"a":null}}}`, `{"Options":{"vlan":1e99}}`,
	`{"Interface":"x"}`, `{"Interface":{"proutes":{"a":[]}}}`, `null`, `7`, `[]`, `{}`,
}

// fuzzed builds an object around a spec that the fuzzer made.
func fuzzed(kind, spec string) (*unstructured.Unstructured, bool) {
	u := &unstructured.Unstructured{}
	err := u.UnmarshalJSON([]byte(`{"kind":"` + kind + `","metadata":{"name":"x","namespace":"a",` +
		`"uid":"u","resourceVersion":"7","generation":2,"creationTimestamp":"2026-11-30T10:00:00Z","labels":{"l":"m"}},"spec":` + spec + `}`))
	return u, err == nil && u.GetKind() == kind && u.GetName() == "x" && u.GetNamespace() == "a"
}

// checkError demands that an error names the object and something in its spec.
func checkError(t *testing.T, err error, object string) {
	t.Helper()
	if !strings.HasPrefix(err.Error(), object+": spec") {
		t.Errorf("error names neither object nor field: %v", err)
	}
}

// checkConverted demands what apimachinery's converter makes of the object.
func checkConverted(t *testing.T, u *unstructured.Unstructured, got, want any) {
	t.Helper()
	if err := convert(u, want); err != nil {
		t.Fatalf("converted what cannot be: %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("converted otherwise than by reflection:\n%s", diff)
	}
}

func FuzzToNetwork(f *testing.F) {
	for _, s := range objectSeeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		u, ok := fuzzed("DanmNet", spec)
		if !ok {
			return
		}
		n, err := ToNetwork(u)
		if err != nil {
			checkError(t, err, "DanmNet a/x")
			return
		}
		checkConverted(t, u, n, &Network{})
		for _, p := range n.Pools() {
			if p.Fields.Object != "DanmNet a/x" {
				t.Errorf("pool of %q", p.Fields.Object)
			}
		}
	})
}

func FuzzToEndpoint(f *testing.F) {
	for _, s := range objectSeeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		u, ok := fuzzed("DanmEp", spec)
		if !ok {
			return
		}
		ep, err := ToEndpoint(u)
		if err != nil {
			checkError(t, err, "DanmEp a/x")
			return
		}
		checkConverted(t, u, ep, &Endpoint{})
		if _, err := ep.Addresses(); err != nil {
			checkError(t, err, "DanmEp a/x")
		}
		if got := ep.Network(); got.Name != ep.Spec.NetworkName {
			t.Errorf("network %v of %q", got, ep.Spec.NetworkName)
		}
	})
}
