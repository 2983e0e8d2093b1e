package existing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/clusters"
)

// Annotations of nodes that say what a run did to them and has to undo.
const (
	switchedOffAnnotation = "chaos.danm/switched-off"
	cordonedAnnotation    = "chaos.danm/cordoned"
	taintedAnnotation     = "chaos.danm/tainted"
)

// nodePollInterval is how often a node that is to change is looked at.
const nodePollInterval = 500 * time.Millisecond

// object is JSON that is written here.
type object = map[string]any

// Workers implements clusters.WorkerLister.
func (c *Cluster) Workers() []string { return slices.Clone(c.workers) }

// NodeTimeout implements clusters.NodeTimer.
func (c *Cluster) NodeTimeout() time.Duration { return c.options.HookTimeout + c.options.NodeTimeout }

// AddNode implements clusters.NodeAdder: it switches a worker on if a run
// switched it off, and labels it.
func (c *Cluster) AddNode(ctx context.Context, n clusters.Node) error {
	if err := c.checkWorker(n.Name); err != nil {
		return fmt.Errorf("adding node: %w", err)
	}
	node, err := c.access.core.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("adding node %s: %w", n.Name, err)
	}
	if _, off := node.Annotations[switchedOffAnnotation]; off {
		if err := c.switchOn(ctx, n.Name); err != nil {
			return fmt.Errorf("adding node %s: %w", n.Name, err)
		}
	}
	if err := errors.Join(c.UncordonNode(ctx, n.Name), c.UntaintNode(ctx, n.Name)); err != nil {
		return fmt.Errorf("adding node %s: %w", n.Name, err)
	}
	change := object{"labels": n.Labels, "annotations": object{clusters.ExpiresAnnotation: c.expires.UTC().Format(time.RFC3339)}}
	if err := c.access.changeNode(ctx, n.Name, change, nil); err != nil {
		return fmt.Errorf("adding node %s: %w", n.Name, err)
	}
	return nil
}

// RemoveNode implements clusters.NodeAdder, and refuses: the Node objects of a
// cluster that others made are theirs.
func (c *Cluster) RemoveNode(_ context.Context, name string) error {
	return fmt.Errorf("removing node %s: it is not ours: %w", name, errors.ErrUnsupported)
}

func (c *Cluster) checkWorker(name string) error {
	if !slices.Contains(c.workers, name) {
		return fmt.Errorf("%s is none of the workers %v that this run may touch", name, c.workers)
	}
	return nil
}

// changeNode changes metadata and spec of a node. A nil value removes.
func (a access) changeNode(ctx context.Context, name string, metadata, spec object) error {
	change := object{}
	if metadata != nil {
		change["metadata"] = metadata
	}
	if spec != nil {
		change["spec"] = spec
	}
	patch, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encoding a change of node %s: %w", name, err)
	}
	_, err = a.core.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func (a access) annotateNode(ctx context.Context, name, annotation string, value any) error {
	return a.changeNode(ctx, name, object{"annotations": object{annotation: value}}, nil)
}

// awaitNode waits until the node is as wanted.
func (a access) awaitNode(ctx context.Context, name, what string, timeout time.Duration, wanted func(*corev1.Node) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("node %s is not %s after %s", name, what, timeout))
	defer cancel()
	return poll(ctx, nodePollInterval, func(ctx context.Context) (bool, error) {
		node, err := a.core.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, ignoreBusy(err)
		}
		return wanted(node), nil
	})
}

// ignoreBusy keeps waiting when an API server has no time or is being replaced.
func ignoreBusy(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsUnauthorized(err) {
		return err
	}
	return nil
}

// isBack tells whether a node is Ready and the control plane has taken back
// what it did when it was not.
func isBack(n *corev1.Node) bool {
	for _, t := range n.Spec.Taints {
		if t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable {
			return false
		}
	}
	return isReady(n)
}

// switchable is a cluster whose nodes can be switched by hooks.
type switchable struct{ *Cluster }

var _ clusters.NodeFailer = switchable{}

// FailNode implements clusters.NodeFailer. It returns when the API shows that
// the node is gone: a hook that only says so fails nothing.
func (s switchable) FailNode(ctx context.Context, name string) error {
	c := s.Cluster
	if err := c.checkWorker(name); err != nil {
		return fmt.Errorf("failing node: %w", err)
	}
	// Written before the hook runs: whoever cleans up must not miss it.
	if err := c.access.annotateNode(ctx, name, switchedOffAnnotation, c.options.RunID); err != nil {
		return fmt.Errorf("failing node %s: %w", name, err)
	}
	if err := runHook(ctx, c.options.NodeDown, name, c.options.HookTimeout); err != nil {
		return fmt.Errorf("failing node %s: %w", name, err)
	}
	isGone := func(n *corev1.Node) bool { return !isReady(n) }
	if err := c.access.awaitNode(ctx, name, "NotReady", c.options.NodeTimeout, isGone); err != nil {
		return fmt.Errorf("failing node %s: --node-down ended well, but %w", name, err)
	}
	return nil
}

// RestoreNode implements clusters.NodeFailer.
func (s switchable) RestoreNode(ctx context.Context, name string) error {
	if err := s.checkWorker(name); err != nil {
		return fmt.Errorf("restoring node: %w", err)
	}
	if err := s.switchOn(ctx, name); err != nil {
		return fmt.Errorf("restoring node %s: %w", name, err)
	}
	return nil
}

func (c *Cluster) switchOn(ctx context.Context, name string) error {
	return c.access.switchOn(ctx, name, c.options)
}

// switchOn runs the hook and forgets the node only when it is Ready.
func (a access) switchOn(ctx context.Context, name string, o Options) error {
	if len(o.NodeUp) == 0 {
		return fmt.Errorf("node %s was switched off, and no --node-up is known: switch it on by hand", name)
	}
	if err := runHook(ctx, o.NodeUp, name, o.HookTimeout); err != nil {
		return err
	}
	if err := a.awaitNode(ctx, name, "Ready", o.NodeTimeout, isBack); err != nil {
		return fmt.Errorf("--node-up ended well, but %w", err)
	}
	return a.annotateNode(ctx, name, switchedOffAnnotation, nil)
}

// poll waits until the condition holds. An error of the condition ends it, as
// does the end of the context.
func poll(ctx context.Context, interval time.Duration, condition func(context.Context) (bool, error)) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		ok, err := condition(ctx)
		if ctx.Err() != nil && !ok {
			return context.Cause(ctx)
		}
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}
