package nemesis

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// Evict asks for pods to be evicted, one after the other as a drain does. Every
// request names the pod's UID.
func (n *Nemesis) Evict(ctx context.Context, pods []*corev1.Pod) Outcome {
	evicted := 0
	for _, pod := range pods {
		err := n.core.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
		})
		switch {
		case err == nil:
			evicted++
		case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		default:
			return Unclear(fmt.Errorf("evicting pod %s: %w", pod.Name, err))
		}
	}
	note := fmt.Sprintf("evicted %d of %d pods", evicted, len(pods))
	if evicted == 0 {
		return Outcome{Type: history.Fail, Note: note, Err: fmt.Errorf("no pod was left to evict")}
	}
	return OK(note)
}

// Cordon keeps a node from taking pods.
func (n *Nemesis) Cordon(ctx context.Context, node string) Outcome {
	c, ok := n.cluster.(clusters.NodeCordoner)
	if !ok {
		return n.cannot("cordon nodes")
	}
	return unclearIf(c.CordonNode(ctx, node))
}

// Uncordon lets it take pods again.
func (n *Nemesis) Uncordon(ctx context.Context, node string) Outcome {
	c, ok := n.cluster.(clusters.NodeCordoner)
	if !ok {
		return n.cannot("uncordon nodes")
	}
	return unclearIf(c.UncordonNode(ctx, node))
}

// Taint declares a dead node out of service.
func (n *Nemesis) Taint(ctx context.Context, node string) Outcome {
	c, ok := n.cluster.(clusters.NodeTainter)
	if !ok {
		return n.cannot("declare nodes out of service")
	}
	return unclearIf(c.TaintNode(ctx, node))
}

// Untaint takes that back.
func (n *Nemesis) Untaint(ctx context.Context, node string) Outcome {
	c, ok := n.cluster.(clusters.NodeTainter)
	if !ok {
		return n.cannot("declare nodes in service")
	}
	return unclearIf(c.UntaintNode(ctx, node))
}

// PickCleaner returns the leading pod of the cleaner or, where nobody is known
// to lead, the pick-th.
func (n *Nemesis) PickCleaner(ctx context.Context, pick uint64) (clusters.CleanerPod, error) {
	lister, ok := n.cluster.(clusters.CleanerPodLister)
	if !ok {
		return clusters.CleanerPod{}, fmt.Errorf("cluster %s has no pods of the cleaner", n.cluster.Name())
	}
	pods, err := lister.CleanerPods(ctx)
	if err != nil {
		return clusters.CleanerPod{}, err
	}
	if len(pods) == 0 {
		return clusters.CleanerPod{}, fmt.Errorf("no pod of the cleaner runs")
	}
	for _, pod := range pods {
		if pod.Leads {
			return pod, nil
		}
	}
	return pods[pick%uint64(len(pods))], nil
}

// KillCleaner deletes a pod of the cleaner with grace period 0.
func (n *Nemesis) KillCleaner(ctx context.Context, pod clusters.CleanerPod) Outcome {
	o := n.ForceDelete(ctx, []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: uidOf(pod)}}}, 0)
	if pod.Leads {
		o.Note = "the leader; " + o.Note
	}
	return o
}

func (n *Nemesis) cannot(what string) Outcome {
	return Skipped(fmt.Sprintf("cluster %s cannot %s", n.cluster.Name(), what))
}

func unclearIf(err error) Outcome {
	if err != nil {
		return Unclear(err)
	}
	return OK("")
}
