package harness

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/harness/nemesis"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// nodeTimeout bounds how long a cluster may take to switch a node on or off,
// if it does not say so itself.
const nodeTimeout = time.Minute

// Bounds of what Chaos Mesh may take: one that cannot do a fault tries for ever,
// and one that cannot undo it is given up before the second.
const (
	meshInjectMax = time.Minute
	meshHealMax   = 2 * time.Minute
)

func (r *run) nodeTimeout() time.Duration {
	if timer, ok := r.config.Cluster.(clusters.NodeTimer); ok {
		return timer.NodeTimeout()
	}
	return nodeTimeout
}

// pass is one iteration while its steps are played.
type pass struct {
	lane      *lane
	plan      schedule.Iteration
	result    Iteration
	began     time.Time // of the last fault
	unsettled bool      // a settle step spent its budget
}

// play takes the steps in order. A fault that did not fire or a wait that ran
// out of its budget ends the iteration early, with a note; only the end of ctx
// is an error.
func (p *pass) play(ctx context.Context) error {
	for i, step := range p.plan.Steps {
		p.lane.run.lanePhase(p.lane.name, string(step.Do))
		if !nemesis.Pause(ctx, step.Delay) {
			return ctx.Err()
		}
		outcome := p.take(ctx, i, step)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if outcome.Type != history.OK {
			p.result.Note = fmt.Sprintf("%s: %s", step.Do, cmp.Or(errorText(outcome.Err), outcome.Note))
			return nil
		}
	}
	return nil
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// take resolves a step's target, records the operation and does it.
func (p *pass) take(ctx context.Context, index int, step schedule.Step) nemesis.Outcome {
	ctx, cancel := context.WithTimeout(ctx, p.timeout(step.Do))
	defer cancel()
	target, a, resolved := p.resolve(ctx, step)
	op := history.Op{
		Process: p.lane.name, Type: history.Invoke, F: string(step.Do), Lane: p.lane.name,
		Iteration: p.plan.Number, Step: index, Target: target, Fault: step.Fault,
	}
	p.record(op)
	outcome := nemesis.Failed(resolved)
	if resolved == nil {
		if step.Fault {
			p.began = time.Now()
		}
		outcome = a(ctx)
	}
	op.Type, op.Note, op.Error = outcome.Type, outcome.Note, errorText(outcome.Err)
	p.record(op)
	if step.Fault && outcome.Type == history.OK {
		p.lane.run.noteFired(step.Do)
		p.result.Faults = append(p.result.Faults, string(step.Do)+" "+target)
	}
	return outcome
}

func (p *pass) record(op history.Op) { p.lane.run.config.History.Record(history.Record{Op: &op}) }

// timeout is the budget that bounds a step.
func (p *pass) timeout(verb schedule.Verb) time.Duration {
	budgets := p.lane.run.config.Scenario.Budgets
	switch verb {
	case schedule.AwaitTerminating:
		return budgets.Terminating.Duration
	case schedule.Settle:
		// The budget is kept by settling itself, which tells what is pending.
		return 2 * budgets.Settle.Duration
	case schedule.FailNode, schedule.RestoreNode, schedule.ReplaceNode:
		return p.lane.run.nodeTimeout()
	case schedule.MeshInject:
		return min(budgets.Recreate.Duration, meshInjectMax)
	case schedule.MeshHeal:
		return max(budgets.Recreate.Duration, meshHealMax)
	default:
		return budgets.Recreate.Duration
	}
}

// action does what a step says once its target is known.
type action func(context.Context) nemesis.Outcome

// resolve picks the target of a step and returns its name and what to do.
func (p *pass) resolve(ctx context.Context, step schedule.Step) (string, action, error) {
	l := p.lane
	switch step.Do {
	case schedule.FailNode:
		node, err := l.pickNode(step)
		return node, func(ctx context.Context) nemesis.Outcome { return p.failNode(ctx, node, step.Outage) }, err
	case schedule.RestoreNode:
		return l.failed, l.restoreNode, nil
	case schedule.ReplaceNode:
		return l.failed, l.replaceNode, nil
	case schedule.AwaitTerminating:
		return l.failed, p.awaitTerminating, nil
	case schedule.AwaitNodeReady:
		return "", waiting(l.built.AwaitNodesReady), nil
	case schedule.AwaitReady:
		return "", p.awaitReady, nil
	case schedule.Settle:
		return "", p.settle, nil
	case schedule.ForceDelete:
		pods, err := l.pickPods(ctx, step)
		return podNames(pods), func(ctx context.Context) nemesis.Outcome { return p.forceDelete(ctx, pods, step) }, err
	default:
		return p.resolveAct(ctx, step)
	}
}

// waiting makes a wait an action: it fails if it runs out of time.
func waiting(wait func(context.Context) error) action {
	return func(ctx context.Context) nemesis.Outcome {
		if err := wait(ctx); err != nil {
			return nemesis.Failed(err)
		}
		return nemesis.OK("")
	}
}

// pickNode returns the node that a step means, of those with power and pods.
func (l *lane) pickNode(step schedule.Step) (string, error) {
	var candidates []string
	most := 0
	for _, node := range l.built.RunningNodes() {
		pods := len(l.built.PodsOn(node))
		switch {
		case pods == 0:
		case step.Target == schedule.BusiestNode && pods > most:
			candidates, most = []string{node}, pods
		case step.Target != schedule.BusiestNode || pods == most:
			candidates = append(candidates, node)
		}
	}
	if len(candidates) == 0 {
		return "", fmt.Errorf("no running node has pods")
	}
	return candidates[step.Pick%uint64(len(candidates))], nil
}

// pickPods returns the pods that a step means, in the order in which they are
// to be deleted.
func (l *lane) pickPods(ctx context.Context, step schedule.Step) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	switch step.Target {
	case schedule.FailedNode:
		pods = l.built.PodsOn(l.failed)
	case schedule.SamePods:
		if err := l.built.AwaitRecreated(ctx, l.victims); err != nil {
			return nil, err
		}
		for _, pod := range l.built.Pods() {
			if slices.ContainsFunc(l.victims, func(v *corev1.Pod) bool { return v.Name == pod.Name }) {
				pods = append(pods, pod)
			}
		}
	default:
		pods = l.built.Pods()
	}
	order := rand.New(rand.NewPCG(step.Pick, 0))
	order.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	if step.Count > 0 {
		pods = pods[:min(step.Count, len(pods))]
	}
	return pods, nil
}

