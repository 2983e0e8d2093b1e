package search

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// againOneIn is how rarely a seed is run a second time, by whichever worker
// comes first. The seeds in between go to one worker together.
const againOneIn = 20

// Sweep says what to run.
type Sweep struct {
	Pool    Pool
	Cleaner string
	// Shapes take turns, batch by batch; the seed of each is set here.
	Shapes      []schedule.Shape
	First, Last uint64
	// For ends the sweep early; 0 does not.
	For       time.Duration
	KeepGoing bool // after a violation
	BlameAny  bool
	// Now is the wall clock.
	Now func() time.Time
	// Progress is called now and then; nil is allowed.
	Progress func(Totals)
}

// errEnough ends a sweep whose question is answered.
var errEnough = errors.New("enough is known")

// Run runs the sweep. Trouble ends it, and is in the totals beside everything
// that was found before.
func (s Sweep) Run(ctx context.Context) Totals {
	r := &sweeping{Sweep: s, began: s.Now(), seed: s.First, firsts: map[uint64]*Played{}}
	err := s.Pool.Run(ctx, r.next, r.took)
	if err != nil && !errors.Is(err, errEnough) && ctx.Err() == nil {
		r.troubled(r.troubleOf(err))
	}
	r.totals.Took = s.Now().Sub(r.began)
	return r.totals
}

// troubleOf is what is to be known of an error of the pool.
func (r *sweeping) troubleOf(err error) Trouble {
	var death *Death
	if !errors.As(err, &death) {
		return Trouble{Kind: Died, Seed: r.First, Message: err.Error()}
	}
	return Trouble{
		Kind: Died, Seed: death.Seed(), Scenario: r.scenarioOf(death.Seed()), Words: death.Words,
		Message: fmt.Sprintf("a worker died or hung: %v", death.Unwrap()),
	}
}

func (r *sweeping) troubled(t Trouble) { r.totals.Merge(Totals{Troubles: []Trouble{t}}) }

// sweeping is a sweep under way. Its methods are called one at a time.
type sweeping struct {
	Sweep
	began  time.Time
	seed   uint64
	job    int
	again  []uint64 // seeds to run a second time
	firsts map[uint64]*Played
	totals Totals
	told   time.Time
}

// next deals the seeds: in batches of one shape, and some of them once more
// with their whole trace.
func (r *sweeping) next() (Job, bool) {
	r.job++
	j := Job{Number: r.job, Cleaner: r.Cleaner, BlameAny: r.BlameAny}
	isOver := r.seed > r.Last || r.For > 0 && r.Now().Sub(r.began) >= r.For
	switch {
	case len(r.again) > 0:
		seed := r.again[0]
		r.again = r.again[1:]
		shape := r.shapeOf(seed)
		j.Shape, j.Seeds, j.Trace = &shape, 1, true
		return j, true
	case isOver:
		return Job{}, false
	}
	shape := r.shapeOf(r.seed)
	j.Shape, j.Seeds = &shape, 1
	if r.isTwice(r.seed) {
		// Its trace is needed should the second run differ.
		j.Trace, r.again = true, append(r.again, r.seed)
	} else {
		j.Seeds = int(min(againOneIn-r.seed%againOneIn, r.Last-r.seed+1))
	}
	r.seed += uint64(j.Seeds)
	return j, true
}

// isTwice tells whether a seed is run a second time.
func (r *sweeping) isTwice(seed uint64) bool { return seed%againOneIn == 0 || seed == r.First }

func (r *sweeping) shapeOf(seed uint64) schedule.Shape { return shapeOf(r.Shapes, seed) }

func (r *sweeping) scenarioOf(seed uint64) string { return r.shapeOf(seed).Scenario }

// shapeOf returns the shape that a seed has among these, whatever else is run
// and whoever runs it. All seeds of a batch have the same.
func shapeOf(shapes []schedule.Shape, seed uint64) schedule.Shape {
	shape := shapes[(seed/againOneIn)%uint64(len(shapes))]
	shape.Seed = seed
	return shape
}

func (r *sweeping) took(p Played) error {
	if p.Trouble != "" {
		r.troubled(Trouble{Kind: Unplayed, Seed: p.Seed, Scenario: r.scenarioOf(p.Seed), Message: p.Trouble, Once: p.Trace})
		return errEnough
	}
	if r.isTwice(p.Seed) {
		first := r.firsts[p.Seed]
		if first != nil {
			delete(r.firsts, p.Seed)
			r.totals.Again++
			r.totals.Granted += int64(p.Steps)
			if first.Digest != p.Digest {
				r.troubled(divergence(r.scenarioOf(p.Seed), *first, p))
				return errEnough
			}
			return nil
		}
		r.firsts[p.Seed] = &p
	}
	r.totals.Merge(totalsOf(p))
	if now := r.Now(); r.Progress != nil && now.Sub(r.told) > time.Second {
		r.told, r.totals.Took = now, now.Sub(r.began)
		r.Progress(r.totals)
	}
	if p.Verdict == check.Invalid && !r.KeepGoing {
		return errEnough
	}
	return nil
}
