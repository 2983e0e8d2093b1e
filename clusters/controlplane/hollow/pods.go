package hollow

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// watchPods follows the pods that are bound to the node.
func (p *power) watchPods() {
	pods := cache.NewListWatchFromClient(p.node.core.CoreV1().RESTClient(), "pods", corev1.NamespaceAll,
		fields.OneTermEqualSelector("spec.nodeName", p.node.cfg.Name))
	cache.NewReflectorWithOptions(pods, &corev1.Pod{}, podStore{p}, cache.ReflectorOptions{
		Name:    p.node.cfg.Name,
		Backoff: &wait.Backoff{Duration: watchDelayMin, Cap: watchDelayMax, Factor: 2, Steps: 10, Jitter: 0.2},
	}).RunWithContext(p.ctx)
}

// podStore hands what the reflector sees to the pods' workers.
type podStore struct{ power *power }

func (s podStore) Add(o any) error    { return s.Update(o) }
func (s podStore) Resync() error      { return nil }
func (s podStore) Update(o any) error { return s.each([]any{o}, s.power.observe) }
func (s podStore) Delete(o any) error {
	return s.each([]any{o}, func(pod *corev1.Pod) { s.power.observeGone(pod.UID) })
}

// Replace is called with all pods of the node: at first, and after a gap of
// the watch. What is not among them is gone, sandboxes of an earlier boot
// included.
func (s podStore) Replace(objects []any, _ string) error {
	present := map[types.UID]bool{}
	err := s.each(objects, func(pod *corev1.Pod) {
		present[pod.UID] = true
		s.power.observe(pod)
	})
	if err != nil {
		return err
	}
	for _, uid := range s.power.known() {
		if !present[uid] {
			s.power.observeGone(uid)
		}
	}
	return nil
}

func (podStore) each(objects []any, f func(*corev1.Pod)) error {
	for _, o := range objects {
		pod, ok := o.(*corev1.Pod)
		if !ok {
			return fmt.Errorf("pod watch delivered %T", o)
		}
		f(pod)
	}
	return nil
}

// known returns the UIDs of all pods that have a worker or a sandbox.
func (p *power) known() []types.UID {
	p.node.mu.Lock()
	defer p.node.mu.Unlock()
	uids := slices.Collect(maps.Keys(p.workers))
	for _, sb := range p.node.sandboxes {
		uids = append(uids, sb.uid)
	}
	slices.Sort(uids)
	return slices.Compact(uids)
}

func (p *power) observe(pod *corev1.Pod) {
	p.node.mu.Lock()
	defer p.node.mu.Unlock()
	if w := p.workerOf(pod.UID); w != nil {
		w.pod = pod
		w.notify()
	}
}

// observeGone tells the pod's worker that the API has it no more. A pod that
// left nothing behind needs none.
func (p *power) observeGone(uid types.UID) {
	p.node.mu.Lock()
	defer p.node.mu.Unlock()
	if p.workers[uid] == nil && len(p.node.sandboxesOf(uid)) == 0 {
		return
	}
	if w := p.workerOf(uid); w != nil {
		w.pod, w.isGone = nil, true
		w.notify()
	}
}

// workerOf returns the pod's worker, started if need be, or nil if the power
// is off. The caller holds node.mu.
func (p *power) workerOf(uid types.UID) *worker {
	if p.isOff {
		return nil
	}
	w := p.workers[uid]
	if w == nil {
		w = &worker{power: p, uid: uid, wake: make(chan struct{}, 1)}
		p.workers[uid] = w
		p.group.Go(w.run)
	}
	return w
}

// sandboxesOf returns the pod's sandboxes, oldest first. The caller holds mu.
func (n *Node) sandboxesOf(uid types.UID) []*sandbox {
	var out []*sandbox
	for _, sb := range n.sandboxes {
		if sb.uid == uid {
			out = append(out, sb)
		}
	}
	slices.SortFunc(out, func(a, b *sandbox) int {
		if a.sequence != b.sequence {
			return a.sequence - b.sequence
		}
		return strings.Compare(a.id, b.id)
	})
	return out
}

// newSandbox notes a sandbox before CNI ADD begins, so that a DEL follows
// whatever becomes of it.
func (p *power) newSandbox(pod *corev1.Pod, usesDanm bool) (*sandbox, error) {
	n := p.node
	id := n.dice.containerID()
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.isOff {
		return nil, p.ctx.Err()
	}
	n.sequence++
	sb := &sandbox{id: id, sequence: n.sequence, namespace: pod.Namespace, pod: pod.Name, uid: pod.UID, usesDanm: usesDanm}
	n.sandboxes[id] = sb
	return sb, nil
}

// markAttached records that ADD succeeded, unless the node died meanwhile:
// then nobody ever saw it succeed.
func (p *power) markAttached(sb *sandbox, made []danmcni.Interface) error {
	p.node.mu.Lock()
	defer p.node.mu.Unlock()
	if p.isOff {
		return p.ctx.Err()
	}
	sb.attached, sb.live = true, true
	p.node.record(history.Attached, sb, made)
	return nil
}

// markDetaching records that DEL is about to begin, once for a sandbox that was
// attached, even if it was lost in between.
func (p *power) markDetaching(sb *sandbox) error {
	p.node.mu.Lock()
	defer p.node.mu.Unlock()
	if p.isOff {
		return p.ctx.Err()
	}
	if sb.attached {
		sb.attached, sb.live = false, false
		p.node.record(history.Detaching, sb, nil)
	}
	return nil
}

// forget removes a sandbox whose DEL succeeded, unless the node died before it
// could take note.
func (p *power) forget(sb *sandbox) {
	p.node.mu.Lock()
	defer p.node.mu.Unlock()
	if p.isOff {
		return
	}
	delete(p.node.sandboxes, sb.id)
	if p.leftovers[sb.id] {
		delete(p.leftovers, sb.id)
		if len(p.leftovers) == 0 {
			close(p.isClean)
		}
	}
}
