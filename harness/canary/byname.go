package canary

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// Paces of the cleaner in the report.
const (
	byNameWorkers    = 10
	byNameDelay      = time.Second
	danglingPeriod   = 10 * time.Second
	podResyncPeriod  = 30 * time.Second
	podsResourceName = "pods"
)

// byName works as the cleaner of the report does. A pod that ends puts its
// name into a queue; by the time a worker gets to it, the StatefulSet may have
// made a pod of the same name, and its endpoint is released with the others.
type byName struct {
	clients
	pods  cache.SharedIndexInformer
	queue workqueue.TypedInterface[cache.ObjectName]
}

func runByName(ctx context.Context, c clients) error {
	lw := cache.NewListWatchFromClient(c.core.CoreV1().RESTClient(), podsResourceName, metav1.NamespaceAll, fields.Everything())
	b := &byName{
		clients: c,
		pods:    cache.NewSharedIndexInformer(lw, &corev1.Pod{}, podResyncPeriod, cache.Indexers{}),
		queue:   workqueue.NewTyped[cache.ObjectName](),
	}
	if _, err := b.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: b.podUpdated, DeleteFunc: b.podDeleted}); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { b.pods.RunWithContext(ctx); return nil })
	group.Go(func() error { <-ctx.Done(); b.queue.ShutDown(); return nil })
	group.Go(func() error { return b.releaseDangling(ctx) })
	for range byNameWorkers {
		group.Go(func() error { b.work(ctx); return nil })
	}
	return group.Wait()
}

func (b *byName) podUpdated(before, after any) {
	was, is := before.(*corev1.Pod), after.(*corev1.Pod)
	if was.Status.Phase == corev1.PodRunning && is.Status.Phase != corev1.PodRunning {
		b.queue.Add(cache.MetaObjectToName(is))
	}
}

func (b *byName) podDeleted(object any) {
	if name, err := cache.DeletionHandlingObjectToName(object); err == nil {
		b.queue.Add(name)
	}
}

func (b *byName) work(ctx context.Context) {
	for {
		name, shutdown := b.queue.Get()
		if shutdown {
			return
		}
		if err := b.releaseByName(ctx, name); err != nil {
			b.log.Error(err, "release failed", "pod", name.String())
		}
		b.queue.Done(name) // upstream loses the item after an error too
	}
}

// releaseByName is the defect: whatever endpoints the name has now, are taken
// for those of the pod that ended.
func (b *byName) releaseByName(ctx context.Context, name cache.ObjectName) error {
	eps, err := b.listEndpoints(ctx, name.Namespace)
	if err != nil {
		return err
	}
	for _, ep := range eps {
		if ep.Spec.Pod != name.Name {
			continue
		}
		if err := b.release(ctx, ep); err != nil {
			return err
		}
	}
	return nil
}

// release waits, looks whether the endpoint is still there, frees the bit
// first and deletes the endpoint second.
func (b *byName) release(ctx context.Context, ep *danm.Endpoint) error {
	if err := waitFor(ctx, byNameDelay); err != nil {
		return err
	}
	if _, err := b.danm.GetEndpoint(ctx, ep.Namespace, ep.Name); err != nil {
		return nil // upstream takes every error for "solved by itself"
	}
	if err := b.clearBits(ctx, ep); err != nil {
		return err
	}
	return b.deleteUnconditionally(ctx, ep)
}

// releaseDangling is upstream's periodic pass, which does compare UIDs. Without
// it every endpoint that the events missed would leak, and the canary would be
// found for that alone.
func (b *byName) releaseDangling(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), b.pods.HasSynced) {
		return ctx.Err()
	}
	for {
		if err := waitFor(ctx, danglingPeriod); err != nil {
			return err
		}
		eps, err := b.listEndpoints(ctx, metav1.NamespaceAll)
		if err != nil {
			b.log.Error(err, "periodic pass failed")
			continue
		}
		for _, ep := range eps {
			if b.hasCachedOwner(ep) {
				continue
			}
			if err := b.release(ctx, ep); err != nil {
				b.log.Error(err, "release failed", "endpoint", ep.Namespace+"/"+ep.Name)
			}
		}
	}
}

func (b *byName) hasCachedOwner(ep *danm.Endpoint) bool {
	object, _, _ := b.pods.GetStore().GetByKey(ep.Namespace + "/" + ep.Spec.Pod)
	pod, ok := object.(*corev1.Pod)
	return ok && types.UID(pod.UID) == ep.Spec.PodUID
}
