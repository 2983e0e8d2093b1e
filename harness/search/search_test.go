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

func sweep(t *testing.T, s Sweep) (Totals, error) {
	t.Helper()
	s.Shapes, s.Now = anyShape(), time.Now
	return s.Run(t.Context())
}

func TestASweepRunsEverySeedAndSomeTwice(t *testing.T) {
	totals, err := sweep(t, Sweep{Pool: pool("honest"), First: 3, Last: 102})
	if err != nil {
		t.Fatal(err)
	}
	if totals.Seeds != 100 || totals.Again != 6 || totals.Steps != 300 || totals.Divergence != "" {
		t.Errorf("got %d seeds, %d of them twice, %d steps, divergence %q", totals.Seeds, totals.Again, totals.Steps, totals.Divergence)
	}
}

func TestASweepEndsAtAViolation(t *testing.T) {
	totals, err := sweep(t, Sweep{Pool: pool("honest"), Cleaner: "50", First: 1, Last: 1_000_000})
	if err != nil || len(totals.Failures) != 1 || totals.Failures[0].Seed != 50 || totals.Verdict(nil) != check.Invalid {
		t.Errorf("got %+v, %v", totals.Failures, err)
	}
}

func TestASweepTellsTheFirstDifferenceOfTwoRuns(t *testing.T) {
	totals, err := sweep(t, Sweep{Pool: pool("moody"), First: 1, Last: 100_000})
	if err != nil || !strings.Contains(totals.Divergence, "step 1") {
		t.Errorf("got %q, %v", totals.Divergence, err)
	}
}

func TestAWorkerThatDiesIsNamedWithItsWords(t *testing.T) {
	_, err := sweep(t, Sweep{Pool: pool("mortal"), First: 7, Last: 7})
	if err == nil || !strings.Contains(err.Error(), "the simulator is wrong") || !strings.Contains(err.Error(), "from seed 7") {
		t.Errorf("got %v", err)
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
	_, err := sweep(t, Sweep{Pool: hung, First: 1, Last: 4})
	if err == nil || !strings.Contains(err.Error(), "search.hang") {
		t.Errorf("the error does not show where the worker hangs: %v", err)
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
