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
	// Shapes take turns, seed by seed; the seed of each is set here.
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

// Run runs the sweep. The error says that the simulator is wrong; what the
// cleaner did is in the totals.
func (s Sweep) Run(ctx context.Context) (Totals, error) {
	r := &sweeping{Sweep: s, began: s.Now(), seed: s.First, firsts: map[uint64]*Played{}}
	err := s.Pool.Run(ctx, r.next, r.took)
	if errors.Is(err, errEnough) || ctx.Err() != nil {
		err = nil
	}
	r.totals.Took = s.Now().Sub(r.began)
	return r.totals, err
}

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

// shapeOf returns the shape that a seed has, whatever else is run. All seeds of
// a batch have the same.
func (r *sweeping) shapeOf(seed uint64) schedule.Shape {
	shape := r.Shapes[(seed/againOneIn)%uint64(len(r.Shapes))]
	shape.Seed = seed
	return shape
}

func (r *sweeping) took(p Played) error {
	if p.Trouble != "" {
		return fmt.Errorf("seed %d: %s", p.Seed, p.Trouble)
	}
	if r.isTwice(p.Seed) {
		first := r.firsts[p.Seed]
		if first != nil {
			delete(r.firsts, p.Seed)
			r.totals.Again++
			r.totals.Granted += int64(p.Steps)
			if first.Digest != p.Digest {
				r.totals.Divergence = difference(*first, p)
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

// difference names the first step in which two runs of one seed differ.
func difference(a, b Played) string {
	for i := range max(len(a.Trace), len(b.Trace)) {
		one, other := lineOf(a.Trace, i), lineOf(b.Trace, i)
		if one != other {
			return fmt.Sprintf("seed %d, step %d: once %q, once %q", a.Seed, i, one, other)
		}
	}
	return fmt.Sprintf("seed %d: equal steps, different records", a.Seed)
}

func lineOf(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "the end"
}
