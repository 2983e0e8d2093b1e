package shrink

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// large fails for a fault, a step, two pods and one choice.
func large() schedule.Simulation {
	return schedule.Simulation{
		World: schedule.World{Pods: 5, Nodes: 3, Replicas: 2, WatchList: true, LeaderElect: true},
		Steps: []schedule.Step{{Do: schedule.AwaitReady}, {Do: schedule.FailNode, Pick: 7}, {Do: schedule.ForceDelete}},
		Faults: []schedule.SimFault{
			{Do: schedule.WatchCut, Nth: 1}, {Do: schedule.DelLost, Nth: 1}, {Do: schedule.Conflict, Nth: 1},
		},
		Choices: []int{1, 0, 2, 1, 3, 1, 1, 1, 1, 2},
	}
}

func fails(s schedule.Simulation) bool {
	hasFault := slices.ContainsFunc(s.Faults, func(f schedule.SimFault) bool { return f.Do == schedule.DelLost })
	hasStep := slices.ContainsFunc(s.Steps, func(st schedule.Step) bool { return st.Do == schedule.FailNode })
	return hasFault && hasStep && s.World.Pods >= 2 && slices.Contains(s.Choices, 3)
}

func firstOf(_ context.Context, candidates []schedule.Simulation) (schedule.Simulation, bool, error) {
	for _, c := range candidates {
		if fails(c) {
			return c, true, nil
		}
	}
	return schedule.Simulation{}, false, nil
}

func TestShrinkLeavesOnlyWhatTheFailureNeeds(t *testing.T) {
	small, err := Shrink(t.Context(), large(), firstOf)
	if err != nil {
		t.Fatal(err)
	}
	if !fails(small) {
		t.Fatalf("it does not fail any more: %+v", small)
	}
	if small.World.Pods != 2 || small.World.Replicas != 1 || small.World.WatchList || len(small.Faults) != 1 || len(small.Steps) != 1 || Events(small) != 3 {
		t.Errorf("not small: %+v", small)
	}
	if small.Steps[0].Pick != 0 || len(small.Choices) > len(large().Choices)/2 {
		t.Errorf("not plain: %+v", small)
	}
}

// What fails only by three choices in a row cannot be made smaller choice by
// choice; another seed fails by one.
func TestShrinkBeginsAgainFromOtherChoices(t *testing.T) {
	inARow := func(s schedule.Simulation) bool {
		return len(s.Choices) == 3 && !slices.Contains(s.Choices, 0) || len(s.Choices) == 1 && s.Choices[0] == 5
	}
	failing := schedule.Simulation{World: schedule.World{Pods: 1, Nodes: 2, Replicas: 1, SlowLease: true}, Choices: []int{1, 2, 3}}
	failing.World.Network = schedule.Network{Kind: "DanmNet", Family: schedule.IPv4}
	small, err := Shrink(t.Context(), failing, func(_ context.Context, candidates []schedule.Simulation) (schedule.Simulation, bool, error) {
		for _, c := range candidates {
			if c.Search.Draw && c.Seed > 2*redrawnMax {
				c.Choices = []int{5} // as that seed makes them
			}
			if inARow(c) {
				return c, true, nil
			}
		}
		return schedule.Simulation{}, false, nil
	})
	if err != nil || len(small.Choices) != 1 {
		t.Errorf("got choices %v, %v", small.Choices, err)
	}
}

func TestShrinkReturnsTheBestWhenItsTimeIsOver(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	small, err := Shrink(ctx, large(), func(ctx context.Context, candidates []schedule.Simulation) (schedule.Simulation, bool, error) {
		if calls++; calls > 3 {
			cancel()
			return schedule.Simulation{}, false, ctx.Err()
		}
		return firstOf(ctx, candidates)
	})
	if err != nil || !fails(small) || Size(small) >= Size(large()) {
		t.Errorf("got size %d of %d, %v", Size(small), Size(large()), err)
	}
}

func TestShrinkPassesOnWhatWentWrong(t *testing.T) {
	broken := errors.New("the worker died")
	_, err := Shrink(t.Context(), large(), func(context.Context, []schedule.Simulation) (schedule.Simulation, bool, error) {
		return schedule.Simulation{}, false, broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}
