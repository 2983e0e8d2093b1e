package schedule

import (
	"fmt"
	"slices"
	"time"
)

// Act is something that is done to pods, nodes or the cleaner while everything
// has power.
type Act string

// The acts. Those that begin with "mesh-" are done by Chaos Mesh.
const (
	ActEvict             Act = "evict"
	ActDrain             Act = "drain"
	ActScale             Act = "scale"
	ActKillCleaner       Act = "kill-cleaner"
	MeshPodKill          Act = "mesh-pod-kill"
	MeshPodFailure       Act = "mesh-pod-failure"
	MeshContainerKill    Act = "mesh-container-kill"
	MeshCleanerKill      Act = "mesh-cleaner-kill"
	MeshCleanerPartition Act = "mesh-cleaner-partition"
	MeshCleanerDelay     Act = "mesh-cleaner-delay"
	MeshCleanerLoss      Act = "mesh-cleaner-loss"
	MeshCleanerTime      Act = "mesh-cleaner-time"
	MeshCleanerCPU       Act = "mesh-cleaner-cpu"
	MeshCleanerMemory    Act = "mesh-cleaner-memory"
)

// Acts lists them all.
func Acts() []Act {
	return append([]Act{ActEvict, ActDrain, ActScale, ActKillCleaner}, MeshActs()...)
}

// MeshActs lists those that need Chaos Mesh.
func MeshActs() []Act {
	return []Act{MeshPodKill, MeshPodFailure, MeshContainerKill, MeshCleanerKill,
		MeshCleanerPartition, MeshCleanerDelay, MeshCleanerLoss, MeshCleanerTime, MeshCleanerCPU, MeshCleanerMemory}
}

// IsOfMesh tells whether the act needs Chaos Mesh.
func (a Act) IsOfMesh() bool { return slices.Contains(MeshActs(), a) }

// IsOnCleaner tells whether the act hits the cleaner's pods and no others.
func (a Act) IsOnCleaner() bool {
	return slices.Contains([]Act{ActKillCleaner, MeshCleanerKill, MeshCleanerPartition, MeshCleanerDelay, MeshCleanerLoss, MeshCleanerTime,
		MeshCleanerCPU, MeshCleanerMemory}, a)
}

// Disturbance draws acts in rounds.
type Disturbance struct {
	Acts      []Act `json:"acts"`
	RoundsMax int   `json:"roundsMax"` // of one iteration, at least one
	PodsMax   int   `json:"podsMax"`   // of one round, at least one
}

func (d *Disturbance) check() error {
	switch {
	case d.RoundsMax < 1:
		return fmt.Errorf("faults.disturbance.roundsMax: %d is less than 1", d.RoundsMax)
	case d.PodsMax < 1:
		return fmt.Errorf("faults.disturbance.podsMax: %d is less than 1", d.PodsMax)
	case len(d.Acts) == 0:
		return fmt.Errorf("faults.disturbance.acts: at least one is needed")
	}
	return checkActs("faults.disturbance.acts", d.Acts)
}

// Acts are those that the template draws from.
func (f Faults) Acts() []Act {
	switch {
	case f.Disturbance != nil:
		return f.Disturbance.Acts
	case f.NodeShutdown != nil:
		return f.NodeShutdown.Meanwhile
	default:
		return nil
	}
}

// Without returns the template without some acts. It may have none left.
func (f Faults) Without(unwanted func(Act) bool) Faults {
	rest := slices.DeleteFunc(slices.Clone(f.Acts()), unwanted)
	switch {
	case f.Disturbance != nil:
		d := *f.Disturbance
		d.Acts, f.Disturbance = rest, &d
	case f.NodeShutdown != nil:
		n := *f.NodeShutdown
		n.Meanwhile, f.NodeShutdown = rest, &n
	}
	return f
}

func checkActs(field string, acts []Act) error {
	for i, a := range acts {
		if !slices.Contains(Acts(), a) {
			return fmt.Errorf("%s[%d]: %q is not one of %s", field, i, a, joined(Acts()))
		}
	}
	return nil
}