// podNames names the first pod and the number of the others.
func podNames(pods []*corev1.Pod) string {
	switch len(pods) {
	case 0:
		return ""
	case 1:
		return pods[0].Namespace + "/" + pods[0].Name
	default:
		return fmt.Sprintf("%s/%s and %d more", pods[0].Namespace, pods[0].Name, len(pods)-1)
	}
}

func (p *pass) failNode(ctx context.Context, node string, o schedule.Outage) nemesis.Outcome {
	pods := len(p.lane.built.PodsOn(node))
	outcome := p.lane.run.nemesis.FailNode(ctx, node, o)
	if outcome.Type == history.OK {
		p.lane.failed, p.lane.outage = node, o
		p.lane.built.SetDown(node, true)
		outcome.Note = fmt.Sprintf("%s: %d pods were on it", cmp.Or(o, schedule.PowerLoss), pods)
	}
	return outcome
}

func (l *lane) restoreNode(ctx context.Context) nemesis.Outcome {
	if l.failed == "" {
		return nemesis.OK("nothing to restore: the lane was rebuilt")
	}
	outcome := l.run.nemesis.RestoreNode(ctx, l.failed, l.outage)
	if outcome.Type == history.OK {
		l.built.SetDown(l.failed, false)
	}
	return outcome
}

func (l *lane) replaceNode(ctx context.Context) nemesis.Outcome {
	if err := l.built.RemoveNode(ctx, l.failed); err != nil {
		return nemesis.Unclear(err)
	}
	if err := l.built.AddNode(ctx); err != nil {
		return nemesis.Unclear(err)
	}
	return nemesis.OK("")
}

func (p *pass) awaitTerminating(ctx context.Context) nemesis.Outcome {
	if err := p.lane.built.AwaitTerminating(ctx, p.lane.failed); err != nil {
		return nemesis.Failed(err)
	}
	p.result.Detected = time.Since(p.began)
	return nemesis.OK("")
}

func (p *pass) awaitReady(ctx context.Context) nemesis.Outcome {
	if err := p.lane.built.AwaitReady(ctx); err != nil {
		return nemesis.Failed(err)
	}
	p.result.Recreated = time.Since(p.began)
	return nemesis.OK("")
}

func (p *pass) settle(ctx context.Context) nemesis.Outcome {
	snapshot, _, err := p.lane.settle(ctx, p.lane.run.config.Scenario.Budgets.Settle.Duration)
	if err != nil {
		return nemesis.Failed(err)
	}
	if !snapshot.Settled {
		p.unsettled = true
		return nemesis.Failed(fmt.Errorf("not settled: %s", snapshot.Pending))
	}
	return nemesis.OK("")
}

func (p *pass) forceDelete(ctx context.Context, pods []*corev1.Pod, step schedule.Step) nemesis.Outcome {
	p.began = time.Now()
	outcome := p.lane.run.nemesis.ForceDelete(ctx, pods, step.Spread)
	if outcome.Type == history.Fail && !step.Fault {
		// The node came back and was faster, which is one of the races wanted.
		outcome = nemesis.OK(outcome.Note)
	}
	if outcome.Type != history.OK {
		return outcome
	}
	p.lane.victims = pods
	if err := p.lane.built.AwaitGone(ctx, pods); err != nil {
		return nemesis.Outcome{Type: history.OK, Note: outcome.Note, Err: err}
	}
	return outcome
}
