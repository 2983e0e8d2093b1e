package compare

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/reports/measure"
)

// SchemaVersion is the version of a comparison as JSON.
const SchemaVersion = 1

// Options are the limits of what counts as a regression.
type Options struct {
	// Alpha is how probable a difference by chance may be, over all measures
	// of a comparison together.
	Alpha float64 `json:"alpha"`
	// Slower is the least ratio of medians that counts. A smaller difference
	// may be real, and matters to nobody.
	Slower float64 `json:"slower"`
	// Floor is the least difference of two times that counts, for times that
	// are short against the interval in which they are polled.
	Floor time.Duration `json:"floorNs"`
	// Gross is the ratio that counts for memory, which a run has once, so that
	// ranks tell nothing.
	Gross float64 `json:"gross"`
}

// DefaultOptions are limits that two runs of one tree on a busy machine keep.
func DefaultOptions() Options {
	return Options{Alpha: 0.01, Slower: 1.5, Floor: 500 * time.Millisecond, Gross: 2}
}

// valuesMin is the least number of values of each side for a test of ranks.
const valuesMin = 8

// Outcome is what a comparison comes to.
type Outcome string

// A regression is certain enough to act upon. Inconclusive means that NEW did
// not try something that BASE did, or could not be judged: no pass.
const (
	NoRegression Outcome = "no regression"
	Regression   Outcome = "regression"
	Inconclusive Outcome = "inconclusive"
)

// ChangeKind says how a verdict changed.
type ChangeKind string

// The kinds, in the order in which they are told.
const (
	New            ChangeKind = "new"                 // violated now, held before or not tried
	NoLonger       ChangeKind = "no longer exercised" // not tried now
	Undecided      ChangeKind = "undecided"           // NEW has no verdict
	StillFailing   ChangeKind = "still failing"
	Fixed          ChangeKind = "fixed"
	NewlyExercised ChangeKind = "newly exercised"
)

// kinds lists the kinds in the order in which they are told.
func kinds() []ChangeKind {
	return []ChangeKind{New, NoLonger, Undecided, StillFailing, Fixed, NewlyExercised}
}

// Comparison is BASE against NEW.
type Comparison struct {
	SchemaVersion int      `json:"schemaVersion"`
	Outcome       Outcome  `json:"outcome"`
	Options       Options  `json:"options"`
	Base          Side     `json:"base"`
	New           Side     `json:"new"`
	Pairs         []Pair   `json:"pairs"`
	Problems      []string `json:"problems"` // runs that could not be read
}

// Side is where runs came from.
type Side struct {
	Path    string   `json:"path"`
	Runs    int      `json:"runs"`
	Commits []string `json:"commits"`
}

// Pair is what both sides did in the same way.
type Pair struct {
	Scenario string    `json:"scenario"`
	Cluster  string    `json:"cluster"`
	Group    string    `json:"danmApi"`
	CNI      string    `json:"cni"`
	Cleaner  string    `json:"cleaner,omitempty"` // if a side has several
	Base     PairSide  `json:"base"`
	New      PairSide  `json:"new"`
	Changes  []Change  `json:"changes"`
	Measures []Measure `json:"measures"`
}

// PairSide is one side of a pair.
type PairSide struct {
	Runs       int           `json:"runs"`
	Iterations int           `json:"iterations"`
	Verdict    check.Verdict `json:"verdict"` // of all runs together; empty without runs
	Cleaners   []string      `json:"cleaners"`
	Reproduce  string        `json:"reproduce,omitempty"` // of the first run that is not Valid
}

// Change is something that held and does not, or the other way round.
type Change struct {
	Kind   ChangeKind `json:"kind"`
	What   string     `json:"what"` // an invariant, a fault, "verdict" or "scenario"
	Detail string     `json:"detail,omitempty"`
}

// Direction says how a measure moved.
type Direction string

// The directions. Worse is a regression, TooFew could not be tested.
const (
	Worse  Direction = "worse"
	Better Direction = "better"
	Same   Direction = "same"
	TooFew Direction = "too few values"
)

