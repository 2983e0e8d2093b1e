package harness

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// view keeps pods and nodes as the watches saw them last, so that waiting
// costs no request. It is what steps wait on; what is judged is read live.
type view struct {
	mu      sync.Mutex
	pods    map[string]map[string]*corev1.Pod // by namespace and name
	nodes   map[string]*corev1.Node
	changed chan struct{}
}

func newView() *view {
	return &view{
		pods:    map[string]map[string]*corev1.Pod{},
		nodes:   map[string]*corev1.Node{},
		changed: make(chan struct{}),
	}
}

// Pods returns the pods of a namespace in name order.
func (v *view) Pods(namespace string) []*corev1.Pod {
	v.mu.Lock()
	defer v.mu.Unlock()
	pods := make([]*corev1.Pod, 0, len(v.pods[namespace]))
	for _, name := range slices.Sorted(maps.Keys(v.pods[namespace])) {
		pods = append(pods, v.pods[namespace][name])
	}
	return pods
}

// Node returns a node, or nil.
func (v *view) Node(name string) *corev1.Node {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.nodes[name]
}

// Changed returns a channel that is closed at the next change.
func (v *view) Changed() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changed
}

// apply takes one event of a watch, or an object of a list as Added.
func (v *view) apply(event watch.EventType, object runtime.Object) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch o := object.(type) {
	case *corev1.Pod:
		v.applyPod(event, o)
	case *corev1.Node:
		if event == watch.Deleted {
			delete(v.nodes, o.Name)
		} else {
			v.nodes[o.Name] = o
		}
	default:
		return
	}
	close(v.changed)
	v.changed = make(chan struct{})
}

func (v *view) applyPod(event watch.EventType, pod *corev1.Pod) {
	if event == watch.Deleted {
		delete(v.pods[pod.Namespace], pod.Name)
		return
	}
	if v.pods[pod.Namespace] == nil {
		v.pods[pod.Namespace] = map[string]*corev1.Pod{}
	}
	v.pods[pod.Namespace][pod.Name] = pod
}

// retain forgets all objects of a kind, "pods" or "nodes", that a fresh list
// does not hold any more.
func (v *view) retain(resource string, uids map[types.UID]string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch resource {
	case podResource:
		for _, byName := range v.pods {
			maps.DeleteFunc(byName, func(_ string, p *corev1.Pod) bool { return uids[p.UID] == "" })
		}
	case nodeResource:
		maps.DeleteFunc(v.nodes, func(_ string, n *corev1.Node) bool { return uids[n.UID] == "" })
	}
}
