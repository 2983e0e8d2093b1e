package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/harness/history"
)

// TestUnknown: a history that lacks something is never Valid.
func TestUnknown(t *testing.T) {
	type step func(h *teller)
	for _, c := range []struct {
		name string
		tell step
		edit func(records []history.Record) []history.Record
		want string
	}{
		{"an empty history", nil, func([]history.Record) []history.Record { return nil }, "the history has no run"},
		{"no run", nil, without(func(r history.Record) bool { return r.Run != nil }), "the history has no run"},
		{"a run that names no cleaner", func(h *teller) { h.records[0].Run.CleanerUser = "" }, nil, "does not say who the cleaner is"},
		{"two runs", func(h *teller) { h.put(history.Record{Run: &h.run}) }, nil, "opens a second run"},
		{"no attachment", nil, without(func(r history.Record) bool { return r.Attachment != nil }), "no pod was ever attached"},
		{"no snapshot", nil, without(func(r history.Record) bool { return r.Snapshot != nil }), "there is no snapshot"},
		{"a snapshot of an unknown lane", nil, without(func(r history.Record) bool { return r.Lane != nil }), "never announced"},
		{"a gap", func(h *teller) {
			h.put(history.Record{Gap: &history.Gap{Source: "watch danmnets", Reason: "410 Gone"}})
		}, nil, "watch danmnets has a gap: 410 Gone"},
		{"a hole in the numbers", nil, func(r []history.Record) []history.Record { return append(r[:5:5], r[6:]...) }, "record 6 is missing"},
		{"a record without time", nil, func(r []history.Record) []history.Record { r[3].Time = time.Time{}; return r }, "record 4 has no time"},
		{"no audit record at all", nil, without(func(r history.Record) bool { return r.Audit != nil }), "there is no audit record at all"},
		{"a write without a writer", func(h *teller) { h.unaudited = true; h.set(node1, a16); h.clear(node1, a16) }, nil, "nobody is known to have made rv"},
		{"a write that no watch showed", func(h *teller) {
			h.silent = true
			h.set(node1, a16)
			h.clear(node1, a16)
		}, nil, "no watch showed it"},
		{"a deletion that no watch showed", func(h *teller) {
			e := h.endpoints[0]
			h.silent = true
			h.deleteEndpoint(harness, e)
			h.endpoints = append(h.endpoints, e)
		}, nil, "delete danmeps lane-0/"},
		{"an object that changes before it exists", func(h *teller) {
			h.commit(harness, "update", history.Write{Type: history.Modified, Resource: "danmnets", Namespace: "x", Name: "y", UID: "z", Object: []byte("{}")})
		}, nil, "did not exist"},
		{"an object that is created twice", func(h *teller) { h.writeEndpoint(harness, history.Added, h.endpoints[0]) }, nil, "is created twice"},
		{"a name that two objects have", func(h *teller) {
			other := *h.endpoints[0]
			other.UID = "another"
			h.writeEndpoint(harness, history.Added, &other)
		}, nil, "was not deleted"},
		{"one revision for two writes", func(h *teller) { h.rv--; h.set(node1, a16); h.clear(node1, a16) }, nil, "is claimed by"},
		{"clocks that disagree", func(h *teller) {
			h.begin, h.end = h.now.Add(time.Hour), h.now.Add(2*time.Hour)
			h.set(node1, a16)
			h.clear(node1, a16)
		}, nil, "the clocks disagree"},
		{"a network that somebody else leaves unreadable", func(h *teller) {
			h.options()["alloc"] = "%%%"
			h.rawNetwork("admin", history.Modified)
			h.writeNetwork("admin", history.Modified)
		}, nil, "spec.Options.alloc"},
		{"an endpoint that changes its address", func(h *teller) {
			h.endpoints[0].object["spec"].(map[string]any)["Interface"] = map[string]any{"Address": a16}
			h.writeEndpoint("admin", history.Modified, h.endpoints[0])
		}, nil, "changes its owner, network or addresses"},
		{"an attachment whose endpoint no watch showed", func(h *teller) {
			h.lastAttachment().Interfaces[0].EndpointUID = "never seen"
		}, nil, "which no watch showed"},
		{"an attachment whose network no watch showed", func(h *teller) {
			h.lastAttachment().Interfaces[0].Network = "never-seen"
		}, nil, "which no watch showed"},
		{"an attachment with another address than its endpoint", func(h *teller) {
			h.lastAttachment().Interfaces[0].Addresses = nil
		}, nil, "but DanmEp lane-0/"},
		{"an attachment with an address that has no bit", func(h *teller) {
			h.lastAttachment().Interfaces[0].Addresses = []string{"192.0.2.1"}
		}, nil, "has no bit"},
		{"an attachment with an address that is none", func(h *teller) {
			h.lastAttachment().Interfaces[0].Addresses = []string{"x"}
		}, nil, "which is none"},
		{"an attachment of a pod that no watch showed", func(h *teller) { h.lastAttachment().PodUID = "never seen" }, nil, "no watch showed pod uid"},
		{"a sandbox that is attached twice", func(h *teller) { h.attached("n1", h.endpoints[0]) }, nil, "is attached twice"},
		{"a live read that knows another endpoint", func(h *teller) {
			h.endpoints[0].UID = "another"
		}, nil, "the history disagrees with the live read"},
		{"a fault that failed", func(h *teller) {
			h.op(history.Invoke, "fail-node", "n1", true)
			h.op(history.Fail, "fail-node", "n1", true)
		}, nil, "the planned fault iteration 1 step 1 fail-node n1 of lane-0 did not fire"},
		{"a fault without outcome", func(h *teller) { h.op(history.Invoke, "fail-node", "n1", true) }, nil, "fail-node n1 of lane-0 was invoked but has no outcome"},
		{"an op that is not known to have happened", func(h *teller) {
			h.op(history.Invoke, "scale", "", false)
			h.op(history.Info, "scale", "", false)
		}, nil, "nobody knows whether iteration 1 step 1 scale of lane-0 happened"},
		{"an outcome of nothing", func(h *teller) { h.op(history.OK, "scale", "", false) }, nil, "was not invoked"},
		{"a fault that nobody read after", nil, func(r []history.Record) []history.Record {
			h := &teller{records: r, now: r[len(r)-1].Time, iteration: 2}
			h.lane.Name = "lane-0"
			h.ops("fail-node", "n9", true)
			return h.records
		}, "lane-0 was never read after iteration 2 step 1 fail-node n9"},
		{"an iteration that nobody read before the next", func(h *teller) {
			h.ops("fail-node", "n9", true)
			h.nextIteration()
			h.ops("fail-node", "n9", true)
		}, nil, "lane-0 was never read after iteration 1 step 1 fail-node n9"},
		{"a generation that nobody read", func(h *teller) {
			l := h.lane
			l.Generation, l.Namespace = 2, "lane-0-2"
			h.put(history.Record{Lane: &l})
		}, nil, "lane-0 generation 2 was announced but never read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := tellOne(t)
			h.nextIteration()
			h.add("n1", "p", a15)
			if c.tell != nil {
				c.tell(h)
			}
			h.read()
			if c.edit != nil {
				h.records = c.edit(h.records)
			}
			wantUnknown(t, Check(h.records, Options{}), c.want)
		})
	}
}

