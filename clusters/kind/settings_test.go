package kind

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestClusterConfig(t *testing.T) {
	tests := []struct {
		file string
		give settings
	}{
		{"cluster_tuned.yaml", settings{name: "danm-chaos-x", image: "node:v1", workers: 3, auditFolder: "/tmp/run/audit", attachments: "/tmp/run/attachments"}},
		{"cluster_sandboxed.yaml", settings{name: "danm-chaos-x", image: "node:v1", workers: 1, auditFolder: "/tmp/run/audit", attachments: "/tmp/run/attachments", wrapper: "/tmp/run/bin/oci-wrapper", cgroupV1: true}},
		{"cluster_default_detection.yaml", settings{name: "danm-chaos-x", image: "node:v1", workers: 1, auditFolder: "/tmp/run/audit", attachments: "/tmp/run/attachments", defaultDetection: true}},
	}
	for _, test := range tests {
		t.Run(test.file, func(t *testing.T) {
			config, err := clusterConfig(test.give)
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(config)
			if err != nil {
				t.Fatal(err)
			}
			compareGolden(t, test.file, string(got))
		})
	}
}

func TestNetworkConfig(t *testing.T) {
	n := node{name: "w1", podCIDR: "10.244.2.0/24"}
	for file, variant := range map[string]danmcni.Variant{
		"ordinary.conflist": "",
		"danm.conflist":     danmcni.Danm43,
	} {
		got, err := networkConfig(n, danm.GroupDanmIO, variant)
		if err != nil {
			t.Fatal(err)
		}
		compareGolden(t, file, got+"\n")
	}
}

func TestImpersonatingActsAsTheUser(t *testing.T) {
	admin := clientcmdapi.NewConfig()
	admin.AuthInfos["kind"] = &clientcmdapi.AuthInfo{Token: "secret"}
	text, err := clientcmd.Write(*admin)
	if err != nil {
		t.Fatal(err)
	}
	if text, err = impersonating(text, "system:node:w1"); err != nil {
		t.Fatal(err)
	}
	got, err := clientcmd.Load(text)
	if err != nil {
		t.Fatal(err)
	}
	auth := got.AuthInfos["kind"]
	if auth.Token != "secret" || auth.Impersonate != "system:node:w1" {
		t.Errorf("acts as %q", auth.Impersonate)
	}
}

func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestRoutesReachTheOtherNodesThatHavePower(t *testing.T) {
	all := []node{
		{name: "a", podCIDR: "10.244.0.0/24", address: "172.18.0.2"},
		{name: "b", podCIDR: "10.244.1.0/24", address: "172.18.0.3"},
		{name: "dead", podCIDR: "10.244.2.0/24"},
		{name: "c", podCIDR: "10.244.3.0/24", address: "172.18.0.5"},
	}
	want := "ip route replace 10.244.0.0/24 via 172.18.0.2\nip route replace 10.244.3.0/24 via 172.18.0.5\n"
	if diff := cmp.Diff(want, routesOf("b", all)); diff != "" {
		t.Error(diff)
	}
}

func TestClusterName(t *testing.T) {
	tests := []struct{ name, runID, want string }{
		{"a plain ID is kept", "n7k2", "danm-chaos-n7k2"},
		{"what the engine refuses is replaced, and a sum keeps IDs apart", "A_b.c", "danm-chaos-a-b-c-e0a7cf75"},
		{"a long one is cut", strings.Repeat("x", 63), "danm-chaos-xxxxxxxxxxxxxxxxxxxx-75220b47"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := clusterName(test.runID)
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if host := got + "-control-plane"; len(host) > 63 {
				t.Errorf("%q is too long for a host", host)
			}
		})
	}
	if clusterName("a.b") == clusterName("a_b") {
		t.Error("two runs share a name")
	}
}

func TestGroupsOfRefusesStrangers(t *testing.T) {
	for _, user := range []string{"", "somebody", "system:node:"} {
		if groups, err := groupsOf(user); err == nil {
			t.Errorf("%q is in %v", user, groups)
		}
	}
	for _, user := range []string{"danm-harness", "danm-cleaner", "system:node:w1"} {
		if _, err := groupsOf(user); err != nil {
			t.Errorf("%q: %v", user, err)
		}
	}
}
