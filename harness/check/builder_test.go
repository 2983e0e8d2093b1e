package check

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// The users of the histories that the tests tell.
const (
	cleaner = "danm-cleaner"
	harness = "danm-harness"
	node1   = "system:node:n1"
	node2   = "system:node:n2"
	nsCtl   = "system:serviceaccount:kube-system:namespace-controller"
)

// tick is how much time every act takes. A write begins, commits and is
// answered within it.
const tick = 100 * time.Millisecond

// teller tells a history act by act and keeps the state that a live read would
// return, so that its snapshots are true unless a test falsifies them.
type teller struct {
	t       testing.TB
	run     history.Run
	lane    history.Lane
	records []history.Record
	now     time.Time
	rv      uint64
	serial  int

	network   map[string]any
	bits      map[danm.Family]*pool
	netUID    string
	endpoints []*told
	pods      []*history.SnapshotPod
	iteration int
	step      int

	// What the next write looks like: its request's time, if not the usual.
	begin, end time.Time
	before     func() // what happens right before the next snapshot is taken
	during     func() // what happens before it is recorded
	silent     bool   // no watch event for the next write
	unaudited  bool   // no audit record for the next write
	static     bool   // what is attached are static pods
}

// told is an endpoint as the teller knows it.
type told struct {
	history.SnapshotEndpoint
	object map[string]any
}

type shape struct {
	kind     danm.NetworkKind
	v4, v6   bool
	replicas int
}

func tellOne(t testing.TB) *teller { return tellOf(t, shape{danm.DanmNet, true, false, 1}) }

func tellOf(t testing.TB, s shape) *teller {
	h := &teller{
		t: t, now: time.Date(2026, 3, 1, 8, 54, 0, 0, time.UTC), rv: 100,
		run: history.Run{
			SchemaVersion: history.SchemaVersion, RunID: "r", Scenario: "node-shutdown", Group: "danm.k8s.io",
			CleanerUser: cleaner, CNIUserPrefix: "system:node:",
		},
	}
	run := h.run
	h.put(history.Record{Run: &run})
	h.openLane(history.Lane{
		Name: "lane-0", Generation: 1, Namespace: "lane-0", NetworkKind: string(s.kind), Network: "test-net1",
		IPv4: s.v4, IPv6: s.v6, StatefulSet: "ss-cinfo", Replicas: s.replicas, Nodes: []string{"n1", "n2"},
	})
	return h
}

// openLane announces a lane and creates its network, all bits free.
func (h *teller) openLane(l history.Lane) {
	h.lane, h.endpoints, h.pods = l, nil, nil
	h.put(history.Record{Lane: &l})
	options := map[string]any{"host_device": "eth0", "routes": map[string]any{"10.20.0.0/24": "10.10.10.1"}}
	h.bits = map[danm.Family]*pool{}
	if l.IPv4 {
		options["cidr"] = "10.10.10.0/24"
		h.bits[danm.IPv4] = h.pool(ipam.Spec{CIDR: "10.10.10.0/24", Gateways: []string{"10.10.10.1"}})
	}
	if l.IPv6 {
		options["net6"] = "2001:db8::/64"
		options["allocation_pool_v6"] = map[string]any{"cidr": "2001:db8::100/120"}
		h.bits[danm.IPv6] = h.pool(ipam.Spec{IPv6: true, CIDR: "2001:db8::100/120"})
	}
	h.netUID = h.uid("net")
	h.network = map[string]any{"spec": map[string]any{"NetworkID": "test-net1", "Options": options}}
	h.writeNetwork(harness, history.Added)
}

func (h *teller) pool(s ipam.Spec) *pool {
	alloc, err := ipam.Empty(s)
	if err != nil {
		h.t.Fatal(err)
	}
	s.Alloc = alloc
	p, err := ipam.Open(s)
	if err != nil {
		h.t.Fatal(err)
	}
	bits, err := ipam.Decode(alloc)
	if err != nil {
		h.t.Fatal(err)
	}
	return &pool{Pool: p, bits: bits}
}

func (h *teller) uid(what string) string {
	h.serial++
	return fmt.Sprintf("%s-uid-%d", what, h.serial)
}

func (h *teller) pass(d time.Duration) { h.now = h.now.Add(d) }

func (h *teller) put(r history.Record) {
	r.N = uint64(len(h.records) + 1)
	if r.Time.IsZero() {
		r.Time = h.now
	}
	h.records = append(h.records, r)
}

