package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// streamSimulation is the stream of a seed that simulations are drawn from.
const streamSimulation = 2

// Quarantines of a simulated cleaner. Nobody waits for virtual time, but every
// second of it costs lease calls; the orphan quarantine must exceed the 30 s
// that a CNI ADD may take.
const (
	SimReleaseQuarantine = 10*time.Second + 3*time.Millisecond
	SimOrphanQuarantine  = 41*time.Second + 7*time.Millisecond
)

// Shape is what a simulation is drawn for.
type Shape struct {
	Plan
	Pods, Nodes int
	Replicas    int // of the cleaner
	Group, CNI  string
	// DryRunPercent is how often the cleaner is to write nothing.
	DryRunPercent int
	// Calm draws no faults but those of the steps, Plotted those of a plot.
	Calm, Plotted bool
	// Feature is one that the world is to have; empty leaves that to the seed.
	Feature Feature
}

// Draw draws a simulation from the plan's seed: the network, the user's steps,
// which faults are on at all and where they strike, and how choices are drawn.
func Draw(s Shape) (Simulation, error) {
	p := s.Plan
	p.Lanes, p.Iterations = 1, 1
	if err := p.check(); err != nil {
		return Simulation{}, err
	}
	d := drawer{rand.New(rand.NewPCG(s.Seed, streamSimulation))}
	sim := Simulation{
		APIVersion: SimulationAPIVersion, Kind: SimulationKind, Name: fmt.Sprintf("%s-%d", p.Scenario, p.Seed), Seed: p.Seed,
		World: d.world(s), Search: d.search(),
	}
	if p.Faults.PodDeletion != nil {
		sim.Steps = d.podDeletion(*p.Faults.PodDeletion)
	} else {
		sim.Steps, _ = d.nodeShutdown(*p.Faults.NodeShutdown)
	}
	// The user begins when the pods run, as every iteration does.
	sim.Steps = append([]Step{{Do: AwaitReady}}, sim.Steps...)
	switch {
	case s.Calm:
	case s.Plotted || d.IntN(3) == 0:
		sim.Faults = d.plot(sim.World)
		sim.Steps = d.linger(sim.Steps)
	default:
		sim.Faults = d.faults(sim.World)
	}
	if !s.Calm && d.IntN(6) == 0 {
		sim.World.Interfaces = 2
	}
	sim.World.StrictFencing = !s.Calm && d.IntN(6) == 0 && !sim.removesNodes()
	if !s.Calm {
		sim.addFeature(s.Feature)
	}
	return sim, nil
}

// removesNodes tells whether a Node object goes for good. With strict fencing a
// cleaner that starts after that holds the endpoints of such a node for ever, as
// nothing tells it any more that their host was one.
func (s Simulation) removesNodes() bool {
	return slices.ContainsFunc(s.Steps, func(step Step) bool { return step.Do == ReplaceNode }) ||
		slices.ContainsFunc(s.Faults, func(f SimFault) bool { return f.Do == RemoveNode })
}

func (d drawer) world(s Shape) World {
	return World{
		Pods: s.Pods, Nodes: s.Nodes, Replicas: s.Replicas, Group: s.Group, CNI: s.CNI,
		Network: Network{
			Kind: s.Kinds[d.IntN(len(s.Kinds))], Family: s.Families[d.IntN(len(s.Families))], Gateway: d.IntN(2) == 0,
		},
		WatchList: d.IntN(3) == 0, LeaderElect: s.Calm || d.IntN(6) > 0, SlowLease: d.IntN(2) == 0,
		DryRun:            d.IntN(100) < s.DryRunPercent,
		ReleaseQuarantine: SimReleaseQuarantine, OrphanQuarantine: SimOrphanQuarantine,
	}
}

func (d drawer) search() Search {
	return Search{
		Draw: true, TimePercent: []int{0, 1, 5, 20}[d.IntN(4)], StarvePercent: []int{0, 0, 1, 4}[d.IntN(4)],
		Priorities: d.IntN(2) == 0,
	}
}

// simFaultsMax bounds the faults of one simulation.
const simFaultsMax = 6

// habitat says where a kind of fault may strike: among the first within
// opportunities that carry one of the words, for at most a while.
type habitat struct {
	kind   FaultKind
	on     []string
	within int
	forMax time.Duration
	count  int // repetitions at most
	until  string
}

// ending returns the habitat of faults that end with such a call, too.
func (h habitat) ending(until string) habitat {
	h.until = until
	return h
}

// callHabitats are calls worth disturbing. NETWORK stands for the resource of
// the network.
var callHabitats = []string{
	"cleaner delete danmeps", "cleaner patch NETWORK", "cleaner get pods", "cleaner get NETWORK", "cleaner list danmeps",
	"cleaner list pods", "cleaner write leases", "cleaner watch", "cleaner discovery", "cni create danmeps",
	"cni update NETWORK", "cni delete danmeps", "cni get NETWORK", "cni list danmeps",
}

