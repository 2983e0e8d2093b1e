//go:debug randseednop=0
package sim

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/cleaner"
	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

func TestMain(m *testing.M) {
	Isolate()
	m.Run()
}

// startFixed runs the cleaner that ships.
func startFixed(ctx context.Context, env CleanerEnv) error {
	c := cleaner.Config{
		REST: env.REST, Encoding: env.Encoding, Group: danm.Group(env.World.Group), LeaderElect: env.World.LeaderElect, Identity: env.Identity,
		ReleaseQuarantine: env.World.ReleaseQuarantine, OrphanQuarantine: env.World.OrphanQuarantine,
		Workers: env.Workers(), Clock: env.Clock, Logger: logr.Discard(), DryRun: env.World.DryRun,
	}
	if env.World.StrictFencing {
		c.Fencing = ownership.Strict
	}
	if env.World.SlowLease {
		c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = 60*time.Second, 40*time.Second, 10*time.Second
	}
	return cleaner.Run(ctx, c)
}

func shape(seed uint64) schedule.Shape {
	return schedule.Shape{
		Plan: schedule.Plan{
			Scenario: "node-shutdown", Seed: seed, Kinds: []string{"DanmNet", "TenantNetwork", "ClusterNetwork"},
			Families: []string{"v4", "v6", "dual"},
			Faults: schedule.Faults{NodeShutdown: &schedule.NodeShutdown{
				Target: schedule.NodeWithPods, Returns: schedule.Returns(),
			}},
		},
		Pods: 5, Nodes: 3, Replicas: 2, Group: "danm.io", CNI: "danm-4.3",
	}
}

func drawn(t *testing.T, seed uint64, isCalm bool) schedule.Simulation {
	t.Helper()
	s := shape(seed)
	s.Calm = isCalm
	plan, err := schedule.Draw(s)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func TestTheShippedCleanerHealsANodeShutdown(t *testing.T) {
	for seed := range uint64(8) {
		out := Play(t, drawn(t, seed+1, true), Options{Start: startFixed})
		if out.Err != nil {
			t.Fatalf("seed %d: %v", seed+1, out.Err)
		}
		report := check.Check(out.Records, check.Options{})
		t.Logf("seed %d: %s, %+v, %s virtual", seed+1, report.Verdict, out.Steps, out.Virtual)
		if report.Verdict != check.Valid {
			t.Fatalf("seed %d: %s: %v %v", seed+1, report.Verdict, report.Violations, report.Unknowns)
		}
	}
}

func TestEqualSimulationsGiveEqualHistories(t *testing.T) {
	seen := map[uint64]uint64{}
	for seed := range uint64(10) {
		plan := drawn(t, seed+1, false)
		first := Play(t, plan, Options{Start: startFixed})
		second := Play(t, plan, Options{Start: startFixed})
		if first.Digest != second.Digest {
			t.Fatalf("seed %d: %s", seed+1, cmp.Diff(first.Trace, second.Trace))
		}
		if diff := cmp.Diff(first.Records, second.Records); diff != "" {
			t.Fatalf("seed %d: equal digests, different records:\n%s", seed+1, diff)
		}
		if other, ok := seen[first.Digest]; ok {
			t.Errorf("seeds %d and %d do the same", other, seed+1)
		}
		seen[first.Digest] = seed + 1
	}
}

// What client-go makes of answers must be the same whether they hold objects or
// bytes, and nobody may change an object that is still the server's: the JSON of
// the records, and what is read later, would show it.
func TestACleanerThatIsSentObjectsDoesWhatItDoesWithBytes(t *testing.T) {
	overBytes := func(ctx context.Context, env CleanerEnv) error {
		env.Encoding = nil
		return startFixed(ctx, env)
	}
	for seed := range uint64(20) {
		plan := drawn(t, seed+1, false)
		objects, bytes := Play(t, plan, Options{Start: startFixed}), Play(t, plan, Options{Start: overBytes})
		if objects.Digest != bytes.Digest {
			t.Errorf("seed %d: with bytes, then with objects: %s", seed+1, cmp.Diff(bytes.Trace, objects.Trace))
		}
	}
}

func TestChoicesReplayARun(t *testing.T) {
	plan := drawn(t, 7, false)
	drawnOut := Play(t, plan, Options{Start: startFixed})
	plan.Choices, plan.Search = drawnOut.Choices, schedule.Search{}
	replayed := Play(t, plan, Options{Start: startFixed})
	if drawnOut.Digest != replayed.Digest {
		t.Error("the choices of a run do not give the same run again")
	}
}

// A bubble fails when a goroutine outlives it. So what is killed, at whatever
// call, must end altogether, and so must what ends with its context.
func TestACleanerThatIsKilledLeavesNoGoroutine(t *testing.T) {
	for nth := 1; nth <= 25; nth += 6 {
		plan := drawn(t, 3, true)
		plan.Faults = []schedule.SimFault{{Do: schedule.CrashAfter, On: "cleaner", Nth: nth, Count: 2}}
		out := Play(t, plan, Options{Start: startFixed})
		if out.Err != nil || !out.Fired[0] {
			t.Errorf("killed at call %d: fired %v, %v", nth, out.Fired, out.Err)
		}
	}
}

func TestAnImpatientUserIsNotKeptWaitingByTheSearch(t *testing.T) {
	plan := drawn(t, 1, true)
	plan.Steps = []schedule.Step{
		{Do: schedule.AwaitReady}, {Do: schedule.ForceDelete, Target: schedule.AnyPods, Count: 3, Fault: true}, {Do: schedule.ForceDelete, Target: schedule.SamePods, Fault: true},
	}
	plan.Search = schedule.Search{Draw: true, TimePercent: 97}
	out := Play(t, plan, Options{Start: startFixed})
	if report := check.Check(out.Records, check.Options{}); out.Err != nil || report.Verdict != check.Valid {
		t.Errorf("got %s, %v: %v", report.Verdict, out.Err, report.Unknowns)
	}
}

func TestACleanerThatDoesNothingIsInvalid(t *testing.T) {
	plan := drawn(t, 1, true)
	plan.Steps = []schedule.Step{
		{Do: schedule.AwaitReady}, {Do: schedule.FailNode, Target: schedule.NodeWithPods, Fault: true},
		{Do: schedule.AwaitTerminating}, {Do: schedule.ForceDelete, Target: schedule.FailedNode, Fault: true}, {Do: schedule.AwaitReady},
	}
	out := Play(t, plan, Options{Start: func(ctx context.Context, _ CleanerEnv) error { <-ctx.Done(); return nil }})
	if report := check.Check(out.Records, check.Options{}); out.Err != nil || report.Verdict != check.Invalid {
		t.Errorf("got %s, %v: %v", report.Verdict, out.Err, report.Unknowns)
	}
}
