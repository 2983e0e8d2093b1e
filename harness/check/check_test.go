package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// summary is a report as the tests state it: "I1 LiveAttachment cleaner
// 10.10.10.15" for each violation or finding.
type summary struct {
	Verdict    Verdict
	Violations []string
	Findings   []string
}

func summarize(r Report) summary {
	line := func(v Violation) string {
		return strings.TrimSpace(fmt.Sprintf("%s %s %s", v.Invariant, v.Blame, v.Address))
	}
	s := summary{Verdict: r.Verdict}
	for _, v := range r.Violations {
		s.Violations = append(s.Violations, line(v))
	}
	for _, v := range r.Findings {
		s.Findings = append(s.Findings, line(v))
	}
	slices.Sort(s.Violations)
	slices.Sort(s.Findings)
	return s
}

func wantSummary(t *testing.T, r Report, want summary) {
	t.Helper()
	if diff := cmp.Diff(want, summarize(r)); diff != "" {
		t.Errorf("wrong judgement (-want +got):\n%s", diff)
		for _, v := range append(slices.Clone(r.Violations), r.Findings...) {
			t.Logf("%s: %s\n  %s", v.Invariant, v.Message, strings.Join(v.Evidence, "\n  "))
		}
		for _, u := range r.Unknowns {
			t.Log(u)
		}
	}
}

func wantUnknown(t *testing.T, r Report, text string) {
	t.Helper()
	if r.Verdict != Unknown {
		t.Errorf("verdict is %s, want Unknown; %v", r.Verdict, summarize(r))
	}
	if !slices.ContainsFunc(r.Unknowns, func(u string) bool { return strings.Contains(u, text) }) {
		t.Errorf("no Unknown says %q: %q", text, r.Unknowns)
	}
}

var valid = summary{Verdict: Valid}

const (
	a15 = "10.10.10.15"
	a16 = "10.10.10.16"
)

