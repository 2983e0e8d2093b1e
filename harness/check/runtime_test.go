package check

import (
	"strings"
	"testing"

	"github.com/danm-chaos/danm-chaos/harness/history"
)

// runs makes a snapshot show what the runtimes of the nodes have.
func runs(list ...history.SnapshotSandbox) func(*history.Snapshot) {
	return func(s *history.Snapshot) { s.Runtime = &history.SnapshotRuntime{Sandboxes: list} }
}

func sandboxOf(e *told) history.SnapshotSandbox {
	return history.SnapshotSandbox{ID: sandbox(e), Node: "n1", Pod: e.Pod, PodUID: e.PodUID}
}

func TestWhatRunsMustBeWhatTheAPISays(t *testing.T) {
	tests := []struct {
		name string
		tell func(h *teller, e *told) []history.SnapshotSandbox
		want string // nothing: Valid
	}{
		{"the pod's sandbox runs", func(_ *teller, e *told) []history.SnapshotSandbox { return []history.SnapshotSandbox{sandboxOf(e)} }, ""},
		{"a Ready pod runs nowhere", func(*teller, *told) []history.SnapshotSandbox { return nil }, "is Ready, but 0 sandboxes of it run"},
		{"a Ready pod runs twice", func(h *teller, e *told) []history.SnapshotSandbox {
			return []history.SnapshotSandbox{sandboxOf(e), sandboxOf(e)}
		}, "is Ready, but 2 sandboxes of it run"},
		{"nobody saw how the sandbox was attached", func(_ *teller, e *told) []history.SnapshotSandbox {
			s := sandboxOf(e)
			s.ID = "another"
			return []history.SnapshotSandbox{s}
		}, "but no CNI ADD of it is recorded"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := tellOne(t)
			h.nextIteration()
			e := h.add("n1", "p", a15)
			h.read(runs(tt.tell(h, e)...))
			r := Check(h.records, Options{})
			if tt.want == "" {
				if r.Verdict != Valid {
					t.Errorf("%s: %v %v", r.Verdict, r.Unknowns, r.Violations)
				}
				return
			}
			wantUnknown(t, r, tt.want)
		})
	}
}

// TestAForceDeletedPodThatRunsOnIsAFinding: the cleaner may release its
// address, and still somebody has to hear that two pods use it.
func TestAForceDeletedPodThatRunsOnIsAFinding(t *testing.T) {
	h := tellOne(t)
	h.nextIteration()
	old := h.add("n1", "p", a15)
	ghost := sandboxOf(old)
	h.deletePod("p")
	h.release(old)
	e := h.add("n2", "p", a15)
	now := sandboxOf(e)
	h.read(runs(ghost, now))
	h.read(runs(ghost, now))
	r := Check(h.records, Options{})
	if r.Verdict != Valid || len(r.Findings) != 1 {
		t.Fatalf("%s, findings %v, unknown %v, violations %v", r.Verdict, r.Findings, r.Unknowns, r.Violations)
	}
	f := r.Findings[0]
	if f.Blame != BlameOther || f.Invariant != SingleHolder || f.PodUID != old.PodUID ||
		!strings.HasSuffix(f.Message, "runs on n1 although its pod is gone, on "+a15+", which p (uid "+e.PodUID+") has now") {
		t.Errorf("finding %+v", f)
	}
}
