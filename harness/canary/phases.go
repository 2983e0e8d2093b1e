package canary

import (
	"context"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// phases releases what a pod holds as soon as it ends: when it is deleted, and
// when it runs no longer. It compares UIDs, and believes that a pod that ran
// and does not run now has ended. After a reboot of its node it has not.
type phases struct {
	clients
	queue workqueue.TypedInterface[types.UID]
}

func runPhases(ctx context.Context, c clients) error {
	lw := cache.NewListWatchFromClient(c.core.CoreV1().RESTClient(), podsResourceName, metav1.NamespaceAll, fields.Everything())
	pods := cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
	p := &phases{clients: c, queue: workqueue.NewTyped[types.UID]()}
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: p.updated, DeleteFunc: p.deleted}); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { pods.RunWithContext(ctx); return nil })
	group.Go(func() error { <-ctx.Done(); p.queue.ShutDown(); return nil })
	group.Go(func() error { p.work(ctx); return nil })
	return group.Wait()
}

func (p *phases) updated(before, after any) {
	was, is := before.(*corev1.Pod), after.(*corev1.Pod)
	if was.Status.Phase == corev1.PodRunning && is.Status.Phase != corev1.PodRunning {
		p.queue.Add(was.UID)
	}
}

func (p *phases) deleted(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	if pod, ok := object.(*corev1.Pod); ok {
		p.queue.Add(pod.UID)
	}
}

func (p *phases) work(ctx context.Context) {
	for {
		uid, isOver := p.queue.Get()
		if isOver {
			return
		}
		if err := p.releaseOwned(ctx, uid); err != nil {
			p.log.Error(err, "release failed", "podUID", uid)
		}
		p.queue.Done(uid)
	}
}

func (p *phases) releaseOwned(ctx context.Context, owner types.UID) error {
	eps, err := p.listEndpoints(ctx, metav1.NamespaceAll)
	if err != nil {
		return err
	}
	for _, ep := range eps {
		if ep.Spec.PodUID != owner {
			continue
		}
		if err := p.releaseCarefully(ctx, ep); err != nil {
			return err
		}
	}
	return nil
}

// releaseCarefully deletes exactly this endpoint, and then clears its bits.
func (c clients) releaseCarefully(ctx context.Context, ep *danm.Endpoint) error {
	if err := c.danm.DeleteEndpoint(ctx, ep); err != nil {
		return ignoreChanged(err)
	}
	return c.clearBits(ctx, ep)
}
