package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

func TestAFaultStrikesAtItsOpportunityAndAsOftenAsPlanned(t *testing.T) {
	f := newFaults(&world{}, []schedule.SimFault{{Do: schedule.Conflict, On: "cleaner patch danmnets", Nth: 2, Count: 2}})
	var struck []int
	for i, what := range []string{
		"cleaner write patch danmnets", "cleaner write delete danmeps", "cni write patch danmnets",
		"cleaner write patch danmnets", "cleaner write patch danmnets", "cleaner write patch danmnets",
	} {
		if f.at(callPoint, what) != nil {
			struck = append(struck, i)
		}
	}
	if want := []int{3, 4}; !slices.Equal(struck, want) {
		t.Errorf("struck at %v, want %v", struck, want)
	}
	if f.at(watchPoint, "cleaner patch danmnets") != nil {
		t.Error("struck at another kind of moment")
	}
}

func TestAStoryTellsOnceWhatHappensOverAndOver(t *testing.T) {
	story := []string{"    1.000s  a: begins"}
	for i := range 40 {
		story = append(story, fmt.Sprintf("%9.3fs  b looks", float64(2*i+2)), fmt.Sprintf("%9.3fs  c looks", float64(2*i+3)))
	}
	story = append(story, "   90.000s  d: ends", "   91.000s  d: ends", "   92.000s  d: ends")
	want := []string{
		"    1.000s  a: begins", "    2.000s  b looks", "    3.000s  c looks", "       ...  the same 39 times more, until 81.000s",
		"   90.000s  d: ends", "   91.000s  d: ends", "   92.000s  d: ends",
	}
	if diff := cmp.Diff(want, shortened(story)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestTotalsThatAgreeAreNotAgreement(t *testing.T) {
	pod := func(name string, interfaces int) history.SnapshotPod {
		return history.SnapshotPod{Name: name, UID: name, Ready: true, Interfaces: interfaces}
	}
	ep := func(owner, address string) history.SnapshotEndpoint {
		return history.SnapshotEndpoint{PodUID: owner, Addresses: []string{address}}
	}
	bits := []history.SnapshotBit{{Address: "10.0.0.1"}, {Address: "10.0.0.2"}}
	for _, tt := range []struct {
		name    string
		s       history.Snapshot
		isAgree bool
	}{
		{"each has its own", history.Snapshot{
			Pods: []history.SnapshotPod{pod("a", 1), pod("b", 1)}, Bits: bits,
			Endpoints: []history.SnapshotEndpoint{ep("a", "10.0.0.1"), ep("b", "10.0.0.2")},
		}, true},
		{"one of a dead pod stands for one that is missing", history.Snapshot{
			Pods: []history.SnapshotPod{pod("a", 1), pod("b", 1)}, Bits: bits,
			Endpoints: []history.SnapshotEndpoint{ep("a", "10.0.0.1"), ep("dead", "10.0.0.2")},
		}, false},
		{"one has too many and another too few", history.Snapshot{
			Pods: []history.SnapshotPod{pod("a", 1), pod("b", 1)}, Bits: bits,
			Endpoints: []history.SnapshotEndpoint{ep("a", "10.0.0.1"), ep("a", "10.0.0.2")},
		}, false},
		{"two claim one bit, and another is of nobody", history.Snapshot{
			Pods: []history.SnapshotPod{pod("a", 1), pod("b", 1)}, Bits: bits,
			Endpoints: []history.SnapshotEndpoint{ep("a", "10.0.0.1"), ep("b", "10.0.0.1")},
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := pending(&tt.s, len(tt.s.Pods)); (got == "") != tt.isAgree {
				t.Errorf("pending %q", got)
			}
		})
	}
}

func TestNoFaultStrikesOnceTheUserIsDone(t *testing.T) {
	f := newFaults(&world{phase: settling}, []schedule.SimFault{{Do: schedule.Conflict, Nth: 1}})
	if f.at(callPoint, "cleaner write patch danmnets") != nil {
		t.Error("struck while everything is to settle")
	}
}

func TestStoredChoicesComeFirstAndTheFirstOptionAfterThem(t *testing.T) {
	c := newChooser(schedule.Simulation{Choices: []int{2, 7}})
	options := []option{{key: "a"}, {key: "b"}, {key: "c"}}
	var got []int
	for range 4 {
		got = append(got, c.choose(options, false))
	}
	c.choose(options[:1], false) // no choice, so none is noted
	if want := []int{2, 1, 0, 0}; !slices.Equal(got, want) || !slices.Equal(c.taken, want) || len(c.widths) != 4 {
		t.Errorf("chose %v, noted %v of %v", got, c.taken, c.widths)
	}
}

func TestEveryFaultHasAMoment(t *testing.T) {
	general := []schedule.FaultKind{
		schedule.RebootNode, schedule.PartitionNode, schedule.EvictPod, schedule.DeletePod, schedule.ScaleDown,
		schedule.RemoveNode, schedule.OutOfService, schedule.DeleteNamespace, schedule.EditNetwork, schedule.RenewNetwork, schedule.BothGroups,
		schedule.HidePods, schedule.MoveEndpoints, schedule.RenewMirror, schedule.ReserveAddress,
	}
	for _, kind := range schedule.SimFaultKinds() {
		if pointOf(kind) == stepPoint && !slices.Contains(general, kind) {
			t.Errorf("%s strikes at any moment, and nobody knows what it does then", kind)
		}
	}
}

func TestWhoGivesUpOrDiesLeavesTheGate(t *testing.T) {
	for name, end := range map[string]func(context.CancelFunc, *actor){
		"gives up": func(cancel context.CancelFunc, _ *actor) { cancel() },
		"dies":     func(_ context.CancelFunc, a *actor) { a.kill() },
	} {
		t.Run(name, func(t *testing.T) {
			g, a := newGate(), newActor("a", "user")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := g.pass(ctx, &call{actor: a, answers: make(chan *answer, 1)})
				ended <- err
			}()
			<-g.arrived
			end(cancel, a)
			if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, errDead) {
				t.Errorf("got %v", err)
			}
			if len(g.waiting(nil)) != 0 {
				t.Error("the call still waits")
			}
		})
	}
}
