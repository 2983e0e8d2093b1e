package audit

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
)

var (
	now    = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	policy = ownership.Policy{Quarantine: time.Minute, CompletedAllowance: 2 * time.Minute, Fencing: ownership.Contract}
	strict = ownership.Policy{Quarantine: time.Minute, CompletedAllowance: 2 * time.Minute, Fencing: ownership.Strict}
)

const (
	cidr  = "10.10.10.0/24"
	pool6 = "2001:db8:1::/120"
	net6  = "2001:db8:1::/64"
)

// build composes a world.
func build(parts ...func(*World)) World {
	w := World{Time: now, Group: danm.GroupDanmIO}
	for _, part := range parts {
		part(&w)
	}
	return w
}

// alloc returns the bitmap over a prefix with these addresses set.
func alloc(prefix string, addresses ...string) string {
	spec := ipam.Spec{CIDR: prefix, IPv6: strings.Contains(prefix, ":")}
	var err error
	if spec.Alloc, err = ipam.Empty(spec); err != nil {
		panic(err)
	}
	pool, err := ipam.Open(spec)
	if err != nil {
		panic(err)
	}
	for _, a := range addresses {
		i, ok := pool.Index(netip.MustParseAddr(a))
		if !ok {
			panic(a)
		}
		pool.Set(i)
	}
	return pool.Encode()
}

func network(name string, o danm.NetworkOptions) func(*World) {
	return func(w *World) {
		n := &danm.Network{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("net-" + name), ResourceVersion: "7"}}
		n.Kind, n.Spec.Options = string(danm.DanmNet), o
		w.Networks = append(w.Networks, n)
	}
}

func net4(set ...string) func(*World) {
	return network("n", danm.NetworkOptions{CIDR: cidr, Alloc: alloc(cidr, set...),
		Pool: danm.IPPool{Start: "10.10.10.10", End: "10.10.10.20"}})
}

func netV6(set ...string) func(*World) {
	return network("n", danm.NetworkOptions{Net6: net6, Alloc6: alloc(pool6, set...), PoolV6: danm.IPPoolV6{CIDR: pool6}})
}

// ep adds an endpoint of pod ns/<pod>, whose UID is <pod>-1.
func ep(name, pod, address, address6 string) func(*World) {
	return func(w *World) {
		e := &danm.Endpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name),
			ResourceVersion: "8", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
		e.Spec = danm.EndpointSpec{NetworkName: "n", Pod: pod, PodUID: types.UID(pod + "-1"), Host: "node-1",
			Interface: danm.EndpointInterface{Name: "eth-" + name, Address: address, AddressIPv6: address6}}
		w.Endpoints = append(w.Endpoints, e)
	}
}

// lastEndpoint changes the endpoint added last.
func lastEndpoint(change func(*danm.Endpoint)) func(*World) {
	return func(w *World) { change(w.Endpoints[len(w.Endpoints)-1]) }
}

func pod(name string, uid types.UID) func(*World) {
	return func(w *World) {
		w.Pods = append(w.Pods, Pod{Namespace: "ns", Name: name, ResourceVersion: "9", NodeName: "node-1", Phase: "Running",
			Evidence: ownership.Pod{Lookup: ownership.Found, UID: uid, Created: now.Add(-2 * time.Hour)}})
	}
}

func lastPod(change func(*Pod)) func(*World) {
	return func(w *World) { change(&w.Pods[len(w.Pods)-1]) }
}

func completed(ago time.Duration) func(*World) {
	return lastPod(func(p *Pod) {
		p.Phase, p.Evidence.Completed, p.Evidence.Finished = "Failed", true, now.Add(-ago)
	})
}

func node(ready bool) func(*World) {
	return func(w *World) {
		w.Nodes = append(w.Nodes, Node{Name: "node-1", ResourceVersion: "10", Evidence: ownership.Node{Lookup: ownership.Found, Ready: ready}})
	}
}

func reservedIP(t *testing.T, address string, shareable bool) func(*World) {
	t.Helper()
	return func(w *World) {
		w.ReservedIPs = append(w.ReservedIPs, &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"namespace": "ns", "name": "r"},
			"spec": map[string]any{
				"network": map[string]any{"name": "n", "type": "DanmNet"},
				"ips":     []any{map[string]any{"address": address, "shareable": shareable}},
			},
		}})
	}
}

func unread(resource string) func(*World) {
	return func(w *World) { w.Unread = append(w.Unread, Unread{Resource: resource, Cause: "forbidden"}) }
}

func malformedEndpoint(w *World) {
	w.Malformed = append(w.Malformed, Malformed{Resource: danm.EndpointResource, Namespace: "ns", Name: "bad", Cause: "spec: string where object is expected"})
}
