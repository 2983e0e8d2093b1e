package search

import (
	"context"
	"fmt"

	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// Sieve plays one simulation with one fault, at every place at which it can
// strike: a crash after each write, a lost reply to each call, a cut at each
// event, a restart in the past after each call, and so on. The simulation
// itself tells how many places there are: after the last the fault does not
// fire any more.
type Sieve struct {
	Pool     Pool
	Cleaner  string
	Of       []schedule.Simulation // without faults
	BlameAny bool
}

// Sieved is what a sieve found.
type Sieved struct {
	Places   map[schedule.FaultKind]int // that each fault struck at, over all simulations
	Played   int
	Failures []Played
}

// placesMax bounds the places of one fault in one simulation.
const placesMax = 400

// Run sieves. It goes on after failures.
func (s Sieve) Run(ctx context.Context) (Sieved, error) {
	out := Sieved{Places: map[schedule.FaultKind]int{}}
	session, err := s.Pool.Open(ctx)
	if err != nil {
		return out, err
	}
	defer session.Close()
	for _, sim := range s.Of {
		for _, fault := range schedule.SieveFaults(sim.World) {
			if err := s.strike(ctx, session, sim, fault, &out); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// strike moves one fault through a simulation. Jobs end at the first that does
// not fire.
func (s Sieve) strike(ctx context.Context, session *Session, sim schedule.Simulation, fault schedule.SimFault, out *Sieved) error {
	jobs := make([]Job, placesMax)
	for i := range jobs {
		with := sim
		f := fault
		f.Nth = i + 1
		with.Faults = []schedule.SimFault{f}
		jobs[i] = Job{Number: i, Cleaner: s.Cleaner, Simulation: &with, BlameAny: s.BlameAny}
	}
	answers := make([]*Played, placesMax)
	_, end, _, err := session.First(ctx, jobs, func(p Played) bool {
		answers[p.Job] = &p
		return p.Trouble != "" || len(p.Fired) == 0
	})
	if err != nil {
		return err
	}
	for _, p := range answers[:min(end+1, placesMax)] {
		switch {
		case p == nil:
		case p.Trouble != "":
			return fmt.Errorf("%s at place %d of %s: %s", fault.Do, p.Job+1, sim.Name, p.Trouble)
		case len(p.Fired) > 0:
			out.Played++
			out.Places[fault.Do]++
			if p.Verdict != check.Valid {
				out.Failures = append(out.Failures, *p)
			}
		}
	}
	return nil
}