func (h *teller) lastAttachment() *history.Attachment {
	for i := len(h.records) - 1; ; i-- {
		if a := h.records[i].Attachment; a != nil {
			return a
		}
	}
}

func without(drop func(history.Record) bool) func([]history.Record) []history.Record {
	return func(records []history.Record) []history.Record {
		var kept []history.Record
		for _, r := range records {
			if !drop(r) {
				kept = append(kept, r)
			}
		}
		return renumbered(kept)
	}
}

// TestLiveReadMustAgree falsifies the last snapshot of a history that is right
// in itself: one of the two must be wrong.
func TestLiveReadMustAgree(t *testing.T) {
	for name, falsify := range map[string]func(s *history.Snapshot){
		"an endpoint is missing": func(s *history.Snapshot) { s.Endpoints = nil },
		"a bit is missing":       func(s *history.Snapshot) { s.Bits = nil },
		"a bit too many": func(s *history.Snapshot) {
			s.Bits = append(s.Bits, history.SnapshotBit{Family: 4, Index: 77, Address: "10.10.10.77"})
		},
		"another pod":       func(s *history.Snapshot) { s.Pods[0].UID = "another"; s.Endpoints[0].PodUID = "another" },
		"another address":   func(s *history.Snapshot) { s.Endpoints[0].Addresses = []string{a16}; s.Bits[0].Address = a16 },
		"no address at all": func(s *history.Snapshot) { s.Bits[0].Address = "none" },
	} {
		t.Run(name, func(t *testing.T) {
			h := tellOne(t)
			h.add("n1", "p", a15)
			h.read(falsify)
			r := Check(h.records, Options{})
			if len(r.Unknowns) == 0 || r.Verdict == Valid {
				t.Errorf("verdict %s, unknowns %q", r.Verdict, r.Unknowns)
			}
		})
	}
}

