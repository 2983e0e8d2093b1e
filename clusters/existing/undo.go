package existing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness/nemesis/chaosmesh"
)

// Bounds of what undoing waits for.
const (
	podsGoneTimeout      = 2 * time.Minute
	releasedTimeout      = 10 * time.Minute // more than both quarantines
	namespaceGoneTimeout = 3 * time.Minute
	undoPollInterval     = 500 * time.Millisecond
)

// undoing takes back everything that bears the label of a run. It can be tried
// again, whatever it got done before.
type undoing struct {
	access  access
	options Options
	run     string // value of the label
	out     io.Writer
}

func (u undoing) sayf(format string, args ...any) {
	fmt.Fprintf(u.out, "run %s: %s\n", u.run, fmt.Sprintf(format, args...))
}

func (u undoing) selector() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: clusters.RunLabel + "=" + u.run}
}

// all goes on after an error, so that as little as possible is left. Nodes get
// their power first, because pods on a dead node end only by force; they lose
// their labels last, because these are how they are found.
func (u undoing) all(ctx context.Context) error {
	nodes, err := u.access.core.CoreV1().Nodes().List(ctx, u.selector())
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	var errs []error
	for i := range nodes.Items {
		errs = append(errs, u.restorePower(ctx, &nodes.Items[i]))
	}
	// What Chaos Mesh broke is mended before the pods that it broke go.
	errs = append(errs, u.removeChaos(ctx), u.removeNamespaces(ctx), u.removeClusterNetworks(ctx))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i := range nodes.Items {
		errs = append(errs, u.giveBack(ctx, nodes.Items[i].Name))
	}
	return errors.Join(errs...)
}

func (u undoing) restorePower(ctx context.Context, n *corev1.Node) error {
	if _, off := n.Annotations[switchedOffAnnotation]; !off {
		return nil
	}
	if err := u.access.switchOn(ctx, n.Name, u.options); err != nil {
		return fmt.Errorf("switching node %s on: %w", n.Name, err)
	}
	u.sayf("node %s switched on, it is Ready again", n.Name)
	return nil
}

func (u undoing) removeChaos(ctx context.Context) error {
	removed, err := chaosmesh.Remove(ctx, u.access.dynamic, clusters.RunLabel+"="+u.run)
	for _, what := range removed {
		u.sayf("%s removed", what)
	}
	return err
}

func (u undoing) removeNamespaces(ctx context.Context) error {
	list, err := u.access.core.CoreV1().Namespaces().List(ctx, u.selector())
	if err != nil {
		return fmt.Errorf("listing namespaces: %w", err)
	}
	var errs []error
	for i := range list.Items {
		errs = append(errs, u.removeNamespace(ctx, &list.Items[i]))
	}
	return errors.Join(errs...)
}

func (u undoing) removeNamespace(ctx context.Context, ns *corev1.Namespace) error {
	if err := u.endWorkload(ctx, ns.Name); err != nil {
		return err
	}
	if err := DeleteNamespace(ctx, u.access.core, ns); err != nil {
		return err
	}
	u.sayf("namespace %s removed", ns.Name)
	return nil
}

// endWorkload lets pods end before their namespace does, so that every CNI
// DEL finds the network that it has to give addresses back to.
func (u undoing) endWorkload(ctx context.Context, name string) error {
	core := u.access.core
	sets, err := core.AppsV1().StatefulSets(name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing StatefulSets of %s: %w", name, err)
	}
	background := metav1.DeletePropagationBackground
	for i := range sets.Items {
		err := core.AppsV1().StatefulSets(name).Delete(ctx, sets.Items[i].Name, metav1.DeleteOptions{PropagationPolicy: &background})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting StatefulSet %s/%s: %w", name, sets.Items[i].Name, err)
		}
	}
	if err := u.deleteLonePods(ctx, name); err != nil {
		return err
	}
	return errors.Join(u.awaitNoPods(ctx, name), u.awaitReleased(ctx, name))
}

// DeleteNamespace deletes this very namespace and returns when it is gone.
func DeleteNamespace(ctx context.Context, core kubernetes.Interface, ns *corev1.Namespace) error {
	namespaces := core.CoreV1().Namespaces()
	err := namespaces.Delete(ctx, ns.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &ns.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone, and perhaps another has its name
	}
	if err != nil {
		return fmt.Errorf("deleting namespace %s: %w", ns.Name, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, namespaceGoneTimeout, fmt.Errorf("namespace %s is not gone after %s", ns.Name, namespaceGoneTimeout))
	defer cancel()
	return poll(ctx, undoPollInterval, func(ctx context.Context) (bool, error) {
		now, err := namespaces.Get(ctx, ns.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && now.UID != ns.UID, nil
	})
}

// deleteLonePods deletes those that no controller takes away with itself.
func (u undoing) deleteLonePods(ctx context.Context, namespace string) error {
	pods, err := u.access.core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing pods of %s: %w", namespace, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if metav1.GetControllerOf(pod) != nil {
			continue
		}
		if err := u.access.core.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting pod %s/%s: %w", namespace, pod.Name, err)
		}
	}
	return nil
}

