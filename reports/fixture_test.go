package reports

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// hostileName is a pod's name that no API server would take, and that a run
// folder from elsewhere may hold all the same: markup, quotes, a turned
// direction of writing, very long.
var hostileName = `ss"'><img src=x onerror=alert(1)></script>&amp;` + "\u202Etxt.exe" + longName()

func longName() string {
	name := ""
	for i := range 40 {
		name += fmt.Sprintf("-long%d", i)
	}
	return name
}

// recorder writes a history by hand, with a clock that goes by tenths.
type recorder struct {
	records []history.Record
	now     time.Time
	rv      uint64
	bits    ipam.Bitmap
}

const (
	fixtureNamespace = "chaos-lane-0"
	fixtureNetwork   = "net"
)

func newRecorder() *recorder {
	bits := make(ipam.Bitmap, 32)
	bits.Set(0)
	bits.Set(255)
	return &recorder{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), rv: 100, bits: bits}
}

func (f *recorder) record(r history.Record) {
	f.now = f.now.Add(100 * time.Millisecond)
	r.N, r.Time = uint64(len(f.records))+1, f.now
	f.records = append(f.records, r)
}

// write records a committed write with its audit record.
func (f *recorder) write(kind history.WriteType, user, resource, name, uid string, object map[string]any) {
	f.rv++
	namespace := fixtureNamespace
	object["metadata"] = map[string]any{"name": name, "namespace": namespace, "uid": uid, "resourceVersion": fmt.Sprint(f.rv)}
	data, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	f.record(history.Record{Write: &history.Write{RV: f.rv, Type: kind, Resource: resource, Namespace: namespace, Name: name, UID: uid, Object: data}})
	verb := map[history.WriteType]string{history.Added: "create", history.Modified: "update", history.Deleted: "delete"}[kind]
	f.record(history.Record{Audit: &history.Audit{User: user, Verb: verb, Resource: resource, Namespace: namespace, Name: name, UID: uid, RV: f.rv,
		Code: 200, Begin: f.now.Add(-150 * time.Millisecond), End: f.now.Add(-110 * time.Millisecond)}})
}

func (f *recorder) pod(kind history.WriteType, user, name, uid string) {
	f.write(kind, user, "pods", name, uid, map[string]any{"spec": map[string]any{"nodeName": "node-0"}, "status": map[string]any{"phase": "Running"}})
}

func (f *recorder) endpoint(kind history.WriteType, user, name, pod, podUID string, host int) {
	f.write(kind, user, "danmeps", name, "uid-of-"+name, map[string]any{"apiVersion": "danm.io/v1", "kind": "DanmEp", "spec": map[string]any{
		"NetworkName": fixtureNetwork, "Pod": pod, "PodUID": podUID, "CID": "sandbox-" + podUID, "apiType": "DanmNet",
		"Interface": map[string]any{"Name": "eth0", "Address": fmt.Sprintf("10.10.10.%d/24", host), "AddressIPv6": ""},
	}})
}

func (f *recorder) network(kind history.WriteType, user string) {
	f.write(kind, user, "danmnets", fixtureNetwork, "uid-of-net", map[string]any{"apiVersion": "danm.io/v1", "kind": "DanmNet", "spec": map[string]any{
		"NetworkID": fixtureNetwork, "Options": map[string]any{"cidr": "10.10.10.0/24", "alloc": f.bits.Encode()},
	}})
}

func (f *recorder) attachment(event history.AttachmentEvent, pod, podUID, endpoint string, host int) {
	a := &history.Attachment{Event: event, ID: "sandbox-" + podUID, Node: "node-0", Namespace: fixtureNamespace, Pod: pod, PodUID: podUID}
	if event == history.Attached {
		a.Interfaces = []history.AttachedInterface{{Name: "eth0", Endpoint: endpoint, EndpointUID: "uid-of-" + endpoint,
			NetworkKind: "DanmNet", Network: fixtureNetwork, Addresses: []string{fmt.Sprintf("10.10.10.%d", host)}}}
	}
	f.record(history.Record{Attachment: a})
}

func (f *recorder) op(kind history.OpType, step int, verb, target string, isFault bool) {
	f.record(history.Record{Op: &history.Op{Process: "lane-0", Lane: "lane-0", Type: kind, F: verb, Iteration: 1, Step: step, Target: target, Fault: isFault}})
}