// Bounds of how long a fault of Chaos Mesh lasts that does not end by itself.
const (
	meshLastsMax = 5 * time.Second
	// partitionLastsMin is longer than a Lease that nobody renews, so that
	// another replica of the cleaner takes over before the first is back.
	partitionLastsMin = 20 * time.Second
	// cleanerLastsMin is longer than a leader waits until it renews its Lease, so
	// that it does something meanwhile.
	cleanerLastsMin = 3 * time.Second
)

func (d drawer) disturbance(p Disturbance) []Step {
	var steps []Step
	for range 1 + d.IntN(p.RoundsMax) {
		act, count := p.Acts[d.IntN(len(p.Acts))], 1+d.IntN(p.PodsMax)
		steps = append(steps, d.act(act, count, true)...)
		steps = append(steps, Step{Do: AwaitReady})
	}
	return steps
}

// act draws the steps of one act. Whoever is undone by itself is not waited
// for, so that what follows may hit the middle of it.
func (d drawer) act(a Act, count int, waits bool) []Step {
	first := Step{Pick: d.pick(), Delay: d.delay(deletionDelayMax), Fault: true}
	switch a {
	case ActEvict:
		first.Do, first.Target, first.Count = Evict, AnyPods, count
		return []Step{first}
	case ActDrain:
		first.Do, first.Target = Drain, NodeWithPods
		return withWait(waits, first, Step{Do: Uncordon})
	case ActScale:
		first.Do, first.Count = Scale, count
		return []Step{first, {Do: Scale, Delay: d.delay(deleteDelayMax)}}
	case ActKillCleaner:
		first.Do, first.Target = KillCleaner, CleanerPods
		return []Step{first}
	}
	first.Do, first.Act, first.Target, first.Count = MeshInject, a, AnyPods, count
	if a.IsOnCleaner() {
		first.Target, first.Count = CleanerPods, 1
	}
	lasts := d.delay(meshLastsMax)
	switch {
	case a == MeshCleanerPartition:
		lasts += partitionLastsMin
	case a.IsOnCleaner() && a != MeshCleanerKill:
		lasts += cleanerLastsMin
	}
	return []Step{first, {Do: MeshHeal, Delay: lasts}}
}

// backlogSpread is between two pods of a dead node when the cleaner is hit next:
// the first are released by then, while the last still wait out their quarantine.
const backlogSpread = 300 * time.Millisecond

// withWait puts a wait for all replicas between two steps.
func withWait(waits bool, first, last Step) []Step {
	if !waits {
		return []Step{first, last}
	}
	return []Step{first, {Do: AwaitReady}, last}
}

// attended is a node shutdown that somebody else disturbs, or whose pods the
// control plane deletes. The node returns when all replicas are back, or at
// the next iteration: sooner it would end what is to be seen.
func (d drawer) attended(n NodeShutdown, r Return, steps []Step, remove Step, back []Step) ([]Step, Return) {
	var disturbing []Step
	if len(n.Meanwhile) > 0 {
		act := n.Meanwhile[d.IntN(len(n.Meanwhile))]
		disturbing = d.act(act, 1, false)
		if act.IsOnCleaner() {
			remove.Spread = max(remove.Spread, backlogSpread)
		}
	}
	if n.OutOfService {
		remove = Step{Do: TaintNode, Target: FailedNode, Delay: remove.Delay, Fault: true}
	}
	steps = append(steps, remove)
	steps = append(append(steps, disturbing...), Step{Do: AwaitReady})
	switch {
	case n.OutOfService:
		// Kubernetes asks for the mark to be taken back once the node is back:
		// pods that come to a marked node are deleted at once.
		return append(steps, back[0], Step{Do: UntaintNode, Target: FailedNode}, back[1]), AfterRecreate
	case r == NextIteration:
		return steps, r
	case r == Never:
		return append(steps, Step{Do: ReplaceNode, Target: FailedNode, Delay: back[0].Delay}, back[1]), r
	case r == AfterSettle:
		steps = append(steps, Step{Do: Settle})
	}
	return append(steps, back...), AfterRecreate
}