func TestUnknownsAreCappedWithoutSilence(t *testing.T) {
	h := tellOne(t)
	h.add("n1", "p", a15)
	for range unknownsPerInvariantMax + 5 {
		h.put(history.Record{Gap: &history.Gap{Source: "audit", Reason: "lost"}})
	}
	h.read()
	r := Check(h.records, Options{})
	if len(r.Unknowns) != unknownsPerInvariantMax+1 || r.Unknowns[unknownsPerInvariantMax] != "HistoryComplete: and 5 more" {
		t.Errorf("unknowns: %q", r.Unknowns)
	}
}

func TestInvalidWinsOverUnknown(t *testing.T) {
	h, _ := tellIncident(t)
	h.put(history.Record{Gap: &history.Gap{Source: "audit", Reason: "lost"}})
	if r := Check(h.records, Options{}); r.Verdict != Invalid || len(r.Unknowns) != 1 {
		t.Errorf("verdict %s with unknowns %q", r.Verdict, r.Unknowns)
	}
}

// TestJoinByName: a deletion whose audit record carries no UID is matched by
// name and time, each once.
func TestJoinByName(t *testing.T) {
	h := tellOne(t)
	h.pod("p", "n1")
	for i, user := range []string{cleaner, node1, "admin"} {
		e := h.endpoint(node1, "p", a15)
		h.endpoints = nil
		h.records = h.records[:len(h.records)-2]
		e.Name, e.UID = "same", fmt.Sprint("uid-", i)
		h.writeEndpoint(node1, history.Added, e)
		h.begin, h.end = h.now, h.now.Add(time.Hour) // so that time alone does not tell
		h.writeEndpoint(user, history.Deleted, e)
		h.records[len(h.records)-2].Time = h.now
		h.records[len(h.records)-1].Audit.UID = ""
	}
	j := newJudge(Options{})
	j.readHeader(renumbered(h.records))
	_, writes := j.orderWrites(h.records)
	j.join(indexRequests(h.records), writes)
	var users []string
	for _, w := range writes {
		if w.Type == history.Deleted {
			users = append(users, w.user())
		}
	}
	if diff := cmp.Diff([]string{cleaner, node1, "admin"}, users); diff != "" {
		t.Errorf("wrong writers (-want +got):\n%s", diff)
	}
}

// TestJoinPrefersTheWriterOverWhoChangedNothing: an update without effect is
// answered with the revision that it found.
func TestJoinPrefersTheWriterOverWhoChangedNothing(t *testing.T) {
	h := tellOne(t)
	h.add("n1", "p", a15)
	h.clear(cleaner, a15)
	write := h.records[len(h.records)-1]
	noop := *write.Audit
	noop.User, noop.Begin = node1, noop.Begin.Add(time.Millisecond)
	h.records = append(h.records[:len(h.records)-1], history.Record{Time: write.Time, Audit: &noop}, write)
	h.records = renumbered(h.records)
	h.set(cleaner, a15)
	h.read()
	wantSummary(t, Check(h.records, Options{}), summary{Verdict: Invalid, Violations: []string{"I1 LiveAttachment cleaner 10.10.10.15"}})
}

// TestJoinOfUnresolvedRequests: a client that dies while it waits leaves a
// request whose answer does not tell what became of it.
func TestJoinOfUnresolvedRequests(t *testing.T) {
	// tell lets the cleaner clear a live bit by a request that was answered
	// with that code, besides others.
	tell := func(code int, others ...history.Audit) Report {
		h := tellOne(t)
		h.add("n1", "p", a15)
		h.clear(cleaner, a15)
		a := h.records[len(h.records)-1].Audit
		a.Code, a.RV, a.UID = code, 0, ""
		a.End = a.Begin // the commit came after the answer
		for _, o := range others {
			o.Resource, o.Namespace, o.Name, o.Begin, o.End = a.Resource, a.Namespace, a.Name, a.Begin, a.End
			h.put(history.Record{Audit: &o})
		}
		h.set(cleaner, a15)
		h.read()
		return Check(h.records, Options{})
	}
	blamed := summary{Verdict: Invalid, Violations: []string{"I1 LiveAttachment cleaner 10.10.10.15"}}
	for _, code := range []int{0, 499, 504} {
		wantSummary(t, tell(code), blamed)
	}
	wantSummary(t, tell(504, history.Audit{User: node1, Verb: "update", Code: 409}), blamed)
	wantSummary(t, tell(504, history.Audit{User: node1, Verb: "delete", Code: 504}), blamed)
	wantUnknown(t, tell(504, history.Audit{User: node1, Verb: "update", Code: 504}), "nobody is known to have made rv")
	wantUnknown(t, tell(409), "nobody is known to have made rv")
}

