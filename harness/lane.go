package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/harness/nemesis/chaosmesh"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
	"github.com/danm-chaos/danm-chaos/harness/workload"
)

// teardownTimeout bounds the removal of a lane.
const teardownTimeout = time.Minute

// lane is one lane of a run: the built workload and what faults left in it.
type lane struct {
	run       *run
	name      string
	networks  []schedule.Network
	workers   []string // its nodes, where lanes do not make their own
	built     *workload.Lane
	planned   int  // generation in the schedule that is built
	buildings int  // so far
	broken    bool // to be rebuilt before the next iteration

	last    int    // number of the last iteration
	failed  string // node that was failed last
	outage  schedule.Outage
	victims []*corev1.Pod // of the last force delete
	drained string        // node that was drained last

	injected *chaosmesh.Injected // what Chaos Mesh has yet to undo
	meshed   int                 // objects of it so far, for their names
}

func (r *run) runLane(ctx context.Context, index int) error {
	planned := r.schedule.Lanes[index]
	l := &lane{run: r, name: planned.Name, networks: planned.Networks, workers: r.config.workersOf(index)}
	for _, it := range r.schedule.OfLane(index) {
		if !r.mayBegin(it) {
			break
		}
		if err := l.prepare(ctx, it); err != nil {
			return err
		}
		result, err := l.iterate(ctx, it)
		if err != nil {
			return err
		}
		r.finish(result)
	}
	err := l.end(ctx)
	r.lanePhase(l.name, "done")
	return err
}

// prepare builds the lane if the iteration needs another one.
func (l *lane) prepare(ctx context.Context, it schedule.Iteration) error {
	if l.built != nil && !l.broken && l.planned == it.Generation {
		return nil
	}
	l.run.lanePhase(l.name, "building")
	if err := l.teardown(ctx); err != nil {
		return err
	}
	l.buildings++
	s := l.run.config.Scenario
	spec := workload.Spec{
		Name: l.name, Generation: l.buildings, Network: l.networks[it.Generation],
		Replicas: s.Replicas, Nodes: s.NodesPerLane, Workers: l.workers, SpareNodes: s.SpareNodes, Interfaces: s.Interfaces,
		GracePeriod: s.TerminationGracePeriodSeconds, ReadyTimeout: s.Budgets.Recreate.Duration, Shared: l.run.config.Shared,
	}
	announcement := workload.Announce(l.run.access, spec)
	l.run.config.History.Record(history.Record{Lane: &announcement})
	built, err := workload.Build(ctx, l.run.access, spec)
	l.built, l.broken, l.planned, l.failed, l.victims = built, false, it.Generation, "", nil
	return err
}

