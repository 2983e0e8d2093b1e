package sim

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// sandboxRetry is the kubelet's pause after a failed sandbox, and lateDel how
// long its housekeeping leaves sandboxes of pods that are gone.
const (
	sandboxRetry = time.Second + 1_000_003*time.Nanosecond
	delRetry     = 2*time.Second + 10_007*time.Nanosecond
)

// errKilled is what ends a CNI plugin in the middle.
var errKilled = errors.New("killed")

// node is a worker with its kubelet.
type node struct {
	name     string
	kubelet  string // its name as an actor
	hasPower bool
	isCut    bool      // from the API server
	silent   time.Time // since when the API hears nothing; zero if it does
	isReady  bool      // as the API says
	isGone   bool      // removed for good
	// isOutOfService tells that the node has the taint of that name.
	isOutOfService bool
	plugin         *danmcni.Plugin
}

func (n *node) user() string { return clusters.UserNodePrefix + n.name }

// acts tells whether the kubelet runs and reaches the API.
func (n *node) acts() bool { return n.hasPower && !n.isCut }

// sandboxState is where a sandbox stands.
type sandboxState int

const (
	adding   sandboxState = iota // CNI ADD runs
	attached                     // ADD succeeded
	broken                       // ADD failed, or the node lost power with it: needs a DEL
	deleting                     // CNI DEL runs
)

// sandbox is a pod's sandbox as the container runtime knows it.
type sandbox struct {
	id         string
	node       *node
	namespace  string
	pod        string
	uid        types.UID // by which the kubelet knows the pod
	apiUID     types.UID // by which the API knew it when it was attached
	state      sandboxState
	isReported bool // Running, with this sandbox
	wasLive    bool // its attachment is in the history and has no end there
	hasDel     bool // DEL was begun before
	notBefore  time.Time
	actor      *actor // of the plugin that runs
	cancel     context.CancelFunc
	again      bool // DEL is to happen once more
}

func (w *world) addNode(name string) {
	n := &node{name: name, kubelet: "kubelet/" + name, hasPower: true, isReady: true}
	api := pluginAPI{gate: w.gate, legacy: w.isLegacy}
	n.plugin = danmcni.New(danmcni.Config{
		Client: danm.NewClient(api, danm.Group(w.plan.World.Group)), Pods: api, Variant: w.variant, Host: name,
		NewID: w.newEndpointID, Delay: w.cniPoint,
	})
	w.nodes = append(w.nodes, n)
	w.addStatic(n)
	w.do(userControllers, http.MethodPost, "/api/v1/nodes", &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Status:     nodeStatus(corev1.ConditionTrue),
	})
}

func nodeStatus(ready corev1.ConditionStatus) corev1.NodeStatus {
	return corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}
}

// newEndpointID is called by a plugin that runs alone: its ADD was granted, and
// all others wait.
func (w *world) newEndpointID() string {
	w.ids++
	return fmt.Sprintf("ep-%04d", w.ids)
}

// kubelets offers what the kubelets can do next.
func (w *world) kubelets(offer offer) {
	pods := w.sortedPods()
	w.mirrors(offer)
	for _, n := range w.nodes {
		if !n.acts() || n.isGone {
			continue
		}
		for _, pod := range pods {
			if pod.Spec.NodeName == n.name {
				w.kubelet(n, pod, offer)
			}
		}
		w.housekeeping(n, offer)
	}
}

