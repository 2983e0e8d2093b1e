package existing

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/danm-chaos/danm-chaos/clusters"
)

var (
	_ clusters.NodeCordoner     = (*Cluster)(nil)
	_ clusters.NodeTainter      = (*Cluster)(nil)
	_ clusters.CleanerPodLister = (*Cluster)(nil)
)

// CordonNode implements clusters.NodeCordoner. The annotation, in the same
// write, says that it was us.
func (c *Cluster) CordonNode(ctx context.Context, name string) error {
	if err := c.checkWorker(name); err != nil {
		return fmt.Errorf("cordoning node: %w", err)
	}
	err := c.access.changeNode(ctx, name, object{"annotations": object{cordonedAnnotation: c.options.RunID}}, object{"unschedulable": true})
	if err != nil {
		return fmt.Errorf("cordoning node %s: %w", name, err)
	}
	return nil
}

// UncordonNode implements clusters.NodeCordoner.
func (c *Cluster) UncordonNode(ctx context.Context, name string) error {
	node, err := c.access.core.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("uncordoning node %s: %w", name, err)
	}
	if _, ours := node.Annotations[cordonedAnnotation]; !ours {
		return nil
	}
	if err := c.access.changeNode(ctx, name, object{"annotations": object{cordonedAnnotation: nil}}, object{"unschedulable": nil}); err != nil {
		return fmt.Errorf("uncordoning node %s: %w", name, err)
	}
	return nil
}

// TaintNode implements clusters.NodeTainter. Kubernetes deletes the pods of a
// node that is marked so and not Ready, all of them: only a node that a run
// switched off is marked.
func (c *Cluster) TaintNode(ctx context.Context, name string) error {
	node, err := c.worker(ctx, name)
	if err != nil {
		return fmt.Errorf("tainting node: %w", err)
	}
	if _, off := node.Annotations[switchedOffAnnotation]; !off || isReady(node) {
		return fmt.Errorf("tainting node %s: it is not one that this run switched off", name)
	}
	taints := append(slices.Clone(node.Spec.Taints), corev1.Taint{
		Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute,
	})
	return c.setTaints(ctx, node, taints, c.options.RunID)
}

// UntaintNode implements clusters.NodeTainter.
func (c *Cluster) UntaintNode(ctx context.Context, name string) error {
	node, err := c.worker(ctx, name)
	if err != nil {
		return fmt.Errorf("untainting node: %w", err)
	}
	if _, ours := node.Annotations[taintedAnnotation]; !ours {
		return nil
	}
	return c.setTaints(ctx, node, withoutOutOfService(node.Spec.Taints), nil)
}

func withoutOutOfService(taints []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// setTaints replaces the list, which the control plane changes too, so it
// insists on the version that it read.
func (c *Cluster) setTaints(ctx context.Context, node *corev1.Node, taints []corev1.Taint, mark any) error {
	metadata := object{"resourceVersion": node.ResourceVersion, "annotations": object{taintedAnnotation: mark}}
	if err := c.access.changeNode(ctx, node.Name, metadata, object{"taints": taints}); err != nil {
		return fmt.Errorf("changing the taints of node %s: %w", node.Name, err)
	}
	return nil
}

func (c *Cluster) worker(ctx context.Context, name string) (*corev1.Node, error) {
	if err := c.checkWorker(name); err != nil {
		return nil, err
	}
	return c.access.core.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}

// CleanerPods implements clusters.CleanerPodLister.
func (c *Cluster) CleanerPods(ctx context.Context) ([]clusters.CleanerPod, error) {
	return clusters.ListCleanerPods(ctx, c.access.core, c.cleaner.Namespace, c.cleaner.Selector)
}
