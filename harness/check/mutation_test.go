package check

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// acts gives the cleaner's acts in a story a number, so that one can be left
// out.
type acts struct {
	skip, made int
	noLateDel  bool // leave out what the CNI breaks, too
}

func (a *acts) act(f func()) {
	a.made++
	if a.made != a.skip {
		f()
	}
}

// tellShutdowns tells some node shutdowns that a right cleaner heals: releases
// of what the dead node held, the sweep of an ADD that died between its two
// writes, and the repair of a bit that a late DEL cleared.
func tellShutdowns(t testing.TB, iterations int, cleaned *acts) *teller {
	h := tellOf(t, shape{danm.DanmNet, true, true, 2})
	addr := func(i int) []string {
		return []string{fmt.Sprintf("10.10.10.%d", 10+i), fmt.Sprintf("2001:db8::1%02x", 10+i)}
	}
	stays, moves := h.add("n2", "p-0", addr(0)...), h.add("n1", "p-1", addr(1)...)
	for i := range iterations {
		if i > 0 {
			h.ops("restore-node", "n1", false)
			h.del("n2", moves)
			moves = h.add("n1", "p-1", addr(1)...)
		}
		h.nextIteration()
		h.ops("fail-node", "n1", true, func() { h.lost("n1", moves) })
		h.ops("force-delete", "lane-0/p-1", true, func() { h.deletePod("p-1") })
		dead := moves
		moves = h.add("n2", "p-1", addr(2)...)
		h.set(node1, addr(3)...) // an ADD that got no further
		cleaned.act(func() { h.deleteEndpoint(cleaner, dead) })
		cleaned.act(func() { h.clear(cleaner, dead.Addresses...) })
		cleaned.act(func() { h.clear(cleaner, addr(3)...) })
		h.ops("late-del", "n1", true, func() {
			if !cleaned.noLateDel {
				h.clear(node1, stays.Addresses[i%2])
			}
		})
		cleaned.act(func() { h.set(cleaner, stays.Addresses[i%2]) })
		h.read()
	}
	return h
}

func TestShutdownsThatARightCleanerHealsAreValid(t *testing.T) {
	r := Check(tellShutdowns(t, 3, &acts{}).records, Options{})
	if r.Verdict != Valid {
		t.Fatalf("%s: %+v %q", r.Verdict, summarize(r), r.Unknowns)
	}
	if len(r.Findings) != 2 {
		t.Errorf("%d findings, want the late DELs, one for each address: %+v", len(r.Findings), summarize(r))
	}
	for _, i := range []Invariant{LiveAttachment, SingleHolder, Convergence, ClearOnce, ReservedBits, OnlyAllocations, FaultsFired, HistoryComplete} {
		if r.Checked[i] == 0 {
			t.Errorf("%s was never evaluated", i)
		}
	}
}

// TestEveryActOfTheCleanerMatters leaves out one act at a time.
func TestEveryActOfTheCleanerMatters(t *testing.T) {
	all := &acts{}
	tellShutdowns(t, 3, all)
	for skip := 1; skip <= all.made; skip++ {
		r := Check(tellShutdowns(t, 3, &acts{skip: skip}).records, Options{})
		if r.Verdict != Invalid {
			t.Errorf("without act %d the verdict is %s", skip, r.Verdict)
		}
	}
}

// isNeeded tells whether a history without this record must not pass. An
// attachment's end can be missed: then the CNI looks guilty, not the cleaner.
// That a pod changed, or was created, is not needed to judge anybody.
func isNeeded(r history.Record) bool {
	switch {
	case r.Attachment != nil:
		return false
	case r.Write != nil:
		return isDanm(r.Write.Resource) || r.Write.Type != history.Modified
	default:
		return true
	}
}

// TestEveryRecordMatters takes out one record at a time and closes the gap in
// the numbers, as a recorder that missed it would.
func TestEveryRecordMatters(t *testing.T) {
	records := tellShutdowns(t, 2, &acts{}).records
	for i, r := range records {
		if !isNeeded(r) {
			continue
		}
		left := renumbered(append(append([]history.Record{}, records[:i]...), records[i+1:]...))
		if got := Check(left, Options{}); got.Verdict == Valid {
			data, _ := json.Marshal(r)
			t.Errorf("still Valid without %s", data)
		}
	}
}

