package hollow

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
)

// worker looks after one pod, told apart by UID as the kubelet does: it brings
// what the node has closer to what the API says, one step at a time.
type worker struct {
	power *power
	uid   types.UID
	wake  chan struct{}

	// Guarded by node.mu.
	pod    *corev1.Pod // newest; nil before the first and when gone
	isGone bool

	// The worker's own.
	current    *sandbox // ready; older ones are leftovers
	addresses  []netip.Addr
	isReported bool // Running, with current
}

// progress says what a step leaves to do.
type progress int

const (
	goOn     progress = iota // there may be more to do at once
	idle                     // nothing until the pod changes
	finished                 // nothing for ever
)

// notify wakes the worker; several wakes are one.
func (w *worker) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *worker) run() {
	defer w.leave()
	delay := retryDelayMin
	for {
		next, err := w.step()
		if w.power.ctx.Err() != nil || next == finished {
			return
		}
		switch {
		case err != nil:
			w.power.node.cfg.Logger.V(1).Info("pod has to wait", "node", w.power.node.cfg.Name, "podUID", w.uid, "err", err.Error())
			w.wait(w.power.node.dice.between(delay/2, delay))
			delay = min(2*delay, retryDelayMax)
		case next == idle:
			w.wait(0)
			delay = retryDelayMin
		default:
			delay = retryDelayMin
		}
	}
}

// leave makes room for a later worker of the same pod.
func (w *worker) leave() {
	w.power.node.mu.Lock()
	defer w.power.node.mu.Unlock()
	delete(w.power.workers, w.uid)
}

// wait returns when the pod changed, the power is gone or, if d is not 0, the
// time is over.
func (w *worker) wait(d time.Duration) {
	var timeout <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-w.power.ctx.Done():
	case <-w.wake:
	case <-timeout:
	}
}

// observed returns the newest state of the pod and the sandboxes that are not
// the current one.
func (w *worker) observed() (pod *corev1.Pod, isGone bool, leftovers []*sandbox) {
	n := w.power.node
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, sb := range n.sandboxesOf(w.uid) {
		if sb != w.current {
			leftovers = append(leftovers, sb)
		}
	}
	return w.pod, w.isGone, leftovers
}

func (w *worker) step() (progress, error) {
	ctx := w.power.ctx
	pod, isGone, leftovers := w.observed()
	switch {
	case isGone:
		return finished, w.finish(ctx, leftovers)
	case pod == nil:
		return idle, nil
	case pod.DeletionTimestamp != nil:
		if err := w.teardown(ctx, leftovers); err != nil {
			return goOn, err
		}
		return finished, w.deletePod(ctx, pod)
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return idle, w.teardown(ctx, leftovers)
	case len(leftovers) > 0:
		return goOn, w.replaceSandboxes(ctx, pod, leftovers)
	case w.current == nil:
		return goOn, w.startSandbox(ctx, pod)
	case !w.isReported:
		return goOn, w.reportRunning(ctx, pod)
	default:
		return idle, nil
	}
}

// finish ends a pod that the API has no more. A kubelet is in no hurry: the
// containers of a force-deleted pod still get time to end, and sandboxes of an
// earlier boot wait for its housekeeping. By the time of CNI DEL their
// addresses may have new owners.
func (w *worker) finish(ctx context.Context, leftovers []*sandbox) error {
	var delay time.Duration
	switch {
	case w.current != nil:
		delay = w.power.node.dice.killDelay()
	case len(leftovers) > 0:
		delay = w.power.node.dice.between(lateDelMin, lateDelMax)
	}
	if err := sleep(ctx, delay); err != nil {
		return err
	}
	return w.teardown(ctx, leftovers)
}

// teardown performs DEL for the leftovers and then for the current sandbox.
func (w *worker) teardown(ctx context.Context, leftovers []*sandbox) error {
	sandboxes := leftovers
	if w.current != nil {
		sandboxes = append(sandboxes, w.current)
	}
	for _, sb := range sandboxes {
		if err := w.detach(ctx, sb); err != nil {
			return err
		}
	}
	w.current, w.isReported = nil, false
	return nil
}

func (w *worker) detach(ctx context.Context, sb *sandbox) error {
	if err := w.power.markDetaching(sb); err != nil {
		return err
	}
	if sb.usesDanm {
		if err := w.power.node.plugin.Del(ctx, sb.id); err != nil {
			return fmt.Errorf("performing CNI DEL of sandbox %s: %w", sb.id, err)
		}
	}
	w.power.forget(sb)
	return nil
}

// replaceSandboxes is the first thing that happens to a pod after a reboot:
// the API hears that it does not run, then its old sandbox goes.
func (w *worker) replaceSandboxes(ctx context.Context, pod *corev1.Pod, leftovers []*sandbox) error {
	if pod.Status.Phase == corev1.PodRunning {
		if err := w.reportPending(ctx, pod); err != nil {
			return err
		}
	}
	for _, sb := range leftovers {
		if err := w.detach(ctx, sb); err != nil {
			return err
		}
	}
	return nil
}

