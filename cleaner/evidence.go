package cleaner

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
)

// Annotations that the kubelet puts on the mirror pod of a static pod.
const (
	mirrorAnnotation = corev1.MirrorPodAnnotationKey
	hashAnnotation   = "kubernetes.io/config.hash"
)

// requestTimeout bounds every single read and write; listTimeout one page of a
// list. A call that takes longer counts as failed, which is "unknown".
const (
	requestTimeout = 15 * time.Second
	listTimeout    = 60 * time.Second
	listPage       = 500
)

// clients are the two ways to the API.
type clients struct {
	core coreAPI
	danm *danm.Client
}

// isGone tells whether the API server itself said that the object is not
// there. A bare 404 from something in between, say a load balancer without
// backends, says nothing about the object.
func isGone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

func isCompleted(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// isVouching tells whether the pod proves that its interfaces are in use: it
// exists, is not completed and nobody has begun to end it.
func isVouching(pod *corev1.Pod) bool {
	return !isCompleted(pod) && pod.DeletionTimestamp == nil
}

func mirrorHash(pod *corev1.Pod) string {
	if _, ok := pod.Annotations[mirrorAnnotation]; !ok {
		return ""
	}
	return pod.Annotations[hashAnnotation]
}

// podEvidence describes a pod that was found. seenCompleted stands in where
// the pod does not say when it completed.
func podEvidence(pod *corev1.Pod, seenCompleted time.Time) ownership.Pod {
	e := ownership.Pod{
		Lookup: ownership.Found, UID: pod.UID, Created: pod.CreationTimestamp.Time,
		Completed: isCompleted(pod), MirrorHash: mirrorHash(pod),
	}
	if e.Completed {
		e.Finished = seenCompleted
	}
	return e
}

func nodeEvidence(node *corev1.Node) ownership.Node {
	e := ownership.Node{Lookup: ownership.Found}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			e.Ready = c.Status == corev1.ConditionTrue
		}
	}
	for _, t := range node.Spec.Taints {
		if t.Key == corev1.TaintNodeOutOfService {
			e.OutOfService = true
		}
	}
	return e
}

// cachedEvidence gathers what the caches say. They are synced, so absence is
// evidence, but only good enough to become a suspect.
func (c *controller) cachedEvidence(ep *danm.Endpoint) ownership.Evidence {
	e := c.endpointEvidence(ep)
	e.Pod.Lookup = ownership.NotFound
	var pod *corev1.Pod
	if found, ok := c.caches.pod(ep.Namespace, ep.Spec.Pod); ok {
		pod = found
		e.Pod = podEvidence(pod, c.state.completedSince(ep.UID, isCompleted(pod), c.clock.Now()))
		e.Awaited = c.isAwaited(ep, pod)
	}
	if name := c.nodeNameOf(ep, pod); name != "" {
		e.Node.Lookup = ownership.NotFound
		if node, ok := c.caches.node(name); ok {
			e.Node = nodeEvidence(node)
		}
	}
	return e
}

// liveEvidence gathers the same by quorum reads. A read that fails leaves its
// part Unknown; the error is for the log and the retry.
func (c *controller) liveEvidence(ctx context.Context, ep *danm.Endpoint) (ownership.Evidence, error) {
	e := c.endpointEvidence(ep)
	listed, ok, err := c.ownerFromRoster(ctx, ep)
	if err != nil {
		return e, err
	}
	if ok {
		e.Pod = listed
		err = c.addLiveNode(ctx, ep, nil, &e)
		return e, err
	}
	pod, err := c.livePod(ctx, ep)
	e.Awaited = pod != nil && c.isAwaited(ep, pod)
	switch {
	case err != nil:
		return e, err
	case pod == nil:
		e.Pod.Lookup = ownership.NotFound
	default:
		e.Pod = podEvidence(pod, c.state.completedSince(ep.UID, isCompleted(pod), c.clock.Now()))
	}
	err = c.addLiveNode(ctx, ep, pod, &e)
	return e, err
}

// addLiveNode reads the node that ran the owner, where it matters.
func (c *controller) addLiveNode(ctx context.Context, ep *danm.Endpoint, pod *corev1.Pod, e *ownership.Evidence) error {
	name := c.nodeNameOf(ep, pod)
	if name == "" || !e.Pod.Completed && !e.Awaited && c.cfg.Fencing != ownership.Strict {
		return nil // unknown, or of no consequence
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	node, err := c.core.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		e.Node = nodeEvidence(node)
	case isGone(err):
		e.Node.Lookup = ownership.NotFound
	default:
		return fmt.Errorf("reading node %s: %w", name, err)
	}
	return nil
}

func (c *controller) endpointEvidence(ep *danm.Endpoint) ownership.Evidence {
	owner := c.state.owner(ep.UID)
	return ownership.Evidence{
		Endpoint: ownership.Endpoint{
			OwnerUID: ep.Spec.PodUID, Created: ep.CreationTimestamp.Time, MirrorHash: owner.mirrorHash,
		},
		SuspectSince: c.state.suspectSince(ep.UID),
	}
}

// livePod reads the pod that has the owner's name, nil if there is none.
func (c *controller) livePod(ctx context.Context, ep *danm.Endpoint) (*corev1.Pod, error) {
	if ep.Spec.Pod == "" {
		return nil, errors.New("the endpoint names no pod")
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	pod, err := c.core.CoreV1().Pods(ep.Namespace).Get(ctx, ep.Spec.Pod, metav1.GetOptions{})
	if isGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading pod %s/%s: %w", ep.Namespace, ep.Spec.Pod, err)
	}
	return pod, nil
}

// nodeNameOf returns the node that ran the owner: as the owner itself said, as
// it said when it vouched, or the node with the endpoint's host name. DANM
// writes the host name, which on some clouds is not the node's name, so a host
// that never matched a node is no evidence of a deleted node: the answer is empty.
func (c *controller) nodeNameOf(ep *danm.Endpoint, pod *corev1.Pod) string {
	if pod != nil && pod.UID == ep.Spec.PodUID && pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	if owner := c.state.owner(ep.UID); owner.node != "" {
		return owner.node
	}
	for _, object := range c.caches.nodes.store.List() {
		node, ok := object.(*corev1.Node)
		if ok && (node.Name == ep.Spec.Host || node.Labels[corev1.LabelHostname] == ep.Spec.Host) {
			c.state.with(ep.UID, func(st *endpointState) { st.hostNode = node.Name })
			return node.Name
		}
	}
	return c.state.get(ep.UID).hostNode
}
