package workload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// StatefulSet is the name of every lane's StatefulSet, as in the report.
const StatefulSet = "ss-cinfo"

// View is the state of pods and nodes as watches saw it last.
type View interface {
	// Pods returns the pods of a namespace in name order.
	Pods(namespace string) []*corev1.Pod
	// Node returns a node, or nil.
	Node(name string) *corev1.Node
	// Changed returns a channel that is closed at the next change. It has to
	// be taken before the state is read, so that no change is missed.
	Changed() <-chan struct{}
}

// Access is how lanes reach their cluster.
type Access struct {
	Core  kubernetes.Interface
	Danm  *danm.Client
	Nodes clusters.NodeAdder
	View  View
	RunID string
	// Expires, if set, is from when anybody may remove what a lane made. A
	// cluster that outlives the run needs it.
	Expires time.Time
	Image   string // of the workload; empty means one that only the clusters of our own have
}

// Spec says which lane to build.
type Spec struct {
	Name         string // "lane-3"
	Generation   int    // from 1; counts every building of the lane
	Network      schedule.Network
	Replicas     int
	Nodes        int
	Workers      []string // the nodes to take, where the cluster makes none; as many as Nodes
	SpareNodes   int      // of Nodes, that come only when all replicas are Ready
	Interfaces   int      // of each pod, all in the lane's network
	GracePeriod  int64
	ReadyTimeout time.Duration
	// Shared is a ClusterNetwork that is there already and stays; nil has the
	// lane make a network of its own.
	Shared *danm.NetworkRef
}

// Lane is a built lane. Its methods are not for concurrent use.
type Lane struct {
	Spec      Spec
	Namespace string
	Network   danm.NetworkRef

	access Access
	nodes  []string        // in name order
	down   map[string]bool // without power
	made   int             // nodes so far, for names of those that are made
	others map[string]bool // addresses of a shared network that were taken before
}

// Build creates a lane and returns it once all replicas are Ready. When it
// fails, what it made so far is still returned, to be torn down.
func Build(ctx context.Context, access Access, spec Spec) (*Lane, error) {
	l := newLane(access, spec)
	for range spec.Nodes - spec.SpareNodes {
		if err := l.AddNode(ctx); err != nil {
			return l, err
		}
	}
	for _, create := range []func(context.Context) error{l.createNamespace, l.createNetwork, l.createStatefulSet} {
		if err := create(ctx); err != nil {
			return l, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, spec.ReadyTimeout)
	defer cancel()
	if err := l.AwaitReady(ctx); err != nil {
		return l, fmt.Errorf("building %s: %w", spec.Name, err)
	}
	for range spec.SpareNodes {
		if err := l.AddNode(ctx); err != nil {
			return l, err
		}
	}
	return l, l.AwaitNodesReady(ctx)
}

func newLane(access Access, spec Spec) *Lane {
	l := &Lane{Spec: spec, access: access, down: map[string]bool{}}
	l.Namespace = fmt.Sprintf("chaos-%s-g%d-%s", spec.Name, spec.Generation, clusters.RunLabelValue(access.RunID))
	l.Network = danm.NetworkRef{Kind: danm.NetworkKind(spec.Network.Kind), Namespace: l.Namespace, Name: "test-net1"}
	if spec.Shared != nil {
		l.Network = *spec.Shared
		return l
	}
	if !l.Network.Kind.IsNamespaced() {
		l.Network.Namespace, l.Network.Name = "", "test-net1-"+l.Namespace
	}
	return l
}

// Announcement returns the record that opens this lane in a history.
func (l *Lane) Announcement() history.Lane {
	return history.Lane{
		Name: l.Spec.Name, Generation: l.Spec.Generation, Namespace: l.Namespace,
		NetworkKind: string(l.Network.Kind), Network: l.Network.Name,
		IPv4: l.Spec.Network.HasIPv4(), IPv6: l.Spec.Network.HasIPv6(),
		StatefulSet: StatefulSet, Replicas: l.Spec.Replicas, Nodes: l.plannedNodes(),
	}
}

// Announce returns the announcement of a lane that is yet to be built, because
// a history has to name a lane before it sees the first write in it.
func Announce(access Access, spec Spec) history.Lane { return newLane(access, spec).Announcement() }

func (l *Lane) plannedNodes() []string {
	if l.hasFixedWorkers() {
		return l.Spec.Workers
	}
	var names []string
	for i := range l.Spec.Nodes {
		names = append(names, l.nodeName(i))
	}
	return names
}

func (l *Lane) hasFixedWorkers() bool { return len(l.Spec.Workers) > 0 }

// nextNode names the node to add: one of our own making, or the first worker
// that we do not have.
func (l *Lane) nextNode() (string, error) {
	if !l.hasFixedWorkers() {
		l.made++
		return l.nodeName(l.made - 1), nil
	}
	for _, name := range l.Spec.Workers {
		if !slices.Contains(l.nodes, name) {
			return name, nil
		}
	}
	return "", fmt.Errorf("all workers of %s are in use", l.Spec.Name)
}

func (l *Lane) nodeName(i int) string {
	return fmt.Sprintf("%s-g%d-node-%d", l.Spec.Name, l.Spec.Generation, i)
}

// labels are on everything that the lane creates.
func (l *Lane) labels() map[string]string {
	return map[string]string{clusters.RunLabel: clusters.RunLabelValue(l.access.RunID), clusters.LaneLabel: l.label()}
}

// ObjectMeta is the namespace of an object that belongs to the lane, and the
// labels and annotations by which it is found.
func (l *Lane) ObjectMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: l.Namespace, Labels: l.labels(), Annotations: l.annotations()}
}

