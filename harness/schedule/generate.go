package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Plan is what a schedule is drawn from.
type Plan struct {
	Scenario       string
	Seed           uint64
	Lanes          int
	Iterations     int // over all lanes
	LaneIterations int // of one generation of a lane; 0 means that a lane is never rebuilt
	Kinds          []string
	Families       []string
	Faults         Faults
}

// Streams of the seed. Networks have one; every iteration has one of its own,
// so that it does not depend on how many there are.
const (
	streamNetworks   = 1
	streamIterations = 1 << 32
)

// Generate draws the schedule of a plan. Equal plans give equal schedules, and
// a plan with fewer iterations gives a prefix of them, so that a failure can
// be reproduced without what came after it.
func Generate(p Plan) (Schedule, error) {
	if err := p.check(); err != nil {
		return Schedule{}, err
	}
	s := Schedule{SchemaVersion: SchemaVersion, Scenario: p.Scenario, Seed: p.Seed, Lanes: make([]Lane, p.Lanes)}
	deck := newDeck(p)
	for g := range p.generation(p.Iterations-1) + 1 {
		for l := range s.Lanes {
			s.Lanes[l].Name = fmt.Sprintf("lane-%d", l)
			s.Lanes[l].Networks = append(s.Lanes[l].Networks, deck.network(g*p.Lanes+l))
		}
	}
	isDown := make([]bool, p.Lanes)
	for i := range p.Iterations {
		s.Iterations = append(s.Iterations, p.iteration(i, isDown))
	}
	return s, nil
}

func (p Plan) check() error {
	switch {
	case p.Lanes < 1:
		return fmt.Errorf("%d lanes: at least one is needed", p.Lanes)
	case p.Iterations < 1:
		return fmt.Errorf("%d iterations: at least one is needed", p.Iterations)
	case len(p.Kinds) == 0 || len(p.Families) == 0:
		return fmt.Errorf("at least one network kind and one family are needed")
	}
	return p.Faults.Check()
}

// generation returns the generation of iteration i, counted from 0.
func (p Plan) generation(i int) int {
	if p.LaneIterations == 0 {
		return 0
	}
	return i / p.Lanes / p.LaneIterations
}

func (p Plan) isLastOfGeneration(i int) bool { return p.generation(i+p.Lanes) != p.generation(i) }

// iteration draws iteration i, counted from 0. isDown tells for each lane
// whether the iteration before left a node without power, and is updated.
func (p Plan) iteration(i int, isDown []bool) Iteration {
	lane := i % p.Lanes
	it := Iteration{Number: i + 1, Lane: lane, Generation: p.generation(i)}
	d := drawer{rand.New(rand.NewPCG(p.Seed, streamIterations+uint64(i/p.Lanes)<<16+uint64(lane)))}
	if p.Faults.Disturbance != nil {
		it.Steps = d.disturbance(*p.Faults.Disturbance)
		return it
	}
	if p.Faults.PodDeletion != nil {
		it.Steps = d.podDeletion(*p.Faults.PodDeletion)
		return it
	}
	n := *p.Faults.NodeShutdown
	if i < p.Lanes {
		n.Returns = needingCleaner(n.Returns)
	}
	steps, r := d.nodeShutdown(n)
	if isDown[lane] {
		steps = append(returnSteps(d.delay(returnDelayMax)), steps...)
	}
	it.Steps = steps
	// A lane that is rebuilt gets fresh nodes, so nothing is left to restore.
	isDown[lane] = r == NextIteration && !p.isLastOfGeneration(i)
	return it
}

// needingCleaner keeps the returns that come too late for the node to clean up
// by itself. Every lane begins with one of them, as in the report, so that the
// shortest run tries the cleaner too.
func needingCleaner(returns []Return) []Return {
	late := slices.DeleteFunc(slices.Clone(returns), func(r Return) bool {
		return r != AfterSettle && r != NextIteration && r != Never
	})
	if len(late) == 0 {
		return returns
	}
	return late
}

