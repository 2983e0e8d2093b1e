package canary

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// podListPeriod is how old the canary's view of pods may get. A watch would
// mostly be quick enough to hide the defect: the pod is created a moment before
// its endpoint, and both events arrive in that order. A list every few seconds
// stands for the watch that lags, stalls or starts over, which happens to every
// controller in time: pods younger than the list are not in it.
const podListPeriod = 4 * time.Second

// noQuarantine compares UIDs and writes with care: endpoint first, under
// preconditions, bit second. Its one defect is that it takes "not in my pod
// list" for "gone", at once and without a live read.
type noQuarantine struct {
	clients
	endpoints cache.SharedIndexInformer
	arrived   chan *danm.Endpoint
}

func runNoQuarantine(ctx context.Context, c clients) error {
	n := &noQuarantine{clients: c, arrived: make(chan *danm.Endpoint)}
	n.endpoints = cache.NewSharedIndexInformer(c.endpointListWatch(), &unstructured.Unstructured{}, 0, cache.Indexers{})
	group, ctx := errgroup.WithContext(ctx)
	added := func(object any) { n.deliver(ctx, object) }
	if _, err := n.endpoints.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: added}); err != nil {
		return err
	}
	group.Go(func() error { n.endpoints.RunWithContext(ctx); return nil })
	group.Go(func() error { return n.work(ctx) })
	return group.Wait()
}

func (c clients) endpointListWatch() *cache.ListWatch {
	r := c.danm.Endpoints(metav1.NamespaceAll)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return r.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return r.Watch(ctx, o)
		},
	}
}

func (n *noQuarantine) deliver(ctx context.Context, object any) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	ep, err := danm.ToEndpoint(u)
	if err != nil {
		return
	}
	select {
	case n.arrived <- ep:
	case <-ctx.Done():
	}
}

// work judges every endpoint that arrives by the latest pod list, and all of
// them after each new list.
func (n *noQuarantine) work(ctx context.Context) error {
	owners, err := n.listOwners(ctx)
	if err != nil {
		return err
	}
	tick := time.NewTicker(podListPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ep := <-n.arrived:
			n.releaseUnowned(ctx, owners, []*danm.Endpoint{ep})
		case <-tick.C:
			latest, err := n.listOwners(ctx)
			if err != nil {
				n.log.Error(err, "keeping the old pod list")
				continue
			}
			owners = latest
			n.releaseUnowned(ctx, owners, n.cached())
		}
	}
}

// listOwners returns the UIDs of all pods.
func (n *noQuarantine) listOwners(ctx context.Context) (map[types.UID]bool, error) {
	pods, err := n.core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	owners := map[types.UID]bool{}
	for i := range pods.Items {
		owners[pods.Items[i].UID] = true
	}
	return owners, nil
}

func (n *noQuarantine) cached() []*danm.Endpoint {
	var eps []*danm.Endpoint
	for _, object := range n.endpoints.GetStore().List() {
		if u, ok := object.(*unstructured.Unstructured); ok {
			if ep, err := danm.ToEndpoint(u); err == nil {
				eps = append(eps, ep)
			}
		}
	}
	return eps
}

func (n *noQuarantine) releaseUnowned(ctx context.Context, owners map[types.UID]bool, eps []*danm.Endpoint) {
	for _, ep := range eps {
		if owners[ep.Spec.PodUID] {
			continue
		}
		if err := n.release(ctx, ep); err != nil {
			n.log.Error(err, "release failed", "endpoint", ep.Namespace+"/"+ep.Name)
		}
	}
}

// release is careful, which does not help: the owner is alive.
func (n *noQuarantine) release(ctx context.Context, ep *danm.Endpoint) error {
	err := n.danm.DeleteEndpoint(ctx, ep)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting endpoint %s/%s: %w", ep.Namespace, ep.Name, err)
	}
	n.log.Info("deleted endpoint", "endpoint", ep.Namespace+"/"+ep.Name, "pod", ep.Spec.Pod, "podUID", ep.Spec.PodUID)
	return n.clearBits(ctx, ep)
}