// annotations are on every object of its own that the lane creates.
func (l *Lane) annotations() map[string]string {
	if l.access.Expires.IsZero() {
		return nil
	}
	return map[string]string{clusters.ExpiresAnnotation: l.access.Expires.UTC().Format(time.RFC3339)}
}

// label tells generations apart: nodes of the last one must not get pods of
// this one.
func (l *Lane) label() string { return fmt.Sprintf("%s-g%d", l.Spec.Name, l.Spec.Generation) }

// AddNode gives the lane one more node.
func (l *Lane) AddNode(ctx context.Context) error {
	name, err := l.nextNode()
	if err != nil {
		return err
	}
	l.nodes = append(l.nodes, name)
	slices.Sort(l.nodes)
	if err := l.access.Nodes.AddNode(ctx, clusters.Node{Name: name, Labels: l.labels()}); err != nil {
		return fmt.Errorf("adding node %s: %w", name, err)
	}
	return nil
}

// RemoveNode takes a node away for good.
func (l *Lane) RemoveNode(ctx context.Context, name string) error {
	if err := l.access.Nodes.RemoveNode(ctx, name); err != nil {
		return fmt.Errorf("removing node %s: %w", name, err)
	}
	l.nodes = slices.DeleteFunc(l.nodes, func(n string) bool { return n == name })
	delete(l.down, name)
	return nil
}

// SetDown notes that a node lost its power, or got it back.
func (l *Lane) SetDown(node string, isDown bool) {
	if isDown {
		l.down[node] = true
	} else {
		delete(l.down, node)
	}
}

// RunningNodes returns the nodes with power in name order.
func (l *Lane) RunningNodes() []string {
	return slices.DeleteFunc(slices.Clone(l.nodes), func(n string) bool { return l.down[n] })
}

// Pods returns the pods of the lane in name order, as watched.
func (l *Lane) Pods() []*corev1.Pod { return l.access.View.Pods(l.Namespace) }

// PodsOn returns the pods that are bound to a node, in name order, as watched.
func (l *Lane) PodsOn(node string) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(l.Pods()), func(p *corev1.Pod) bool { return p.Spec.NodeName != node })
}

// Scale asks for so many replicas.
func (l *Lane) Scale(ctx context.Context, replicas int) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := l.access.Core.AppsV1().StatefulSets(l.Namespace).Patch(ctx, StatefulSet, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("scaling %s to %d: %w", l.label(), replicas, err)
	}
	return nil
}

// Teardown removes the lane and returns once its pods are gone. It goes on
// after an error, so that as little as possible is left.
func (l *Lane) Teardown(ctx context.Context) error {
	errs := []error{l.removePods(ctx), l.awaitReleased(ctx)}
	if err := l.access.Core.CoreV1().Namespaces().Delete(ctx, l.Namespace, metav1.DeleteOptions{}); ignoreNotFound(err) != nil {
		errs = append(errs, fmt.Errorf("deleting namespace %s: %w", l.Namespace, err))
	}
	errs = append(errs, l.removeNetwork(ctx))
	if !l.hasFixedWorkers() { // the next lane takes those as they are
		for _, node := range slices.Clone(l.nodes) {
			errs = append(errs, l.RemoveNode(ctx, node))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("tearing down %s: %w", l.label(), err)
	}
	return nil
}

func (l *Lane) removeNetwork(ctx context.Context) error {
	if l.Spec.Shared != nil {
		return nil
	}
	err := l.access.Danm.Networks(l.Network.Kind, l.Network.Namespace).Delete(ctx, l.Network.Name, metav1.DeleteOptions{})
	if ignoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s: %w", l.Network, err)
	}
	return nil
}

// releasedInterval is how often endpoints that are to be released are looked at.
const releasedInterval = 500 * time.Millisecond

// awaitReleased waits until the cleaner has released what CNI DEL did not: the
// endpoints go with the namespace, but their bits stay in a network of others.
func (l *Lane) awaitReleased(ctx context.Context) error {
	if l.Spec.Shared == nil {
		return nil
	}
	ticker := time.NewTicker(releasedInterval)
	defer ticker.Stop()
	for {
		list, err := l.access.Danm.Endpoints(l.Namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) == 0 {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("endpoints of %s still hold addresses of %s: %w", l.label(), l.Network, ctx.Err())
		}
	}
}

// removePods deletes the StatefulSet and waits until its pods are gone. Pods
// on nodes without power can only be forced.
func (l *Lane) removePods(ctx context.Context) error {
	background := metav1.DeletePropagationBackground
	err := l.access.Core.AppsV1().StatefulSets(l.Namespace).Delete(ctx, StatefulSet, metav1.DeleteOptions{PropagationPolicy: &background})
	if ignoreNotFound(err) != nil {
		return fmt.Errorf("deleting StatefulSet: %w", err)
	}
	now := int64(0)
	for _, node := range slices.Sorted(maps.Keys(l.down)) {
		for _, pod := range l.PodsOn(node) {
			err := l.access.Core.CoreV1().Pods(l.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
				GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID}})
			if ignoreNotFound(err) != nil && !apierrors.IsConflict(err) {
				return fmt.Errorf("force deleting pod %s: %w", pod.Name, err)
			}
		}
	}
	return l.await(ctx, func() string {
		if left := len(l.Pods()); left > 0 {
			return fmt.Sprintf("%d pods are not gone", left)
		}
		return ""
	})
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