// add lets a pod come to life on an address.
func (f *recorder) add(pod, uid, endpoint string, host int) {
	const kubelet = "system:node:node-0"
	f.pod(history.Added, "controller", pod, uid)
	f.bits.Set(host)
	f.network(history.Modified, kubelet)
	f.endpoint(history.Added, kubelet, endpoint, pod, uid, host)
	f.attachment(history.Attached, pod, uid, endpoint, host)
}

// release lets the cleaner take an endpoint and its address.
func (f *recorder) release(pod, uid, endpoint string, host int) {
	const cleaner = "danm-cleaner"
	f.endpoint(history.Deleted, cleaner, endpoint, pod, uid, host)
	f.bits.Clear(host)
	f.network(history.Modified, cleaner)
}

// incident is the reported bug in small: a node fails, its pod is recreated
// under the same name, and the cleaner releases the old endpoint and then the
// new one as well.
func incident(pod string) []history.Record {
	f := newRecorder()
	f.record(history.Record{Run: &history.Run{SchemaVersion: history.SchemaVersion, RunID: "20260102-030405-2a", Scenario: "node-shutdown",
		Cluster: "controlplane", Seed: 42, Group: "danm.io", CleanerUser: "danm-cleaner", CNIUserPrefix: "system:node:"}})
	f.record(history.Record{Lane: &history.Lane{Name: "lane-0", Generation: 1, Namespace: fixtureNamespace, NetworkKind: "DanmNet", Network: fixtureNetwork,
		IPv4: true, StatefulSet: "ss", Replicas: 2, Nodes: []string{"node-0"}}})
	f.network(history.Added, "danm-harness")
	f.add(pod, "old", "ep-old", 10)
	f.add("ss-1", "other", "ep-other", 11)
	f.op(history.Invoke, 0, "fail-node", "node-0", true)
	f.op(history.OK, 0, "fail-node", "node-0", true)
	f.attachment(history.Lost, pod, "old", "ep-old", 10)
	f.op(history.Invoke, 1, "force-delete", fixtureNamespace+"/"+pod, true)
	f.pod(history.Deleted, "danm-harness", pod, "old")
	f.op(history.OK, 1, "force-delete", fixtureNamespace+"/"+pod, true)
	f.add(pod, "new", "ep-new", 12)
	f.release(pod, "old", "ep-old", 10)
	f.release(pod, "new", "ep-new", 12)
	f.op(history.Invoke, 2, "restore-node", "node-0", false)
	f.op(history.OK, 2, "restore-node", "node-0", false)
	snapshotOf(f, pod)
	return f.records
}

// snapshotOf records the end of the incident: two pods, one DanmEp, one bit.
func snapshotOf(f *recorder, pod string) {
	f.record(history.Record{Snapshot: &history.Snapshot{
		Lane: "lane-0", Generation: 1, Iteration: 1, Settled: false, Pending: "pod " + pod + " has 0 endpoints, not 1", Took: 30 * time.Second,
		Pods: []history.SnapshotPod{
			{Namespace: fixtureNamespace, Name: pod, UID: "new", Node: "node-0", Phase: "Running", Ready: true, Interfaces: 1},
			{Namespace: fixtureNamespace, Name: "ss-1", UID: "other", Node: "node-0", Phase: "Running", Ready: true, Interfaces: 1},
		},
		Endpoints: []history.SnapshotEndpoint{{Namespace: fixtureNamespace, Name: "ep-other", UID: "uid-of-ep-other", Pod: "ss-1", PodUID: "other",
			CID: "sandbox-other", Interface: "eth0", Addresses: []string{"10.10.10.11"}}},
		Bits: []history.SnapshotBit{{Family: 4, Index: 11, Address: "10.10.10.11"}},
	}})
}

// incidentDir stores the incident as a run directory that was never rendered.
func incidentDir(t *testing.T, pod string) (string, harness.Result) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "20260102-030405-2a")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h, err := history.Create(filepath.Join(dir, HistoryFile))
	if err != nil {
		t.Fatal(err)
	}
	records := incident(pod)
	for _, r := range records {
		h.Record(r)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, incidentResult(records)
}

// incidentResult is what the harness would make of the incident.
func incidentResult(records []history.Record) harness.Result {
	report := check.Check(records, check.Options{})
	r := invalidResult()
	r.Verdict, r.Violations, r.Findings, r.Unknowns, r.Checked = report.Verdict, report.Violations, report.Findings, report.Unknowns, report.Checked
	r.FaultsPlanned = map[string]int{"fail-node": 1, "force-delete": 1}
	r.FaultsFired = map[string]int{"fail-node": 1, "force-delete": 1}
	return r
}
