package main

import (
	"context"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// ordinaryNetwork is what a cluster's own network looks like.
func (n *node) ordinaryNetwork() object {
	return object{"type": "ptp", "ipam": object{
		"type": "host-local", "dataDir": n.file("host-local"), "ranges": [][]object{{{"subnet": "10.244.1.0/24"}}},
		"routes": []object{{"dst": "0.0.0.0/0"}},
	}}
}

func newOrdinaryNode(t *testing.T, version string) *node {
	t.Helper()
	n := newNode(t, settings{version: version})
	n.configure(settings{version: version, delegate: n.ordinaryNetwork()})
	n.network("a", 1)
	return n
}

func TestOtherPodsGetTheOrdinaryNetwork(t *testing.T) {
	for _, version := range []string{"0.4.0", "1.0.0", "1.1.0"} {
		t.Run("CNI "+version, func(t *testing.T) {
			n := newOrdinaryNode(t, version)
			a, b := n.newPod("coredns-0", ""), n.newPod("coredns-1", "[]")
			first, second := addressesOf(a.mustAdd()), addressesOf(b.mustAdd())
			if len(first) != 1 || len(second) != 1 || !strings.HasPrefix(first[0].String(), "10.244.1.") {
				t.Fatalf("addresses %v and %v", first, second)
			}
			wantReachable(t, a.netns, b.netns, second[0])
			if err := a.check(); err != nil {
				t.Errorf("CHECK: %v", err)
			}
			a.mustDel()
			a.mustDel()
			b.mustDel()
			n.wantClear()
		})
	}
}

func TestAnOrdinaryPodIsDetachedWithoutTheAPI(t *testing.T) {
	n := newOrdinaryNode(t, "")
	p := n.newPod("coredns-0", "")
	p.mustAdd()
	n.refuse(func(string, string) int { return http.StatusForbidden })
	before := n.requestCount()
	p.mustDel()
	if n.requestCount() != before {
		t.Errorf("DEL asked the API: %v", n.api.Requests[before:])
	}
	n.wantClear()
}

// refuse makes the API answer so from now on, where status is not 0.
func (n *node) refuse(status func(method, path string) int) {
	n.api.Mu.Lock()
	defer n.api.Mu.Unlock()
	n.api.OnRequest = status
}

func (n *node) requestCount() int {
	n.api.Mu.Lock()
	defer n.api.Mu.Unlock()
	return len(n.api.Requests)
}

func TestAnOrdinaryPodNeedsADelegate(t *testing.T) {
	n := newNode(t, settings{})
	p := n.newPod("coredns-0", "")
	_, err := p.add()
	wantCode(t, err, types.ErrInvalidNetworkConfig, "has no delegate")
	p.mustDel()
	n.wantClear()
}

func TestTheOtherSpellingOfTheAnnotationIsDanmsToo(t *testing.T) {
	n := newOrdinaryNode(t, "")
	n.group = danm.GroupDanmK8sIO
	p := n.newPod("web-0", oneV4)
	n.group = danm.GroupDanmIO
	p.wantEndpointAddresses(p.mustAdd(), "eth0")
	p.mustDel()
	n.wantClear()
}

func TestStatusSaysWhetherPodsCanBeAdded(t *testing.T) {
	n := newOrdinaryNode(t, "1.1.0")
	status := func() error {
		return n.run(func(ctx context.Context) error { return n.cni.GetStatusNetworkList(ctx, n.list) })
	}
	if err := status(); err != nil {
		t.Fatalf("STATUS of a node that is well: %v", err)
	}
	n.refuse(func(string, string) int { return http.StatusForbidden })
	wantCode(t, status(), types.ErrPluginNotAvailable, "asking the API for endpoints")
	n.refuse(nil)
	n.configure(settings{version: "1.1.0", delegate: object{"type": "no-such-plugin"}})
	wantCode(t, status(), types.ErrPluginNotAvailable, "no-such-plugin")
}

func TestVersionListsWhatIsSpoken(t *testing.T) {
	n := newNode(t, settings{})
	info, err := n.cni.GetVersionInfo(t.Context(), "danm-cni")
	if err != nil {
		t.Fatal(err)
	}
	if got := info.SupportedVersions(); !slices.Equal(got, []string{"0.4.0", "1.0.0", "1.1.0"}) {
		t.Errorf("versions %v", got)
	}
}

func TestTheLogTellsEachCommandAndNoSecret(t *testing.T) {
	n := newOrdinaryNode(t, "")
	p := n.newPod("web-0", oneV4)
	p.mustAdd()
	n.refuse(func(string, string) int { return http.StatusUnauthorized })
	if err := p.check(); err == nil {
		t.Error("CHECK passed without the API")
	}
	p.mustDel()
	log := n.log()
	for _, want := range []string{`"command":"ADD"`, `"command":"CHECK"`, `"command":"DEL"`, `"pod":"ns/web-0"`, "swallowed error of DEL"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %s:\n%s", want, log)
		}
	}
	if strings.Contains(log, secret) {
		t.Errorf("the log has the token:\n%s", log)
	}
	if info, err := os.Stat(n.file("log")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the log: %v, %v", info, err)
	}
}
