package sim

import (
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// hashAnnotation is by what a kubelet knows a static pod again.
const hashAnnotation = "kubernetes.io/config.hash"

// staticPod is a pod that a kubelet runs from a file. What the API has of it is
// a mirror, whose UID says nothing about what runs.
type staticPod struct {
	name string
	hash types.UID // its identity for the kubelet
	node *node
}

// addStatic gives a node a static pod, if it is one of those that have one.
func (w *world) addStatic(n *node) {
	if len(w.nodes) > w.plan.World.StaticPods {
		return
	}
	w.statics = append(w.statics, &staticPod{name: "static-" + n.name, hash: types.UID("hash-of-" + n.name), node: n})
}

// static returns the static pod of that name, or nil.
func (w *world) static(name string) *staticPod {
	for _, s := range w.statics {
		if s.name == name && !s.node.isGone {
			return s
		}
	}
	return nil
}

// isMirror tells whether a pod is the mirror of a static one. It is asked at every
// step, and few worlds have any.
func (w *world) isMirror(pod *corev1.Pod) bool {
	return w.plan.World.StaticPods > 0 && pod.Annotations[corev1.MirrorPodAnnotationKey] != ""
}

// identity is the UID by which a kubelet knows a pod.
func (w *world) identity(pod *corev1.Pod) types.UID {
	if w.isMirror(pod) {
		return types.UID(pod.Annotations[hashAnnotation])
	}
	return pod.UID
}

// podsWanted is how many pods there are to be: the StatefulSet's, and the mirrors
// of static ones.
func (w *world) podsWanted() int { return w.replicasWanted + w.countStatics() }

func (w *world) countStatics() int {
	n := 0
	for _, s := range w.statics {
		if !s.node.isGone {
			n++
		}
	}
	return n
}

// mirrors offers to show the API what static pods there are.
func (w *world) mirrors(offer offer) {
	for _, s := range w.statics {
		_, exists := w.pods[s.name]
		if !exists && s.node.acts() && !s.node.isGone && !time.Now().Before(w.retryPod[s.hash]) {
			offer(s.node.kubelet, "mirror", s.name, func() { w.mirror(s) })
		}
	}
}

func (w *world) mirror(s *staticPod) {
	grace := int64(10)
	w.retryPod[s.hash] = time.Now().Add(sandboxRetry) // should it be refused
	w.do(s.node.user(), http.MethodPost, "/api/v1/namespaces/"+namespaceName+"/pods", &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceName, Name: s.name, Annotations: map[string]string{
			danm.Group(w.plan.World.Group).InterfacesAnnotation(): w.annotation(),
			corev1.MirrorPodAnnotationKey:                         string(s.hash), hashAnnotation: string(s.hash),
		}},
		Spec: corev1.PodSpec{
			NodeName: s.node.name, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "pause", Image: "pause"}},
		},
	})
}

// renewMirror has somebody delete a mirror. Its kubelet takes it away for good and
// makes it anew, in one go, while the containers run on; then it says so.
func (w *world) renewMirror() bool {
	for _, s := range w.statics {
		pod, exists := w.pods[s.name]
		if !exists || !s.node.acts() || s.node.isGone || !isRunning(pod) || w.isDraining {
			continue
		}
		w.deletePod(userAdmin, pod, nil)
		w.deletePod(s.node.user(), pod, new(int64))
		w.mirror(s)
		w.putStatus(s.node, w.pods[s.name], pod.Status)
		w.reach(isRenewed)
		return true
	}
	return false
}

// apiUID is by what the API knows the pod of a sandbox.
func (w *world) apiUID(sb *sandbox) types.UID {
	if mirror, ok := w.pods[sb.pod]; ok && w.static(sb.pod) != nil {
		return mirror.UID
	}
	return sb.uid
}

// lastReturns offers to switch on nodes with static pods. Nobody else would, and
// no other node can run these.
func (w *world) lastReturns(offer offer) {
	for _, s := range w.statics {
		if n := s.node; !n.hasPower && !n.isGone {
			offer("user", "switch on", n.name, func() { w.powerOn(n) })
		}
	}
}
