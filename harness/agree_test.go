package harness

import (
	"fmt"
	"testing"

	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// settled is a lane of two pods that is as it should be.
func settled() history.Snapshot {
	var s history.Snapshot
	for i := range 2 {
		name, uid, addr := fmt.Sprintf("p-%d", i), fmt.Sprintf("uid-%d", i), fmt.Sprintf("10.0.0.%d", i+1)
		s.Pods = append(s.Pods, history.SnapshotPod{Name: name, UID: uid, Phase: "Running", Ready: true, Interfaces: 1})
		s.Endpoints = append(s.Endpoints, history.SnapshotEndpoint{Name: "ep-" + uid, Pod: name, PodUID: uid, Addresses: []string{addr}})
		s.Bits = append(s.Bits, history.SnapshotBit{Family: 4, Index: i + 1, Address: addr})
	}
	return s
}

func TestAgree(t *testing.T) {
	tests := []struct {
		name string
		edit func(*history.Snapshot)
		want string
		then check.Verdict
	}{
		{"everything agrees", func(*history.Snapshot) {}, "", check.Valid},
		{"a pod is missing", func(s *history.Snapshot) { s.Pods = s.Pods[:1]; s.Endpoints = s.Endpoints[:1]; s.Bits = s.Bits[:1] },
			"1 of 2 pods are Ready", check.Unknown},
		{"a pod is Terminating", func(s *history.Snapshot) { s.Pods[1].Terminating = true }, "1 of 2 pods are Ready", check.Unknown},
		{"an ADD is under way: its bit is no leak", func(s *history.Snapshot) { s.Pods[1].Ready = false; s.Endpoints = s.Endpoints[:1] },
			"1 of 2 pods are Ready", check.Unknown},
		{"a live pod lost its endpoint", func(s *history.Snapshot) { s.Endpoints = s.Endpoints[:1] },
			"pod p-1 has 0 endpoints, not 1", check.Invalid},
		{"an endpoint of a dead UID is left, under the name of a live pod", func(s *history.Snapshot) {
			s.Endpoints = append(s.Endpoints, history.SnapshotEndpoint{Pod: "p-1", PodUID: "uid-old", Addresses: []string{"10.0.0.9"}})
			s.Bits = append(s.Bits, history.SnapshotBit{Address: "10.0.0.9"})
		}, "1 endpoints belong to no pod, such as one of p-1 (UID uid-old)", check.Invalid},
		{"equal counts, but one pod has the other's endpoint", func(s *history.Snapshot) { s.Endpoints[1].PodUID = "uid-0" },
			"pod p-0 has 2 endpoints, not 1", check.Invalid},
		{"a bit was cleared", func(s *history.Snapshot) { s.Bits = s.Bits[:1] },
			"p-1 holds 10.0.0.2, whose bit is not set", check.Invalid},
		{"a bit leaked", func(s *history.Snapshot) { s.Bits = append(s.Bits, history.SnapshotBit{Address: "10.0.0.9"}) },
			"1 bits belong to no endpoint, such as 10.0.0.9", check.Invalid},
		{"a leak and a lost bit cancel out in counts", func(s *history.Snapshot) { s.Bits[1].Address = "10.0.0.9" },
			"p-1 holds 10.0.0.2, whose bit is not set", check.Invalid},
		{"two pods on one address", func(s *history.Snapshot) { s.Endpoints[1].Addresses = s.Endpoints[0].Addresses },
			"p-0 and p-1 both hold 10.0.0.1", check.Invalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := settled()
			tt.edit(&s)
			a := agree(s, 2)
			if a.pending() != tt.want || a.hasAll() != (tt.want == "") {
				t.Errorf("pending %q, want %q", a.pending(), tt.want)
			}
			if got := a.verdict(); got != tt.then {
				t.Errorf("verdict %s, want %s", got, tt.then)
			}
		})
	}
}

func TestPodsMustReallyRun(t *testing.T) {
	running := func(uids ...string) history.Snapshot {
		s := settled()
		s.Runtime = &history.SnapshotRuntime{}
		for _, uid := range uids {
			s.Runtime.Sandboxes = append(s.Runtime.Sandboxes, history.SnapshotSandbox{Pod: "p", PodUID: uid, Node: "n1"})
		}
		return s
	}
	tests := []struct {
		name string
		give history.Snapshot
		want string
	}{
		{"nobody could be asked", settled(), ""},
		{"each pod has a sandbox", running("uid-1", "uid-0"), ""},
		{"a pod has none", running("uid-0"), "0 sandboxes of pod p-1 run"},
		{"a pod has two", running("uid-0", "uid-0", "uid-1"), "2 sandboxes of pod p-0 run"},
		{"a pod that is gone has one", running("uid-0", "uid-1", "old"), "p (UID old) runs on n1 although its pod is gone"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := compareRuntime(tt.give, "n9"); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