// writeHabitats are the writes among them that a release or a CNI plugin makes.
var writeHabitats = []string{
	"cleaner delete danmeps", "cleaner patch NETWORK", "cni create danmeps", "cni update NETWORK", "cni delete danmeps",
}

// callWithin says how many calls of a habitat there are in most runs.
const callWithin = 8

func habitats() []habitat {
	watches := []string{"pods", "danmeps", "NETWORK", "nodes"}
	second := time.Second
	return []habitat{
		{ReplyLost, callHabitats, callWithin, 0, 1, ""}, {TimeoutBefore, callHabitats, callWithin, 0, 2, ""},
		{Conflict, []string{"cleaner write", "cni update NETWORK", "cleaner patch NETWORK"}, callWithin, 0, 4, ""},
		{TooMany, callHabitats, callWithin, 0, 2, ""}, {ServerError, callHabitats, callWithin, 0, 3, ""},
		{CrashAfter, callHabitats, callWithin, 0, 1, ""}, {SlowCall, callHabitats, callWithin, 14 * second, 2, ""}, {PartialList, []string{"cleaner list pods"}, 3, 0, 1, ""},
		{WatchCut, watches, 20, 0, 2, ""}, {WatchExpired, watches, 20, 0, 1, ""}, {WatchStall, watches, 20, 40 * second, 1, ""},
		{Coalesce, watches, 20, 30 * second, 1, ""},
		{StaleRestart, nil, 80, 20 * second, 1, ""}, {PauseCleaner, nil, 80, 90 * second, 1, ""}, {ClockJump, nil, 80, 120 * second, 1, ""},
		{LateCall, writeHabitats, callWithin, 60 * second, 2, ""},
		{RebootNode, nil, 200, 10 * second, 1, ""}, {PartitionNode, nil, 200, 40 * second, 1, ""},
		{DelLost, nil, 3, 0, 2, ""}, {DelTwice, nil, 3, 0, 1, ""}, {DelLate, nil, 3, 60 * second, 1, ""}, {DelStalled, nil, 3, 60 * second, 1, ""},
		{AddCrashed, nil, 8, 0, 1, ""}, {AddStalled, nil, 8, 25 * second, 1, ""},
		{EvictPod, nil, 200, 0, 1, ""}, {DeletePod, nil, 200, 0, 2, ""}, {ScaleDown, nil, 200, 20 * second, 1, ""},
		{RemoveNode, nil, 200, 0, 1, ""}, {OutOfService, nil, 200, 0, 1, ""}, {DeleteNamespace, nil, 200, 0, 1, ""},
		{EditNetwork, nil, 200, 0, 2, ""}, {RenewNetwork, nil, 200, 0, 1, ""}, {BothGroups, nil, 200, 90 * second, 1, ""},
	}
}

// SimFaultKinds lists every kind of fault of the simulator.
func SimFaultKinds() []FaultKind {
	var kinds []FaultKind
	for _, h := range habitats() {
		kinds = append(kinds, h.kind)
	}
	return append(kinds, featureFaults()...)
}

// faults draws first which kinds are on at all, and then from those. A run in
// which everything is on would hardly ever get to what only one of them shows.
func (d drawer) faults(w World) []SimFault {
	var on []habitat
	for _, h := range habitats() {
		if d.IntN(4) == 0 {
			on = append(on, h)
		}
	}
	if len(on) == 0 {
		return nil
	}
	var out []SimFault
	for range d.IntN(simFaultsMax + 1) {
		out = append(out, d.fault(on[d.IntN(len(on))], w))
	}
	return out
}

