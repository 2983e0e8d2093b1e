package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

var update = flag.Bool("update", false, "write the golden files")

func mustAddr(s string) netip.Addr { return netip.MustParseAddr(s) }

func checkGolden(t *testing.T, name string, write func(io.Writer) error) {
	t.Helper()
	var got bytes.Buffer
	if err := write(&got); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("%s (-want +got), -update writes it anew:\n%s", name, diff)
	}
}

// mixed is a world with something of nearly everything.
func mixed(t *testing.T) World {
	return build(net4(ip10, ip11, ip15, "10.10.10.200"), network("flannel", danm.NetworkOptions{}), node(false),
		pod("ss-0", "ss-0-1"), ep("a", "ss-0", ip10+"/24", ""),
		ep("b", "ss-1", ip11+"/24", ""), pod("ss-1", "ss-1-2"),
		ep("c", "ss-0", "10.10.10.12/24", ""),
		ep("d", "job", "10.10.10.13/24", ""), pod("job", "job-1"), completed(3600e9),
		ep("e", "ss-0", "192.168.7.7", ""), lastEndpoint(func(e *danm.Endpoint) { e.Spec.NetworkName = "flannel" }))
}

func TestTextOfReports(t *testing.T) {
	checkGolden(t, "consistent.txt", Examine(build(net4(ip10), pod("p", "p-1"), ep("a", "p", ip10, "")), policy).Text)
	w := mixed(t)
	r := Examine(w, policy)
	r.Allocations = Allocations(w, policy)
	checkGolden(t, "mixed.txt", r.Text)
	checkGolden(t, "mixed.json", func(out io.Writer) error {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	})
	checkGolden(t, "unread.txt", Examine(build(net4(ip10), unread(PodResource)), policy).Text)
}

func TestTextOfExplanations(t *testing.T) {
	w := mixed(t)
	for _, tt := range []struct {
		file string
		f    func() (Explanation, error)
	}{
		{"explain_leaked.txt", func() (Explanation, error) { return ExplainEndpoint(w, policy, "ns", "b") }},
		{"explain_held.txt", func() (Explanation, error) { return ExplainPod(w, policy, "ns", "job") }},
		{"explain_orphan.txt", func() (Explanation, error) { return ExplainAddress(w, policy, mustAddr(ip15)) }},
		{"explain_alive.txt", func() (Explanation, error) { return ExplainAddress(w, policy, mustAddr(ip10)) }},
	} {
		e, err := tt.f()
		if err != nil {
			t.Errorf("%s: %v", tt.file, err)
		}
		checkGolden(t, tt.file, e.Text)
	}
}

func TestNothingToExplainIsAnError(t *testing.T) {
	w := mixed(t)
	_, byName := ExplainEndpoint(w, policy, "ns", "x")
	_, byPod := ExplainPod(w, policy, "other", "ss-0")
	_, byAddress := ExplainAddress(w, policy, mustAddr("172.16.0.1"))
	for _, err := range []error{byName, byPod, byAddress} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound", err)
		}
	}
}

func TestJSONCarriesItsVersionAndEmptyLists(t *testing.T) {
	data, err := json.Marshal(Examine(build(), policy))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"schemaVersion":1`, `"networks":[]`, `"findings":[]`, `"complete":true`, `"consistent":true`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s lacks %s", data, want)
		}
	}
}

// FuzzExamine demands that no world, however malformed, ends the program: a
// report that cannot be made is of no use when something is wrong.
func FuzzExamine(f *testing.F) {
	f.Add(`{"Options":{"cidr":"10.0.0.0/24","alloc":"gA==","allocation_pool":{"start":"x"}}}`, `{"NetworkName":"x","Pod":"x","Interface":{"Address":"10.0.0.1"}}`, `{"network":{"name":"x"},"ips":[{"address":7}]}`)
	f.Add(`{"Options":{"net6":"::/1","alloc6":"!","allocation_pool_v6":{"cidr":"::/0"}}}`, `{"NetworkName":"x","Interface":{"AddressIPv6":"::1/x"}}`, `{"network":{"name":"x"},"ips":null}`)
	f.Add(`{"Options":{"cidr":"10.0.0.0/24","alloc":"gDwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE="}}`, `{"NetworkName":"x","Pod":"x","PodUID":"x","Interface":{"Address":"10.0.0.10/24"}}`, `{"network":{"name":"x"},"ips":[{"address":"10.0.0.10","shareable":"yes"}]}`)
	f.Add(`null`, `[]`, `7`)
	f.Fuzz(func(t *testing.T, network, endpoint, reserved string) {
		w := build(pod("x", "x"), node(false))
		if u, ok := object("DanmNet", network); ok {
			if n, err := danm.ToNetwork(u); err == nil {
				w.Networks = append(w.Networks, n)
			}
		}
		if u, ok := object("DanmEp", endpoint); ok {
			if e, err := danm.ToEndpoint(u); err == nil {
				w.Endpoints = append(w.Endpoints, e, e)
			}
		}
		if u, ok := object("ReservedIP", reserved); ok {
			w.ReservedIPs = append(w.ReservedIPs, u)
		}
		r := Examine(w, strict)
		r.Allocations = Allocations(w, strict)
		ScopeOf(r).Remaining(w, strict)
		e, _ := ExplainAddress(w, strict, mustAddr("10.0.0.10"))
		p, _ := ExplainPod(w, strict, "ns", "x")
		for _, text := range []func(io.Writer) error{r.Text, e.Text, p.Text} {
			if err := text(io.Discard); err != nil {
				t.Error(err)
			}
		}
	})
}

func object(kind, spec string) (*unstructured.Unstructured, bool) {
	u := &unstructured.Unstructured{}
	err := u.UnmarshalJSON([]byte(`{"kind":"` + kind + `","metadata":{"name":"x","namespace":"ns"},"spec":` + spec + `}`))
	return u, err == nil
}