// Upper bounds of the drawn delays.
const (
	failDelayMax     = 500 * time.Millisecond
	deleteDelayMax   = 2 * time.Second
	deleteSpreadMax  = 300 * time.Millisecond
	returnDelayMax   = 1500 * time.Millisecond
	againDelayMax    = 300 * time.Millisecond
	deletionDelayMax = 400 * time.Millisecond
)

// drawer draws steps. Its methods are called in a fixed order.
type drawer struct{ *rand.Rand }

func (d drawer) pick() uint64 { return uint64(d.Uint32()) }

// delay is almost nothing half of the time: races show both when things happen
// together and when they happen one after the other.
func (d drawer) delay(longest time.Duration) time.Duration {
	limit := longest
	if d.IntN(2) == 0 {
		limit = longest / 50
	}
	return time.Duration(d.Int64N(int64(limit))).Truncate(time.Millisecond)
}

// spread is nothing half of the time: all pods are deleted at once.
func (d drawer) spread() time.Duration {
	if d.IntN(2) == 0 {
		return 0
	}
	return time.Millisecond + d.delay(deleteSpreadMax)
}

func (d drawer) nodeShutdown(n NodeShutdown) ([]Step, Return) {
	r := n.Returns[d.IntN(len(n.Returns))]
	fail := Step{Do: FailNode, Target: n.Target, Pick: d.pick(), Delay: d.delay(failDelayMax), Fault: true}
	// When the node returns first, it may finish the deletion of its pods
	// itself, so the force delete is not bound to find any.
	remove := Step{Do: ForceDelete, Target: FailedNode, Pick: d.pick(), Delay: d.delay(deleteDelayMax),
		Spread: d.spread(), Fault: r != WhileTerminating}
	back := returnSteps(d.delay(returnDelayMax))
	if len(n.Outages) > 0 { // last, so that scenarios without keep their schedules
		fail.Outage = n.Outages[d.IntN(len(n.Outages))]
	}
	ready, gone := Step{Do: AwaitReady}, Step{Do: AwaitTerminating, Target: FailedNode}
	steps := []Step{fail, gone}
	if n.OutOfService || len(n.Meanwhile) > 0 {
		return d.attended(n, r, steps, remove, back)
	}
	switch r {
	case WhileTerminating:
		return append(steps, back[0], remove, ready, back[1]), r
	case WhileRecreating:
		return append(steps, remove, back[0], ready, back[1]), r
	case AfterRecreate:
		return append(steps, remove, ready, back[0], back[1]), r
	case AfterSettle:
		return append(steps, remove, ready, Step{Do: Settle}, back[0], back[1]), r
	case Never:
		replace := Step{Do: ReplaceNode, Target: FailedNode, Delay: back[0].Delay}
		return append(steps, remove, ready, replace, back[1]), r
	default:
		return append(steps, remove, ready), r
	}
}

// returnSteps are two: the node is switched on, and it is waited for.
func returnSteps(delay time.Duration) []Step {
	return []Step{{Do: RestoreNode, Target: FailedNode, Delay: delay}, {Do: AwaitNodeReady}}
}

func (d drawer) podDeletion(p PodDeletion) []Step {
	var steps []Step
	for range 1 + d.IntN(p.RoundsMax) {
		steps = append(steps, Step{Do: ForceDelete, Target: AnyPods, Pick: d.pick(), Count: 1 + d.IntN(p.PodsMax),
			Delay: d.delay(deletionDelayMax), Spread: d.spread(), Fault: true})
		if d.IntN(100) < p.AgainPercent {
			steps = append(steps, Step{Do: ForceDelete, Target: SamePods, Pick: d.pick(),
				Delay: d.delay(againDelayMax), Fault: true})
		}
		steps = append(steps, Step{Do: AwaitReady})
	}
	return steps
}
