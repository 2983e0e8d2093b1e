package shrink

import (
	"context"
	"slices"

	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// FirstFailing plays candidates and returns the first that fails as the
// original did, with the choices that it made, or false if none does.
type FirstFailing func(ctx context.Context, candidates []schedule.Simulation) (schedule.Simulation, bool, error)

// Bounds of the search.
const (
	roundsMax   = 6  // of all passes; the last of them changes nothing
	redrawnMax  = 60 // seeds that are tried for a smaller world
	restartsMax = 40 // from other choices
	nodesMin    = 2  // a pod whose node died needs another
)

// Shrink returns a simulation that is as small as it got until ctx ended, which
// is no error. Where no pass makes it smaller any more, it begins again from other
// choices in the same small world, as what is left often depends on the way taken.
func Shrink(ctx context.Context, failing schedule.Simulation, first FirstFailing) (schedule.Simulation, error) {
	s := &shrinker{best: failing, first: first}
	if err := s.descend(ctx); err != nil {
		return s.best, unlessEnded(ctx, err)
	}
	for i := range restartsMax {
		other := &shrinker{best: s.best, first: first}
		found, err := other.try(ctx, redrawn(s.best, 1+(i+1)*redrawnMax)...)
		if err == nil && found {
			err = other.descend(ctx)
		}
		if Size(other.best) < Size(s.best) {
			s.best = other.best
		}
		if err != nil {
			return s.best, unlessEnded(ctx, err)
		}
	}
	return s.best, nil
}

func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// descend makes the best smaller until no pass does.
func (s *shrinker) descend(ctx context.Context) error {
	for range roundsMax {
		before := Size(s.best)
		for _, pass := range []func(context.Context) error{
			s.smallerWorld, s.fewerFaults, s.fewerSteps, s.shorter, s.calmer, s.fewerFaults, s.fewerSteps,
		} {
			if err := pass(ctx); err != nil {
				return err
			}
		}
		if Size(s.best) == before {
			break
		}
	}
	return nil
}

// Size counts what a reader of the simulation has to understand: pods, nodes
// and replicas, the user's steps, faults, and choices that are not the first.
func Size(s schedule.Simulation) int {
	return s.World.Pods + s.World.Nodes + s.World.Replicas + Events(s)
}

// Events counts what makes the simulation go as it does: steps of the user,
// faults, and choices that are not the first.
func Events(s schedule.Simulation) int {
	n := len(s.Steps) + len(s.Faults)
	for _, c := range s.Choices {
		if c != 0 {
			n++
		}
	}
	return n
}

type shrinker struct {
	best  schedule.Simulation
	first FirstFailing
}

// try keeps the first candidate that fails and tells whether there was one.
func (s *shrinker) try(ctx context.Context, candidates ...schedule.Simulation) (bool, error) {
	if len(candidates) == 0 {
		return false, nil
	}
	found, ok, err := s.first(ctx, candidates)
	if err != nil || !ok {
		return false, err
	}
	s.best = trimmed(found)
	return true, nil
}

// trimmed drops trailing choices that are the first anyway.
func trimmed(sim schedule.Simulation) schedule.Simulation {
	n := len(sim.Choices)
	for n > 0 && sim.Choices[n-1] == 0 {
		n--
	}
	sim.Choices = slices.Clone(sim.Choices[:n])
	return sim
}

// smallerWorld takes away pods, nodes and replicas, and everything that is out
// of the ordinary. As the choices mean something else in another world, each
// is tried as it is, canonical, and with choices drawn anew.
func (s *shrinker) smallerWorld(ctx context.Context) error {
	for _, change := range worldChanges() {
		for {
			world := s.best.World
			if !change(&world) || world == s.best.World {
				break
			}
			ok, err := s.try(ctx, s.inWorld(world)...)
			if err != nil {
				return err
			}
			if !ok {
				break
			}
		}
	}
	return nil
}

func (s *shrinker) inWorld(world schedule.World) []schedule.Simulation {
	same := s.best
	same.World = world
	canonical := same
	canonical.Choices, canonical.Search = nil, schedule.Search{}
	return append([]schedule.Simulation{canonical, same}, redrawn(same, 1)...)
}

// redrawn returns the simulation with choices drawn anew from so many seeds.
func redrawn(sim schedule.Simulation, seed int) []schedule.Simulation {
	var candidates []schedule.Simulation
	for i := range redrawnMax {
		sim.Choices, sim.Seed = nil, uint64(seed+i)
		sim.Search = schedule.Search{Draw: true, TimePercent: []int{0, 2, 10}[i%3], Priorities: i%2 == 0}
		candidates = append(candidates, sim)
	}
	return candidates
}

// worldChanges are steps towards the simplest world. Each tells whether it
// changed anything.
func worldChanges() []func(*schedule.World) bool {
	lower := func(n *int, least int) bool {
		*n = max(least, *n-1)
		return true
	}
	return []func(*schedule.World) bool{
		func(w *schedule.World) bool { isMore := w.Pods > 2; w.Pods = min(w.Pods, 2); return isMore },
		func(w *schedule.World) bool { return lower(&w.Pods, 1) },
		func(w *schedule.World) bool { return lower(&w.Replicas, 1) },
		func(w *schedule.World) bool { return lower(&w.Nodes, nodesMin) },
		func(w *schedule.World) bool {
			w.Network = schedule.Network{Kind: "DanmNet", Family: schedule.IPv4}
			return true
		},
		func(w *schedule.World) bool { w.Interfaces = 0; return true },
		func(w *schedule.World) bool { w.WatchList = false; return true },
		func(w *schedule.World) bool { w.LeaderElect = false; return true },
		func(w *schedule.World) bool { w.SlowLease = true; return true },
		func(w *schedule.World) bool { w.StrictFencing = false; return true },
		func(w *schedule.World) bool { w.LegacyEndpoints = false; return true },
		func(w *schedule.World) bool { return lower(&w.StaticPods, 0) },
	}
}

func (s *shrinker) fewerFaults(ctx context.Context) error {
	for i := len(s.best.Faults) - 1; i >= 0; i-- {
		if i >= len(s.best.Faults) {
			continue
		}
		candidate := s.best
		candidate.Faults = slices.Delete(slices.Clone(s.best.Faults), i, i+1)
		if _, err := s.try(ctx, candidate); err != nil {
			return err
		}
	}
	return nil
}

// fewerSteps drops the user's steps from the end, and makes the others plain.
func (s *shrinker) fewerSteps(ctx context.Context) error {
	for i := len(s.best.Steps) - 1; i >= 0; i-- {
		if i >= len(s.best.Steps) {
			continue
		}
		without := s.best
		without.Steps = slices.Delete(slices.Clone(s.best.Steps), i, i+1)
		if ok, err := s.try(ctx, without); err != nil || ok {
			if err != nil {
				return err
			}
			continue
		}
		plain := s.best
		plain.Steps = slices.Clone(s.best.Steps)
		plain.Steps[i].Pick, plain.Steps[i].Delay, plain.Steps[i].Spread = 0, 0, 0
		if plain.Steps[i] == s.best.Steps[i] {
			continue
		}
		if _, err := s.try(ctx, plain); err != nil {
			return err
		}
	}
	return nil
}

// shorter takes the first option always after some point: what comes after the
// violation does not matter.
func (s *shrinker) shorter(ctx context.Context) error {
	for length := len(s.best.Choices) / 2; length > 0; length /= 2 {
		for len(s.best.Choices) >= length {
			candidate := s.best
			candidate.Choices = s.best.Choices[:len(s.best.Choices)-length]
			ok, err := s.try(ctx, trimmed(candidate))
			if err != nil {
				return err
			}
			if !ok {
				break
			}
		}
	}
	return nil
}

// calmer replaces choices by the first option, in runs that get shorter, and
// takes such runs out altogether.
func (s *shrinker) calmer(ctx context.Context) error {
	for length := max(1, len(s.best.Choices)/2); length > 0; length /= 2 {
		for from := 0; from < len(s.best.Choices); from += length {
			to := min(from+length, len(s.best.Choices))
			if !slices.ContainsFunc(s.best.Choices[from:to], func(c int) bool { return c != 0 }) {
				continue
			}
			zeroed, cut := s.best, s.best
			zeroed.Choices = slices.Clone(s.best.Choices)
			clear(zeroed.Choices[from:to])
			cut.Choices = slices.Delete(slices.Clone(s.best.Choices), from, to)
			if _, err := s.try(ctx, trimmed(zeroed), trimmed(cut)); err != nil {
				return err
			}
		}
	}
	return nil
}