func (u undoing) awaitNoPods(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, podsGoneTimeout, fmt.Errorf("pods of %s are not gone after %s", namespace, podsGoneTimeout))
	defer cancel()
	return poll(ctx, undoPollInterval, func(ctx context.Context) (bool, error) {
		pods, err := u.access.core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, ignoreBusy(err)
		}
		return len(pods.Items) == 0, nil
	})
}

// awaitReleased waits for the cleaner where endpoints hold addresses of a
// network that stays: gone with their namespace, nobody would release those.
func (u undoing) awaitReleased(ctx context.Context, namespace string) error {
	ours, err := u.ownClusterNetworks(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, releasedTimeout, fmt.Errorf("endpoints of %s still hold addresses after %s", namespace, releasedTimeout))
	defer cancel()
	return poll(ctx, undoPollInterval, func(ctx context.Context) (bool, error) {
		list, err := u.access.danm.Endpoints(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, ignoreBusy(err)
		}
		for i := range list.Items {
			ep, err := danm.ToEndpoint(&list.Items[i])
			if err != nil {
				return false, err
			}
			if ep.Network().Kind == danm.ClusterNetwork && !ours[ep.Network().Name] {
				return false, nil
			}
		}
		return true, nil
	})
}

// ownClusterNetworks names those that the run made.
func (u undoing) ownClusterNetworks(ctx context.Context) (map[string]bool, error) {
	list, err := u.access.danm.Networks(danm.ClusterNetwork, "").List(ctx, u.selector())
	if apierrors.IsNotFound(err) {
		return nil, nil // this DANM has none
	}
	if err != nil {
		return nil, fmt.Errorf("listing ClusterNetworks: %w", err)
	}
	names := map[string]bool{}
	for i := range list.Items {
		names[list.Items[i].GetName()] = true
	}
	return names, nil
}

func (u undoing) removeClusterNetworks(ctx context.Context) error {
	networks := u.access.danm.Networks(danm.ClusterNetwork, "")
	names, err := u.ownClusterNetworks(ctx)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if err := networks.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting ClusterNetwork %s: %w", name, err)
		}
		u.sayf("ClusterNetwork %s removed", name)
	}
	return nil
}

// giveBack makes a node what it was: one write, as it was one thing.
func (u undoing) giveBack(ctx context.Context, name string) error {
	node, err := u.access.core.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("giving node %s back: %w", name, err)
	}
	metadata, spec := taken(node)
	if err := u.access.changeNode(ctx, name, metadata, spec); err != nil {
		return fmt.Errorf("giving node %s back: %w", name, err)
	}
	u.sayf("node %s given back", name)
	return nil
}

// taken is the change that takes back all that runs do to a node.
func taken(n *corev1.Node) (metadata, spec object) {
	metadata = object{
		"labels": object{clusters.RunLabel: nil, clusters.LaneLabel: nil},
		"annotations": object{
			clusters.ExpiresAnnotation: nil, switchedOffAnnotation: nil, cordonedAnnotation: nil, taintedAnnotation: nil,
		},
	}
	spec = object{}
	if _, ok := n.Annotations[cordonedAnnotation]; ok {
		spec["unschedulable"] = nil
	}
	if _, ok := n.Annotations[taintedAnnotation]; ok {
		spec["taints"] = withoutOutOfService(n.Spec.Taints)
		// A merge patch replaces the whole list, so nobody may have changed it.
		metadata["resourceVersion"] = n.ResourceVersion
	}
	if len(spec) == 0 {
		spec = nil
	}
	return metadata, spec
}

// undoExpired takes back what runs left whose time is over, whoever ran them.
func undoExpired(ctx context.Context, a access, o Options, now time.Time, out io.Writer) error {
	runs, err := a.leftovers(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, run := range slices.Sorted(maps.Keys(runs)) {
		if now.Before(runs[run]) {
			continue
		}
		fmt.Fprintf(out, "run %s expired at %s: removing what it left\n", run, runs[run].Format(time.RFC3339))
		errs = append(errs, undoing{access: a, options: o, run: run, out: out}.all(ctx))
	}
	return errors.Join(errs...)
}

// leftovers returns every run that is seen in the cluster and when the last of
// its objects expires. One that does not say it never does. Fleets are not runs
// that test a cleaner; whoever starts the next fleet removes them.
func (a access) leftovers(ctx context.Context) (map[string]time.Time, error) {
	labelled := metav1.ListOptions{LabelSelector: clusters.RunLabel}
	runs := map[string]time.Time{}
	namespaces, err := a.core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: clusters.RunLabel + ",!" + clusters.FleetLabel})
	if err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	for i := range namespaces.Items {
		noteExpiry(runs, &namespaces.Items[i])
	}
	nodes, err := a.core.CoreV1().Nodes().List(ctx, labelled)
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		noteExpiry(runs, &nodes.Items[i])
	}
	return runs, nil
}

var never = time.Unix(1<<40, 0)

func noteExpiry(runs map[string]time.Time, o metav1.Object) {
	expires, err := time.Parse(time.RFC3339, o.GetAnnotations()[clusters.ExpiresAnnotation])
	if err != nil {
		expires = never
	}
	run := o.GetLabels()[clusters.RunLabel]
	if expires.After(runs[run]) {
		runs[run] = expires
	}
}
