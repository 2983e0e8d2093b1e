package main

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
)

// Codes of the plugin's own, as package netplugin documents them.
const (
	codeNotReserved = 100
	codeNotAsAdded  = 101
	codeNoPlugin    = 102
	codeAttached    = 103
)

func wantCode(t *testing.T, err error, code uint, part string) {
	t.Helper()
	var coded *types.Error
	if !errors.As(err, &coded) {
		t.Fatalf("error %v is none of CNI", err)
	}
	if coded.Code != code || !strings.Contains(err.Error(), part) {
		t.Errorf("error %d %v, want %d with %q", coded.Code, err, code, part)
	}
}

func forEachVariant(t *testing.T, do func(t *testing.T, n *node)) {
	t.Helper()
	for _, v := range danmcni.Variants() {
		t.Run(string(v), func(t *testing.T) {
			n := newNode(t, settings{variant: string(v)})
			n.network("a", 1)
			n.network("b", 2)
			do(t, n)
		})
	}
}

func TestAnAddThatFailsHalfWayTakesItsInterfacesBack(t *testing.T) {
	forEachVariant(t, func(t *testing.T, n *node) {
		p := n.newPod("web-0", twoNets)
		ip(t, "-n", p.netns, "link", "add", "eth1", "type", "veth", "peer", "in-the-way")
		_, err := p.add()
		wantCode(t, err, types.ErrInternal, "attaching eth1 of pod ns/web-0 by bridge")
		if links := ip(t, "-n", p.netns, "-o", "link"); strings.Contains(links, "eth0") {
			t.Errorf("eth0 is left:\n%s", links)
		}
		n.wantClear()
		p.mustDel()
	})
}

func TestAnAddThatDanmRefusesLeavesNothing(t *testing.T) {
	forEachVariant(t, func(t *testing.T, n *node) {
		p := n.newPod("web-0", `[{"network":"a","ip":"dynamic"},{"network":"nowhere","ip":"dynamic"}]`)
		_, err := p.add()
		wantCode(t, err, codeNotReserved, "nowhere")
		n.wantClear()
	})
}

func TestAnAddWithoutItsPluginLeavesNothing(t *testing.T) {
	n := newNode(t, settings{attach: object{"type": "bridge"}})
	n.network("a", 1)
	n.useBin(n.binWithout(t, "bridge"))
	p := n.newPod("web-0", oneV4)
	_, err := p.add()
	wantCode(t, err, codeNoPlugin, "bridge")
	n.wantClear()
}

