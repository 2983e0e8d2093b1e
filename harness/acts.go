package harness

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/harness/nemesis"
	"github.com/danm-chaos/danm-chaos/harness/nemesis/chaosmesh"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// resolveAct picks the target of a step that disturbs a lane whose nodes all
// have power, or its cleaner.
func (p *pass) resolveAct(ctx context.Context, step schedule.Step) (string, action, error) {
	l := p.lane
	switch step.Do {
	case schedule.Evict:
		pods, err := l.pickPods(ctx, step)
		return podNames(pods), p.removing(pods, l.run.nemesis.Evict), err
	case schedule.Drain:
		node, err := l.pickNode(step)
		return node, func(ctx context.Context) nemesis.Outcome { return p.drain(ctx, node) }, err
	case schedule.Uncordon:
		return l.drained, func(ctx context.Context) nemesis.Outcome { return l.run.nemesis.Uncordon(ctx, l.drained) }, nil
	case schedule.Scale:
		return l.built.Namespace, func(ctx context.Context) nemesis.Outcome { return p.scale(ctx, step.Count) }, nil
	case schedule.TaintNode:
		return l.failed, func(ctx context.Context) nemesis.Outcome { return l.run.nemesis.Taint(ctx, l.failed) }, nil
	case schedule.UntaintNode:
		return l.failed, func(ctx context.Context) nemesis.Outcome { return l.run.nemesis.Untaint(ctx, l.failed) }, nil
	case schedule.KillCleaner:
		pod, err := l.run.nemesis.PickCleaner(ctx, step.Pick)
		return pod.Namespace + "/" + pod.Name, func(ctx context.Context) nemesis.Outcome { return l.run.nemesis.KillCleaner(ctx, pod) }, err
	case schedule.MeshInject:
		fault, err := p.meshFault(ctx, step)
		return fault.Namespace + "/" + strings.Join(fault.Pods, ","), func(ctx context.Context) nemesis.Outcome { return p.meshInject(ctx, fault) }, err
	case schedule.MeshHeal:
		return "", p.meshHeal, nil
	default:
		return "", nil, fmt.Errorf("unknown step %q", step.Do)
	}
}

// removing does something that makes pods go, and waits until they are gone,
// so that no later wait takes one of them for its successor.
func (p *pass) removing(pods []*corev1.Pod, remove func(context.Context, []*corev1.Pod) nemesis.Outcome) action {
	return func(ctx context.Context) nemesis.Outcome {
		outcome := remove(ctx, pods)
		if outcome.Type != history.OK {
			return outcome
		}
		p.lane.victims = pods
		if err := p.lane.built.AwaitGone(ctx, pods); err != nil {
			return nemesis.Outcome{Type: history.OK, Note: outcome.Note, Err: err}
		}
		return outcome
	}
}

// drain cordons the node and evicts the lane's pods. Those of others stay.
func (p *pass) drain(ctx context.Context, node string) nemesis.Outcome {
	pods := p.lane.built.PodsOn(node)
	if outcome := p.lane.run.nemesis.Cordon(ctx, node); outcome.Type != history.OK {
		return outcome
	}
	p.lane.drained = node
	return p.removing(pods, p.lane.run.nemesis.Evict)(ctx)
}

// scale takes replicas away, at least one is left, or gives all back with 0.
func (p *pass) scale(ctx context.Context, count int) nemesis.Outcome {
	built := p.lane.built
	replicas := max(1, built.Spec.Replicas-count)
	if err := built.Scale(ctx, replicas); err != nil {
		return nemesis.Unclear(err)
	}
	if count == 0 {
		return nemesis.OK("all replicas are wanted again")
	}
	if err := built.AwaitCount(ctx, replicas); err != nil {
		return nemesis.Unclear(err)
	}
	return nemesis.OK(fmt.Sprintf("%d replicas are left", replicas))
}

// meshFault says what Chaos Mesh is to do to which pods, by name.
func (p *pass) meshFault(ctx context.Context, step schedule.Step) (nemesis.MeshFault, error) {
	l := p.lane
	f := nemesis.MeshFault{
		Name: fmt.Sprintf("%s-%d-%d", l.name, p.plan.Number, l.meshed), Meta: l.built.ObjectMeta(), Action: meshAction(step.Act),
		Namespace: l.built.Namespace,
	}
	l.meshed++
	if step.Act.IsOnCleaner() {
		pod, err := l.run.nemesis.PickCleaner(ctx, step.Pick)
		f.Namespace, f.Pods, f.Container = pod.Namespace, []string{pod.Name}, pod.Container
		return f, err
	}
	pods, err := l.pickPods(ctx, step)
	for _, pod := range pods {
		f.Pods, f.Container = append(f.Pods, pod.Name), pod.Spec.Containers[0].Name
	}
	if f.Action == chaosmesh.PodKill {
		l.victims = pods
	}
	return f, err
}

func meshAction(a schedule.Act) chaosmesh.Action {
	return map[schedule.Act]chaosmesh.Action{
		schedule.MeshPodKill: chaosmesh.PodKill, schedule.MeshPodFailure: chaosmesh.PodFailure, schedule.MeshContainerKill: chaosmesh.ContainerKill,
		schedule.MeshCleanerKill: chaosmesh.PodKill, schedule.MeshCleanerPartition: chaosmesh.NetworkPartition,
		schedule.MeshCleanerDelay: chaosmesh.NetworkDelay, schedule.MeshCleanerLoss: chaosmesh.NetworkLoss, schedule.MeshCleanerTime: chaosmesh.TimeOffset,
		schedule.MeshCleanerCPU: chaosmesh.StressCPU, schedule.MeshCleanerMemory: chaosmesh.StressMemory,
	}[a]
}

func (p *pass) meshInject(ctx context.Context, f nemesis.MeshFault) nemesis.Outcome {
	injected, outcome := p.lane.run.nemesis.MeshInject(ctx, p.lane.run.danm.Dynamic, f)
	p.lane.injected = injected
	return outcome
}

func (p *pass) meshHeal(ctx context.Context) nemesis.Outcome {
	injected := p.lane.injected
	if injected == nil {
		return nemesis.OK("nothing to heal")
	}
	p.lane.injected = nil
	return p.lane.run.nemesis.MeshHeal(ctx, injected)
}
