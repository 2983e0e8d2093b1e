package check

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// reportedAlloc is the bitmap that the report shows while a pod was running on
// 10.10.10.15: bits 0, 10 to 13 and 255.
const reportedAlloc = "gDwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE="

// tellIncident tells the reported incident: a node with ss-cinfo-0 and -4 on
// it is shut down, both are force-deleted and recreated, and a cleaner that
// goes by the name frees what the new ss-cinfo-0 has.
func tellIncident(t *testing.T) (h *teller, victim *told) {
	h = tellOf(t, shape{danm.DanmNet, true, false, 5})
	delete(h.options(), "routes")
	h.bits[danm.IPv4].bits.Clear(1)
	h.writeNetwork(harness, history.Modified)
	var eps []*told
	for i, node := range []string{"n1", "n2", "n2", "n2", "n1"} {
		eps = append(eps, h.add(node, fmt.Sprintf("ss-cinfo-%d", i), fmt.Sprintf("10.10.10.%d", 10+i)))
	}
	h.nextIteration()
	h.ops("fail-node", "n1", true, func() { h.lost("n1", eps[0]); h.lost("n1", eps[4]) })
	h.op(history.Invoke, "force-delete", "lane-0/ss-cinfo-0", true)
	h.deletePod("ss-cinfo-0")
	victim = h.add("n2", "ss-cinfo-0", "10.10.10.15")
	h.clear(cleaner, "10.10.10.10")
	h.deleteEndpoint(cleaner, eps[0])
	h.clear(cleaner, "10.10.10.15")
	h.deleteEndpoint(cleaner, victim)
	h.op(history.OK, "force-delete", "lane-0/ss-cinfo-0", true)
	h.ops("force-delete", "lane-0/ss-cinfo-4", true, func() {
		h.deletePod("ss-cinfo-4")
		h.add("n2", "ss-cinfo-4", "10.10.10.10")
		h.clear(cleaner, "10.10.10.14")
		h.deleteEndpoint(cleaner, eps[4])
	})
	if got := h.options()["alloc"]; got != reportedAlloc {
		t.Fatalf("the story ends with alloc %v, the report with %s", got, reportedAlloc)
	}
	h.read()
	return h, victim
}

func TestReportedIncidentIsInvalid(t *testing.T) {
	h, victim := tellIncident(t)
	r := Check(h.records, Options{})
	wantSummary(t, r, summary{Verdict: Invalid, Violations: []string{
		"I1 LiveAttachment cleaner 10.10.10.15", "I1 LiveAttachment cleaner 10.10.10.15", "I3 Convergence cleaner 10.10.10.15",
	}})
	cleared, deleted := r.Violations[0], r.Violations[1]
	want := Violation{
		Invariant: LiveAttachment, Blame: BlameCleaner, Lane: "lane-0", Iteration: 1,
		Message: fmt.Sprintf("danm-cleaner cleared 10.10.10.15 of DanmNet lane-0/test-net1 (rv %d) while ss-cinfo-0 (uid %s) was live on it", cleared.RV, victim.PodUID),
		Pod:     "lane-0/ss-cinfo-0", PodUID: victim.PodUID, Endpoint: "lane-0/" + victim.Name,
		Network: "DanmNet lane-0/test-net1", Address: "10.10.10.15", Writer: cleaner,
		RV: cleared.RV, Record: cleared.Record, Step: "iteration 1 step 2 force-delete lane-0/ss-cinfo-0",
		Evidence: []string{
			fmt.Sprintf("08:54:03.350 pod lane-0/ss-cinfo-0 (uid %s) created, rv 124", victim.PodUID),
			"08:54:03.450 10.10.10.15 set in DanmNet lane-0/test-net1 by system:node:n2, rv 125",
			fmt.Sprintf("08:54:03.550 DanmEp lane-0/%s (uid %s) created for pod uid %s by system:node:n2, rv 126", victim.Name, victim.UID, victim.PodUID),
			fmt.Sprintf("08:54:03.600 CNI ADD succeeded on n2 for ss-cinfo-0 (uid %s), sandbox %s, record 58", victim.PodUID, sandbox(victim)),
			"08:54:04.050 10.10.10.15 cleared in DanmNet lane-0/test-net1 by danm-cleaner, rv 130",
			fmt.Sprintf("08:54:04.150 DanmEp lane-0/%s (uid %s) deleted by danm-cleaner, rv 131", victim.Name, victim.UID),
		},
	}
	if diff := cmp.Diff(want, cleared); diff != "" {
		t.Errorf("wrong violation (-want +got):\n%s", diff)
	}
	if w := h.records[cleared.Record-1].Write; w == nil || w.RV != cleared.RV || w.Resource != "danmnets" {
		t.Errorf("record %d is not the write at rv %d", cleared.Record, cleared.RV)
	}
	wantMessage := fmt.Sprintf("danm-cleaner deleted DanmEp lane-0/%s (rv %d) while ss-cinfo-0 (uid %s) was live on it", victim.Name, deleted.RV, victim.PodUID)
	if deleted.Message != wantMessage || deleted.RV != cleared.RV+1 {
		t.Errorf("the second violation is\n%s\nwant\n%s", deleted.Message, wantMessage)
	}
}
