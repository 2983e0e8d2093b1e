package harness

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
)

const (
	podResource   = "pods"
	nodeResource  = "nodes"
	leaseResource = "leases"
)

// source is one resource that is collected.
type source struct {
	resource string
	list     func(ctx context.Context) (objects []runtime.Object, resourceVersion string, err error)
	watcher  cache.WatcherWithContext
	trim     func(runtime.Object) any // what of an object goes into the history
	owned    map[string][]string      // fields whose managers are to be recorded, with their paths; nil where an audit log does better
	repeats  bool                     // most of its writes are heartbeats; only what differs after trimming is recorded
}

// sources lists what is collected: DANM's objects of the whole cluster, and
// the pods and nodes of this run.
func (r *run) sources() []source {
	selector := metav1.ListOptions{LabelSelector: clusters.RunLabel + "=" + clusters.RunLabelValue(r.config.RunID)}
	nodes := typedSource(nodeResource, selector, r.core.CoreV1().Nodes(), trimNode)
	nodes.repeats = true
	all := []source{
		typedSource(podResource, selector, r.core.CoreV1().Pods(""), trimPod),
		nodes,
		danmSource(danm.EndpointResource, r.danm.Endpoints("")),
	}
	for _, kind := range r.config.Kinds {
		all = append(all, danmSource(kind.Resource(), r.danm.Networks(kind, "")))
	}
	if observed, ok := r.config.Cluster.(clusters.Observed); ok {
		leases := typedSource(leaseResource, metav1.ListOptions{}, r.core.CoordinationV1().Leases(observed.CleanerNamespace()), trimLease)
		leases.repeats = true
		all = append(all, leases)
		for i := range all {
			all[i].owned = ownedFields(all[i].resource)
		}
	}
	return all
}

// reader is a typed client of one resource.
type reader[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// typedSource collects what the selector matches through a typed client.
func typedSource[L runtime.Object](resource string, selector metav1.ListOptions, client reader[L], trim func(runtime.Object) any) source {
	return source{
		resource: resource, trim: trim,
		list: func(ctx context.Context) ([]runtime.Object, string, error) {
			l, err := client.List(ctx, selector)
			return extract(l, err)
		},
		watcher: watchFunc(func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector.LabelSelector
			return client.Watch(ctx, o)
		}),
	}
}

func danmSource(resource string, client dynamic.ResourceInterface) source {
	return source{
		resource: resource, trim: trimDanm,
		list: func(ctx context.Context) ([]runtime.Object, string, error) {
			l, err := client.List(ctx, metav1.ListOptions{})
			return extract(l, err)
		},
		watcher: watchFunc(client.Watch),
	}
}

func extract(list runtime.Object, err error) ([]runtime.Object, string, error) {
	if err != nil {
		return nil, "", err
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return nil, "", err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, "", err
	}
	return objects, accessor.GetResourceVersion(), nil
}

// watchFunc makes a function a watcher.
type watchFunc func(context.Context, metav1.ListOptions) (watch.Interface, error)

// WatchWithContext begins a watch.
func (f watchFunc) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return f(ctx, o)
}

// trimDanm keeps all but the bookkeeping of field owners.
func trimDanm(object runtime.Object) any {
	u := object.(*unstructured.Unstructured).DeepCopy()
	u.SetManagedFields(nil)
	return u.Object
}

// trimMeta keeps what identifies an object and where it is in its life.
func trimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Labels: m.Labels,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds,
	}
}

// trimPod keeps identity, annotations, node, phase and readiness.
func trimPod(object runtime.Object) any {
	pod := object.(*corev1.Pod)
	out := &corev1.Pod{ObjectMeta: trimMeta(pod.ObjectMeta)}
	out.Annotations = pod.Annotations
	out.Spec.NodeName = pod.Spec.NodeName
	out.Status.Phase = pod.Status.Phase
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			out.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return out
}

// trimLease keeps who holds it, so that renewing leaves it the same.
func trimLease(object runtime.Object) any {
	lease := object.(*coordinationv1.Lease)
	out := &coordinationv1.Lease{ObjectMeta: trimMeta(lease.ObjectMeta)}
	out.ResourceVersion = ""
	out.Spec.HolderIdentity, out.Spec.LeaseTransitions = lease.Spec.HolderIdentity, lease.Spec.LeaseTransitions
	return out
}

// trimNode keeps identity, taints and readiness, but not the version, so that
// a heartbeat leaves it the same.
func trimNode(object runtime.Object) any {
	node := object.(*corev1.Node)
	out := &corev1.Node{ObjectMeta: trimMeta(node.ObjectMeta)}
	out.ResourceVersion = ""
	out.Spec.Taints = node.Spec.Taints
	out.Spec.Unschedulable = node.Spec.Unschedulable
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return out
}
