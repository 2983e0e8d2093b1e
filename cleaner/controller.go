package cleaner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
)

// controller does the work of the one active replica.
type controller struct {
	clients
	cfg     Config
	found   discovered
	log     logr.Logger
	clock   clock.WithTicker
	caches  *caches
	lineage *lineage
	state   *state
	bits    *bitWork
	orphans *orphans
	breaker *breaker
	rosters *rosters
	metrics *metrics
	events  eventWriter

	endpointQueue workqueue.TypedRateLimitingInterface[string]
	networkQueue  workqueue.TypedRateLimitingInterface[danm.NetworkRef]

	podCount, endpointCount atomic.Int64

	// recording keeps the lines of the release log apart.
	recording sync.Mutex

	// frozenWhy is the breaker's reason as last logged. Only sweep changes it.
	frozenWhy string
	gapsSeen  int
	// duplicated holds the addresses already reported as held twice.
	duplicated map[string]bool
}

func newController(cl clients, cfg Config, found discovered, m *metrics, events eventWriter) *controller {
	c := &controller{
		clients: cl, cfg: cfg, found: found, log: cfg.Logger, clock: cfg.Clock,
		lineage: newLineage(cfg.Clock.Now), state: newState(), bits: newBitWork(), orphans: newOrphans(), rosters: &rosters{},
		breaker: &breaker{}, metrics: m, events: events, duplicated: map[string]bool{},
	}
	c.caches = newCaches(cl, found.resources, c.lineage, c.listeners())
	c.breaker.setGroups(found.both)
	c.endpointQueue = newQueue[string](cfg)
	c.networkQueue = newQueue[danm.NetworkRef](cfg)
	return c
}

// retryDelayMax bounds the backoff of failed work. It is no multiple of a
// request's timeout: work that waits for an answer and then fails must not come
// back at the very moment at which it is tried again.
const retryDelayMax = 29 * time.Second

// newQueue gives its queue no name: one that has a name reports, twice a second,
// to whatever some package has made the process's provider of metrics.
func newQueue[T comparable](cfg Config) workqueue.TypedRateLimitingInterface[T] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[T](50*time.Millisecond, retryDelayMax)
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[T]{Clock: cfg.Clock})
}

// run works until the context ends, finishes what it has begun, and returns
// when all its goroutines have.
func (c *controller) run(ctx context.Context) error {
	// The watches go on for longer, as only they prove what a bit may be cleared by.
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer c.shutDown()
	defer stopWatching()
	for _, informer := range c.caches.all() {
		watchers.Go(func() { informer.RunWithContext(watching) })
	}
	if err := c.waitForSync(ctx); err != nil {
		return err
	}
	err := c.runWorkers(ctx)
	if !errors.Is(context.Cause(ctx), ErrLostLease) {
		c.finish(watching)
	}
	return err
}

// networkWorkers is enough, as few networks have bits to clear at one moment.
const networkWorkers = 8

func (c *controller) shutDown() {
	c.endpointQueue.ShutDown()
	c.networkQueue.ShutDown()
}

// runWorkers works with synced caches until the context ends.
func (c *controller) runWorkers(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer c.shutDown()
	defer cancel()
	for range c.cfg.Workers {
		workers.Go(func() { work(ctx, c, c.endpointQueue, "endpoints", c.reconcileEndpoint) })
	}
	for range min(c.cfg.Workers, networkWorkers) {
		workers.Go(func() { work(ctx, c, c.networkQueue, "networks", c.reconcileNetwork) })
	}
	c.log.Info("caches synced", "endpoints", c.endpointCount.Load(),
		"pods", c.podCount.Load(), "group", c.danm.Group, "dryRun", c.cfg.DryRun)
	if c.cfg.Ready != nil {
		c.cfg.Ready()
	}
	return c.sweepUntilDone(ctx)
}

// finishTimeout bounds what is done after the end was asked for.
const finishTimeout = 5 * time.Second