// Measure is a time or a cost on both sides. More is always worse.
type Measure struct {
	Name      string    `json:"name"`
	Unit      string    `json:"unit"` // "s", "requests", "bytes"
	Base      Summary   `json:"base"`
	New       Summary   `json:"new"`
	Ratio     float64   `json:"ratio"` // of the medians; 0 if there is none
	P         float64   `json:"p"`     // corrected for the number of measures
	Direction Direction `json:"direction"`

	base, new []float64
}

// Compare holds the runs of one side against those of the other.
func Compare(base, new []harness.Result, o Options) Comparison {
	c := Comparison{SchemaVersion: SchemaVersion, Options: o, Base: sideOf(base), New: sideOf(new), Pairs: []Pair{}, Problems: []string{}}
	groupsOfBase, groupsOfNew := groupsOf(base, new)
	for _, k := range sortedKeys(groupsOfBase, groupsOfNew) {
		c.Pairs = append(c.Pairs, newPair(k, groupsOfBase[k], groupsOfNew[k]))
	}
	c.test()
	c.Outcome = c.outcome()
	return c
}

func sideOf(runs []harness.Result) Side {
	commits := map[string]bool{}
	for _, r := range runs {
		commits[r.Commit] = true
	}
	return Side{Runs: len(runs), Commits: append([]string{}, slices.Sorted(maps.Keys(commits))...)}
}

// key says which runs can be compared.
type key struct{ scenario, cluster, group, cni, cleaner string }

func keyOf(r harness.Result) key { return key{r.Scenario, r.Cluster, r.Group, r.CNI, ""} }

// groupsOf sorts runs by what they did. The cleaner is what is compared, so it
// is no part of that, unless a side has runs of several cleaners.
func groupsOf(base, new []harness.Result) (ofBase, ofNew map[key][]harness.Result) {
	mixed := map[key]bool{}
	for _, side := range [][]harness.Result{base, new} {
		first := map[key]string{}
		for _, r := range side {
			k := keyOf(r)
			if name, ok := first[k]; ok && name != r.Cleaner {
				mixed[k] = true
			}
			first[k] = r.Cleaner
		}
	}
	group := func(side []harness.Result) map[key][]harness.Result {
		groups := map[key][]harness.Result{}
		for _, r := range side {
			k := keyOf(r)
			if mixed[k] {
				k.cleaner = r.Cleaner
			}
			groups[k] = append(groups[k], r)
		}
		return groups
	}
	return group(base), group(new)
}

func sortedKeys(a, b map[key][]harness.Result) []key {
	all := map[key]bool{}
	for k := range a {
		all[k] = true
	}
	for k := range b {
		all[k] = true
	}
	return slices.SortedFunc(maps.Keys(all), func(x, y key) int {
		return cmp.Or(cmp.Compare(x.scenario, y.scenario), cmp.Compare(x.cluster, y.cluster), cmp.Compare(x.group, y.group),
			cmp.Compare(x.cni, y.cni), cmp.Compare(x.cleaner, y.cleaner))
	})
}

func newPair(k key, base, new []harness.Result) Pair {
	p := Pair{Scenario: k.scenario, Cluster: k.cluster, Group: k.group, CNI: k.cni, Cleaner: k.cleaner,
		Base: pairSide(base), New: pairSide(new), Changes: []Change{}, Measures: []Measure{}}
	switch {
	case len(base) == 0:
		p.Changes = append(p.Changes, Change{NewlyExercised, "scenario", "BASE has no run of it"})
	case len(new) == 0:
		p.Changes = append(p.Changes, Change{NoLonger, "scenario", "NEW has no run of it"})
		return p
	}
	p.addVerdicts(base, new)
	if len(base) > 0 {
		p.Measures = measuresOf(base, new)
	}
	slices.SortStableFunc(p.Changes, func(a, b Change) int {
		return cmp.Compare(slices.Index(kinds(), a.Kind), slices.Index(kinds(), b.Kind))
	})
	return p
}

