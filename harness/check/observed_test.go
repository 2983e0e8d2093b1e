package check

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// rvScale leaves room for the writes that stand for attachments.
const rvScale = 10

// observed retells a history as a cluster shows it that has neither audit log
// nor attachments: writers become owners of fields, and a pod's status says
// what its node would have.
func observed(t *testing.T, records []history.Record) []history.Record {
	t.Helper()
	writers := map[version]string{}
	for _, r := range records {
		if r.Audit != nil && r.Audit.RV != 0 {
			writers[version{r.Audit.UID, r.Audit.RV}] = r.Audit.User
		}
	}
	owners := map[string]map[string]string{}
	before := map[string]map[string]string{}
	pods := map[string]history.Write{}
	var out []history.Record
	var lastRV uint64
	for _, r := range records {
		switch {
		case r.Run != nil:
			run := *r.Run
			run.Observed = &history.Observed{CleanerManagers: []string{cleaner}}
			out = append(out, history.Record{Time: r.Time, Run: &run})
		case r.Attachment != nil:
			w := pods[r.Attachment.PodUID]
			lastRV++
			w.RV, w.Type, w.Object = lastRV, history.Modified, podStatus(r.Attachment)
			out = append(out, history.Record{Time: r.Time, Write: &w})
		case r.Audit != nil:
		case r.Write != nil:
			w := *r.Write
			own(t, &w, writers[version{w.UID, w.RV}], owners, before)
			w.RV *= rvScale
			lastRV = w.RV
			if w.Resource == "pods" {
				pods[w.UID] = w
			}
			out = append(out, history.Record{Time: r.Time, Write: &w})
		default:
			out = append(out, r)
		}
	}
	return renumbered(out)
}

// own notes what managedFields would say after the write.
func own(t *testing.T, w *history.Write, user string, owners, before map[string]map[string]string) {
	t.Helper()
	if w.Resource == danm.EndpointResource && w.Type == history.Added {
		w.Managers = map[string]string{"spec": user}
	}
	if _, isNetwork := danm.NetworkKindOf(w.Resource); !isNetwork || w.Type == history.Deleted {
		return
	}
	now, err := bitmapsOf(&write{Write: w})
	if err != nil {
		t.Fatal(err)
	}
	if owners[w.UID] == nil {
		owners[w.UID], before[w.UID] = map[string]string{}, map[string]string{}
	}
	w.Managers = map[string]string{}
	for field, bits := range now {
		if before[w.UID][field] != bits {
			owners[w.UID][field] = user
		}
		before[w.UID][field] = bits
		if o := owners[w.UID][field]; o != "" {
			w.Managers[field] = o
		}
	}
}

func podStatus(a *history.Attachment) json.RawMessage {
	deletion := "null"
	if a.Event == history.Detaching {
		deletion = `"2026-03-01T08:54:00Z"`
	}
	ready := "True"
	if a.Event == history.Lost {
		ready = "False"
	}
	return json.RawMessage(fmt.Sprintf(`{"metadata":{"deletionTimestamp":%s},"spec":{"nodeName":%q},
		"status":{"phase":"Running","conditions":[{"type":"Ready","status":%q}]}}`, deletion, a.Node, ready))
}

func TestAClusterWithoutAuditLogIsJudgedByWhatItsObjectsShow(t *testing.T) {
	for _, c := range []struct {
		name string
		tell func(h *teller)
		want summary
	}{
		{"a quiet life and an orderly release: valid without any audit record", func(h *teller) {
			h.add("n1", "q", a16)
			old := h.add("n1", "p", a15)
			h.ops("fail-node", "n1", true, func() { h.deletePod("p"); h.release(old) })
			h.add("n2", "p", "10.10.10.17")
		}, valid},
		{"the cleaner clears the bit of a pod that is Ready: managedFields accuse it", func(h *teller) {
			h.add("n1", "p", a15)
			h.clear(cleaner, a15)
			h.set(node1, a15)
		}, summary{Verdict: Invalid, Violations: []string{"I1 LiveAttachment cleaner 10.10.10.15"}}},
		{"a CNI clears it: a finding with its name", func(h *teller) {
			h.add("n1", "p", a15)
			h.clear(node2, a15)
			h.set(cleaner, a15)
		}, summary{Verdict: Valid, Findings: []string{"I1 LiveAttachment other 10.10.10.15"}}},
		{"the bit is cleared after the pod's deletion mark: nobody knows whether that was too early", func(h *teller) {
			e := h.add("n1", "p", a15)
			h.detaching("n1", e)
			h.clear(cleaner, a15)
			h.deleteEndpoint(node1, e)
			h.deletePod("p")
			h.add("n1", "p", a16)
		}, valid},
		{"the node was without power: what its pods' objects say is old", func(h *teller) {
			e := h.add("n1", "p", a15)
			h.ops("fail-node", "n1", true)
			h.release(e)
			h.deletePod("p")
			h.add("n2", "p", a16)
		}, valid},
		{"two pods are Ready on one address", func(h *teller) {
			h.add("n1", "p", a15)
			h.add("n2", "q", a15)
		}, summary{Verdict: Valid,
			Findings: []string{"I2 SingleHolder cni 10.10.10.15", "I3 Convergence cni 10.10.10.15"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := tellOf(t, shape{danm.DanmNet, true, false, 1})
			h.nextIteration()
			c.tell(h)
			h.lane.Replicas = len(h.pods)
			for i := range h.records {
				if h.records[i].Lane != nil {
					lane := h.lane
					h.records[i].Lane = &lane
				}
			}
			h.read()
			r := Check(observed(t, h.records), Options{})
			wantSummary(t, r, c.want)
			if len(r.Unjudged) == 0 {
				t.Error("nothing says what could not be judged")
			}
		})
	}
}

func TestWhatNobodyIsKnownToHaveBrokenIsUnknown(t *testing.T) {
	h := tellOne(t)
	h.nextIteration()
	e := h.add("n1", "p", a15)
	h.deleteEndpoint(cleaner, e)
	h.clear(node1, a15)
	h.read()
	r := Check(observed(t, h.records), Options{})
	wantUnknown(t, r, "nothing recorded who did it")
	if len(r.Findings) == 0 || r.Findings[0].Blame != BlameUnknown {
		t.Errorf("findings are %v, want one of an unknown writer", summarize(r))
	}
}

func TestABitmapThatChangedWithoutAnOwnerIsUnknown(t *testing.T) {
	h := tellOne(t)
	h.nextIteration()
	h.add("n1", "p", a15)
	h.read()
	records := observed(t, h.records)
	for _, r := range records {
		if r.Write != nil && r.Write.Type == history.Modified && r.Write.Resource == danm.DanmNetResource {
			r.Write.Managers = nil
		}
	}
	wantUnknown(t, Check(records, Options{}), "managedFields do not tell who made")
}