// finish clears the bits of endpoints that were deleted just before the end.
// What cannot be done is left to the successor, which needs the whole orphan
// quarantine for it.
func (c *controller) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	for _, ref := range c.bits.clearing() {
		for after := time.Duration(1); after > 0 && ctx.Err() == nil; {
			var err error
			if after, err = c.clearReleased(ctx, ref); err != nil {
				c.log.Info("bits left to the successor", "network", ref.String(), "cause", err.Error())
				break
			}
			if after > 0 {
				c.clock.Sleep(after)
			}
		}
	}
}

// waitForSync returns when every cache holds a complete list that the handlers
// have seen, or the context's error. There is no time-out after which an
// incomplete cache would do.
func (c *controller) waitForSync(ctx context.Context) error {
	for _, informer := range c.caches.all() {
		select {
		case <-informer.HasSyncedChecker().Done():
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil { // both may have been ready
		return fmt.Errorf("waiting for caches: %w", context.Cause(ctx))
	}
	return nil
}

// work takes items from a queue until it is shut down. A failed item comes
// back after a growing delay, others after the time they ask for.
func work[T comparable](ctx context.Context, c *controller, q workqueue.TypedRateLimitingInterface[T], name string, do func(context.Context, T) (time.Duration, error)) {
	for {
		item, shutdown := q.Get()
		if shutdown {
			return
		}
		begin := c.clock.Now()
		after, err := do(ctx, item)
		c.metrics.reconciled.WithLabelValues(name).Observe(c.clock.Since(begin).Seconds())
		switch {
		case ctx.Err() != nil:
		case err != nil:
			c.metrics.errors.WithLabelValues(name).Inc()
			c.log.V(1).Info("will try again", "queue", name, "item", fmt.Sprint(item), "cause", err.Error())
			q.AddRateLimited(item)
		default:
			q.Forget(item)
			if after > 0 {
				q.AddAfter(item, after)
			}
		}
		q.Done(item)
	}
}

func (c *controller) listeners() listeners {
	return listeners{
		pods: count(&c.podCount, onChange(c.podChanged)),
		endpoints: count(&c.endpointCount, cache.ResourceEventHandlerFuncs{
			AddFunc: c.endpointChanged, UpdateFunc: func(_, o any) { c.endpointChanged(o) }, DeleteFunc: c.endpointDeleted,
		}),
		networks: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { c.networkChanged(nil, o) },
			UpdateFunc: c.networkChanged,
		},
	}
}

// onChange calls f with the objects of any event, a tombstone's included.
func onChange(f func(objects ...any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { f(o) },
		UpdateFunc: func(before, after any) { f(before, after) },
		DeleteFunc: func(o any) { f(lastKnown(o)) },
	}
}

// lastKnown returns the object of a delete event. After a relist that is only
// the last state that the cache knew.
func lastKnown(object any) any {
	if t, ok := object.(cache.DeletedFinalStateUnknown); ok {
		return t.Obj
	}
	return object
}

// podChanged looks again at the endpoints of the pod's name and of its UID.
// An update may carry another UID than the state before it.
func (c *controller) podChanged(objects ...any) {
	var eps []*danm.Endpoint
	for _, object := range objects {
		if pod, ok := object.(*corev1.Pod); ok {
			eps = append(eps, c.caches.endpointsBy(byPod, pod.Namespace+"/"+pod.Name)...)
			eps = append(eps, c.caches.endpointsBy(byPodUID, string(pod.UID))...)
		}
	}
	c.enqueue(eps)
}

// enqueue looks again at each of the endpoints once, in a fixed order, so that
// an event has the same effect however quick the workers are.
func (c *controller) enqueue(eps []*danm.Endpoint) {
	keys := make([]string, len(eps))
	for i, ep := range eps {
		keys[i] = storeKey(ep.Namespace, ep.Name)
	}
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		c.endpointQueue.Add(key)
	}
}

