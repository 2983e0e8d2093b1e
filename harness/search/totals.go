package search

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// Totals is what a search has found so far. Those of its parts are merged: of
// every simulation here, of every shard of a fleet. The order does not matter.
type Totals struct {
	Seeds    int                        `json:"seeds"`
	Again    int                        `json:"again"` // seeds that were run twice
	Steps    int64                      `json:"steps"`
	Granted  int64                      `json:"granted"` // steps, those of second runs included
	Virtual  time.Duration              `json:"virtualNs"`
	Findings int                        `json:"findings"`
	Verdicts map[check.Verdict]int      `json:"verdicts"`
	Fired    map[schedule.FaultKind]int `json:"fired"`
	Planned  map[schedule.FaultKind]int `json:"planned"`
	Reached  map[string]int             `json:"reached"`
	Digest   Digest                     `json:"digest"`
	Failures []Played                   `json:"failures,omitempty"` // not Valid: the Invalid first, then the others, by their seeds
	// Troubles say that the simulator is wrong; in the order of their seeds. The
	// rest is what was found besides.
	Troubles []Trouble `json:"troubles,omitempty"`
	// Took is what a clock on the wall says. Whoever waits for the whole sets it;
	// parts that were played side by side do not add up.
	Took time.Duration `json:"-"`
}

// Digest identifies the histories of a set of seeds: whoever played the same
// seeds and has the same digest got the same history for each of them, however
// the seeds were shared out and whichever ended first.
//
// It is a sum over the seeds, of a hash of the seed together with the digest of
// its history. A sum of hashes needs no order, so that shards can be merged
// without one word for each seed; the seed inside the hash keeps two histories
// that changed places apart.
type Digest uint64

// digestOf is the digest of one simulation.
func digestOf(seed, history uint64) Digest {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], seed)
	binary.BigEndian.PutUint64(b[8:], history)
	sum := sha256.Sum256(b[:])
	return Digest(binary.BigEndian.Uint64(sum[:8]))
}

// String is how people compare digests.
func (d Digest) String() string { return fmt.Sprintf("%016x", uint64(d)) }

// failuresMax bounds how many failures are kept whole.
const failuresMax = 20

// totalsOf is what one simulation adds.
func totalsOf(p Played) Totals {
	t := Totals{
		Seeds: 1, Steps: int64(p.Steps), Granted: int64(p.Steps), Virtual: p.Virtual, Findings: p.Findings, Reached: p.Reached, Digest: digestOf(p.Seed, p.Digest),
		Verdicts: map[check.Verdict]int{p.Verdict: 1}, Planned: countOf(p.Planned), Fired: countOf(p.Fired),
	}
	if p.Verdict != check.Valid {
		t.Failures = []Played{p}
	}
	return t
}

func countOf(kinds []schedule.FaultKind) map[schedule.FaultKind]int {
	counts := map[schedule.FaultKind]int{}
	for _, kind := range kinds {
		counts[kind]++
	}
	return counts
}

// Merge adds what another part of the same search found.
func (t *Totals) Merge(part Totals) {
	t.Seeds += part.Seeds
	t.Again += part.Again
	t.Steps += part.Steps
	t.Granted += part.Granted
	t.Virtual += part.Virtual
	t.Findings += part.Findings
	t.Digest += part.Digest
	t.Verdicts = sumOf(t.Verdicts, part.Verdicts)
	t.Planned = sumOf(t.Planned, part.Planned)
	t.Fired = sumOf(t.Fired, part.Fired)
	t.Reached = sumOf(t.Reached, part.Reached)
	t.Troubles = merged(t.Troubles, part.Troubles)
	if len(part.Failures) == 0 {
		return
	}
	t.Failures = append(slices.Clone(t.Failures), part.Failures...)
	slices.SortFunc(t.Failures, func(a, b Played) int { return cmp.Or(gravity(a)-gravity(b), cmp.Compare(a.Seed, b.Seed)) })
	t.Failures = t.Failures[:min(len(t.Failures), failuresMax)]
}

// gravity sorts what is wrong before what could not be decided, so that there is
// room for it.
func gravity(p Played) int {
	if p.Verdict == check.Invalid {
		return 0
	}
	return 1
}

// sumOf adds counts to others, and makes the map where there was none.
func sumOf[K comparable](to, add map[K]int) map[K]int {
	if to == nil {
		to = make(map[K]int, len(add))
	}
	for k, n := range add {
		to[k] += n
	}
	return to
}

// Missing lists what never happened in the sweep although it should have.
func (t Totals) Missing(faults []schedule.FaultKind, sometimes []string) []string {
	var missing []string
	for _, kind := range faults {
		if t.Fired[kind] == 0 {
			missing = append(missing, "fault "+string(kind)+" never fired")
		}
	}
	for _, what := range sometimes {
		if t.Reached[what] == 0 {
			missing = append(missing, "never reached: "+what)
		}
	}
	slices.Sort(missing)
	return missing
}

// Verdict is Invalid over Unknown over Valid; what was never reached makes it
// Unknown.
func (t Totals) Verdict(missing []string) check.Verdict {
	verdict := check.Verdict("")
	for _, v := range []check.Verdict{check.Invalid, check.Unknown, check.Valid} {
		if t.Verdicts[v] > 0 {
			verdict = check.Merge(verdict, v)
		}
	}
	if len(missing) > 0 || verdict == "" {
		verdict = check.Merge(verdict, check.Unknown)
	}
	return verdict
}