func (l *lane) teardown(ctx context.Context) error {
	if l.built == nil {
		return nil
	}
	if err := l.mend(ctx); err != nil && !errors.Is(err, chaosmesh.ErrLeftInPlace) {
		return err
	}
	timeout := teardownTimeout
	if l.built.Spec.Shared != nil {
		timeout += l.run.config.Scenario.Budgets.Settle.Duration // its addresses are released first
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := errors.Join(l.revive(ctx), l.built.Teardown(ctx))
	l.built = nil
	return err
}

// revive heals a node that is silent but not off. A lane leaves those that are
// off to the cluster, which removes them or switches them on for the next lane.
func (l *lane) revive(ctx context.Context) error {
	if !l.isDown() || l.outage == "" || l.outage == schedule.PowerLoss {
		return nil
	}
	return l.restoreNode(ctx).Err
}

// mend undoes what an iteration that ended early left broken: a lane cannot
// settle with it, nor go while Chaos Mesh holds its objects.
func (l *lane) mend(ctx context.Context) error {
	var errs []error
	if l.injected != nil {
		err := l.run.nemesis.MeshHeal(ctx, l.injected).Err
		if err == nil || errors.Is(err, chaosmesh.ErrLeftInPlace) {
			l.injected = nil // the object is gone
		}
		errs = append(errs, err)
	}
	if l.drained != "" {
		errs = append(errs, l.run.nemesis.Uncordon(ctx, l.drained).Err)
		l.drained = ""
	}
	return errors.Join(errs...)
}

// iterate plays the steps, settles, and takes the snapshot.
func (l *lane) iterate(ctx context.Context, it schedule.Iteration) (Iteration, error) {
	began := time.Now()
	before := l.uids()
	l.last = it.Number
	p := &pass{lane: l, plan: it, result: Iteration{Number: it.Number, Lane: l.name, Network: l.networks[it.Generation].String(), Faults: []string{}}}
	if err := p.play(ctx); err != nil {
		return Iteration{}, err
	}
	if p.result.Note != "" {
		if err := l.mend(ctx); err != nil {
			p.result.Note += "; " + err.Error()
		}
	}
	budget := l.run.config.Scenario.Budgets.Settle.Duration
	if p.unsettled {
		budget = 0 // it was waited for already
	}
	l.run.lanePhase(l.name, "settling")
	snapshot, agreement, err := l.settle(ctx, budget)
	if err != nil {
		return Iteration{}, err
	}
	l.run.config.History.Record(history.Record{Snapshot: &snapshot})
	l.broken = !snapshot.Settled || p.result.Note != ""
	result := p.result
	result.summarise(snapshot, agreement)
	result.Moved = countNew(snapshot, before)
	result.Took = time.Since(began)
	return result, nil
}

// summarise takes the three counts and the verdict of a snapshot.
func (it *Iteration) summarise(s history.Snapshot, a agreement) {
	it.Pods, it.Endpoints, it.Bits = len(s.Pods), len(s.Endpoints), len(s.Bits)
	for _, p := range s.Pods {
		it.Expected += p.Interfaces
	}
	it.Settled = s.Took
	if it.Note == "" {
		it.Note = s.Pending
	}
	it.Verdict = a.verdict()
	if it.Verdict == check.Valid && it.Note != "" {
		it.Verdict = check.Unknown
	}
}

func (l *lane) uids() map[types.UID]bool {
	uids := map[types.UID]bool{}
	for _, pod := range l.built.Pods() {
		uids[pod.UID] = true
	}
	return uids
}

func countNew(s history.Snapshot, before map[types.UID]bool) int {
	n := 0
	for _, p := range s.Pods {
		if !before[types.UID(p.UID)] {
			n++
		}
	}
	return n
}

// end looks at the lane once more after its last iteration, when late writes
// of that have had time to come, and removes it if the cluster stays.
func (l *lane) end(ctx context.Context) error {
	if l.built == nil {
		return nil
	}
	if !l.broken {
		snapshot, _, err := l.settle(ctx, l.run.config.Scenario.Budgets.Settle.Duration)
		if err != nil {
			return err
		}
		l.run.config.History.Record(history.Record{Snapshot: &snapshot})
	}
	if !l.run.config.Teardown {
		return nil
	}
	return l.teardown(ctx)
}

// settlePoll is how often a lane that settles is read.
const settlePoll = 200 * time.Millisecond

// settle reads the lane live until everything agrees or the budget is spent.
// It reads at least once. A lane that cannot be read is not settled; whether
// that is the harness's trouble shows when it goes on.
func (l *lane) settle(ctx context.Context, budget time.Duration) (history.Snapshot, agreement, error) {
	began := time.Now()
	ticker := time.NewTicker(settlePoll)
	defer ticker.Stop()
	for {
		snapshot, err := l.built.Snapshot(ctx)
		if ctx.Err() != nil {
			return history.Snapshot{}, agreement{}, ctx.Err()
		}
		a := l.judge(snapshot, err)
		isOver := time.Since(began) >= budget
		if err == nil && (a.hasAll() || isOver) { // asking takes long, so it comes last
			a.Runtime = l.judgeRuntime(ctx, &snapshot)
		}
		snapshot.Iteration, snapshot.Took = l.last, time.Since(began)
		snapshot.Settled, snapshot.Pending = a.hasAll(), a.pending()
		if snapshot.Settled || isOver {
			return snapshot, a, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return history.Snapshot{}, agreement{}, ctx.Err()
		}
	}
}

func (l *lane) judgeRuntime(ctx context.Context, s *history.Snapshot) string {
	if err := l.askRuntimes(ctx, s); err != nil {
		return fmt.Sprintf("what runs cannot be read: %v", err)
	}
	silent := ""
	if l.isDown() {
		silent = l.failed
	}
	return compareRuntime(*s, silent)
}

// isDown tells whether the node that was failed last still is.
func (l *lane) isDown() bool {
	return l.failed != "" && !slices.Contains(l.built.RunningNodes(), l.failed)
}

func (l *lane) judge(s history.Snapshot, err error) agreement {
	if err != nil {
		return agreement{Workload: fmt.Sprintf("cannot be read: %v", err)}
	}
	a := agree(s, l.run.config.Scenario.Replicas)
	if l.run.config.DryRun {
		a.Sets = "" // nobody was there to release anything
	}
	return a
}
