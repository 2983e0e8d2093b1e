package netplugin

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
)

func readResult(t *testing.T, name string) *current.Result {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	result, err := current.NewResult(data)
	if err != nil {
		t.Fatal(err)
	}
	return result.(*current.Result)
}

func TestMergeResults(t *testing.T) {
	configured := types.DNS{Nameservers: []string{"10.96.0.10"}}
	for _, tc := range []struct {
		name, golden string
		results      []string
	}{
		{"two interfaces on one bridge", "merged_one_bridge.json", []string{"result_eth0.json", "result_eth1.json"}},
		{"a single interface", "merged_single.json", []string{"result_eth0.json"}},
		{"layer two first", "merged_layer_two_first.json", []string{"result_layer_two.json", "result_eth1.json"}},
		{"a plugin that knows a name server", "merged_dns.json", []string{"result_eth1.json", "result_dns.json"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var results []*current.Result
			for _, name := range tc.results {
				results = append(results, readResult(t, name))
			}
			merged := mergeResults(results, configured)
			golden(t, tc.golden, merged)
			golden(t, "v040_"+tc.golden, versioned(t, merged, "0.4.0"))
		})
	}
}

func versioned(t *testing.T, r *current.Result, version string) types.Result {
	t.Helper()
	out, err := r.GetAsVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCheckAddressesWantsExactlyWhatWasReserved(t *testing.T) {
	eth0 := readResult(t, "result_eth0.json")
	for _, tc := range []struct {
		name string
		want []string
		ok   bool
	}{
		{"the same", []string{"10.10.10.10/24", "2001:db8::10/64"}, true},
		{"one more", []string{"10.10.10.10/24"}, false},
		{"one less", []string{"10.10.10.10/24", "2001:db8::10/64", "2001:db8::11/64"}, false},
		{"another", []string{"10.10.10.11/24", "2001:db8::10/64"}, false},
		{"another prefix length", []string{"10.10.10.10/25", "2001:db8::10/64"}, false},
	} {
		var want []netip.Prefix
		for _, p := range tc.want {
			want = append(want, netip.MustParsePrefix(p))
		}
		err := checkAddresses(eth0, want)
		if (err == nil) != tc.ok || err != nil && !strings.Contains(err.Error(), "10.10.10.10/24") {
			t.Errorf("%s: error %v", tc.name, err)
		}
	}
}
