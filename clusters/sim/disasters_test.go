package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/danm-chaos/danm-chaos/clusters/sim/apiserver"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// lostNode is a node that dies for good, whose pods hang until somebody else
// than the user takes them.
var lostNode = []schedule.Step{
	{Do: schedule.AwaitReady}, {Do: schedule.FailNode, Target: schedule.NodeWithPods, Fault: true},
	{Do: schedule.AwaitTerminating}, {Do: schedule.AwaitReady},
}

var goneByNamespace = schedule.SimFault{Do: schedule.DeleteNamespace, Nth: 40}

func TestADisasterHappensAndIsSurvived(t *testing.T) {
	waiting := []schedule.Step{{Do: schedule.AwaitReady}, {Do: schedule.AwaitReady, Delay: 30 * time.Second}}
	for _, tt := range []struct {
		name  string
		steps []schedule.Step
		fault schedule.SimFault
		want  string // a line of the story
	}{
		{"a namespace goes with everything in it, and comes back", waiting, goneByNamespace, "namespace-controller: drain"},
		{"a node is removed with its pods, and another comes", waiting, schedule.SimFault{Do: schedule.RemoveNode, Nth: 40}, "pod-gc: gc ss-cinfo-0"},
		{"the pods of a dead node go once it is out of service", lostNode, schedule.SimFault{Do: schedule.OutOfService, Nth: 1}, "pod-gc: gc ss-cinfo-0"},
		{"a delete is committed after the cleaner gave up", []schedule.Step{
			{Do: schedule.AwaitReady}, {Do: schedule.FailNode, Target: schedule.NodeWithPods, Fault: true}, {Do: schedule.AwaitTerminating},
			{Do: schedule.ForceDelete, Target: schedule.FailedNode, Fault: true}, {Do: schedule.AwaitReady, Delay: 60 * time.Second},
		}, schedule.SimFault{Do: schedule.LateCall, On: "cleaner delete danmeps", Nth: 1, For: 40 * time.Second}, "fault late-call"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plan := drawn(t, 1, true)
			plan.World.Pods, plan.World.Nodes, plan.World.Replicas = 1, 2, 1
			plan.Search, plan.Steps, plan.Faults = schedule.Search{}, tt.steps, []schedule.SimFault{tt.fault}
			out := Play(t, plan, Options{Start: startFixed, Story: true})
			if out.Err != nil || !out.Fired[0] || !strings.Contains(strings.Join(out.Story, "\n"), tt.want) {
				t.Errorf("fired %v, %v, and the story lacks %q:\n%s", out.Fired, out.Err, tt.want, strings.Join(out.Story, "\n"))
			}
			if report := check.Check(out.Records, check.Options{}); report.Verdict != check.Valid {
				t.Errorf("%s: %v %v", report.Verdict, report.Violations, report.Unknowns)
			}
			if (tt.fault.Do == schedule.LateCall) != (out.Reached[commitsLate] > 0) {
				t.Errorf("late commits: %d", out.Reached[commitsLate])
			}
		})
	}
}

func TestADeletedNamespaceTakesItsNetwork(t *testing.T) {
	plan := drawn(t, 1, true)
	plan.World.Network.Kind, plan.Search = "DanmNet", schedule.Search{}
	plan.Steps, plan.Faults = []schedule.Step{{Do: schedule.AwaitReady}}, []schedule.SimFault{goneByNamespace}
	out := Play(t, plan, Options{Start: startFixed, Story: true})
	deleted := 0
	for _, r := range out.Records {
		if r.Write != nil && r.Write.Type == history.Deleted && r.Write.Resource == "danmnets" {
			deleted++
		}
	}
	if out.Err != nil || !out.Fired[0] || deleted != 1 {
		t.Errorf("fired %v, %d networks deleted, %v", out.Fired, deleted, out.Err)
	}
}

