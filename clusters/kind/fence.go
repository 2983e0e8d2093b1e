package kind

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/danm-chaos/danm-chaos/clusters"
)

var (
	_ clusters.NodeFencer  = (*Cluster)(nil)
	_ clusters.NodeDeleter = (*Cluster)(nil)
)

// outOfService is how people tell Kubernetes that a node has no power for sure.
var outOfService = corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}

// FenceNode implements clusters.NodeFencer.
func (c *Cluster) FenceNode(ctx context.Context, name string) error {
	return c.taint(ctx, "fencing", name, func(taints []corev1.Taint) []corev1.Taint {
		if slices.ContainsFunc(taints, isOutOfService) {
			return taints
		}
		return append(taints, outOfService)
	})
}

// UnfenceNode implements clusters.NodeFencer.
func (c *Cluster) UnfenceNode(ctx context.Context, name string) error {
	return c.taint(ctx, "unfencing", name, func(taints []corev1.Taint) []corev1.Taint {
		return slices.DeleteFunc(taints, isOutOfService)
	})
}

func isOutOfService(t corev1.Taint) bool { return t.Key == outOfService.Key }

// taint changes the taints of a node, which the node controller writes as well.
func (c *Cluster) taint(ctx context.Context, doing, name string, change func([]corev1.Taint) []corev1.Taint) error {
	if err := c.checkWorker(name); err != nil {
		return fmt.Errorf("%s node: %w", doing, err)
	}
	nodes := c.client.CoreV1().Nodes()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := nodes.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Spec.Taints = change(n.Spec.Taints)
		_, err = nodes.Update(ctx, n, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("%s node %s: %w", doing, name, err)
	}
	return nil
}