// kubelet offers the next step for one pod.
func (w *world) kubelet(n *node, pod *corev1.Pod, offer offer) {
	actor, uid := n.kubelet, w.identity(pod)
	current, leftovers := w.sandboxesOf(n, uid)
	switch {
	case pod.DeletionTimestamp != nil && current == nil && leftovers == 0:
		offer(actor, "finish", pod.Name, func() { w.deletePod(n.user(), pod, new(int64)) })
	case pod.DeletionTimestamp != nil || isCompleted(pod):
		// Housekeeping performs the DELs.
	case leftovers > 0:
		if pod.Status.Phase == corev1.PodRunning {
			offer(actor, "pending", pod.Name, func() { w.report(n, pod, corev1.PodPending) })
		}
	case current == nil:
		if !time.Now().Before(w.retryPod[uid]) {
			offer(actor, "sandbox", pod.Name, func() { w.startSandbox(n, pod) })
		}
	case current.state == attached && !current.isReported:
		offer(actor, "running", pod.Name, func() {
			current.isReported = true
			w.report(n, pod, corev1.PodRunning)
		})
	}
}

// sandboxesOf returns the pod's sandbox, if it has a good one, and how many
// others still need a DEL.
func (w *world) sandboxesOf(n *node, uid types.UID) (current *sandbox, leftovers int) {
	for _, sb := range w.sandboxes {
		switch {
		case sb.node != n || sb.uid != uid:
		case sb.state == adding || sb.state == attached:
			current = sb
		default:
			leftovers++
		}
	}
	return current, leftovers
}

// housekeeping offers a DEL for every sandbox that nobody needs.
func (w *world) housekeeping(n *node, offer offer) {
	now := time.Now()
	for _, sb := range w.sandboxes {
		if sb.node != n || sb.state == adding || sb.state == deleting || now.Before(sb.notBefore) {
			continue
		}
		if sb.state == broken || !w.needs(sb) {
			offer(n.kubelet, "del", sb.id, func() { w.startDel(sb) })
		}
	}
}

// needs tells whether the sandbox's pod is there and wants to run.
func (w *world) needs(sb *sandbox) bool {
	if s := w.static(sb.pod); s != nil {
		return s.hash == sb.uid
	}
	pod, ok := w.pods[sb.pod]
	return ok && pod.UID == sb.uid && pod.Namespace == sb.namespace && pod.DeletionTimestamp == nil && !isCompleted(pod)
}

// report tells the API what a pod does.
func (w *world) report(n *node, pod *corev1.Pod, phase corev1.PodPhase) {
	ready := corev1.ConditionFalse
	if phase == corev1.PodRunning {
		ready = corev1.ConditionTrue
	} else {
		w.reach(runsBackwards)
	}
	w.putStatus(n, pod, corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}})
}

// putStatus writes a pod's status over the one that the node knows, so that a
// namesake refuses it.
func (w *world) putStatus(n *node, pod *corev1.Pod, status corev1.PodStatus) {
	changed := *pod
	changed.Status = status
	w.do(n.user(), http.MethodPut, podPath(pod.Namespace, pod.Name)+"/status", &changed)
}

// startSandbox begins CNI ADD for a new sandbox.
func (w *world) startSandbox(n *node, pod *corev1.Pod) {
	w.ids++
	sb := &sandbox{id: fmt.Sprintf("cid-%04d", w.ids), node: n, namespace: pod.Namespace, pod: pod.Name, uid: w.identity(pod)}
	w.sandboxes = append(w.sandboxes, sb)
	w.sandboxOwner[sb.id] = sb.uid
	var made []danmcni.Interface
	w.plug(sb, "add", func(ctx context.Context) (err error) {
		made, err = n.plugin.Add(ctx, danmcni.Request{Namespace: sb.namespace, Pod: sb.pod, ContainerID: sb.id, PodUID: sb.uid})
		return err
	}, func(err error) { w.endAdd(sb, made, err) })
}

// plug runs a CNI plugin as a process of its own. done is called by the main
// goroutine when it has ended.
func (w *world) plug(sb *sandbox, command string, run func(context.Context) error, done func(error)) {
	a := newActor("cni/"+sb.id+"/"+command, sb.node.user())
	ctx, cancel := context.WithCancel(withActor(context.Background(), a))
	sb.actor, sb.cancel = a, cancel
	w.group.Go(func() {
		err := run(ctx)
		cancel()
		w.inbox.put(a.name, func() { done(err) })
		w.gate.notify()
	})
}