// TestJoinNeedsTheWriter: whoever changed nothing, later, is not taken for the
// writer whose own record is lost.
func TestJoinNeedsTheWriter(t *testing.T) {
	h := tellOne(t)
	h.add("n1", "p", a15)
	h.unaudited = true
	h.set(cleaner, a16)
	h.put(history.Record{Audit: &history.Audit{
		User: node1, Verb: "update", Resource: "danmnets", Group: "danm.k8s.io", Namespace: "lane-0", Name: "test-net1",
		UID: h.netUID, RV: h.rv, Code: 200, Begin: h.now, End: h.now,
	}})
	h.clear(node1, a16)
	h.read()
	wantUnknown(t, Check(h.records, Options{}), "nobody is known to have made rv")
}

// TestPodDeleteIsBoundedByItsRequest: with a request for the pod's deletion it
// is known that ADD succeeded before.
func TestPodDeleteIsBoundedByItsRequest(t *testing.T) {
	h := tellOne(t)
	uid := h.pod("p", "n1")
	h.set(node1, a15)
	e := h.endpoint(node1, "p", a15)
	h.deleteEndpoint(cleaner, e)
	h.attachment(history.Attached, "n1", e)
	h.pass(tick)
	begin := h.now
	h.deletePod("p")
	h.put(history.Record{Audit: &history.Audit{User: harness, Verb: "delete", Resource: "pods", UID: uid, Code: 200, Begin: begin, End: h.now}})
	h.clear(cleaner, a15)
	h.add("n1", "p", a15)
	h.read()
	wantSummary(t, Check(h.records, Options{}), summary{Verdict: Invalid, Violations: []string{"I1 LiveAttachment cleaner 10.10.10.15"}})
}

// TestLiveReadMayShowAnyStateOfItsTime: what is written while the snapshot is
// taken may be in it or not.
func TestLiveReadMayShowAnyStateOfItsTime(t *testing.T) {
	h := tellOne(t)
	e := h.add("n1", "p", a15)
	move := func() {
		h.del("n1", e)
		e = h.add("n1", "p", a16)
	}
	h.before, h.during = move, nil
	h.read()
	h.before, h.during = nil, move
	h.read()
	h.before, h.during = nil, nil
	h.read()
	wantSummary(t, Check(h.records, Options{}), valid)
}

// TestLiveReadFromAnotherTime: a snapshot of what was gone long ago, or is yet
// to come, does not agree with the history.
func TestLiveReadFromAnotherTime(t *testing.T) {
	h := tellOne(t)
	past := h.add("n1", "p", a15)
	h.del("n1", past)
	h.add("n1", "p", a15)
	h.read()
	snapshot := h.records[len(h.records)-2].Snapshot
	future := h.endpoint(harness, "p", a15)
	h.deleteEndpoint(harness, future)
	now := snapshot.Endpoints[0]
	for name, wrong := range map[string]string{"past": past.UID, "future": future.UID} {
		snapshot.Endpoints[0].UID, snapshot.Endpoints[0].PodUID = wrong, now.PodUID
		r := Check(h.records, Options{})
		if !slices.ContainsFunc(r.Unknowns, func(u string) bool { return strings.Contains(u, wrong+") was read but does not exist by then") }) {
			t.Errorf("%s: unknowns are %q", name, r.Unknowns)
		}
	}
}

// TestPlaceInTime: what is known of a write's neighbours bounds it too.
func TestPlaceInTime(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	audited := func(begin, end, seen int) *write {
		return &write{seen: at(seen), audit: &history.Audit{Begin: at(begin), End: at(end)}}
	}
	writes := []*write{audited(10, 90, 95), {seen: at(60)}, audited(5, 40, 35), audited(20, 50, 70)}
	placeInTime(writes)
	got := ""
	for _, w := range writes {
		got += fmt.Sprintf("%d-%d ", w.earliest.Unix(), w.latest.Unix())
	}
	if want := "10-35 10-35 10-35 20-50 "; got != want {
		t.Errorf("bounds are %s, want %s", got, want)
	}
}
