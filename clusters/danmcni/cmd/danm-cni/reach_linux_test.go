package main

import (
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
)

const (
	oneV4    = `[{"network":"a","ip":"dynamic"}]`
	oneV6    = `[{"network":"a","ip6":"dynamic"}]`
	oneDual  = `[{"network":"a","ip":"dynamic","ip6":"dynamic"}]`
	twoNets  = `[{"network":"a","ip":"dynamic"},{"network":"b","ip":"dynamic","ip6":"dynamic"}]`
	twoOnOne = `[{"network":"a","ip":"dynamic"},{"network":"a","ip":"dynamic"}]`
)

var (
	ptp  = object{"type": "ptp"}
	eth0 = []string{"eth0"}
	both = []string{"eth0", "eth1"}
)

func TestPodsOnOneNodeReachEachOtherByTheAddressesOfTheirEndpoints(t *testing.T) {
	for _, tc := range []struct {
		name       string
		settings   settings
		annotation string
		interfaces []string
	}{
		{"IPv4 by bridge, CNI 0.4.0", settings{version: "0.4.0"}, oneV4, eth0},
		{"IPv6 by bridge, CNI 1.0.0", settings{version: "1.0.0"}, oneV6, eth0},
		{"dual stack by bridge, CNI 1.1.0, careful", settings{version: "1.1.0", variant: "careful"}, oneDual, eth0},
		{"two networks by bridge", settings{}, twoNets, both},
		{"two interfaces on one network by bridge", settings{}, twoOnOne, both},
		{"DANM's older API group", settings{group: danm.GroupDanmK8sIO}, oneV4, eth0},
		{"IPv4 by ptp", settings{attach: ptp}, oneV4, eth0},
		{"dual stack by ptp", settings{attach: ptp}, oneDual, eth0},
		{"two networks by ptp", settings{attach: ptp}, twoNets, both},
		{"IPv4 by macvlan", settings{attach: object{"type": "macvlan", "master": "uplink"}}, oneV4, eth0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel() // most of the time goes by waiting for the kernel
			n := newNode(t, tc.settings)
			n.addUplink()
			n.network("a", 1)
			n.network("b", 2)
			a, b := n.newPod("web-0", tc.annotation), n.newPod("web-1", tc.annotation)
			for _, p := range []*pod{a, b} {
				p.wantEndpointAddresses(p.mustAdd(), tc.interfaces...)
				if err := p.check(); err != nil {
					t.Errorf("CHECK of %s: %v", p.name, err)
				}
			}
			wantAllReachable(t, a, b)
			wantAllReachable(t, b, a)
			a.mustDel()
			b.mustDel()
			b.mustDel()
			n.removeUplink()
			n.wantClear()
		})
	}
}

func wantAllReachable(t *testing.T, from, to *pod) {
	t.Helper()
	for _, addrs := range to.endpoints() {
		for _, addr := range addrs {
			wantReachable(t, from.netns, to.netns, addr)
		}
	}
}

func TestNetworksWithTheSameAddressesAreKeptApart(t *testing.T) {
	n := newNode(t, settings{})
	n.network("a", 1)
	n.network("b", 1)
	var pods []*pod
	for i, network := range []string{"a", "b", "a", "b"} {
		p := n.newPod(fmt.Sprintf("web-%d", i), fmt.Sprintf(`[{"network":%q,"ip":"dynamic"}]`, network))
		p.mustAdd()
		pods = append(pods, p)
	}
	if pods[0].address() != pods[1].address() {
		t.Fatalf("%s and %s should be the same", pods[0].address(), pods[1].address())
	}
	wantAllReachable(t, pods[2], pods[0])
	wantAllReachable(t, pods[3], pods[1])
}

func TestPodsThatComeAtOnceGetInterfacesOfTheirOwn(t *testing.T) {
	const count = 8
	for _, v := range danmcni.Variants() {
		t.Run(string(v), func(t *testing.T) {
			n := newNode(t, settings{variant: string(v)})
			n.network("a", 1)
			var pods []*pod
			for i := range count {
				pods = append(pods, n.newPod(fmt.Sprintf("web-%d", i), oneDual))
			}
			forAll(t, pods, func(p *pod) error {
				_, err := p.add()
				return err
			})
			for i, p := range pods {
				wantAllReachable(t, p, pods[(i+1)%count])
			}
			forAll(t, pods, (*pod).del)
			n.wantClear()
		})
	}
}

// forAll does the same for all pods at once.
func forAll(t *testing.T, pods []*pod, do func(*pod) error) {
	t.Helper()
	var group errgroup.Group
	for _, p := range pods {
		group.Go(func() error { return do(p) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// addUplink gives the node an interface that macvlan can use as master.
func (n *node) addUplink() {
	ip(n.t, "-n", n.name, "link", "add", "uplink", "type", "veth", "peer", "switch")
	ip(n.t, "-n", n.name, "link", "set", "uplink", "up")
	ip(n.t, "-n", n.name, "link", "set", "switch", "up")
}

func (n *node) removeUplink() { ip(n.t, "-n", n.name, "link", "del", "uplink") }