// binWithout returns a folder with all programs but one.
func (n *node) binWithout(t *testing.T, missing string) string {
	t.Helper()
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(bin)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, f := range files {
		if f.Name() != missing {
			if err := os.Symlink(filepath.Join(bin, f.Name()), filepath.Join(dir, f.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

func TestAddIsRefusedBeforeAnythingIsReserved(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(p *pod)
		code   uint
		part   string
	}{
		{"without a pod", func(p *pod) { p.runtime.Args = nil }, types.ErrInvalidEnvironmentVariables, "K8S_POD_NAME"},
		{"without its namespace", func(p *pod) { p.runtime.NetNS = "/run/netns/none" }, types.ErrInvalidNetNS, "/run/netns/none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t, settings{})
			n.network("a", 1)
			p := n.newPod("web-0", oneV4)
			tc.change(p)
			_, err := p.add()
			wantCode(t, err, tc.code, tc.part)
			if n.requestCount() != 0 {
				t.Errorf("the API was asked: %v", n.api.Requests)
			}
		})
	}
}

func TestASecondAddLeavesTheFirstAlone(t *testing.T) {
	n := newNode(t, settings{})
	n.network("a", 1)
	p := n.newPod("web-0", oneV4)
	p.mustAdd()
	_, err := p.add()
	wantCode(t, err, codeAttached, "DEL comes first")
	if err := p.check(); err != nil {
		t.Errorf("CHECK of the first: %v", err)
	}
}

func TestCheckFindsWhatIsMissing(t *testing.T) {
	for _, tc := range []struct {
		name     string
		settings settings
		harm     func(t *testing.T, p *pod)
		part     string
	}{
		{"the address in the namespace, bridge", settings{}, removeAddress, "eth0"},
		{"the address in the namespace, ptp", settings{attach: ptp}, removeAddress, "eth0"},
		{"the interface", settings{}, func(t *testing.T, p *pod) { ip(t, "-n", p.netns, "link", "del", "eth0") }, "eth0"},
		{"the endpoint", settings{}, func(_ *testing.T, p *pod) { p.removeEndpoints() }, "not found"},
		{"the endpoint's address", settings{}, func(_ *testing.T, p *pod) { p.readdressEndpoints() }, "10.10.1.99"},
		{"the sandbox", settings{}, func(_ *testing.T, p *pod) { p.node.forget(t) }, "no ADD of it is noted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t, tc.settings)
			n.network("a", 1)
			p := n.newPod("web-0", oneV4)
			p.mustAdd()
			if err := p.check(); err != nil {
				t.Fatalf("CHECK of a sound sandbox: %v", err)
			}
			tc.harm(t, p)
			err := p.check()
			if err == nil || !strings.Contains(err.Error(), tc.part) {
				t.Errorf("CHECK says %v, want %q", err, tc.part)
			}
			p.mustDel()
		})
	}
}

func removeAddress(t *testing.T, p *pod) {
	ip(t, "-n", p.netns, "addr", "del", p.address().String()+"/24", "dev", "eth0")
}

func (p *pod) address() netip.Addr { return p.endpoints()["eth0"][0] }

// changeEndpoints replaces every endpoint by what change returns; nil deletes.
func (p *pod) changeEndpoints(change func(object) object) {
	p.node.api.Mu.Lock()
	defer p.node.api.Mu.Unlock()
	for key, o := range p.node.api.Objects {
		if path.Base(path.Dir(key)) != danm.EndpointResource {
			continue
		}
		if changed := change(o); changed != nil {
			p.node.api.Store(key, changed)
		} else {
			delete(p.node.api.Objects, key)
		}
	}
}

func (p *pod) removeEndpoints() { p.changeEndpoints(func(object) object { return nil }) }

func (p *pod) readdressEndpoints() {
	p.changeEndpoints(func(o object) object {
		o["spec"].(object)["Interface"].(object)["Address"] = "10.10.1.99/24"
		return o
	})
}

// forget removes the plugin's notes, as a node with a fresh disk would.
func (n *node) forget(t *testing.T) {
	t.Helper()
	if err := os.RemoveAll(n.file("danm")); err != nil {
		t.Fatal(err)
	}
}

func TestDelToleratesWhatIsGone(t *testing.T) {
	for _, tc := range []struct {
		name string
		harm func(t *testing.T, p *pod)
	}{
		{"the namespace", func(t *testing.T, p *pod) { deleteNetns(t, p.netns) }},
		{"the name of the namespace", func(t *testing.T, p *pod) { deleteNetns(t, p.netns); p.runtime.NetNS = "" }},
		{"the endpoints", func(_ *testing.T, p *pod) { p.removeEndpoints(); p.node.network("a", 1) }},
		{"the note", func(t *testing.T, p *pod) { p.node.forget(t); deleteNetns(t, p.netns) }},
		{"the plugin that attached", func(t *testing.T, p *pod) {
			p.node.useBin(p.node.binWithout(t, "bridge"))
			deleteNetns(t, p.netns)
		}},
		{"the delegate of the configuration", func(_ *testing.T, p *pod) {
			p.node.configure(settings{delegate: object{"type": "no-such-plugin"}})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t, settings{})
			n.network("a", 1)
			p := n.newPod("web-0", oneDual)
			p.mustAdd()
			tc.harm(t, p)
			p.mustDel()
			p.mustDel()
			n.wantClear()
		})
	}
}

func TestDelWithoutTheAPISucceedsInDanmAndIsRepeatedInCareful(t *testing.T) {
	forEachVariant(t, func(t *testing.T, n *node) {
		p := n.newPod("web-0", oneV4)
		p.mustAdd()
		n.refuse(func(string, string) int { return http.StatusInternalServerError })
		err := p.del()
		n.refuse(nil)
		isCareful := strings.Contains(t.Name(), string(danmcni.Careful))
		if !isCareful {
			if err != nil {
				t.Errorf("DEL: %v", err)
			}
			if len(p.endpoints()) != 1 {
				t.Error("the leak of DANM is not reproduced")
			}
			return
		}
		wantCode(t, err, types.ErrTryAgainLater, "releasing addresses")
		p.mustDel()
		n.wantClear()
	})
}

func TestCommandsEndWhenTheirTimeIsUp(t *testing.T) {
	n := newNode(t, settings{timeout: "200ms"})
	n.network("a", 1)
	p := n.newPod("web-0", oneV4)
	n.stall(t)
	_, err := p.add()
	wantCode(t, err, types.ErrTryAgainLater, "")
	if !strings.Contains(n.log(), "deadline") {
		t.Errorf("the log does not tell why:\n%s", n.log())
	}
}

// stall makes the API answer nothing until the test ends.
func (n *node) stall(t *testing.T) {
	t.Helper()
	l := listenIn(t, n.name, "127.0.0.1:0") // accepts by the kernel, never answers
	n.writeKubeconfig("http://" + l.Addr().String())
}

func TestGCDetachesWhatTheRuntimeForgot(t *testing.T) {
	n := newNode(t, settings{version: "1.1.0"})
	n.network("a", 1)
	kept, lost := n.newPod("web-0", oneV4), n.newPod("web-1", oneV4)
	kept.mustAdd()
	lost.mustAdd()
	deleteNetns(t, lost.netns)
	// The runtime lost its own notes, or it would send a DEL itself.
	if err := os.RemoveAll(n.file("runtime")); err != nil {
		t.Fatal(err)
	}
	err := n.run(func(ctx context.Context) error {
		return n.cni.GCNetworkList(ctx, n.list, &libcni.GCArgs{
			ValidAttachments: []types.GCAttachment{{ContainerID: kept.runtime.ContainerID, IfName: "eth0"}},
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(kept.endpoints()) != 1 || len(lost.endpoints()) != 0 {
		t.Errorf("endpoints after GC: %v and %v", kept.endpoints(), lost.endpoints())
	}
	kept.mustDel()
	n.wantClear()
}