func pairSide(runs []harness.Result) PairSide {
	s := PairSide{Runs: len(runs), Cleaners: []string{}}
	for _, r := range runs {
		s.Iterations += len(r.Iterations)
		s.Verdict = check.Merge(s.Verdict, cmp.Or(r.Verdict, check.Unknown))
		if r.Verdict != check.Valid && s.Reproduce == "" {
			s.Reproduce = r.Reproduce
		}
		if !slices.Contains(s.Cleaners, r.Cleaner) {
			s.Cleaners = append(s.Cleaners, r.Cleaner)
		}
	}
	return s
}

// addVerdicts compares invariant by invariant and fault by fault.
func (p *Pair) addVerdicts(base, new []harness.Result) {
	before, after := standingOf(base), standingOf(new)
	for _, i := range sortedInvariants(before, after) {
		if c, ok := changeOf(before[i], after[i]); ok && len(base) > 0 {
			p.Changes = append(p.Changes, Change{c, string(i), detailOf(c, before[i], after[i])})
		} else if len(base) == 0 && after[i].violated > 0 {
			p.Changes = append(p.Changes, Change{New, string(i), after[i].detail()})
		}
	}
	p.addFaults(base, new)
	if p.New.Verdict == check.Unknown {
		p.Changes = append(p.Changes, Change{Undecided, "verdict", firstUnknown(new)})
	}
}

// standing is what the runs of one side say about an invariant.
type standing struct {
	evaluated, violated int
	message             string
}

func (s standing) detail() string {
	return fmt.Sprintf("violated %d times, first: %s", s.violated, s.message)
}

func standingOf(runs []harness.Result) map[check.Invariant]standing {
	out := map[check.Invariant]standing{}
	for _, r := range runs {
		for i, n := range r.Checked {
			s := out[i]
			s.evaluated += n
			out[i] = s
		}
		for _, v := range r.Violations {
			s := out[v.Invariant]
			s.violated++
			s.message = cmp.Or(s.message, v.Message)
			out[v.Invariant] = s
		}
	}
	return out
}

