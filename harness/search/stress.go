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
	Shapes      []schedule.Shape // take turns
	First, Last uint64
	Repeat      int
	// Progress is called after every round; nil is allowed.
	Progress func(runs, divergences int)
}

// Stressed is what a stress found.
type Stressed struct {
	Runs        int
	Divergences []string // the first difference of each
}

// Run runs the stress. Round after round takes all seeds, so that equal runs
// lie far apart.
func (s Stress) Run(ctx context.Context) (Stressed, error) {
	var out Stressed
	firsts := map[uint64]Played{}
	seed, round, job := s.First, 0, 0
	next := func() (Job, bool) {
		if seed > s.Last {
			seed, round = s.First, round+1
		}
		if round >= s.Repeat {
			return Job{}, false
		}
		shape := s.Shapes[seed%uint64(len(s.Shapes))]
		shape.Seed = seed
		seed, job = seed+1, job+1
		return Job{Number: job, Cleaner: s.Cleaner, Shape: &shape, Seeds: 1, Trace: true}, true
	}
	took := func(p Played) error {
		if p.Trouble != "" {
			return fmt.Errorf("seed %d: %s", p.Seed, p.Trouble)
		}
		out.Runs++
		first, isKnown := firsts[p.Seed]
		switch {
		case !isKnown:
			firsts[p.Seed] = p
		case first.Digest != p.Digest:
			out.Divergences = append(out.Divergences, difference(first, p))
		}
		if s.Progress != nil && out.Runs%int(s.Last-s.First+1) == 0 {
			s.Progress(out.Runs, len(out.Divergences))
		}
		return nil
	}
	err := s.Pool.Run(ctx, next, took)
	return out, err
}
