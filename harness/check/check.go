package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// Options change what makes a run Invalid.
type Options struct {
	// BlameAny makes a broken invariant count whoever broke it. Without it
	// only the cleaner's do, and all others are findings.
	BlameAny bool
}

// unknownsPerInvariantMax bounds how many reasons of one kind are listed. The
// rest is counted.
const unknownsPerInvariantMax = 20

// Check judges a history. Everything it needs is in the records, which must be
// in the order in which they were recorded.
func Check(records []history.Record, o Options) Report {
	j := newJudge(o)
	j.readHeader(records)
	j.initial, j.writes = j.orderWrites(records)
	j.requests = indexRequests(records)
	if j.run.Observed != nil {
		j.observe(j.writes)
	} else {
		j.join(j.requests, j.writes)
	}
	j.replay(j.writes)
	if j.run.Observed != nil {
		j.deriveLives(j.writes)
	} else {
		j.readLives(records)
	}

	j.checkLiveAttachments()
	j.checkSingleHolders()
	j.checkEdits()
	j.checkCleanerRequests()
	j.checkConvergence(records)
	j.checkFaults(records)
	j.checkExercised(records)
	return j.close()
}

// judge gathers what the checkers share and what they found.
type judge struct {
	options      Options
	run          history.Run
	hasRun       bool
	lanes        *lanes
	initial      []*write
	writes       []*write
	requests     *requests
	model        *model
	lives        []*life
	lastSnapshot time.Time
	ghosts       map[string]bool // sandboxes without pod that were told of, by ID
	scratch      danm.Endpoint   // the one that is being read

	report   Report
	unknowns map[Invariant]int
}

func newJudge(o Options) *judge {
	return &judge{
		options: o, lanes: newLanes(), unknowns: map[Invariant]int{}, ghosts: map[string]bool{},
		report: Report{
			Violations: []Violation{}, Findings: []Violation{}, Unknowns: []string{}, Unjudged: []string{},
			Checked: map[Invariant]int{},
		},
	}
}

// readHeader reads what the rest is judged by, and what is openly missing.
func (j *judge) readHeader(records []history.Record) {
	j.checkNumbers(records)
	for i := range records {
		r := &records[i]
		switch {
		case r.Run != nil && j.hasRun:
			j.unknownf(HistoryComplete, "record %d opens a second run", r.N)
		case r.Run != nil:
			j.run, j.hasRun = *r.Run, true
		case r.Gap != nil:
			j.unknownf(HistoryComplete, "%s has a gap: %s", r.Gap.Source, r.Gap.Reason)
		case r.Snapshot != nil:
			j.lastSnapshot = r.Time
		}
	}
	j.lanes.read(records)
}

// checkNumbers makes sure that no record was taken out or lacks its time.
func (j *judge) checkNumbers(records []history.Record) {
	for i := range records {
		r := &records[i]
		if want := uint64(i) + 1; r.N != want {
			j.unknownf(HistoryComplete, "record %d is missing: %d is in its place", want, r.N)
			return
		}
		if r.Time.IsZero() {
			j.unknownf(HistoryComplete, "record %d has no time", r.N)
			return
		}
	}
}

// blame tells who a user is.
func (j *judge) blame(user string) Blame {
	switch {
	case j.run.Observed != nil:
		return j.blameManager(user)
	case user == "":
		return BlameOther
	case user == j.run.CleanerUser:
		return BlameCleaner
	case j.run.CNIUserPrefix != "" && strings.HasPrefix(user, j.run.CNIUserPrefix):
		return BlameCNI
	default:
		return BlameOther
	}
}

// count notes that an invariant was evaluated once.
func (j *judge) count(i Invariant) { j.report.Checked[i]++ }

func (j *judge) unknownf(i Invariant, format string, args ...any) {
	j.unknowns[i]++
	if j.unknowns[i] <= unknownsPerInvariantMax {
		j.report.Unknowns = append(j.report.Unknowns, string(i)+": "+fmt.Sprintf(format, args...))
	}
}

// accuse files a violation. It belongs to the run's violations if the cleaner
// is to blame and to the findings else; nothing is dropped.
func (j *judge) accuse(v Violation) {
	if v.Blame == BlameCleaner || j.options.BlameAny {
		j.report.Violations = append(j.report.Violations, v)
	} else {
		j.report.Findings = append(j.report.Findings, v)
	}
	if v.Blame == BlameUnknown {
		j.unknownf(v.Invariant, "nothing recorded who did it: %s", v.Message)
	}
}

// by completes a violation with the write that caused it.
func (j *judge) by(v Violation, w *write) Violation {
	if w == nil {
		return v
	}
	v.Writer, v.RV, v.Record = w.user(), w.RV, w.record
	return j.at(v, w.latest)
}

// at completes a violation with lane, iteration and step at that time.
func (j *judge) at(v Violation, t time.Time) Violation {
	namespace, _, _ := strings.Cut(cmp.Or(v.Pod, v.Endpoint), "/")
	lane := j.lanes.find(v.Lane, namespace, v.Network)
	v.Lane = lane
	step := j.lanes.stepAt(lane, t)
	v.Iteration, v.Step = step.iteration(), step.text()
	return v
}

// userOf names the writer in a sentence.
func userOf(w *write) string { return cmp.Or(w.user(), "an unknown writer") }

// close sorts and merges what was found into the verdict.
func (j *judge) close() Report {
	for _, i := range []Invariant{LiveAttachment, SingleHolder, HistoryComplete, FaultsFired, Convergence} {
		if more := j.unknowns[i] - unknownsPerInvariantMax; more > 0 {
			j.report.Unknowns = append(j.report.Unknowns, fmt.Sprintf("%s: and %d more", i, more))
		}
	}
	byRecord := func(a, b Violation) int { return cmp.Compare(a.Record, b.Record) }
	slices.SortStableFunc(j.report.Violations, byRecord)
	slices.SortStableFunc(j.report.Findings, byRecord)
	switch {
	case len(j.report.Violations) > 0:
		j.report.Verdict = Invalid
	case len(j.report.Unknowns) > 0:
		j.report.Verdict = Unknown
	default:
		j.report.Verdict = Valid
	}
	return j.report
}
