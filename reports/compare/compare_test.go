package compare

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
)

// drawn is a Valid run whose times are drawn around those of the embedded
// control plane, stretched by the given factors.
func drawn(seed uint64, release, busy float64) harness.Result {
	rng := rand.New(rand.NewPCG(seed, 1))
	around := func(d time.Duration, spread float64) time.Duration {
		return time.Duration(float64(d) * math.Exp(rng.NormFloat64()*spread))
	}
	r := harness.Result{
		Scenario: "node-shutdown", Cluster: "controlplane", Cleaner: "fixed", Group: "danm.io", CNI: "danm-4.3", Commit: "abc", Verdict: check.Valid,
		Checked: map[check.Invariant]int{check.LiveAttachment: 200, check.Convergence: 700}, FaultsFired: map[string]int{"fail-node": 20},
		PeakBytes: 600 << 20, Measured: &harness.Measured{},
	}
	for i := range 20 {
		r.Iterations = append(r.Iterations, harness.Iteration{
			Number: i + 1, Verdict: check.Valid, Detected: around(4400*time.Millisecond, 0.05), Took: around(6600*time.Millisecond, 0.15),
			Recreated: time.Duration(busy * float64(around(300*time.Millisecond, 0.5))), Settled: around(200*time.Millisecond, 1),
		})
		r.Measured.RequestsPerIteration = append(r.Measured.RequestsPerIteration, 3+rng.IntN(2))
		r.Measured.Releases = append(r.Measured.Releases, time.Duration(release*float64(around(1100*time.Millisecond, 0.1))))
	}
	return r
}

func TestTheSameTreeIsNoRegression(t *testing.T) {
	const tries, allowed = 200, 10 // 19 of 20
	wrong := 0
	for i := range uint64(tries) {
		busy := 1 + 0.4*float64(i%3) // one of the machines is busier
		if c := Compare([]harness.Result{drawn(2*i, 1, 1)}, []harness.Result{drawn(2*i+1, 1, busy)}, DefaultOptions()); c.Outcome != NoRegression {
			wrong++
		}
	}
	if wrong > allowed {
		t.Errorf("%d of %d comparisons of the same tree are no pass", wrong, tries)
	}
}

func TestADoubledReleaseTimeIsFoundByName(t *testing.T) {
	for seed := range uint64(50) {
		c := Compare([]harness.Result{drawn(2*seed, 1, 1)}, []harness.Result{drawn(2*seed+1, 2, 1)}, DefaultOptions())
		var worse []string
		for _, m := range c.Pairs[0].Measures {
			if m.Direction == Worse {
				worse = append(worse, m.Name)
			}
		}
		if c.Outcome != Regression || !slices.Equal(worse, []string{"release"}) {
			t.Errorf("seed %d: %s, worse are %v", seed, c.Outcome, worse)
		}
	}
}

func TestAHalvedReleaseTimeIsNoRegression(t *testing.T) {
	c := Compare([]harness.Result{drawn(1, 2, 1)}, []harness.Result{drawn(2, 1, 1)}, DefaultOptions())
	if c.Outcome != NoRegression || c.Pairs[0].Measures[3].Direction != Better {
		t.Errorf("%s, release is %s", c.Outcome, c.Pairs[0].Measures[3].Direction)
	}
}

func violating(r harness.Result, invariants ...check.Invariant) harness.Result {
	r.Verdict, r.Cleaner = check.Invalid, "canary:by-name"
	for _, i := range invariants {
		r.Violations = append(r.Violations, check.Violation{Invariant: i, Message: "it broke"})
	}
	return r
}

func undecided(r harness.Result) harness.Result {
	r.Verdict, r.Unknowns = check.Unknown, []string{"the watch has a gap"}
	return r
}

func without(r harness.Result, change func(*harness.Result)) harness.Result {
	change(&r)
	return r
}

