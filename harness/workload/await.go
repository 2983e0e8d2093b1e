package workload

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// await waits until pending returns nothing, and otherwise returns an error
// with what was pending last. The caller's context is the bound.
func (l *Lane) await(ctx context.Context, pending func() string) error {
	for {
		changed := l.access.View.Changed()
		reason := pending()
		if reason == "" {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", reason, ctx.Err())
		}
	}
}

// AwaitReady waits until the lane has all its pods, Ready and not Terminating.
func (l *Lane) AwaitReady(ctx context.Context) error {
	return l.await(ctx, func() string {
		ready := 0
		for _, pod := range l.Pods() {
			if IsReady(pod) {
				ready++
			}
		}
		if ready == l.Spec.Replicas {
			return ""
		}
		return fmt.Sprintf("%d of %d pods are Ready", ready, l.Spec.Replicas)
	})
}

// AwaitCount waits until the lane has so many pods and no more.
func (l *Lane) AwaitCount(ctx context.Context, count int) error {
	return l.await(ctx, func() string {
		if got := len(l.Pods()); got != count {
			return fmt.Sprintf("%d pods exist, not %d", got, count)
		}
		return ""
	})
}

// AwaitTerminating waits until every pod on the node is marked for deletion.
func (l *Lane) AwaitTerminating(ctx context.Context, node string) error {
	return l.await(ctx, func() string {
		waiting := 0
		for _, pod := range l.PodsOn(node) {
			if pod.DeletionTimestamp == nil {
				waiting++
			}
		}
		if waiting == 0 {
			return ""
		}
		return fmt.Sprintf("%d pods on %s are not Terminating", waiting, node)
	})
}

// AwaitNodesReady waits until every node that has power is Ready.
func (l *Lane) AwaitNodesReady(ctx context.Context) error {
	return l.await(ctx, func() string {
		for _, name := range l.RunningNodes() {
			if !IsNodeReady(l.access.View.Node(name)) {
				return fmt.Sprintf("node %s is not Ready", name)
			}
		}
		return ""
	})
}

// AwaitRecreated waits until pods of these names exist with other UIDs and are
// bound to a node, that is until their CNI ADD may be under way.
func (l *Lane) AwaitRecreated(ctx context.Context, old []*corev1.Pod) error {
	return l.await(ctx, func() string {
		bound := map[string]*corev1.Pod{}
		for _, pod := range l.Pods() {
			bound[pod.Name] = pod
		}
		for _, pod := range old {
			now := bound[pod.Name]
			if now == nil || now.UID == pod.UID || now.Spec.NodeName == "" {
				return fmt.Sprintf("pod %s is not recreated", pod.Name)
			}
		}
		return ""
	})
}

// AwaitGone waits until none of these pods exists any more, so that no later
// wait takes one of them for its successor.
func (l *Lane) AwaitGone(ctx context.Context, old []*corev1.Pod) error {
	return l.await(ctx, func() string {
		for _, pod := range l.Pods() {
			for _, o := range old {
				if pod.UID == o.UID {
					return fmt.Sprintf("pod %s is not gone", pod.Name)
				}
			}
		}
		return ""
	})
}

// IsReady tells whether a pod runs, is Ready and is not being deleted.
func IsReady(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// IsNodeReady tells whether a node exists and is Ready, and the control plane
// has taken back what it did when it was not.
func IsNodeReady(node *corev1.Node) bool {
	if node == nil {
		return false
	}
	for _, t := range node.Spec.Taints {
		if t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable {
			return false
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
