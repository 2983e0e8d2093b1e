package cleaner

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/danm-chaos/danm-chaos/cleaner/audit"
	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// withoutElection is for whoever only looks, or heals what it was shown: both
// are safe beside an active replica (R9).
func (c Config) withoutElection() Config {
	c.LeaderElect = false
	return c
}

// Observe reads the cluster once, by complete live lists, and writes nothing.
// A list that fails is noted in the world; the error is about the config only.
func Observe(ctx context.Context, cfg Config) (audit.World, error) {
	cfg, err := cfg.withoutElection().withDefaults()
	if err != nil {
		return audit.World{}, err
	}
	core, dyn, err := newClients(cfg)
	if err != nil {
		return audit.World{}, err
	}
	return observe(ctx, cfg, core, dyn), nil
}

// Audit observes and examines. What the first look finds is looked at once
// more after confirm, since an ADD or a DEL may have been under way.
func Audit(ctx context.Context, cfg Config, confirm time.Duration) (audit.World, audit.Report, error) {
	cfg, err := cfg.withoutElection().withDefaults()
	if err != nil {
		return audit.World{}, audit.Report{}, err
	}
	core, dyn, err := newClients(cfg)
	if err != nil {
		return audit.World{}, audit.Report{}, err
	}
	w := observe(ctx, cfg, core, dyn)
	first := examine(w, cfg)
	if first.Consistent || !first.Complete || confirm <= 0 {
		return w, first, nil
	}
	select {
	case <-ctx.Done():
		return w, first, fmt.Errorf("waiting for the second look: %w", ctx.Err())
	case <-cfg.Clock.After(confirm):
	}
	w = observe(ctx, cfg, core, dyn)
	second := examine(w, cfg)
	second.Confirm(first)
	return w, second, nil
}

// examine adds to the audit what only the controller's breaker can say.
func examine(w audit.World, cfg Config) audit.Report {
	r := audit.Examine(w, cfg.policy())
	suspects := map[types.UID]bool{}
	for _, f := range r.With(audit.Fixable) {
		if f.Kind == audit.LeakedEndpoint {
			suspects[f.EndpointUID] = true
		}
	}
	b := &breaker{bothGroups: w.Migration}
	if r.Complete {
		r.Freeze(b.why(len(w.Pods), len(w.Endpoints), suspects))
	}
	return r
}

// observe lists networks, endpoints and pods in this order, that of a release:
// a pod that is newer than the endpoints can only be missing there, and an
// endpoint whose pod came after it does not exist.
func observe(ctx context.Context, cfg Config, core coreAPI, dyn dynamic.Interface) audit.World {
	w := audit.World{}
	found, err := discover(ctx, cfg.Group, "", core, dyn)
	if err != nil {
		w.Unread = []audit.Unread{{Resource: audit.Discovery, Cause: err.Error()}}
		w.Time = cfg.Clock.Now()
		return w
	}
	w.Group, w.Migration = found.group, found.both
	o := observer{World: &w, ctx: ctx, found: found}
	client := danm.NewClient(dyn, found.group)
	for _, kind := range danm.NetworkKinds() {
		list(o, kind.Resource(), client.Networks(kind, "").List, func(u *unstructured.Unstructured) { o.addNetwork(kind, u) })
	}
	list(o, danm.EndpointResource, client.Endpoints("").List, o.addEndpoint)
	list(o, danm.ReservedIPResource, dyn.Resource(found.group.Resource(danm.ReservedIPResource)).List, func(u *unstructured.Unstructured) {
		w.ReservedIPs = append(w.ReservedIPs, u)
	})
	list(o, audit.PodResource, core.CoreV1().Pods(metav1.NamespaceAll).List, o.addPod)
	list(o, audit.NodeResource, core.CoreV1().Nodes().List, o.addNode)
	w.Time = cfg.Clock.Now()
	return w
}

// observer fills a world.
type observer struct {
	*audit.World
	ctx   context.Context
	found discovered
}

// list reads one resource completely. A resource of DANM's that the cluster
// does not have is empty; a list that fails halfway is unread.
func list[L metav1.ListInterface, T any](o observer, resource string, read func(context.Context, metav1.ListOptions) (L, error), add func(*T)) {
	isCore := resource == audit.PodResource || resource == audit.NodeResource
	if !isCore && !o.found.resources[resource] {
		return
	}
	err := eachPage(o.ctx, read, func(item *T) error { add(item); return nil })
	if err != nil {
		o.Unread = append(o.Unread, audit.Unread{Resource: resource, Cause: err.Error()})
	}
}

func (o observer) addNetwork(kind danm.NetworkKind, u *unstructured.Unstructured) {
	n, err := danm.ToNetwork(u)
	if err != nil {
		o.addMalformed(kind.Resource(), u, err)
		return
	}
	n.Kind = string(kind) // items of a list may come without it
	o.Networks = append(o.Networks, n)
}

func (o observer) addEndpoint(u *unstructured.Unstructured) {
	ep, err := danm.ToEndpoint(u)
	if err != nil {
		o.addMalformed(danm.EndpointResource, u, err)
		return
	}
	o.Endpoints = append(o.Endpoints, ep)
}

func (o observer) addMalformed(resource string, u *unstructured.Unstructured, err error) {
	o.Malformed = append(o.Malformed, audit.Malformed{
		Resource: resource, Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), Cause: err.Error(),
	})
}

func (o observer) addPod(pod *corev1.Pod) {
	o.Pods = append(o.Pods, audit.Pod{
		Namespace: pod.Namespace, Name: pod.Name, ResourceVersion: pod.ResourceVersion, NodeName: pod.Spec.NodeName,
		Phase: string(pod.Status.Phase), Terminating: pod.DeletionTimestamp != nil,
		Evidence: podEvidence(pod, statedEnd(pod)),
	})
}

func (o observer) addNode(node *corev1.Node) {
	o.Nodes = append(o.Nodes, audit.Node{
		Name: node.Name, Host: node.Labels[corev1.LabelHostname], ResourceVersion: node.ResourceVersion, Evidence: nodeEvidence(node),
	})
}

// statedEnd returns when a pod says that it completed, zero if it does not. It
// is good enough to report; a release waits from when the controller saw it.
func statedEnd(pod *corev1.Pod) time.Time {
	var end time.Time
	for _, c := range pod.Status.Conditions {
		end = latest(end, c.LastTransitionTime.Time)
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Terminated != nil {
			end = latest(end, c.State.Terminated.FinishedAt.Time)
		}
	}
	return end
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
