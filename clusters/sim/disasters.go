package sim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/sim/apiserver"
)

// lateCreateMax is how long after an ADD began its endpoint may still appear: the
// 30 s of an ADD and, scaled like the quarantines, the time after which an API
// server gives up on a request. The orphan quarantine must exceed it.
const lateCreateMax = 40 * time.Second

// commitLate takes calls from the gate. They are committed when the fault ends,
// although their callers may have given up or died by then, as requests are that
// were on their way.
func (w *world) commitLate(f *fault, calls []*call) {
	w.gate.take(calls)
	w.faults.later(f, func() {
		for _, c := range calls {
			if w.gate.hasLeft(c) {
				w.reach(commitsLate)
			}
			w.note("late " + c.key)
			a := w.answerLate(c)
			w.tellCall(c, a)
			c.answers <- &a // whoever still waits takes it
		}
	})
}

// answerLate answers as usual, unless the API server has given up on the call.
func (w *world) answerLate(c *call) answer {
	if c.verb == "create" && strings.HasPrefix(c.actor.user, clusters.UserNodePrefix) && time.Since(c.actor.born) > lateCreateMax {
		return answer{err: errTimeout{}}
	}
	return w.answer(c)
}

// underWay are the writes of an actor that wait at the gate, in a fixed order.
func (w *world) underWay(a *actor) []*call {
	calls := slices.DeleteFunc(w.gate.waiting(nil), func(c *call) bool { return c.actor != a || !c.isWrite() })
	slices.SortStableFunc(calls, func(x, y *call) int { return strings.Compare(x.key, y.key) })
	return calls
}

// loseNode removes a running node with all that runs there, at once and for
// good, and adds a fresh one.
func (w *world) loseNode(f *fault) bool {
	candidates := slices.DeleteFunc(w.nodesWithPods(""), func(n *node) bool { return n == w.user.failed || n.isCut })
	if len(candidates) == 0 {
		return false
	}
	n := candidates[f.Pick%uint64(len(candidates))]
	w.powerOff(n)
	w.removeNode(n)
	w.addNode(fmt.Sprintf("node-%d", len(w.nodes)))
	return true
}

// giveUpNode declares the first dead node out of service.
func (w *world) giveUpNode() bool {
	for _, n := range w.nodes {
		if !n.hasPower && !n.isReady && !n.isGone && !n.isOutOfService {
			w.declareOutOfService(n)
			return true
		}
	}
	return false
}

// declareOutOfService taints a node, so that the pod collector takes its pods.
func (w *world) declareOutOfService(n *node) {
	n.isOutOfService = true
	w.editNode(n, "", func(o *corev1.Node) {
		o.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}}
	})
}

// endOutOfService takes the taint away, as people do once the node is back.
func (w *world) endOutOfService(n *node) {
	n.isOutOfService = false
	w.editNode(n, "", func(o *corev1.Node) { o.Spec.Taints = nil })
}

// editNode writes a node or its subresource, unless somebody deleted it.
func (w *world) editNode(n *node, subresource string, edit func(*corev1.Node)) {
	path := "/api/v1/nodes/" + n.name
	found := w.server.Serve(apiserver.Request{User: userControllers, Method: http.MethodGet, Path: path, Accept: apiserver.ContentObjects}).Objects
	if len(found) == 0 {
		return
	}
	changed := found[0].(*corev1.Node).DeepCopy()
	edit(changed)
	w.do(userControllers, http.MethodPut, path+subresource, changed)
}

const namespacePath = "/api/v1/namespaces/" + namespaceName

// deleteNamespace begins to delete the namespace with everything in it.
func (w *world) deleteNamespace() bool {
	if w.isDraining || w.bits == nil {
		return false
	}
	w.isDraining = true
	w.do(userAdmin, http.MethodDelete, namespacePath, nil)
	return true
}

// namespaceLifecycle offers the next step of the namespace controller. One that
// changed nothing is not offered again before something else has.
func (w *world) namespaceLifecycle(offer offer) {
	if w.isDraining && w.drainedAsOf != w.server.ResourceVersion() {
		offer("namespace-controller", "drain", "", w.drain)
	}
}

// drain empties the namespace. Once it is gone, its user makes it anew with a
// network that knows of no address.
func (w *world) drain() {
	if w.server.DrainNamespaces(userControllers) == 0 {
		w.drainedAsOf = w.server.ResourceVersion()
	}
	response := w.server.Serve(apiserver.Request{User: userControllers, Method: http.MethodGet, Path: namespacePath})
	if response.Code != http.StatusNotFound {
		return
	}
	w.isDraining = false
	w.makeNamespace()
	if w.network.Kind.IsNamespaced() {
		w.makeNetwork(danm.Group(w.plan.World.Group))
	}
}

func (w *world) makeNamespace() {
	w.do(clusters.UserHarness, http.MethodPost, "/api/v1/namespaces", &corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: namespaceName},
	})
}

func (w *world) makeNetwork(group danm.Group) {
	u, err := w.networkObject(group)
	if err != nil {
		w.fail(err)
		return
	}
	w.do(clusters.UserHarness, http.MethodPost, w.networksPath(), u.Object)
}

// fencingPatience is how long people wait for a dead node before they declare
// it out of service.
const fencingPatience = 33 * time.Second

// lastFences offers to fence nodes that never came back, where the cleaner is
// not to believe anything less.
func (w *world) lastFences(offer offer) {
	for _, n := range w.nodes {
		isDead := !n.hasPower && !n.isReady && !n.isGone && time.Since(n.silent) > fencingPatience
		if w.plan.World.StrictFencing && isDead && !n.isOutOfService {
			offer("user", "fence", n.name, func() { w.fence(n) })
		}
	}
}

func (w *world) fence(n *node) {
	for _, ep := range w.endpoints {
		if pod, ok := w.pods[ep.Spec.Pod]; ep.Spec.Host == n.name && (!ok || pod.UID != w.ownerOf(ep)) {
			w.reach(isFenced)
			break
		}
	}
	w.declareOutOfService(n)
}