func TestAnEndpointIsNotCreatedAfterTheOrphanQuarantine(t *testing.T) {
	for late, want := range map[time.Duration]int{35 * time.Second: 2, 60 * time.Second: 1} {
		plan := drawn(t, 1, true)
		plan.World.Pods, plan.World.Nodes, plan.World.Replicas = 1, 1, 1
		plan.Search, plan.Steps = schedule.Search{}, []schedule.Step{{Do: schedule.AwaitReady}, {Do: schedule.AwaitReady, Delay: 2 * time.Minute}}
		plan.Faults = []schedule.SimFault{{Do: schedule.LateCall, On: "cni create danmeps", Nth: 1, For: late}}
		out := Play(t, plan, Options{Start: startFixed})
		created := 0
		for _, r := range out.Records {
			if r.Write != nil && r.Write.Type == history.Added && r.Write.Resource == "danmeps" {
				created++
			}
		}
		if out.Err != nil || !out.Fired[0] || created != want {
			t.Errorf("late by %s: %d endpoints created, want %d; fired %v, %v", late, created, want, out.Fired, out.Err)
		}
	}
}

func TestOnlyWritesUnderWayAreCommittedLate(t *testing.T) {
	w := &world{gate: newGate()}
	mine, other := newActor("mine", "user"), newActor("other", "user")
	for _, c := range []*call{
		{key: "b", actor: mine, verb: "patch"}, {key: "a", actor: mine, verb: "delete"},
		{key: "c", actor: mine, verb: "list"}, {key: "d", actor: other, verb: "patch"},
	} {
		c.request = apiserver.Request{}
		w.gate.parked = append(w.gate.parked, c)
	}
	keys := ""
	for _, c := range w.underWay(mine) {
		keys += c.key
	}
	if keys != "ab" {
		t.Errorf("got %q, want the writes of one actor, sorted", keys)
	}
}

func TestACleanerThatIsToldToHoldHolds(t *testing.T) {
	steps := []schedule.Step{
		{Do: schedule.AwaitReady}, {Do: schedule.FailNode, Target: schedule.NodeWithPods, Fault: true}, {Do: schedule.AwaitTerminating},
		{Do: schedule.ForceDelete, Target: schedule.FailedNode, Fault: true}, {Do: schedule.AwaitReady},
	}
	for _, tt := range []struct {
		name  string
		world func(*schedule.World)
		want  string
	}{
		{"with strict fencing, until its node is fenced", func(w *schedule.World) { w.StrictFencing = true }, isFenced},
		{"in a dry run, for good", func(w *schedule.World) { w.DryRun = true }, staysDry},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plan := drawn(t, 1, true)
			plan.Search, plan.Steps = schedule.Search{}, steps
			tt.world(&plan.World)
			out := Play(t, plan, Options{Start: startFixed})
			if out.Err != nil || out.Reached[tt.want] == 0 {
				t.Errorf("never reached: %s: %v, %v", tt.want, out.Reached, out.Err)
			}
			if report := check.Check(out.Records, check.Options{}); report.Verdict != check.Valid {
				t.Errorf("%s: %v %v", report.Verdict, report.Violations, report.Unknowns)
			}
		})
	}
}

func TestPodsMayHaveTwoInterfaces(t *testing.T) {
	plan := drawn(t, 2, true)
	plan.World.Interfaces = 2
	out := Play(t, plan, Options{Start: startFixed})
	report := check.Check(out.Records, check.Options{})
	if out.Err != nil || out.Reached[hasTwo] == 0 || report.Verdict != check.Valid {
		t.Fatalf("reached %v, %s, %v: %v %v", out.Reached, report.Verdict, out.Err, report.Violations, report.Unknowns)
	}
	last := out.Records[len(out.Records)-1].Snapshot
	if len(last.Endpoints) != 2*plan.World.Pods {
		t.Errorf("%d endpoints of %d pods", len(last.Endpoints), plan.World.Pods)
	}
	if again := Play(t, plan, Options{Start: startFixed}); again.Digest != out.Digest {
		t.Error("interfaces that are made side by side give another history each time")
	}
}
