package sim

import (
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// Rhythm of Kubernetes' controllers.
const (
	nodeGrace     = 4*time.Second + 30_011*time.Nanosecond // until a silent node counts as not ready
	namespaceName = "lane-0"
	setName       = "ss-cinfo"
)

// controllers offers what Kubernetes' own controllers can do next.
func (w *world) controllers(offer offer) {
	for _, n := range w.nodes {
		w.nodeLifecycle(n, offer)
	}
	pods := w.sortedPods()
	for _, pod := range pods {
		w.podLifecycle(pod, offer)
	}
	w.namespaceLifecycle(offer)
	if !w.isDraining {
		w.statefulSet(offer)
	}
}

func (w *world) nodeLifecycle(n *node, offer offer) {
	const actor = "node-lifecycle"
	switch {
	case n.isGone:
	case n.isReady && !n.silent.IsZero() && !time.Now().Before(n.silent.Add(nodeGrace)):
		offer(actor, "not-ready", n.name, func() { w.setReady(n, corev1.ConditionUnknown) })
	case !n.isReady && n.silent.IsZero():
		offer(actor, "ready", n.name, func() { w.setReady(n, corev1.ConditionTrue) })
	}
}

func (w *world) setReady(n *node, status corev1.ConditionStatus) {
	n.isReady = status == corev1.ConditionTrue
	w.editNode(n, "/status", func(o *corev1.Node) { o.Status = nodeStatus(status) })
	if n.isReady && n.isOutOfService {
		w.endOutOfService(n)
	}
}

func (w *world) podLifecycle(pod *corev1.Pod, offer offer) {
	n := w.nodeOf(pod)
	switch {
	case n == nil || n.isGone:
		offer("pod-gc", "gc", pod.Name, func() { w.deletePod(userControllers, pod, new(int64)) })
	case pod.DeletionTimestamp != nil && n.isOutOfService:
		offer("pod-gc", "gc", pod.Name, func() { w.deletePod(userControllers, pod, new(int64)) })
	case pod.DeletionTimestamp != nil, w.isMirror(pod):
	case isCompleted(pod):
		// The StatefulSet replaces what failed; the object goes at once, as
		// nothing of it runs.
		offer("statefulset", "replace", pod.Name, func() { w.deletePod(userControllers, pod, new(int64)) })
	case !n.isReady:
		offer("node-lifecycle", "evict", pod.Name, func() { w.deletePod(userControllers, pod, nil) })
	}
}

func (w *world) nodeOf(pod *corev1.Pod) *node {
	for _, n := range w.nodes {
		if n.name == pod.Spec.NodeName {
			return n
		}
	}
	return nil
}

// statefulSet offers to make the first pod that is missing and to delete those
// that are too many.
func (w *world) statefulSet(offer offer) {
	for i, name := range w.podNames {
		pod, exists := w.pods[name]
		switch {
		case i >= w.replicasWanted && exists && pod.DeletionTimestamp == nil:
			offer("statefulset", "delete", name, func() { w.deletePod(userControllers, pod, nil) })
		case i < w.replicasWanted && !exists:
			if target := w.leastLoaded(); target != nil {
				offer("statefulset", "create", name, func() { w.createPod(name, target) })
			}
		}
	}
}

// podNames are those of the StatefulSet's pods, by ordinal.
func podNames(pods int) []string {
	names := make([]string, pods)
	for i := range names {
		names[i] = setName + "-" + strconv.Itoa(i)
	}
	return names
}

// leastLoaded is the scheduler: the ready node with the fewest pods.
func (w *world) leastLoaded() *node {
	var best *node
	least := 0
	for _, n := range w.nodes {
		if !n.isReady || n.isGone {
			continue
		}
		if load := w.load(n); best == nil || load < least {
			best, least = n, load
		}
	}
	return best
}

// load is how many pods are bound to a node, without those that it cannot lose.
func (w *world) load(n *node) int {
	load := 0
	for _, pod := range w.sortedPods() {
		if pod.Spec.NodeName == n.name && !w.isMirror(pod) {
			load++
		}
	}
	return load
}

func (w *world) createPod(name string, n *node) {
	grace := int64(10)
	group := danm.Group(w.plan.World.Group)
	w.do(userControllers, http.MethodPost, "/api/v1/namespaces/"+namespaceName+"/pods", &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespaceName, Name: name, Annotations: map[string]string{group.InterfacesAnnotation(): w.annotation()},
		},
		Spec: corev1.PodSpec{
			NodeName: n.name, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "pause", Image: "pause"}},
		},
	})
}