// startSandbox makes one attempt. After a failed ADD the sandbox gets a DEL at
// once, and the next attempt has a new container ID.
func (w *worker) startSandbox(ctx context.Context, pod *corev1.Pod) error {
	n := w.power.node
	// A malformed annotation is for the plugin to refuse, at every attempt.
	requests, err := danm.Requests(n.cfg.Group, pod)
	usesDanm := len(requests) > 0 || err != nil
	sb, err := w.power.newSandbox(pod, usesDanm)
	if err != nil {
		return err
	}
	if err := sleep(ctx, n.dice.between(sandboxMin, sandboxMax)); err != nil {
		return err
	}
	w.addresses = nil
	if usesDanm {
		if err := w.attach(ctx, sb); err != nil {
			return err
		}
	}
	w.current = sb
	return sleep(ctx, n.dice.between(containerMin, containerMax))
}

func (w *worker) attach(ctx context.Context, sb *sandbox) error {
	n := w.power.node
	made, err := n.plugin.Add(ctx, danmcni.Request{Namespace: sb.namespace, Pod: sb.pod, ContainerID: sb.id, PodUID: sb.uid})
	if err != nil {
		err = fmt.Errorf("performing CNI ADD of sandbox %s: %w", sb.id, err)
		if ctx.Err() == nil {
			// A failed DEL is tried again by the next step.
			_ = w.detach(ctx, sb)
		}
		return err
	}
	for _, i := range made {
		w.addresses = append(w.addresses, i.Addresses...)
	}
	return w.power.markAttached(sb, made)
}

// deletePod tells the API that nothing of the pod is left. A pod that is gone
// or has been replaced is none of ours.
func (w *worker) deletePod(ctx context.Context, pod *corev1.Pod) error {
	now := int64(0)
	err := w.power.node.core.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (w *worker) reportRunning(ctx context.Context, pod *corev1.Pod) error {
	addresses := w.addresses
	if len(addresses) == 0 {
		addresses = []netip.Addr{w.power.node.dice.podAddress()}
	}
	now := metav1.Now()
	status := podStatus(pod, corev1.ConditionTrue, now)
	status.Phase = corev1.PodRunning
	status.PodIPs = podIPs(addresses)
	status.PodIP = status.PodIPs[0].IP
	for i, c := range pod.Spec.Containers {
		state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
		status.ContainerStatuses = append(status.ContainerStatuses, containerStatus(c, state, fmt.Sprintf("containerd://%s-%d", w.current.id, i)))
	}
	if err := w.report(ctx, pod, status); err != nil {
		return err
	}
	w.isReported = true
	return nil
}

func (w *worker) reportPending(ctx context.Context, pod *corev1.Pod) error {
	status := podStatus(pod, corev1.ConditionFalse, metav1.Now())
	status.Phase = corev1.PodPending
	for _, c := range pod.Spec.Containers {
		state := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
		status.ContainerStatuses = append(status.ContainerStatuses, containerStatus(c, state, ""))
	}
	return w.report(ctx, pod, status)
}

// report patches the status with the UID, so that a namesake refuses it. Then,
// and when the pod is gone, there is nobody to report on any more. It is a merge
// patch, because a strategic one would add the new addresses and container
// states to the old ones.
func (w *worker) report(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("encoding status: %w", err)
	}
	_, err = w.power.node.core.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, data, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("reporting pod %s/%s %s: %w", pod.Namespace, pod.Name, status.Phase, err)
	}
	return nil
}

// podStatus has what is common to all reports. A merge patch replaces the list
// of conditions, so those that are not a node's are taken over.
func podStatus(pod *corev1.Pod, ready corev1.ConditionStatus, now metav1.Time) corev1.PodStatus {
	started := pod.Status.StartTime
	if started == nil {
		started = &now
	}
	status := corev1.PodStatus{HostIP: hostAddress, HostIPs: []corev1.HostIP{{IP: hostAddress}}, StartTime: started}
	own := map[corev1.PodConditionType]corev1.ConditionStatus{
		corev1.PodReadyToStartContainers: ready,
		corev1.PodInitialized:            corev1.ConditionTrue,
		corev1.PodReady:                  ready,
		corev1.ContainersReady:           ready,
	}
	for _, kind := range slices.Sorted(maps.Keys(own)) {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: own[kind], LastTransitionTime: now})
	}
	for _, c := range pod.Status.Conditions {
		if _, isOwn := own[c.Type]; !isOwn {
			status.Conditions = append(status.Conditions, c)
		}
	}
	return status
}

func containerStatus(c corev1.Container, state corev1.ContainerState, id string) corev1.ContainerStatus {
	isRunning := state.Running != nil
	return corev1.ContainerStatus{
		Name: c.Name, Image: c.Image, ImageID: c.Image, ContainerID: id,
		State: state, Ready: isRunning, Started: &isRunning,
	}
}

// podIPs returns the first address of each family, as the API allows no more.
func podIPs(addresses []netip.Addr) []corev1.PodIP {
	var ips []corev1.PodIP
	seen := map[danm.Family]bool{}
	for _, a := range addresses {
		if f := danm.FamilyOf(a); !seen[f] {
			seen[f] = true
			ips = append(ips, corev1.PodIP{IP: a.String()})
		}
	}
	return ips
}