func (c *controller) endpointChanged(object any) {
	switch o := object.(type) {
	case *danm.Endpoint:
		c.endpointQueue.Add(storeKey(o.Namespace, o.Name))
	case *malformed:
		c.log.Info("cannot read endpoint, left alone", "cause", o.err.Error())
	}
}

func (c *controller) endpointDeleted(object any) {
	if ep, ok := lastKnown(object).(*danm.Endpoint); ok {
		c.state.forget(ep.UID)
	}
}

// networkChanged looks again at the endpoints whose bits changed.
func (c *controller) networkChanged(before, after any) {
	if broken, ok := after.(*malformed); ok {
		c.log.Info("cannot read network, left alone", "cause", broken.err.Error())
		return
	}
	n, ok := after.(*openNetwork)
	if !ok {
		return
	}
	old, ok := before.(*openNetwork)
	if !ok {
		old = &openNetwork{}
	}
	c.reportPause(old.Network, n.Network)
	var eps []*danm.Endpoint
	for _, a := range changedAddresses(old.pools, n.pools) {
		eps = append(eps, c.caches.endpointsBy(byAddress, addressKey(n.Ref(), a))...)
	}
	c.enqueue(eps)
}

// reconcileEndpoint looks at one endpoint and does what its state asks for.
func (c *controller) reconcileEndpoint(ctx context.Context, key string) (time.Duration, error) {
	ep, ok := c.caches.endpoint(key)
	if !ok {
		return 0, nil
	}
	now := c.clock.Now()
	decision := ownership.Decide(c.cachedEvidence(ep), c.cfg.policy(), now)
	c.state.suspect(ep.UID, decision.Suspect, now)
	switch decision.Action {
	case ownership.Keep:
		c.state.hold(ep.UID, "")
		return c.tend(ctx, ep)
	case ownership.Wait:
		return c.lookAgain(ep, decision), nil
	}
	if !c.cfg.scope.Releases(ep.UID) {
		return 0, nil
	}
	if why := c.frozen(); why != "" {
		return c.cfg.sweepPeriod(), nil
	}
	return c.release(ctx, ep)
}

// lookAgain returns when to come back to a decision to wait. A wait without an
// end of its own is a hold, which an operator must be able to see.
func (c *controller) lookAgain(ep *danm.Endpoint, d ownership.Decision) time.Duration {
	if d.After > 0 {
		c.state.hold(ep.UID, "")
		return d.After
	}
	c.tellWaiter(ep, d.Reason)
	if c.state.hold(ep.UID, d.Reason) {
		c.log.Info("holding endpoint", "endpoint", ep.Namespace+"/"+ep.Name, "pod", ep.Namespace+"/"+ep.Spec.Pod,
			"podUID", ep.Spec.PodUID, "host", ep.Spec.Host, "address", addressText(ep), "reason", d.Reason)
	}
	return c.cfg.ReleaseQuarantine
}

// frozen returns why nothing may be released now, or "".
func (c *controller) frozen() string { return c.trip().why }

func (c *controller) trip() trip {
	var suspects map[types.UID]bool
	// The set is costly and only of interest when there are that many.
	if n := c.state.suspectCount(); n > massSuspects && n*2 > int(c.endpointCount.Load()) {
		suspects = c.state.suspects()
	}
	return c.breaker.trip(int(c.podCount.Load()), int(c.endpointCount.Load()), suspects)
}

// count keeps n at the number of objects in an informer's cache. It counts before
// next hears of the event: a worker that looks at the last pod that came must
// not find that there are none, which opens the breaker.
func count(n *atomic.Int64, next cache.ResourceEventHandler) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(o any, isInInitialList bool) { n.Add(1); next.OnAdd(o, isInInitialList) },
		UpdateFunc: next.OnUpdate,
		DeleteFunc: func(o any) { n.Add(-1); next.OnDelete(o) },
	}
}
