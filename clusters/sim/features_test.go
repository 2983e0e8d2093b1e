package sim

import (
	"context"
	"testing"
	"time"

	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// featured draws a simulation of three pods that has a feature.
func featured(t *testing.T, seed uint64, f schedule.Feature) schedule.Simulation {
	t.Helper()
	s := shape(seed)
	s.Pods, s.Feature = 3, f
	plan, err := schedule.Draw(s)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func TestTheShippedCleanerIsRightInAWorldOutOfTheOrdinary(t *testing.T) {
	for f, reaches := range map[schedule.Feature]string{
		schedule.LegacyEndpoints: isUnsigned, schedule.HiddenPods: seesNone, schedule.HalfMigrated: areAway, schedule.LateAdds: isMisnamed,
		schedule.StaticPods: isRenewed, schedule.ReservedAddresses: setAsideAnew,
	} {
		t.Run(string(f), func(t *testing.T) {
			reached := 0
			for seed := range uint64(25) {
				out := Play(t, featured(t, seed+1, f), Options{Start: startFixed})
				if out.Err != nil {
					t.Fatalf("seed %d: %v", seed+1, out.Err)
				}
				if report := check.Check(out.Records, check.Options{}); report.Verdict != check.Valid {
					t.Fatalf("seed %d: %s: %v %v", seed+1, report.Verdict, report.Violations, report.Unknowns)
				}
				reached += min(1, out.Reached[reaches])
			}
			if reached == 0 {
				t.Errorf("never reached: %s", reaches)
			}
		})
	}
}

func TestEndpointsWithoutUIDBelongToWhoeverTheirSandboxIsFor(t *testing.T) {
	plan := drawn(t, 1, true)
	plan.World.LegacyEndpoints = true
	plan.Steps = []schedule.Step{{Do: schedule.AwaitReady}, {Do: schedule.AwaitReady, Delay: 3 * time.Second}}
	// Nobody cleans up, and nobody needs to.
	out := Play(t, plan, Options{Start: func(ctx context.Context, _ CleanerEnv) error { <-ctx.Done(); return nil }})
	last := out.Records[len(out.Records)-1].Snapshot
	if out.Err != nil || len(last.Endpoints) != plan.World.Pods || !last.Settled {
		t.Fatalf("%v: %+v", out.Err, last)
	}
	for _, e := range last.Endpoints {
		if e.PodUID != "" || e.Owner == "" {
			t.Errorf("%s says that its owner is %q, and is read as that of %q", e.Name, e.PodUID, e.Owner)
		}
	}
	if report := check.Check(out.Records, check.Options{}); report.Verdict != check.Valid {
		t.Errorf("%s: %v %v", report.Verdict, report.Violations, report.Unknowns)
	}
}

func TestAStaticPodRunsOnWhileItsMirrorIsMadeAnew(t *testing.T) {
	plan := drawn(t, 1, true)
	plan.World.StaticPods, plan.Search = 1, schedule.Search{}
	plan.Steps = []schedule.Step{{Do: schedule.AwaitReady}, {Do: schedule.AwaitReady, Delay: 30 * time.Second}}
	plan.Faults = []schedule.SimFault{{Do: schedule.RenewMirror, Nth: 1}}
	out := Play(t, plan, Options{Start: startFixed})
	mirrors, ends := map[string]bool{}, 0
	for _, r := range out.Records {
		if r.Write != nil && r.Write.Name == "static-node-0" {
			mirrors[r.Write.UID] = true
		}
		if a := r.Attachment; a != nil && a.Event != history.Attached {
			ends++
		}
	}
	if out.Err != nil || len(mirrors) != 2 || ends != 0 {
		t.Errorf("%d mirrors, %d attachments ended, %v", len(mirrors), ends, out.Err)
	}
	last := out.Records[len(out.Records)-1].Snapshot
	if !last.Settled || len(last.Endpoints) != plan.World.Pods+1 {
		t.Errorf("%s: %+v", last.Pending, last.Endpoints)
	}
	// Whoever counts its mirror for one too many waits until the time is over.
	if out.Virtual >= settleExtra {
		t.Errorf("settled after %s", out.Virtual)
	}
}