func (w *world) endAdd(sb *sandbox, made []danmcni.Interface, err error) {
	switch {
	case sb.actor.isDead.Load(): // the node lost power meanwhile
		sb.state = broken
	case err != nil:
		sb.state = broken
		w.retryPod[sb.uid] = time.Now().Add(sandboxRetry)
		w.reach(addFails)
	default:
		sb.state, sb.wasLive, sb.apiUID = attached, true, w.apiUID(sb)
		w.recordAttachment(history.Attached, sb, made)
	}
}

// startDel begins CNI DEL, unless it is to be lost.
func (w *world) startDel(sb *sandbox) {
	w.detach(sb)
	if f := w.faults.at(delPoint, "del"); f != nil && !sb.hasDel {
		switch f.Do {
		case schedule.DelLost:
			w.forget(sb)
			return
		case schedule.DelLate:
			sb.hasDel, sb.notBefore, sb.state = true, time.Now().Add(f.For), broken
			return
		case schedule.DelTwice:
			sb.again = true
		}
	}
	sb.hasDel, sb.state = true, deleting
	w.plug(sb, "del", func(ctx context.Context) error { return sb.node.plugin.Del(ctx, sb.id) }, func(err error) { w.endDel(sb, err) })
}

// detach ends the attachment in the history: from here on it is not live.
func (w *world) detach(sb *sandbox) {
	if sb.wasLive {
		sb.wasLive = false
		w.recordAttachment(history.Detaching, sb, nil)
	}
}

func (w *world) endDel(sb *sandbox, err error) {
	switch {
	case err != nil || sb.actor.isDead.Load():
		sb.state, sb.notBefore = broken, time.Now().Add(delRetry)
	case sb.again:
		sb.again, sb.state, sb.notBefore = false, broken, time.Now().Add(delRetry)
	default:
		w.forget(sb)
	}
}

func (w *world) forget(sb *sandbox) {
	for i, other := range w.sandboxes {
		if other == sb {
			w.sandboxes = append(w.sandboxes[:i], w.sandboxes[i+1:]...)
			return
		}
	}
}

// powerOff ends everything on the node in the middle of whatever it was doing.
func (w *world) powerOff(n *node) {
	n.hasPower, n.silent = false, time.Now()
	for _, sb := range w.sandboxes {
		if sb.node != n {
			continue
		}
		if sb.state == adding {
			w.reach(addInterrupted)
		}
		if sb.state == adding || sb.state == deleting {
			sb.actor.kill()
			sb.cancel()
			w.reseed()
		}
		if sb.state == attached {
			sb.state = broken
		}
		if sb.wasLive {
			sb.wasLive = false
			if w.interfaces() > 1 {
				w.reach(hasTwo)
			}
			w.recordAttachment(history.Lost, sb, nil)
		}
	}
}

func (w *world) powerOn(n *node) {
	n.hasPower = true
	if !n.isCut {
		n.silent = time.Time{}
	}
}

func (w *world) recordAttachment(event history.AttachmentEvent, sb *sandbox, made []danmcni.Interface) {
	a := &history.Attachment{
		Event: event, ID: sb.id, Node: sb.node.name, Namespace: sb.namespace, Pod: sb.pod, PodUID: string(sb.apiUID), Static: sb.apiUID != sb.uid,
	}
	for _, i := range made {
		face := history.AttachedInterface{
			Name: i.Name, Endpoint: i.Endpoint, EndpointUID: string(i.EndpointUID),
			NetworkKind: string(i.Network.Kind), Network: i.Network.Name,
		}
		for _, addr := range i.Addresses {
			face.Addresses = append(face.Addresses, addr.String())
		}
		a.Interfaces = append(a.Interfaces, face)
	}
	w.record.add(history.Record{Attachment: a})
}