// commit records a write and the request that made it.
func (h *teller) commit(user, verb string, w history.Write) {
	h.rv++
	w.RV = h.rv
	begin, end := h.begin, h.end
	if begin.IsZero() {
		begin, end = h.now.Add(tick/10), h.now.Add(tick*6/10)
	}
	seen := h.now.Add(tick / 2)
	if seen.Before(begin) || !h.end.IsZero() {
		seen = end
	}
	if !h.silent {
		h.put(history.Record{Time: seen, Write: &w})
	}
	if !h.unaudited && user != "" {
		a := history.Audit{
			User: user, Verb: verb, Resource: w.Resource, Group: "danm.k8s.io", Namespace: w.Namespace, Name: w.Name,
			UID: w.UID, RV: w.RV, Code: 200, Begin: begin, End: end,
		}
		if w.Resource == "pods" {
			a.Group = ""
		}
		if verb == "delete" {
			a.RV = 0
		}
		h.put(history.Record{Time: end, Audit: &a})
	}
	h.begin, h.end, h.silent, h.unaudited = time.Time{}, time.Time{}, false, false
	h.pass(tick)
}

func (h *teller) raw(object map[string]any, name, uid string) json.RawMessage {
	object["metadata"] = map[string]any{"name": name, "uid": uid, "resourceVersion": fmt.Sprint(h.rv + 1), "generation": h.rv}
	data, err := json.Marshal(object)
	if err != nil {
		h.t.Fatal(err)
	}
	return data
}

func (h *teller) options() map[string]any {
	return h.network["spec"].(map[string]any)["Options"].(map[string]any)
}

func (h *teller) ref() danm.NetworkRef { return networkOf(&h.lane) }

var verbs = map[history.WriteType]string{history.Added: "create", history.Modified: "update", history.Deleted: "delete"}

// writeNetwork commits the network as the teller has it.
func (h *teller) writeNetwork(user string, how history.WriteType) {
	for f, p := range h.bits {
		h.options()[f.Field()] = p.bits.Encode()
	}
	h.rawNetwork(user, how)
}

func (h *teller) rawNetwork(user string, how history.WriteType) {
	ref := h.ref()
	h.commit(user, verbs[how], history.Write{
		Type: how, Resource: ref.Kind.Resource(), Namespace: ref.Namespace, Name: ref.Name, UID: h.netUID,
		Object: h.raw(h.network, ref.Name, h.netUID),
	})
}

func (h *teller) bit(addr string) (*pool, int) {
	a := netip.MustParseAddr(addr)
	p := h.bits[danm.FamilyOf(a)]
	i, ok := p.Index(a)
	if !ok {
		h.t.Fatalf("%s has no bit", addr)
	}
	return p, i
}

// set and clear write bits, whoever owns them. Those that already are so make
// no write.
func (h *teller) set(user string, addrs ...string) { h.write(user, true, addrs) }

func (h *teller) clear(user string, addrs ...string) { h.write(user, false, addrs) }

func (h *teller) write(user string, value bool, addrs []string) {
	changed := false
	for _, addr := range addrs {
		p, i := h.bit(addr)
		if p.bits.IsSet(i) == value {
			continue
		}
		changed = true
		if value {
			p.bits.Set(i)
		} else {
			p.bits.Clear(i)
		}
	}
	if changed {
		h.writeNetwork(user, history.Modified)
	}
}

// pod creates a pod object and returns its UID.
func (h *teller) pod(name, node string) string {
	uid := h.uid("pod")
	p := &history.SnapshotPod{Namespace: h.lane.Namespace, Name: name, UID: uid, Node: node, Phase: "Running", Ready: true, Interfaces: 1}
	h.pods = append(h.pods, p)
	h.writePod(history.Added, p)
	return uid
}

func (h *teller) writePod(how history.WriteType, p *history.SnapshotPod) {
	h.commit("", "", history.Write{
		Type: how, Resource: "pods", Namespace: p.Namespace, Name: p.Name, UID: p.UID,
		Object: h.raw(map[string]any{}, p.Name, p.UID),
	})
}

func (h *teller) findPod(name string) *history.SnapshotPod {
	for _, p := range slices.Backward(h.pods) {
		if p.Name == name {
			return p
		}
	}
	h.t.Fatalf("no pod %s", name)
	return nil
}

func (h *teller) deletePod(name string) {
	p := h.findPod(name)
	h.pods = slices.DeleteFunc(h.pods, func(q *history.SnapshotPod) bool { return q == p })
	h.writePod(history.Deleted, p)
}

// endpoint creates a DanmEp for the newest pod of that name.
func (h *teller) endpoint(user, pod string, addrs ...string) *told {
	p := h.findPod(pod)
	face := map[string]any{"Name": "eth0", "Address": "", "AddressIPv6": ""}
	for _, a := range addrs {
		if strings.Contains(a, ":") {
			face["AddressIPv6"] = a + "/64"
		} else {
			face["Address"] = a + "/24"
		}
	}
	name := h.uid("ep")
	e := &told{
		SnapshotEndpoint: history.SnapshotEndpoint{
			Namespace: h.lane.Namespace, Name: name, UID: "uid-of-" + name, Pod: pod, PodUID: p.UID, Interface: "eth0", Addresses: addrs,
		},
		object: map[string]any{"spec": map[string]any{
			"NetworkName": h.lane.Network, "NetworkType": "ipvlan", "EndpointID": name, "Interface": face,
			"Pod": pod, "PodUID": p.UID, "apiType": h.lane.NetworkKind,
		}},
	}
	h.endpoints = append(h.endpoints, e)
	h.writeEndpoint(user, history.Added, e)
	return e
}