// TestEveryBitMatters takes away, one at a time, each set bit in each write of
// a network: live addresses in all of them, reserved bits in the cleaner's.
func TestEveryBitMatters(t *testing.T) {
	records := tellShutdowns(t, 2, &acts{noLateDel: true}).records
	users := usersOf(records)
	flips := 0
	for i, r := range records {
		if r.Write == nil || r.Write.Resource != danm.DanmNetResource {
			continue
		}
		for _, index := range []int{0, 1, 10, 11, 12, 255} {
			object, was := flipped(t, r.Write.Object, index)
			reserved := index < 10 || index == 255
			if !was || reserved && users[r.Write.RV] != cleaner || !reserved && !isLive(index, r, records) {
				continue
			}
			flips++
			w := *r.Write
			w.Object = object
			changed := append([]history.Record{}, records...)
			changed[i].Write = &w
			if got := Check(changed, Options{BlameAny: true}); got.Verdict == Valid {
				t.Errorf("still Valid, whoever is blamed, with bit %d taken away at rv %d", index, w.RV)
			}
			if got := Check(changed, Options{}); users[w.RV] == cleaner && got.Verdict == Valid {
				t.Errorf("still Valid with bit %d taken away by the cleaner at rv %d", index, w.RV)
			}
		}
	}
	if flips < 20 {
		t.Errorf("only %d bits were flipped", flips)
	}
}

// isLive tells whether a pod is attached with the address at that write.
func isLive(index int, at history.Record, records []history.Record) bool {
	live := map[string]bool{}
	for _, r := range records[:at.N] {
		switch {
		case r.Attachment == nil:
		case r.Attachment.Event != history.Attached:
			delete(live, r.Attachment.ID)
		case r.Attachment.Interfaces[0].Addresses[0] == fmt.Sprintf("10.10.10.%d", index):
			live[r.Attachment.ID] = true
		}
	}
	return len(live) > 0
}

func usersOf(records []history.Record) map[uint64]string {
	users := map[uint64]string{}
	for _, r := range records {
		if r.Audit != nil && r.Audit.RV != 0 {
			users[r.Audit.RV] = r.Audit.User
		}
	}
	return users
}

func flipped(t *testing.T, object json.RawMessage, index int) (json.RawMessage, bool) {
	var network map[string]any
	if err := json.Unmarshal(object, &network); err != nil {
		t.Fatal(err)
	}
	options := network["spec"].(map[string]any)["Options"].(map[string]any)
	bits, err := ipam.Decode(options["alloc"].(string))
	if err != nil {
		t.Fatal(err)
	}
	was := bits.IsSet(index)
	if was {
		bits.Clear(index)
	} else {
		bits.Set(index)
	}
	options["alloc"] = bits.Encode()
	data, err := json.Marshal(network)
	if err != nil {
		t.Fatal(err)
	}
	return data, was
}

func BenchmarkCheck(b *testing.B) {
	const perIteration = 45
	benchmark(b, tellShutdowns(b, 100_000/perIteration, &acts{}), Valid)
}

// BenchmarkCheckOfBrokenHistory has two violations for each of many owners of
// one address, which is what a scan over the history of a bit would feel.
func BenchmarkCheckOfBrokenHistory(b *testing.B) {
	h := tellOne(b)
	for range 100_000 / 18 {
		h.nextIteration()
		e := h.add("n1", "p", a15)
		h.clear(cleaner, a15)
		h.set(cleaner, a15)
		h.deletePod("p")
		h.release(e)
	}
	h.add("n1", "p", a15)
	h.read()
	benchmark(b, h, Invalid)
}

func benchmark(b *testing.B, h *teller, want Verdict) {
	for b.Loop() {
		if r := Check(h.records, Options{}); r.Verdict != want {
			b.Fatal(r.Verdict)
		}
	}
	b.ReportMetric(float64(len(h.records)), "records")
}
