package search

import (
	"context"
	"fmt"

	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// Stress runs every seed of a range many times, in whichever worker comes first,
// and compares. More workers than cores make it harder.
type Stress struct {
	Pool        Pool
	Cleaner     string
	Shapes      []schedule.Shape // take turns as those of a Sweep do
	First, Last uint64
	Repeat      int
	// Progress is called after every round; nil is allowed.
	Progress func(runs, divergences int)
}

// Stressed is what a stress found.
type Stressed struct {
	Runs        int
	Divergences []Trouble
}

// Run runs the stress. Round after round takes all seeds, so that equal runs
// lie far apart.
func (s Stress) Run(ctx context.Context) (Stressed, error) {
	r := &stressing{Stress: s, seed: s.First, firsts: map[uint64]Played{}}
	err := s.Pool.Run(ctx, r.next, r.took)
	return r.found, err
}

// stressing is a stress under way. Its methods are called one at a time.
type stressing struct {
	Stress
	seed   uint64 // of the next run
	round  int
	job    int
	firsts map[uint64]Played
	found  Stressed
}

func (r *stressing) next() (Job, bool) {
	if r.seed > r.Last {
		r.seed, r.round = r.First, r.round+1
	}
	if r.round >= r.Repeat {
		return Job{}, false
	}
	shape := shapeOf(r.Shapes, r.seed)
	r.seed, r.job = r.seed+1, r.job+1
	return Job{Number: r.job, Cleaner: r.Cleaner, Shape: &shape, Seeds: 1, Trace: true}, true
}

func (r *stressing) took(p Played) error {
	scenario := shapeOf(r.Shapes, p.Seed).Scenario
	if p.Trouble != "" {
		return fmt.Errorf("seed %d of %s: %s", p.Seed, scenario, p.Trouble)
	}
	r.found.Runs++
	first, isKnown := r.firsts[p.Seed]
	switch {
	case !isKnown:
		r.firsts[p.Seed] = p
	case first.Digest != p.Digest:
		r.found.Divergences = append(r.found.Divergences, divergence(scenario, first, p))
	}
	if r.Progress != nil && r.found.Runs%int(r.Last-r.First+1) == 0 {
		r.Progress(r.found.Runs, len(r.found.Divergences))
	}
	return nil
}