// plots are faults that make each other worse. Drawn one by one they hardly ever
// meet: a cache that is behind while the reads that would correct it fail, a
// DEL that waits until its address has a new owner, and the like. They last
// longer than the quarantines, most of the time.
func plots() [][]habitat {
	second := time.Second
	failing := habitat{ServerError, []string{"cleaner get pods"}, 6, 0, 60, ""}
	deleting := habitat{DeletePod, nil, 300, 0, 2, ""}
	churning := func(others ...habitat) []habitat {
		return append(others, deleting, deleting, deleting, deleting)
	}
	refilling := habitat{DeletePod, []string{"cleaner patch NETWORK"}, 1, 0, 4, ""}
	slowPatches := habitat{SlowCall, []string{"cleaner patch NETWORK"}, 1, 14 * second, 6, ""}
	return [][]habitat{
		{{WatchStall, []string{"pods"}, 20, 60 * second, 1, ""}, failing},
		{{StaleRestart, nil, 60, 60 * second, 1, ""}, failing},
		{{ScaleDown, nil, 120, 0, 1, ""}, {DelLost, nil, 2, 0, 4, ""}, {Coalesce, []string{"pods"}, 12, 120 * second, 1, ""}},
		churning(refilling, habitat{DelStalled, nil, 2, 300 * second, 2, ""}),
		churning(refilling, slowPatches.ending("cni update NETWORK"), habitat{DelStalled, nil, 1, 60 * second, 9, "cleaner get NETWORK"}),
		churning(slowPatches, habitat{DelLost, nil, 2, 0, 6, ""}),
		churning(habitat{CrashAfter, []string{"cleaner write"}, 4, 0, 4, ""}, habitat{DelLost, nil, 2, 0, 6, ""}),
		churning(habitat{SlowCall, []string{"cni delete danmeps"}, 2, 30 * second, 4, ""}, habitat{AddStalled, nil, 6, 25 * second, 4, ""}),
		{{SlowCall, []string{"cleaner delete danmeps"}, 2, 14 * second, 2, ""}, {DelLate, nil, 2, 30 * second, 2, ""}},
		{{SlowCall, []string{"cni create danmeps"}, 8, 25 * second, 2, ""}, {PauseCleaner, nil, 80, 90 * second, 1, ""}},
		churning(habitat{LateCall, []string{"cleaner patch NETWORK", "cleaner delete danmeps"}, 2, 60 * second, 4, ""}, habitat{DelLost, nil, 2, 0, 6, ""}),
		churning(habitat{ClockJump, nil, 150, 120 * second, 2, ""}, habitat{AddStalled, nil, 6, 25 * second, 4, ""}),
		{{PartitionNode, nil, 100, 60 * second, 1, ""}, {PartitionNode, nil, 200, 60 * second, 1, ""}, {RebootNode, nil, 200, 10 * second, 1, ""}},
	}
}

// plot draws one plot, in any order.
func (d drawer) plot(w World) []SimFault {
	all := plots()
	var out []SimFault
	for _, h := range all[d.IntN(len(all))] {
		f := d.fault(h, w)
		if h.forMax > 0 {
			f.For = d.upTo(h.forMax)
		}
		out = append(out, f)
	}
	return out
}

// linger gives the cleaner time to do something before the user goes on, and
// before everything is healed. Faults strike only until then.
func (d drawer) linger(steps []Step) []Step {
	for i := range steps {
		if steps[i].Do == AwaitReady && i > 0 {
			steps[i].Delay = d.upTo(2 * SimReleaseQuarantine)
		}
	}
	return append(steps, Step{Do: AwaitReady, Delay: SimReleaseQuarantine + d.upTo(2*SimReleaseQuarantine)})
}

func (d drawer) upTo(longest time.Duration) time.Duration {
	return time.Duration(d.Int64N(int64(longest))).Truncate(time.Millisecond)
}

func (d drawer) fault(h habitat, w World) SimFault {
	f := SimFault{Do: h.kind, Nth: 1 + d.IntN(h.within), Count: 1 + d.IntN(h.count), Pick: d.pick()}
	if len(h.on) > 0 {
		f.On = onNetwork(h.on[d.IntN(len(h.on))], w)
	}
	if h.forMax > 0 {
		f.For = 10*time.Millisecond + d.delay(h.forMax)
	}
	f.Until = onNetwork(h.until, w)
	return f
}

// onNetwork puts the resource of the world's network into a habitat.
func onNetwork(on string, w World) string {
	return strings.ReplaceAll(on, "NETWORK", strings.ToLower(w.Network.Kind)+"s")
}

// SieveFaults are faults that make sense at every place, one after the other.
// Those that last do so for long enough to matter.
func SieveFaults(w World) []SimFault {
	const long = 30 * time.Second
	faults := []SimFault{
		{Do: CrashAfter, On: "cleaner write"}, {Do: ReplyLost, On: "cleaner write"}, {Do: TimeoutBefore, On: "cleaner"},
		{Do: ServerError, On: "cleaner"}, {Do: Conflict, On: "cleaner write"}, {Do: CrashAfter, On: "cni write"},
		{Do: ReplyLost, On: "cni write"}, {Do: StaleRestart, For: long}, {Do: PauseCleaner, For: 2 * long},
		{Do: WatchCut}, {Do: WatchExpired}, {Do: WatchStall, For: long}, {Do: Coalesce, For: long},
		{Do: AddCrashed}, {Do: AddStalled, For: 25 * time.Second}, {Do: DelLost}, {Do: DelLate, For: 2 * long}, {Do: DelTwice},
		{Do: DelStalled, For: 2 * long},
	}
	for i := range faults {
		faults[i].On = onNetwork(faults[i].On, w)
	}
	return faults
}
