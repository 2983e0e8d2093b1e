package search

import (
	"context"
	"errors"
	"fmt"

	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// Enumeration plays every interleaving of one small simulation with at most so
// many preemptions. Without any, the first thing that can happen always does;
// a preemption is the choice of another.
type Enumeration struct {
	Pool     Pool
	Cleaner  string
	Of       schedule.Simulation
	Bound    int
	BlameAny bool
	// Progress is called now and then; nil is allowed.
	Progress func(played, planned, preemptions int)
}

// Enumerated is what an enumeration found.
type Enumerated struct {
	ByPreemptions []int // how many interleavings were played, by preemptions
	Steps         int64
	Left          int // that were not played, because it ended early
	Failures      []Played
}

// Played is the number of interleavings.
func (e Enumerated) Played() int {
	n := 0
	for _, count := range e.ByPreemptions {
		n += count
	}
	return n
}

// Run enumerates. All interleavings with fewer preemptions come first. It ends
// early at the first failure.
func (e Enumeration) Run(ctx context.Context) (Enumerated, error) {
	var out Enumerated
	prefixes := [][]int{nil}
	for preemptions := 0; preemptions <= e.Bound && len(prefixes) > 0; preemptions++ {
		played, longer, err := e.level(ctx, prefixes, preemptions, &out)
		out.ByPreemptions = append(out.ByPreemptions, played)
		out.Left = len(prefixes) - played
		if errors.Is(err, errEnough) {
			return out, nil
		}
		if err != nil || ctx.Err() != nil {
			return out, err
		}
		prefixes = longer
	}
	return out, nil
}

// level plays all interleavings that begin with one of the prefixes and go on
// without preemption. Each of them is another; together with one preemption
// more, at any later choice, they are the prefixes of the next level.
func (e Enumeration) level(ctx context.Context, prefixes [][]int, preemptions int, out *Enumerated) (played int, longer [][]int, err error) {
	dealt := 0
	next := func() (Job, bool) {
		if dealt >= len(prefixes) {
			return Job{}, false
		}
		s := e.Of
		s.Choices, s.Search = prefixes[dealt], schedule.Search{}
		dealt++
		return Job{Number: dealt - 1, Cleaner: e.Cleaner, Simulation: &s, Widths: true, BlameAny: e.BlameAny}, true
	}
	took := func(p Played) error {
		if p.Trouble != "" {
			return fmt.Errorf("interleaving %v: %s", prefixes[p.Job], p.Trouble)
		}
		played++
		out.Steps += int64(p.Steps)
		if preemptions < e.Bound {
			longer = append(longer, extensions(prefixes[p.Job], p.Widths)...)
		}
		if e.Progress != nil && played%progressEvery == 0 {
			e.Progress(played, len(prefixes), preemptions)
		}
		if p.Verdict != check.Valid {
			out.Failures = append(out.Failures, p)
			return errEnough
		}
		return nil
	}
	err = e.Pool.Run(ctx, next, took)
	return played, longer, err
}

// progressEvery is how many interleavings pass between two words about it.
const progressEvery = 2000

// extensions returns the prefixes with one preemption more, after the last.
func extensions(prefix, widths []int) [][]int {
	var out [][]int
	for at := len(prefix); at < len(widths); at++ {
		for choice := 1; choice < widths[at]; choice++ {
			longer := make([]int, at+1)
			copy(longer, prefix)
			longer[at] = choice
			out = append(out, longer)
		}
	}
	return out
}

// SmallestWorld is one pod that is recreated once after its node died, so that
// its CNI DEL is lost, under one cleaner.
func SmallestWorld(group, cni string) schedule.Simulation {
	return schedule.Simulation{
		APIVersion: schedule.SimulationAPIVersion, Kind: schedule.SimulationKind, Name: "smallest-world",
		World: schedule.World{
			Pods: 1, Nodes: 2, Replicas: 1, Network: schedule.Network{Kind: "DanmNet", Family: schedule.IPv4}, Group: group, CNI: cni,
			ReleaseQuarantine: schedule.SimReleaseQuarantine, OrphanQuarantine: schedule.SimOrphanQuarantine,
		},
		Steps: []schedule.Step{
			{Do: schedule.AwaitReady}, {Do: schedule.FailNode, Target: schedule.NodeWithPods, Fault: true},
			{Do: schedule.AwaitTerminating}, {Do: schedule.ForceDelete, Target: schedule.FailedNode, Fault: true},
			{Do: schedule.AwaitReady},
		},
	}
}