func sortedInvariants(a, b map[check.Invariant]standing) []check.Invariant {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

// changeOf says how the standing of an invariant changed, if it did.
func changeOf(before, after standing) (ChangeKind, bool) {
	switch {
	case before.violated > 0 && after.violated > 0:
		return StillFailing, true
	case after.violated > 0:
		return New, true
	case before.evaluated+before.violated > 0 && after.evaluated == 0:
		return NoLonger, true
	case before.violated > 0:
		return Fixed, true
	default:
		return "", false
	}
}

func detailOf(c ChangeKind, before, after standing) string {
	switch c {
	case New, StillFailing:
		return after.detail()
	case NoLonger:
		return fmt.Sprintf("evaluated %d times in BASE, never in NEW", before.evaluated)
	default:
		return fmt.Sprintf("violated %d times in BASE", before.violated)
	}
}

func (p *Pair) addFaults(base, new []harness.Result) {
	before, after := firedIn(base), firedIn(new)
	for _, fault := range slices.Sorted(maps.Keys(before)) {
		if before[fault] > 0 && after[fault] == 0 {
			p.Changes = append(p.Changes, Change{NoLonger, "fault " + fault, fmt.Sprintf("fired %d times in BASE, never in NEW", before[fault])})
		}
	}
}

func firedIn(runs []harness.Result) map[string]int {
	out := map[string]int{}
	for _, r := range runs {
		for fault, n := range r.FaultsFired {
			out[fault] += n
		}
	}
	return out
}

func firstUnknown(runs []harness.Result) string {
	for _, r := range runs {
		if len(r.Unknowns) > 0 {
			return r.Unknowns[0]
		}
	}
	return "no reason is stored"
}

func measuresOf(base, new []harness.Result) []Measure {
	var out []Measure
	before, after := latenciesOf(base), latenciesOf(new)
	for i := range before {
		out = append(out, newMeasure(before[i].name, unitSeconds, before[i].values, after[i].values))
	}
	out = append(out, newMeasure("requests per iteration", unitRequests, requestsOf(base), requestsOf(new)))
	return append(out, newMeasure("memory", unitBytes, memoryOf(base), memoryOf(new)))
}

// Units of measures.
const (
	unitSeconds  = "s"
	unitRequests = "requests"
	unitBytes    = "bytes"
)

type values struct {
	name   string
	values []float64
}

func latenciesOf(runs []harness.Result) []values {
	var out []values
	for _, l := range measure.Latencies(harness.Result{}) {
		out = append(out, values{name: l.Name})
	}
	for _, r := range runs {
		for i, l := range measure.Latencies(r) {
			for _, v := range l.Values {
				out[i].values = append(out[i].values, v.Seconds())
			}
		}
	}
	return out
}

func requestsOf(runs []harness.Result) []float64 {
	var out []float64
	for _, r := range runs {
		if r.Measured == nil {
			continue
		}
		for _, n := range r.Measured.RequestsPerIteration {
			out = append(out, float64(n))
		}
	}
	return out
}

func memoryOf(runs []harness.Result) []float64 {
	var out []float64
	for _, r := range runs {
		if r.PeakBytes > 0 {
			out = append(out, float64(r.PeakBytes))
		}
	}
	return out
}

func newMeasure(name, unit string, base, new []float64) Measure {
	m := Measure{Name: name, Unit: unit, Base: summarise(base), New: summarise(new), P: 1, Direction: TooFew, base: base, new: new}
	if m.Base.Median > 0 {
		m.Ratio = m.New.Median / m.Base.Median
	}
	return m
}

// canTest tells whether both sides have enough values for a test of ranks.
func (m Measure) canTest() bool { return min(m.Base.N, m.New.N) >= valuesMin }

// test decides on every measure. All are corrected together: who looks at
// twenty of them finds one that differs by chance.
func (c *Comparison) test() {
	var tested []*Measure
	var ps []float64
	for i := range c.Pairs {
		for k := range c.Pairs[i].Measures {
			m := &c.Pairs[i].Measures[k]
			if !m.canTest() {
				m.Direction = c.Options.gross(*m)
				continue
			}
			tested, ps = append(tested, m), append(ps, rankTest(m.base, m.new))
		}
	}
	for i, p := range adjust(ps) {
		tested[i].P = p
		tested[i].Direction = c.Options.direction(*tested[i])
	}
}

// gross decides on what has too few values for a test. Only memory is steady
// enough for that: a few times may differ tenfold and mean nothing.
func (o Options) gross(m Measure) Direction {
	switch {
	case m.Unit != unitBytes || m.Base.N == 0 || m.New.N == 0:
		return TooFew
	case m.Ratio >= o.Gross:
		return Worse
	case m.Ratio > 0 && m.Ratio <= 1/o.Gross:
		return Better
	default:
		return TooFew
	}
}

func (o Options) direction(m Measure) Direction {
	isReal := m.P < o.Alpha && m.isBeyondFloor(o)
	switch {
	case isReal && (m.Ratio >= o.Slower || m.Base.Median == 0):
		return Worse
	case isReal && m.Ratio <= 1/o.Slower:
		return Better
	default:
		return Same
	}
}

// isBeyondFloor tells whether the medians differ by more than the floor. Only
// times have one.
func (m Measure) isBeyondFloor(o Options) bool {
	if m.Unit != unitSeconds {
		return m.New.Median != m.Base.Median
	}
	return max(m.New.Median-m.Base.Median, m.Base.Median-m.New.Median) >= o.Floor.Seconds()
}

func (c *Comparison) outcome() Outcome {
	outcome := NoRegression
	if c.New.Runs == 0 || c.Base.Runs == 0 {
		outcome = Inconclusive
	}
	for _, p := range c.Pairs {
		for _, change := range p.Changes {
			switch change.Kind {
			case New:
				return Regression
			case NoLonger, Undecided:
				outcome = Inconclusive
			}
		}
		for _, m := range p.Measures {
			if m.Direction == Worse {
				return Regression
			}
		}
	}
	return outcome
}

// AddProblems notes runs that could not be read. What they would have shown is
// not known, so they are no pass.
func (c *Comparison) AddProblems(problems []string) {
	c.Problems = append(c.Problems, problems...)
	if len(problems) > 0 && c.Outcome == NoRegression {
		c.Outcome = Inconclusive
	}
}