func TestVerdictChanges(t *testing.T) {
	valid := drawn(1, 1, 1)
	other := valid
	other.Scenario = "force-delete-loop"
	tests := []struct {
		name      string
		base, new []harness.Result
		outcome   Outcome
		changes   []Change // of the first pair
	}{
		{"nothing changed", []harness.Result{valid}, []harness.Result{valid}, NoRegression, []Change{}},
		{"a canary as NEW is a regression, by the invariant that it broke", []harness.Result{valid},
			[]harness.Result{violating(valid, check.LiveAttachment, check.LiveAttachment)}, Regression,
			[]Change{{New, "I1 LiveAttachment", "violated 2 times, first: it broke"}}},
		{"what failed before and still does is told, and no regression", []harness.Result{violating(valid, check.Convergence)},
			[]harness.Result{violating(valid, check.Convergence)}, NoRegression,
			[]Change{{StillFailing, "I3 Convergence", "violated 1 times, first: it broke"}}},
		{"what failed before and holds now is fixed", []harness.Result{violating(valid, check.Convergence)}, []harness.Result{valid}, NoRegression,
			[]Change{{Fixed, "I3 Convergence", "violated 1 times in BASE"}}},
		{"new violations come before fixed ones", []harness.Result{violating(valid, check.Convergence)},
			[]harness.Result{violating(valid, check.LiveAttachment)}, Regression,
			[]Change{{New, "I1 LiveAttachment", "violated 1 times, first: it broke"}, {Fixed, "I3 Convergence", "violated 1 times in BASE"}}},
		{"an invariant that is not evaluated any more is no pass", []harness.Result{valid},
			[]harness.Result{without(valid, func(r *harness.Result) { r.Checked = map[check.Invariant]int{check.Convergence: 1} })}, Inconclusive,
			[]Change{{NoLonger, "I1 LiveAttachment", "evaluated 200 times in BASE, never in NEW"}}},
		{"a fault that fires no more is no pass", []harness.Result{valid},
			[]harness.Result{without(valid, func(r *harness.Result) { r.FaultsFired = nil })}, Inconclusive,
			[]Change{{NoLonger, "fault fail-node", "fired 20 times in BASE, never in NEW"}}},
		{"a scenario that is run no more is no pass", []harness.Result{other, valid}, []harness.Result{valid}, Inconclusive,
			[]Change{{NoLonger, "scenario", "NEW has no run of it"}}},
		{"a new scenario is told", []harness.Result{valid}, []harness.Result{other, valid}, NoRegression,
			[]Change{{NewlyExercised, "scenario", "BASE has no run of it"}}},
		{"a new scenario that fails is a regression", []harness.Result{valid}, []harness.Result{violating(other, check.Convergence), valid}, Regression,
			[]Change{{New, "I3 Convergence", "violated 1 times, first: it broke"}, {NewlyExercised, "scenario", "BASE has no run of it"}}},
		{"NEW without verdict is no pass", []harness.Result{valid}, []harness.Result{undecided(valid)}, Inconclusive,
			[]Change{{Undecided, "verdict", "the watch has a gap"}}},
		{"one Invalid run of several counts", []harness.Result{valid},
			[]harness.Result{valid, without(violating(valid, check.SingleHolder), func(r *harness.Result) { r.Cleaner = valid.Cleaner })},
			Regression, []Change{{New, "I2 SingleHolder", "violated 1 times, first: it broke"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := Compare(tt.base, tt.new, DefaultOptions())
			if c.Outcome != tt.outcome {
				t.Errorf("outcome %q, want %q", c.Outcome, tt.outcome)
			}
			if diff := cmp.Diff(tt.changes, c.Pairs[0].Changes); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNothingToCompareIsNoPass(t *testing.T) {
	for _, sides := range [][2][]harness.Result{{nil, nil}, {nil, {drawn(1, 1, 1)}}, {{drawn(1, 1, 1)}, nil}} {
		if c := Compare(sides[0], sides[1], DefaultOptions()); c.Outcome == NoRegression {
			t.Errorf("%d runs against %d: %s", len(sides[0]), len(sides[1]), c.Outcome)
		}
	}
	c := Compare([]harness.Result{drawn(1, 1, 1)}, []harness.Result{drawn(2, 1, 1)}, DefaultOptions())
	c.AddProblems([]string{"a run cannot be read"})
	if c.Outcome != Inconclusive {
		t.Errorf("with a run that cannot be read: %s", c.Outcome)
	}
}

func TestAFewTimesAreNoRegressionHoweverFarApart(t *testing.T) {
	few := func(r harness.Result, factor time.Duration) harness.Result {
		r.Iterations, r.Measured = r.Iterations[:6:6], nil
		for i := range r.Iterations {
			r.Iterations[i].Settled *= factor
		}
		return r
	}
	c := Compare([]harness.Result{few(drawn(1, 1, 1), 1)}, []harness.Result{few(drawn(2, 1, 1), 10)}, DefaultOptions())
	if c.Outcome != NoRegression {
		t.Errorf("%s: %+v", c.Outcome, c.Pairs[0].Measures)
	}
}

func TestMemoryThatDoublesIsFoundInOneRun(t *testing.T) {
	heavy := drawn(2, 1, 1)
	heavy.PeakBytes *= 2
	c := Compare([]harness.Result{drawn(1, 1, 1)}, []harness.Result{heavy}, DefaultOptions())
	if memory := c.Pairs[0].Measures[6]; c.Outcome != Regression || memory.Name != "memory" || memory.Direction != Worse {
		t.Errorf("%s, %+v", c.Outcome, memory)
	}
}

// TestRankTest holds the test against tables of the normal approximation.
func TestRankTest(t *testing.T) {
	tests := []struct {
		name string
		a, b []float64
		want float64
	}{
		{"the same values", []float64{1, 1, 1}, []float64{1, 1, 1}, 1},
		{"no values", nil, []float64{1}, 1},
		// U = 0, mean 12.5, variance 25/12*11 = 22.917, z = 12/4.787 = 2.507.
		{"five below five", []float64{1, 2, 3, 4, 5}, []float64{6, 7, 8, 9, 10}, 0.0122},
		// U = 2, mean 8, variance 16/12*(9-(24+6)/56) = 11.286, z = 5.5/3.359 = 1.637.
		{"with ties", []float64{1, 2, 2, 3}, []float64{2, 4, 4, 5}, 0.1016},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := rankTest(tt.a, tt.b); math.Abs(got-tt.want) > 0.0005 {
				t.Errorf("p = %.4f, want %.4f", got, tt.want)
			}
		})
	}
}

func TestAdjustCorrectsForHowManyWereLookedAt(t *testing.T) {
	got := adjust([]float64{0.04, 0.01, 0.9, 0.03})
	want := []float64{0.09, 0.04, 0.9, 0.09}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-12 {
			t.Errorf("got %v, want %v", got, want)
			break
		}
	}
}

func TestTheIntervalHoldsTheMedianNineteenTimesOfTwenty(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const tries = 1000
	outside := 0
	for range tries {
		var values []float64
		for range 21 {
			values = append(values, rng.NormFloat64())
		}
		if s := summarise(values); s.Low > 0 || s.High < 0 {
			outside++
		}
	}
	if outside > tries*7/100 {
		t.Errorf("the interval misses the median in %d of %d", outside, tries)
	}
}