func (h *teller) writeEndpoint(user string, how history.WriteType, e *told) {
	h.commit(user, verbs[how], history.Write{
		Type: how, Resource: danm.EndpointResource, Namespace: e.Namespace, Name: e.Name, UID: e.UID,
		Object: h.raw(e.object, e.Name, e.UID),
	})
}

func (h *teller) deleteEndpoint(user string, e *told) {
	h.endpoints = slices.DeleteFunc(h.endpoints, func(o *told) bool { return o == e })
	h.writeEndpoint(user, history.Deleted, e)
}

func sandbox(e *told) string { return "sandbox-" + e.Name }

// attached tells that ADD succeeded, and lets somebody write something that
// concerns nobody: the next write is what shows how late it must be.
func (h *teller) attached(node string, e *told) {
	h.attachment(history.Attached, node, e)
	h.pass(tick)
	h.unrelated()
}

func (h *teller) unrelated() {
	h.options()["vxlan"] = h.rv
	h.writeNetwork(harness, history.Modified)
}

func (h *teller) attachment(event history.AttachmentEvent, node string, e *told) {
	a := history.Attachment{Event: event, ID: sandbox(e), Node: node, Namespace: e.Namespace, Pod: e.Pod, PodUID: e.PodUID, Static: h.static}
	if event == history.Attached {
		a.Interfaces = []history.AttachedInterface{{
			Name: "eth0", Endpoint: e.Name, EndpointUID: e.UID, NetworkKind: h.lane.NetworkKind, Network: h.lane.Network, Addresses: e.Addresses,
		}}
	}
	h.put(history.Record{Attachment: &a})
}

func (h *teller) detaching(node string, e *told) {
	h.attachment(history.Detaching, node, e)
	h.pass(tick)
}

func (h *teller) lost(node string, e *told) { h.attachment(history.Lost, node, e); h.pass(tick) }

// add is a pod's whole way to life: object, bits, endpoint, success.
func (h *teller) add(node, pod string, addrs ...string) *told {
	h.pod(pod, node)
	user := "system:node:" + node
	h.set(user, addrs...)
	e := h.endpoint(user, pod, addrs...)
	h.attached(node, e)
	return e
}

// del is an orderly end: DEL, then the pod object goes.
func (h *teller) del(node string, e *told) {
	h.detaching(node, e)
	h.clear("system:node:"+node, e.Addresses...)
	h.deleteEndpoint("system:node:"+node, e)
	h.deletePod(e.Pod)
}

// release is what a right cleaner does.
func (h *teller) release(e *told) {
	h.deleteEndpoint(cleaner, e)
	h.clear(cleaner, e.Addresses...)
}

func (h *teller) op(how history.OpType, f, target string, fault bool) {
	if how == history.Invoke {
		h.step++
	}
	h.put(history.Record{Op: &history.Op{
		Process: h.lane.Name, Type: how, F: f, Lane: h.lane.Name, Iteration: h.iteration, Step: h.step, Target: target, Fault: fault,
	}})
	h.pass(tick)
}

func (h *teller) ops(f, target string, fault bool, during ...func()) {
	h.op(history.Invoke, f, target, fault)
	for _, act := range during {
		act()
	}
	h.op(history.OK, f, target, fault)
}

func (h *teller) nextIteration() { h.iteration++; h.step = 0 }

// read appends what a live read returns now, changed by the given functions.
func (h *teller) read(falsify ...func(*history.Snapshot)) {
	h.op(history.Invoke, "settle", "", false)
	if h.before != nil {
		h.before()
	}
	s := &history.Snapshot{Lane: h.lane.Name, Generation: h.lane.Generation, Iteration: h.iteration, Settled: true}
	for _, p := range h.pods {
		s.Pods = append(s.Pods, *p)
	}
	for _, e := range h.endpoints {
		s.Endpoints = append(s.Endpoints, e.SnapshotEndpoint)
	}
	for _, f := range []danm.Family{danm.IPv4, danm.IPv6} {
		if p := h.bits[f]; p != nil {
			for i := range p.Size() {
				if _, reserved := p.Reserved(i); reserved || !p.bits.IsSet(i) {
					continue
				}
				s.Bits = append(s.Bits, history.SnapshotBit{Family: int(f), Index: i, Address: p.Addr(i).String()})
			}
		}
	}
	for _, f := range falsify {
		f(s)
	}
	if h.during != nil {
		h.during()
	}
	h.pass(tick)
	h.put(history.Record{Snapshot: s})
	h.op(history.OK, "settle", "", false)
}

// renumbered returns the records with numbers as a recorder gives them.
func renumbered(records []history.Record) []history.Record {
	out := slices.Clone(records)
	for i := range out {
		out[i].N = uint64(i + 1)
	}
	return out
}
