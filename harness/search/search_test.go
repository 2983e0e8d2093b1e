package search

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// workerVariable makes the test program a worker.
const workerVariable = "SEARCH_TEST_WORKER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(workerVariable); kind != "" {
		if err := Work(os.Stdin, os.Stdout, playersByKind[kind]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// playersByKind are what workers may be. The cleaner of a job says which seed
// is violated.
var playersByKind = map[string]Player{
	"honest": playHonestly,
	// A simulator whose runs differ from process to process.
	"moody": func(s schedule.Simulation, j Job) Played {
		p := playHonestly(s, j)
		p.Digest, p.Trace = uint64(os.Getpid()), []string{"begin", fmt.Sprint(os.Getpid())}
		return p
	},
	// One that plays seed 80 otherwise every time, and all others as it should.
	"torn": func(s schedule.Simulation, j Job) Played {
		p := playHonestly(s, j)
		if s.Seed == 80 {
			p.Digest, p.Trace = uint64(time.Now().UnixNano()), []string{"begin", fmt.Sprint(time.Now().UnixNano())}
		}
		return p
	},
	// One that hangs at seed 47.
	"stumbling": func(s schedule.Simulation, j Job) Played {
		if s.Seed == 47 {
			hang()
		}
		return playHonestly(s, j)
	},
	// One that cannot go on at seed 47.
	"lost": func(s schedule.Simulation, j Job) Played {
		p := playHonestly(s, j)
		if s.Seed == 47 {
			p.Trouble = "no end after 20000 steps"
		}
		return p
	},
	// A bubble that hangs: a lock is held across a wait, which no virtual time ends.
	"hung":   func(schedule.Simulation, Job) Played { hang(); panic("not reached") },
	"mortal": func(schedule.Simulation, Job) Played { panic("the simulator is wrong") },
}

// playHonestly has three choices of two, and fails where the cleaner says.
func playHonestly(s schedule.Simulation, j Job) Played {
	p := Played{Digest: s.Seed, Verdict: check.Valid, Steps: 3, Widths: []int{2, 3, 2}, Simulation: &s, Trace: []string{"begin"}}
	if j.Cleaner == fmt.Sprint(s.Seed) || j.Cleaner == fmt.Sprint(s.Choices) {
		p.Verdict, p.Violations = check.Invalid, []check.Violation{{Invariant: check.LiveAttachment}}
	}
	for _, f := range s.Faults {
		if f.Nth <= 3 {
			p.Fired = append(p.Fired, f.Do)
		}
	}
	return p
}

func pool(kind string) Pool {
	return Pool{Workers: 2, Command: func(ctx context.Context) *exec.Cmd {
		c := exec.CommandContext(ctx, os.Args[0])
		c.Env = append(os.Environ(), workerVariable+"="+kind)
		return c
	}}
}

func anyShape() []schedule.Shape {
	return []schedule.Shape{{
		Plan: schedule.Plan{Scenario: "test", Kinds: []string{"DanmNet"}, Families: []string{schedule.IPv4},
			Faults: schedule.Faults{PodDeletion: &schedule.PodDeletion{RoundsMax: 1, PodsMax: 1}}},
		Pods: 1, Nodes: 1, Replicas: 1,
	}}
}

func sweep(t *testing.T, s Sweep) Totals {
	t.Helper()
	s.Shapes, s.Now = anyShape(), time.Now
	return s.Run(t.Context())
}

func TestASweepRunsEverySeedAndSomeTwice(t *testing.T) {
	totals := sweep(t, Sweep{Pool: pool("honest"), First: 3, Last: 102})
	if totals.Seeds != 100 || totals.Again != 6 || totals.Steps != 300 || len(totals.Troubles) > 0 {
		t.Errorf("got %d seeds, %d of them twice, %d steps, troubles %v", totals.Seeds, totals.Again, totals.Steps, totals.Troubles)
	}
}

func TestASweepEndsAtAViolation(t *testing.T) {
	totals := sweep(t, Sweep{Pool: pool("honest"), Cleaner: "50", First: 1, Last: 1_000_000})
	if len(totals.Troubles) > 0 || len(totals.Failures) != 1 || totals.Failures[0].Seed != 50 || totals.Verdict(nil) != check.Invalid {
		t.Errorf("got %+v, %v", totals.Failures, totals.Troubles)
	}
}

func TestASweepTellsTheFirstDifferenceOfTwoRuns(t *testing.T) {
	totals := sweep(t, Sweep{Pool: pool("moody"), First: 1, Last: 100_000})
	if len(totals.Troubles) == 0 || totals.Troubles[0].Kind != Diverged || totals.Troubles[0].Step != 1 {
		t.Errorf("got %v", totals.Troubles)
	}
}

// The violation comes long before the trouble, whoever plays what. Everything
// that was met is kept.
func TestTroubleDoesNotHideWhatWasFoundBefore(t *testing.T) {
	for kind, want := range map[string]Trouble{
		"torn":      {Kind: Diverged, Seed: 80, Scenario: "test", Step: 1},
		"stumbling": {Kind: Died, Seed: 47, Scenario: "test"},
		"lost":      {Kind: Unplayed, Seed: 47, Scenario: "test", Message: "no end after 20000 steps"},
	} {
		t.Run(kind, func(t *testing.T) {
			workers := pool(kind)
			workers.Workers, workers.Patience = 1, time.Second
			totals := sweep(t, Sweep{Pool: workers, Cleaner: "42", First: 1, Last: 1_000_000, KeepGoing: true})
			if len(totals.Failures) != 1 || totals.Failures[0].Seed != 42 || totals.Failures[0].Simulation == nil {
				t.Errorf("failures %+v", totals.Failures)
			}
			if totals.Seeds < 46 || totals.Verdicts[check.Invalid] != 1 || totals.Verdict(nil) != check.Invalid {
				t.Errorf("%d seeds, verdicts %v", totals.Seeds, totals.Verdicts)
			}
			if len(totals.Troubles) != 1 {
				t.Fatalf("troubles %v", totals.Troubles)
			}
			got := totals.Troubles[0]
			if got.Kind != want.Kind || got.Seed != want.Seed || got.Scenario != want.Scenario || got.Step != want.Step || !strings.Contains(got.Message, want.Message) {
				t.Errorf("got %s, step %d", got, got.Step)
			}
			switch kind {
			case "torn":
				if len(got.Once) != 2 || len(got.Again) != 2 || got.Simulation == nil || got.Simulation.Seed != 80 {
					t.Errorf("it lacks what the two runs did: %+v", got)
				}
			case "stumbling":
				if !strings.Contains(got.Words, "search.hang") {
					t.Errorf("it does not show where the worker hangs: %q", got.Words)
				}
			}
		})
	}
}

func TestTroublesOfPartsAreSortedBySeed(t *testing.T) {
	var totals Totals
	for _, seed := range []uint64{7, 3, 5} {
		totals.Merge(Totals{Troubles: []Trouble{{Seed: seed}}})
	}
	if got := fmt.Sprint(totals.Troubles[0].Seed, totals.Troubles[1].Seed, totals.Troubles[2].Seed); got != "3 5 7" {
		t.Errorf("got %s", got)
	}
}

func TestAWorkerThatDiesIsNamedWithItsWords(t *testing.T) {
	totals := sweep(t, Sweep{Pool: pool("mortal"), First: 7, Last: 7})
	if len(totals.Troubles) != 1 || totals.Troubles[0].Seed != 7 || !strings.Contains(totals.Troubles[0].Words, "the simulator is wrong") {
		t.Errorf("got %v", totals.Troubles)
	}
}

// twoShapes take turns under names of their own.
func twoShapes() []schedule.Shape {
	shapes := append(anyShape(), anyShape()...)
	shapes[0].Scenario, shapes[1].Scenario = "one", "two"
	return shapes
}

func TestASeedHasOneScenarioWhoeverPlaysIt(t *testing.T) {
	const first, last = 15, 65
	scenarios := map[string]map[uint64]string{}
	note := func(who string, s *schedule.Shape, seeds int) {
		if scenarios[who] == nil {
			scenarios[who] = map[uint64]string{}
		}
		for i := range max(1, seeds) {
			scenarios[who][s.Seed+uint64(i)] = s.Scenario
		}
	}
	dealt := func(who string, next func() (Job, bool)) {
		for j, ok := next(); ok; j, ok = next() {
			note(who, j.Shape, j.Seeds)
		}
	}
	dealt("sweep", (&sweeping{Sweep: Sweep{Shapes: twoShapes(), First: first, Last: last}, seed: first, firsts: map[uint64]*Played{}}).next)
	for seed := uint64(first); seed <= last; seed++ { // as stress does when it is given one seed
		dealt("stress", (&stressing{Stress: Stress{Shapes: twoShapes(), First: seed, Last: seed, Repeat: 2}, seed: seed}).next)
	}
	if diff := cmp.Diff(scenarios["sweep"], scenarios["stress"]); diff != "" || len(scenarios["sweep"]) != last-first+1 {
		t.Errorf("(-sweep +stress):\n%s", diff)
	}
	if one, two := scenarios["sweep"][19], scenarios["sweep"][20]; one != "one" || two != "two" {
		t.Errorf("seed 19 is %s and seed 20 is %s: ledger and README name seeds by the batch", one, two)
	}
}

func hang() {
	var heldForEver sync.Mutex
	heldForEver.Lock()
	heldForEver.Lock()
}

func TestAWorkerThatHangsShowsItsGoroutines(t *testing.T) {
	hung := pool("hung")
	hung.Patience = time.Second
	totals := sweep(t, Sweep{Pool: hung, First: 1, Last: 4})
	if len(totals.Troubles) != 1 || totals.Troubles[0].Kind != Died || !strings.Contains(totals.Troubles[0].Words, "search.hang") {
		t.Errorf("it does not show where the worker hangs: %v", totals.Troubles)
	}
}

func TestWhatWasNeverReachedMakesASweepUnknown(t *testing.T) {
	totals := Totals{Verdicts: map[check.Verdict]int{check.Valid: 5}, Reached: map[string]int{"a relist": 1}}
	missing := totals.Missing([]schedule.FaultKind{schedule.DelLost}, []string{"a relist", "a failover"})
	if want := []string{"fault del-lost never fired", "never reached: a failover"}; !slices.Equal(missing, want) {
		t.Errorf("got %q, want %q", missing, want)
	}
	if totals.Verdict(nil) != check.Valid || totals.Verdict(missing) != check.Unknown {
		t.Error("what is missing does not count")
	}
}

// The widths of every run are 2, 3 and 2, so there are 1, 1+2+1 and 2+1+2
// interleavings with no, one and two preemptions.
func TestAnEnumerationPlaysEveryInterleavingOnce(t *testing.T) {
	out, err := Enumeration{Pool: pool("honest"), Bound: 2}.Run(t.Context())
	if err != nil || !slices.Equal(out.ByPreemptions, []int{1, 4, 5}) || out.Left != 0 || out.Steps != 30 {
		t.Errorf("got %+v, %v", out, err)
	}
}

func TestAnEnumerationFindsTheOneThatFails(t *testing.T) {
	out, err := Enumeration{Pool: pool("honest"), Cleaner: "[0 2 1]", Bound: 2}.Run(t.Context())
	if err != nil || len(out.Failures) != 1 || out.Played() < 6 {
		t.Errorf("got %+v, %v", out, err)
	}
}

func TestASieveTriesEveryPlaceUntilNoneIsLeft(t *testing.T) {
	sim := schedule.Simulation{Seed: 1}
	out, err := Sieve{Pool: pool("honest"), Of: []schedule.Simulation{sim}}.Run(t.Context())
	if err != nil || out.Places[schedule.WatchCut] != 3 || len(out.Failures) != 0 {
		t.Errorf("got %+v, %v", out, err)
	}
}

func TestAStressComparesEveryRunWithTheFirst(t *testing.T) {
	for kind, want := range map[string]bool{"honest": false, "moody": true} {
		out, err := Stress{Pool: pool(kind), Shapes: anyShape(), First: 1, Last: 5, Repeat: 4}.Run(t.Context())
		if err != nil || out.Runs != 20 || len(out.Divergences) > 0 != want {
			t.Errorf("%s: got %+v, %v", kind, out, err)
		}
	}
}

func TestASessionReturnsTheFirstThatIsWanted(t *testing.T) {
	session, err := pool("honest").Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	var jobs []Job
	for seed := range uint64(50) {
		jobs = append(jobs, Job{Number: int(seed), Simulation: &schedule.Simulation{Seed: seed}})
	}
	p, place, ok, err := session.First(t.Context(), jobs, func(p Played) bool { return p.Seed >= 17 })
	if err != nil || !ok || place != 17 || p.Seed != 17 {
		t.Errorf("got seed %d at %d, %v, %v", p.Seed, place, ok, err)
	}
}