// TestAccepts holds near-misses: everything here looks like a violation and is
// none.
func TestAccepts(t *testing.T) {
	for _, c := range []struct {
		name string
		tell func(h *teller)
	}{
		{"a quiet life", func(h *teller) { h.add("n1", "p", a15) }},
		{"the mirror of a static pod is made anew, and its endpoint stays", func(h *teller) {
			h.static = true
			e := h.add("n1", "p", a15)
			h.deletePod("p")
			e.Owner = h.pod("p", "n1")
		}},
		{"DEL clears its own bit right after it began", func(h *teller) {
			h.del("n1", h.add("n1", "p", a15))
			h.add("n1", "p", a16)
		}},
		{"the endpoint goes after the pod object is gone", func(h *teller) {
			old := h.add("n1", "p", a15)
			h.deletePod("p")
			h.release(old)
			h.add("n2", "p", a16)
		}},
		{"the same address goes to the next pod after a proper release", func(h *teller) {
			old := h.add("n1", "p", a15)
			h.deletePod("p")
			h.release(old)
			h.add("n2", "p", a15)
		}},
		{"a release once for each of many owners of one address", func(h *teller) {
			for range 3 {
				old := h.add("n1", "p", a15)
				h.deletePod("p")
				h.release(old)
			}
			h.add("n2", "p", a15)
		}},
		{"the cleaner clears in the same instant in which DEL begins", func(h *teller) {
			e := h.add("n1", "p", a15)
			h.attachment(history.Detaching, "n1", e)
			h.begin, h.end = h.now, h.now
			h.clear(cleaner, a15)
			h.deleteEndpoint(node1, e)
			h.deletePod("p")
			h.add("n1", "p", a15)
		}},
		{"a clear whose request spans the begin of DEL", func(h *teller) {
			e := h.add("n1", "p", a15)
			h.attachment(history.Detaching, "n1", e)
			h.begin, h.end = h.now.Add(-tick/2), h.now.Add(tick/2)
			h.clear(cleaner, a15)
			h.deleteEndpoint(node1, e)
			h.deletePod("p")
			h.add("n1", "p", a15)
		}},
		{"a node's death may have come any time since its fault was invoked", func(h *teller) {
			e := h.add("n1", "p", a15)
			h.op(history.Invoke, "fail-node", "n1", true)
			h.release(e)
			h.lost("n1", e)
			h.op(history.OK, "fail-node", "n1", true)
			h.deletePod("p")
			h.add("n2", "p", a15)
		}},
		{"a bit that was put back before ADD returned", func(h *teller) {
			h.pod("p", "n1")
			h.set(node1, a15)
			h.clear(cleaner, a15)
			e := h.endpoint(node1, "p", a15)
			h.set(cleaner, a15)
			h.attached("n1", e)
		}},
		{"a bit whose repair spans the end of ADD", func(h *teller) {
			h.pod("p", "n1")
			h.set(node1, a15)
			h.clear(cleaner, a15)
			e := h.endpoint(node1, "p", a15)
			h.begin, h.end = h.now, h.now.Add(3*tick)
			h.set(cleaner, a15)
			h.attached("n1", e)
			h.pass(3 * tick)
		}},
		{"a sandbox that may have come to life after its pod object was gone", func(h *teller) {
			h.pod("p", "n1")
			h.set(node1, a15)
			e := h.endpoint(node1, "p", a15)
			h.deleteEndpoint(cleaner, e)
			h.attachment(history.Attached, "n1", e)
			h.deletePod("p") // no request tells how late this was
			h.clear(cleaner, a15)
			h.add("n2", "p", a16)
		}},
		{"a sandbox that comes to life after its pod object is gone", func(h *teller) {
			h.pod("p", "n1")
			h.set(node1, a15)
			e := h.endpoint(node1, "p", a15)
			h.deletePod("p")
			h.release(e)
			h.attached("n1", e)
			h.add("n2", "p", a15)
		}},
		{"an orphan bit of an unfinished ADD is swept, on an address that was released before", func(h *teller) {
			old := h.add("n1", "p", a15)
			h.deletePod("p")
			h.release(old)
			h.set(node1, a15) // and the node dies before the endpoint
			h.clear(cleaner, a15)
			h.add("n2", "p", a15)
		}},
		{"an endpoint whose bit a CNI cleared is deleted only", func(h *teller) {
			e := h.add("n1", "p", a15)
			h.detaching("n1", e)
			h.clear(node1, a15) // and the node dies before the endpoint
			h.deletePod("p")
			h.deleteEndpoint(cleaner, e)
			h.add("n2", "p", a15)
		}},
		{"an update that changed nothing", func(h *teller) {
			h.add("n1", "p", a15)
			h.put(history.Record{Audit: &history.Audit{
				User: harness, Verb: "patch", Resource: "danmnets", Group: "danm.k8s.io", Namespace: "lane-0", Name: "test-net1",
				UID: h.netUID, RV: lastRVOf(h, "danmnets"), Code: 200, Begin: h.now, End: h.now.Add(tick / 2),
			}})
		}},
		{"a write to the group that is not watched", func(h *teller) {
			h.add("n1", "p", a15)
			h.put(history.Record{Audit: &history.Audit{
				User: harness, Verb: "update", Resource: "danmnets", Group: "danm.io", Name: "x", UID: "x", RV: 1, Code: 200, Begin: h.now, End: h.now,
			}})
		}},
		{"requests that failed or were a dry run", func(h *teller) {
			h.add("n1", "p", a15)
			for _, a := range []history.Audit{
				{User: cleaner, Verb: "delete", Resource: "pods", Code: 403},
				{User: cleaner, Verb: "patch", Resource: "danmnets", Group: "danm.k8s.io", RV: 99999, Code: 422},
				{User: cleaner, Verb: "create", Resource: "danmeps", Group: "danm.k8s.io", Code: 201, DryRun: true},
				{User: cleaner, Verb: "update", Resource: "leases", Group: "coordination.k8s.io", Code: 200},
				{User: cleaner, Verb: "create", Resource: "events", Code: 201},
			} {
				a.Begin, a.End = h.now, h.now
				h.put(history.Record{Audit: &a})
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := tellOne(t)
			c.tell(h)
			h.read()
			wantSummary(t, Check(h.records, Options{}), valid)
		})
	}
}

func lastRVOf(h *teller, resource string) (rv uint64) {
	for _, r := range h.records {
		if r.Write != nil && r.Write.Resource == resource {
			rv = r.Write.RV
		}
	}
	return rv
}

// TestRejects holds, for every checker, histories that it must not accept.
func TestRejects(t *testing.T) {
	for _, c := range []struct {
		name string
		tell func(h *teller)
		want summary
	}{
		{"the cleaner clears the bit of a live pod", func(h *teller) {
			h.add("n1", "p", a15)
			h.clear(cleaner, a15)
			h.set(cleaner, a15)
		}, summary{Verdict: Invalid, Violations: []string{"I1 LiveAttachment cleaner 10.10.10.15"}}},
		{"the cleaner deletes the endpoint of a live pod, which then ends orderly", func(h *teller) {
			e := h.add("n1", "p", a15)
			h.deleteEndpoint(cleaner, e)
			h.detaching("n1", e)
			h.clear(node1, a15)
			h.deletePod("p")
			h.add("n1", "p", a15)
		}, summary{Verdict: Invalid, Violations: []string{"I1 LiveAttachment cleaner 10.10.10.15"}}},
		{"the mirror of a static pod is made anew, and the cleaner takes that for another pod", func(h *teller) {
			h.static = true
			e := h.add("n1", "p", a15)
			h.deletePod("p")
			e.Owner = h.pod("p", "n1")
			h.clear(cleaner, a15)
			h.set(cleaner, a15)
		}, summary{Verdict: Invalid, Violations: []string{"I1 LiveAttachment cleaner 10.10.10.15"}}},
		{"an endpoint of an old DANM, which names no pod, is left over", func(h *teller) {
			h.add("n1", "p", a15).Owner = "a pod that is gone"
			h.pods = nil
		}, summary{Verdict: Invalid, Violations: []string{"I3 Convergence cleaner 10.10.10.15"}}},
		{"the cleaner clears between ADD's two writes", func(h *teller) {
			h.pod("p", "n1")
			h.set(node1, a15)
			h.clear(cleaner, a15)
			h.attached("n1", h.endpoint(node1, "p", a15))
			h.set(cleaner, a15)
		}, summary{Verdict: Invalid, Violations: []string{"I1 LiveAttachment cleaner 10.10.10.15"}}},
		{"the cleaner deletes the endpoint before ADD returns", func(h *teller) {
			h.pod("p", "n1")
			h.set(node1, a15)
			e := h.endpoint(node1, "p", a15)
			h.deleteEndpoint(cleaner, e)
			h.attached("n1", e)
			h.detaching("n1", e)
			h.clear(node1, a15)
			h.deletePod("p")
			h.add("n1", "p", a15)
		}, summary{Verdict: Invalid, Violations: []string{"I1 LiveAttachment cleaner 10.10.10.15"}}},
		{"the cleaner clears just before DEL begins", func(h *teller) {
			e := h.add("n1", "p", a15)
			h.begin, h.end = h.now, h.now.Add(time.Millisecond)
			h.clear(cleaner, a15)
			h.del("n1", e)
			h.add("n1", "p", a15)
		}, summary{Verdict: Invalid, Violations: []string{"I1 LiveAttachment cleaner 10.10.10.15"}}},
		{"a pod that is only marked for deletion is still live", func(h *teller) {
			e := h.add("n1", "p", a15)
			h.findPod("p").Terminating = true
			h.writePod(history.Modified, h.findPod("p"))
			h.release(e)
			h.deletePod("p")
			h.add("n2", "p", a15)
		}, summary{Verdict: Invalid, Violations: []string{
			"I1 LiveAttachment cleaner 10.10.10.15", "I1 LiveAttachment cleaner 10.10.10.15",
		}}},
		{"the cleaner's write is answered late but the next write bounds it", func(h *teller) {
			e := h.add("n1", "p", a15)
			h.begin, h.end = h.now, h.now.Add(time.Hour)
			h.clear(cleaner, a15)
			h.set(harness, a16)
			h.clear(harness, a16)
			h.detaching("n1", e)
			h.deleteEndpoint(node1, e)
			h.deletePod("p")
			h.add("n1", "p", a15)
		}, summary{Verdict: Invalid, Violations: []string{"I1 LiveAttachment cleaner 10.10.10.15"}}},
		{"what a CNI broke first does not hide what the cleaner breaks", func(h *teller) {
			h.add("n1", "p", a15)
			h.clear(node2, a15)
			h.set(cleaner, a15)
			h.clear(cleaner, a15)
			h.set(cleaner, a15)
		}, summary{
			Verdict: Invalid, Violations: []string{"I1 LiveAttachment cleaner 10.10.10.15"},
			Findings: []string{"I1 LiveAttachment cni 10.10.10.15"},
		}},
		{"two live pods on one address, made possible by the cleaner", func(h *teller) {
			h.lane.Replicas = 2
			h.records[1].Lane.Replicas = 2
			h.add("n1", "p", a15)
			h.clear(cleaner, a15)
			h.add("n2", "q", a15)
		}, summary{Verdict: Invalid, Violations: []string{
			"I1 LiveAttachment cleaner 10.10.10.15", "I2 SingleHolder cleaner 10.10.10.15", "I3 Convergence cleaner 10.10.10.15",
		}}},
		{"two live pods on one address, the endpoint of the first deleted and the address released again later, all by the cleaner", func(h *teller) {
			h.records[1].Lane.Replicas = 2
			h.deleteEndpoint(cleaner, h.add("n1", "p", a15))
			h.clear(cleaner, a15)
			third := h.add("n2", "r", a15)
			h.lost("n2", third)
			h.deletePod("r")
			h.release(third)
			h.add("n2", "q", a15)
		}, summary{Verdict: Invalid, Violations: []string{
			"I1 LiveAttachment cleaner 10.10.10.15", "I1 LiveAttachment cleaner 10.10.10.15", "I2 SingleHolder cleaner 10.10.10.15",
			"I2 SingleHolder cleaner 10.10.10.15", "I3 Convergence cleaner 10.10.10.15",
		}}},
		{"the cleaner releases a dead pod's endpoint while another endpoint of a living pod still claims its address", func(h *teller) {
			h.records[1].Lane.Replicas = 2
			h.add("n1", "p", a15)
			h.pod("r", "n2")
			doubled := h.endpoint(node2, "r", a15)
			h.attached("n2", doubled)
			h.lost("n2", doubled)
			h.deletePod("r")
			h.release(doubled)
			h.add("n2", "q", a15)
		}, summary{
			Verdict:    Invalid,
			Violations: []string{"I1 LiveAttachment cleaner 10.10.10.15", "I2 SingleHolder cleaner 10.10.10.15", "I3 Convergence cleaner 10.10.10.15"},
			Findings:   []string{"I2 SingleHolder cni 10.10.10.15"},
		}},
		{"two live pods on one address, whose ADDs overtake each other", func(h *teller) {
			h.records[1].Lane.Replicas = 2
			h.pod("p", "n1")
			h.pod("q", "n2")
			h.set(node1, a15)
			p := h.endpoint(node1, "p", a15)
			h.clear(cleaner, a15)
			h.set(node2, a15)
			h.attached("n2", h.endpoint(node2, "q", a15))
			h.attached("n1", p)
		}, summary{Verdict: Invalid, Violations: []string{
			"I2 SingleHolder cleaner 10.10.10.15", "I3 Convergence cleaner 10.10.10.15",
		}}},
		{"two live pods on one address, cleared again before the second has its endpoint", func(h *teller) {
			h.records[1].Lane.Replicas = 2
			h.add("n1", "p", a15)
			h.clear(cleaner, a15)
			h.pod("q", "n2")
			h.set(node2, a15)
			h.clear(node1, a15)
			q := h.endpoint(node2, "q", a15)
			h.set(harness, a15)
			h.attached("n2", q)
		}, summary{Verdict: Invalid, Violations: []string{
			"I1 LiveAttachment cleaner 10.10.10.15", "I2 SingleHolder cleaner 10.10.10.15", "I3 Convergence cleaner 10.10.10.15",
		}, Findings: []string{"I1 LiveAttachment cni 10.10.10.15"}}},
		{"the cleaner clears twice for one endpoint, a repair between", func(h *teller) {
			old := h.add("n1", "p", a15)
			h.deletePod("p")
			h.clear(cleaner, a15)
			h.set(cleaner, a15)
			h.clear(cleaner, a15)
			h.deleteEndpoint(cleaner, old)
			h.add("n2", "p", a15)
		}, summary{Verdict: Invalid, Violations: []string{"I4 ClearOnce cleaner 10.10.10.15"}}},
		{"the cleaner clears the first bit", func(h *teller) {
			h.add("n1", "p", a15)
			h.clear(cleaner, "10.10.10.0")
		}, summary{Verdict: Invalid, Violations: []string{"I5 ReservedBits cleaner 10.10.10.0"}}},
		{"the cleaner clears the last bit", func(h *teller) {
			h.add("n1", "p", a15)
			h.clear(cleaner, "10.10.10.255")
		}, summary{Verdict: Invalid, Violations: []string{"I5 ReservedBits cleaner 10.10.10.255"}}},
		{"the cleaner clears a gateway", func(h *teller) {
			h.add("n1", "p", a15)
			h.clear(cleaner, "10.10.10.1")
		}, summary{Verdict: Invalid, Violations: []string{"I5 ReservedBits cleaner 10.10.10.1"}}},
		{"the cleaner changes another field, time after time", func(h *teller) {
			h.add("n1", "p", a15)
			for i := range 3 {
				h.options()["allocation_pool"] = map[string]any{"lastIp": fmt.Sprint("10.10.10.", i+2)}
				h.writeNetwork(cleaner, history.Modified)
			}
		}, summary{Verdict: Invalid, Violations: []string{"I6 OnlyAllocations cleaner", "I6 OnlyAllocations cleaner"}}},
		{"the cleaner leaves the bitmap unreadable and puts it right", func(h *teller) {
			h.add("n1", "p", a15)
			h.options()["alloc"] = "gDwA"
			h.rawNetwork(cleaner, history.Modified)
			h.writeNetwork(harness, history.Modified)
		}, summary{Verdict: Invalid, Violations: []string{
			"I1 LiveAttachment cleaner 10.10.10.15",
			"I5 ReservedBits cleaner 10.10.10.0", "I5 ReservedBits cleaner 10.10.10.1", "I5 ReservedBits cleaner 10.10.10.255",
			"I6 OnlyAllocations cleaner",
		}}},
		{"the cleaner creates an endpoint", func(h *teller) {
			h.pod("p", "n1")
			h.set(node1, a15)
			h.attached("n1", h.endpoint(cleaner, "p", a15))
		}, summary{Verdict: Invalid, Violations: []string{"I6 OnlyAllocations cleaner"}}},
		{"the cleaner changes an endpoint", func(h *teller) {
			h.writeEndpoint(cleaner, history.Modified, h.add("n1", "p", a15))
		}, summary{Verdict: Invalid, Violations: []string{"I6 OnlyAllocations cleaner"}}},
		{"the cleaner deletes a pod", func(h *teller) {
			h.add("n1", "p", a15)
			h.put(history.Record{Audit: &history.Audit{
				User: cleaner, Verb: "delete", Resource: "pods", Namespace: "lane-0", Name: "q", Code: 200, Begin: h.now, End: h.now,
			}})
		}, summary{Verdict: Invalid, Violations: []string{"I6 OnlyAllocations cleaner"}}},
		{"the cleaner deletes endpoints as a collection", func(h *teller) {
			e := h.add("n1", "p", a15)
			h.deletePod("p")
			begin := h.now
			h.unaudited = true
			h.deleteEndpoint(cleaner, e)
			h.put(history.Record{Audit: &history.Audit{
				User: cleaner, Verb: "deletecollection", Resource: "danmeps", Group: "danm.k8s.io", Namespace: "lane-0", Code: 200, Begin: begin, End: h.now,
			}})
			h.clear(cleaner, a15)
			h.add("n1", "p", a15)
		}, summary{Verdict: Invalid, Violations: []string{"I6 OnlyAllocations cleaner"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := tellOne(t)
			c.tell(h)
			h.read()
			wantSummary(t, Check(h.records, Options{}), c.want)
		})
	}
}

// TestFindings: what others broke is told but does not make the run Invalid,
// unless the options say that it does.
func TestFindings(t *testing.T) {
	for _, c := range []struct {
		name string
		tell func(h *teller)
		want []string
	}{
		{"a late DEL of a CNI clears a bit that is in use, and it is repaired", func(h *teller) {
			h.add("n1", "p", a15)
			h.clear(node2, a15)
			h.set(cleaner, a15)
		}, []string{"I1 LiveAttachment cni 10.10.10.15"}},
		{"a CNI hands out an address that it did not allocate, and it is repaired", func(h *teller) {
			h.del("n1", h.add("n1", "p", a15))
			h.pod("p", "n1")
			h.attached("n1", h.endpoint(node1, "p", a15))
			h.set(cleaner, a15)
		}, []string{"I1 LiveAttachment cni 10.10.10.15"}},
		{"the same, after the cleaner released the address rightly", func(h *teller) {
			old := h.add("n1", "p", a15)
			h.deletePod("p")
			h.release(old)
			h.pod("p", "n1")
			h.attached("n1", h.endpoint(node1, "p", a15))
			h.set(cleaner, a15)
		}, []string{"I1 LiveAttachment cni 10.10.10.15"}},
		{"an administrator takes the address away, and it is repaired", func(h *teller) {
			h.add("n1", "p", a15)
			h.clear("admin", a15)
			h.set(cleaner, a15)
		}, []string{"I1 LiveAttachment other 10.10.10.15"}},
		{"a network is deleted under a live pod and made again", func(h *teller) {
			h.add("n1", "p", a15)
			h.writeNetwork("admin", history.Deleted)
			h.netUID = "another"
			h.writeNetwork("admin", history.Added)
		}, []string{"I1 LiveAttachment other 10.10.10.15"}},
		{"the namespace controller empties the namespace under a pod that still runs", func(h *teller) {
			e := h.add("n1", "p", a15)
			begin := h.now
			h.unaudited = true
			h.deleteEndpoint(nsCtl, e)
			h.put(history.Record{Audit: &history.Audit{
				User: nsCtl, Verb: "deletecollection", Resource: "danmeps", Group: "danm.k8s.io", Namespace: "lane-0", Code: 200, Begin: begin, End: h.now,
			}})
			h.detaching("n1", e)
			h.clear(node1, a15)
			h.deletePod("p")
			h.add("n1", "p", a16)
		}, []string{"I1 LiveAttachment other 10.10.10.15"}},
		{"a CNI gives one address to two pods, the first of which then ends", func(h *teller) {
			first := h.add("n1", "p", a15)
			h.pod("q", "n2")
			h.attached("n2", h.endpoint(node2, "q", a15))
			h.detaching("n1", first)
			h.deleteEndpoint(node1, first)
			h.deletePod("p")
		}, []string{"I2 SingleHolder cni 10.10.10.15"}},
		{"a CNI takes a pod's endpoint and address, which the cleaner later takes from a dead pod, for the next", func(h *teller) {
			h.records[1].Lane.Replicas = 2
			first := h.add("n1", "p", a15)
			h.clear(node2, a15)
			h.deleteEndpoint(node2, first)
			dead := h.add("n2", "q", a15)
			h.lost("n2", dead)
			h.deletePod("q")
			h.release(dead)
			h.add("n2", "q", a15)
		}, []string{
			"I1 LiveAttachment cni 10.10.10.15", "I1 LiveAttachment cni 10.10.10.15", "I2 SingleHolder cni 10.10.10.15",
			"I2 SingleHolder cni 10.10.10.15", "I3 Convergence cni 10.10.10.15",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := tellOne(t)
			c.tell(h)
			h.read()
			wantSummary(t, Check(h.records, Options{}), summary{Verdict: Valid, Findings: c.want})
			wantSummary(t, Check(h.records, Options{BlameAny: true}), summary{Verdict: Invalid, Violations: c.want})
		})
	}
}

// TestConvergence: the state of the world after it settled, as sets.
func TestConvergence(t *testing.T) {
	const i3 = "I3 Convergence cleaner"
	for _, c := range []struct {
		name    string
		tell    func(h *teller)
		falsify func(s *history.Snapshot)
		want    []string
	}{
		{"a bit that nobody released", func(h *teller) {
			h.add("n1", "p", a15)
			h.set(node1, a16)
		}, nil, []string{i3 + " 10.10.10.16"}},
		{"an endpoint and a bit that nobody released", func(h *teller) {
			h.add("n1", "p", a15)
			h.deletePod("p")
			h.add("n2", "p", a16)
		}, nil, []string{i3 + " 10.10.10.15"}},
		{"one leak and one double release, which cancel in the counts", func(h *teller) {
			h.add("n1", "p", a15)
			h.clear(node2, a15)
			h.set(node1, a16)
		}, nil, []string{i3 + " 10.10.10.15", i3 + " 10.10.10.16"}},
		{"it did not settle because a bit is left", func(h *teller) {
			h.add("n1", "p", a15)
			h.set(node1, a16)
		}, func(s *history.Snapshot) { s.Settled, s.Pending = false, "1 bit has no endpoint" }, []string{i3, i3 + " 10.10.10.16"}},
		{"a pod that lacks its second interface", func(h *teller) { h.add("n1", "p", a15) },
			func(s *history.Snapshot) { s.Pods[0].Interfaces = 2 }, []string{i3}},
		{"an endpoint without the address that its lane has", func(h *teller) {
			h.pod("p", "n1")
			h.attached("n1", h.endpoint(node1, "p"))
		}, nil, []string{i3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := tellOne(t)
			c.tell(h)
			if c.falsify == nil {
				c.falsify = func(*history.Snapshot) {}
			}
			h.read(c.falsify)
			got := summarize(Check(h.records, Options{}))
			if diff := cmp.Diff(summary{Verdict: Invalid, Violations: c.want}, summary{Verdict: got.Verdict, Violations: got.Violations}); diff != "" {
				t.Errorf("wrong judgement (-want +got):\n%s", diff)
			}
		})
	}
}

// An endpoint that a CNI took from a living pod is no leak, and nobody but a CNI
// can make another. If the cleaner took it, it is the cleaner's.
func TestALivePodWithoutEndpointIsBlamedOnWhoTookIt(t *testing.T) {
	for _, c := range []struct {
		taker string
		want  Verdict
	}{{node2, Valid}, {cleaner, Invalid}} {
		t.Run(c.taker, func(t *testing.T) {
			h := tellOne(t)
			e := h.add("n1", "p", a15)
			h.deleteEndpoint(c.taker, e)
			h.clear(node2, a15)
			h.read(func(s *history.Snapshot) { s.Settled, s.Pending = false, "1 pod has no endpoint" })
			r := Check(h.records, Options{})
			told := append(r.Violations, r.Findings...)
			isTold := slices.ContainsFunc(told, func(v Violation) bool { return v.Invariant == Convergence && v.Writer == c.taker })
			if r.Verdict != c.want || !isTold {
				t.Errorf("got %s, want %s, with a word about it: %+v", r.Verdict, c.want, told)
			}
		})
	}
}

// Two endpoints of one living pod are both its own for all that a cleaner knows.
func TestASurplusEndpointOfALivingPodIsBlamedOnItsWriter(t *testing.T) {
	for _, c := range []struct {
		writer string
		want   Verdict
	}{{"system:node:n1", Valid}, {cleaner, Invalid}} {
		t.Run(c.writer, func(t *testing.T) {
			h := tellOne(t)
			h.add("n1", "p", a15)
			h.set("system:node:n1", a16)
			h.endpoint(c.writer, "p", a16)
			h.read(func(s *history.Snapshot) { s.Settled, s.Pending = false, "1 pod has 2 endpoints" })
			r := Check(h.records, Options{})
			told := append(r.Violations, r.Findings...)
			isTold := slices.ContainsFunc(told, func(v Violation) bool { return v.Invariant == Convergence && v.Writer == c.writer })
			if r.Verdict != c.want || !isTold {
				t.Errorf("got %s, want %s, with a word about it: %+v", r.Verdict, c.want, told)
			}
		})
	}
}

// A bit that no endpoint claims any more is an orphan, whatever still uses the
// address.
func TestAClearedOrphanIsBlamedOnWhoTookTheEndpoint(t *testing.T) {
	for _, c := range []struct {
		taker string
		want  Blame
	}{{node2, BlameCNI}, {cleaner, BlameCleaner}} {
		t.Run(c.taker, func(t *testing.T) {
			h := tellOne(t)
			e := h.add("n1", "p", a15)
			h.deleteEndpoint(c.taker, e)
			h.clear(cleaner, a15)
			h.read(func(s *history.Snapshot) { s.Settled, s.Pending = false, "1 pod has no endpoint" })
			r := Check(h.records, Options{})
			cleared := slices.IndexFunc(append(r.Violations, r.Findings...), func(v Violation) bool {
				return v.Invariant == LiveAttachment && strings.Contains(v.Message, " cleared ")
			})
			if cleared < 0 || append(r.Violations, r.Findings...)[cleared].Blame != c.want {
				t.Errorf("want a word about the clear that blames %s: %+v", c.want, append(r.Violations, r.Findings...))
			}
		})
	}
}

// Two living pods on one address are for people to sort out. Who is to blame is
// whoever freed the address of the first.
func TestASharedAddressIsBlamedOnWhoFreedIt(t *testing.T) {
	for _, c := range []struct {
		freer string
		want  Verdict
	}{{node2, Valid}, {cleaner, Invalid}} {
		t.Run(c.freer, func(t *testing.T) {
			h := tellOf(t, shape{danm.DanmNet, true, false, 2})
			h.add("n1", "p", a15)
			h.clear(c.freer, a15)
			h.add("n2", "q", a15)
			h.read(func(s *history.Snapshot) { s.Settled, s.Pending = false, "2 pods have one address" })
			r := Check(h.records, Options{})
			told := append(r.Violations, r.Findings...)
			isTold := slices.ContainsFunc(told, func(v Violation) bool { return v.Invariant == Convergence })
			if r.Verdict != c.want || !isTold {
				t.Errorf("got %s, want %s, with a word about it: %+v", r.Verdict, c.want, told)
			}
		})
	}
}

// Pods that do not come back are no proof against a cleaner whose sets agree,
// and no proof for it either.
func TestConvergenceIsUnknownWhilePodsAreMissing(t *testing.T) {
	for _, c := range []struct {
		name    string
		falsify func(*history.Snapshot)
	}{
		{"it did not settle", func(s *history.Snapshot) { s.Settled, s.Pending = false, "1 pod is not ready" }},
		{"too few pods", func(s *history.Snapshot) { s.Pods, s.Endpoints, s.Bits = nil, nil, nil }},
		{"a pod that does not run", func(s *history.Snapshot) { s.Pods[0].Phase = "Pending" }},
		{"a pod that is not ready", func(s *history.Snapshot) { s.Pods[0].Ready = false }},
		{"a pod that is still terminating", func(s *history.Snapshot) { s.Pods[0].Terminating = true }},
		{"a pod that waits for its interfaces", func(s *history.Snapshot) {
			s.Pods = append(s.Pods, history.SnapshotPod{Namespace: "ns", Name: "q", UID: "q-uid", Phase: "Pending", Interfaces: 1})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := tellOne(t)
			h.add("n1", "p", a15)
			h.read(c.falsify)
			if r := Check(h.records, Options{}); r.Verdict != Unknown {
				t.Errorf("got %s, want %s: %+v", r.Verdict, Unknown, r.Violations)
			}
		})
	}
}

func TestAClearBeforeADDReturnsIsCalledThat(t *testing.T) {
	h := tellOne(t)
	uid := h.pod("p", "n1")
	h.set(node1, a15)
	h.clear(cleaner, a15)
	rv := h.rv
	h.attached("n1", h.endpoint(node1, "p", a15))
	h.set(cleaner, a15)
	h.read()
	want := fmt.Sprintf("danm-cleaner cleared 10.10.10.15 of DanmNet lane-0/test-net1 (rv %d) while CNI ADD was bringing p (uid %s) to life on it", rv, uid)
	if r := Check(h.records, Options{}); len(r.Violations) != 1 || r.Violations[0].Message != want {
		t.Errorf("got %+v, want one violation that says %q", r.Violations, want)
	}
}

func TestConvergenceNamesTheWriterOfWhatIsMissing(t *testing.T) {
	h := tellOne(t)
	h.add("n1", "p", a15)
	h.clear(node2, a15)
	cleared := h.rv
	h.read()
	r := Check(h.records, Options{})
	if len(r.Violations) != 1 || r.Violations[0].Writer != node2 || r.Violations[0].RV != cleared {
		t.Errorf("the missing bit is not traced to rv %d by %s: %+v", cleared, node2, r.Violations)
	}
}

func TestConvergenceTellsALastingLeakOnce(t *testing.T) {
	h := tellOne(t)
	h.add("n1", "p", a15)
	h.set(node1, a16)
	h.read()
	h.read()
	h.read()
	r := Check(h.records, Options{})
	if len(r.Violations) != 1 || !slices.Contains(r.Violations[0].Evidence, "still so in 2 later snapshots") {
		t.Errorf("want one violation that says how long it lasted: %+v", r.Violations)
	}
}

func TestConvergenceCapsWithoutSilence(t *testing.T) {
	h := tellOne(t)
	h.add("n1", "p", a15)
	for i := range snapshotViolationsMax + 7 {
		h.set(node1, fmt.Sprintf("10.10.10.%d", 100+i))
	}
	h.read()
	r := Check(h.records, Options{})
	last := r.Violations[len(r.Violations)-1]
	if len(r.Violations) != snapshotViolationsMax || !slices.Contains(last.Evidence, "and 7 more in this snapshot") {
		t.Errorf("%d violations, the last with evidence %q", len(r.Violations), last.Evidence)
	}
}

func TestDryRunMustBeSilent(t *testing.T) {
	dry := func(act func(h *teller)) Report {
		h := tellOne(t)
		h.records[0].Run.DryRun = true
		h.add("n1", "p", a15)
		h.deletePod("p")
		h.add("n2", "p", a16)
		act(h)
		h.read()
		return Check(h.records, Options{})
	}
	t.Run("a leak is not the fault of a cleaner that may not write", func(t *testing.T) {
		wantSummary(t, dry(func(*teller) {}), summary{Verdict: Valid, Findings: []string{"I3 Convergence other 10.10.10.15"}})
	})
	t.Run("a release is", func(t *testing.T) {
		got := dry(func(h *teller) { h.release(h.endpoints[0]) })
		wantSummary(t, got, summary{Verdict: Invalid, Violations: []string{"I8 DryRunSilent cleaner", "I8 DryRunSilent cleaner"}})
	})
	t.Run("so is a write that changes nothing, in the group that is not in use", func(t *testing.T) {
		got := dry(func(h *teller) {
			h.put(history.Record{Audit: &history.Audit{
				User: cleaner, Verb: "patch", Resource: "danmnets", Group: "danm.io", Namespace: "lane-0", Name: "x", UID: "u", RV: 1, Code: 200, Begin: h.now, End: h.now,
			}})
		})
		if got.Verdict != Invalid || got.Violations[0].Invariant != DryRunSilent {
			t.Errorf("accepted: %+v", summarize(got))
		}
	})
}

// TestEveryNetworkKindAndFamily: the same two stories, right and wrong, for
// each shape of lane.
func TestEveryNetworkKindAndFamily(t *testing.T) {
	for _, kind := range danm.NetworkKinds() {
		for name, addrs := range map[string][]string{
			"v4": {a15}, "v6": {"2001:db8::11f"}, "dual": {a15, "2001:db8::11f"},
		} {
			s := shape{kind, name != "v6", name != "v4", 1}
			t.Run(fmt.Sprint(kind, " ", name, " released rightly"), func(t *testing.T) {
				h := tellOf(t, s)
				old := h.add("n1", "p", addrs...)
				h.deletePod("p")
				h.release(old)
				h.add("n2", "p", addrs...)
				h.read()
				r := Check(h.records, Options{})
				wantSummary(t, r, valid)
				if want := len(addrs); r.Checked[ClearOnce] != want {
					t.Errorf("ClearOnce was evaluated %d times, want %d", r.Checked[ClearOnce], want)
				}
			})
			t.Run(fmt.Sprint(kind, " ", name, " cleared under a live pod"), func(t *testing.T) {
				h := tellOf(t, s)
				h.add("n1", "p", addrs...)
				h.clear(cleaner, addrs...)
				h.set(cleaner, addrs...)
				h.read()
				want := summary{Verdict: Invalid}
				for _, a := range addrs {
					want.Violations = append(want.Violations, "I1 LiveAttachment cleaner "+a)
				}
				wantSummary(t, Check(h.records, Options{}), want)
			})
		}
	}
}
