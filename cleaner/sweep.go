package cleaner

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// groupCheckPeriod is how often the other API group is looked for.
const groupCheckPeriod = time.Minute

// errResourcesChanged ends a controller whose cluster serves other resources
// than it was set up for; run starts the next.
var errResourcesChanged = errors.New("the cluster serves other DANM resources now")

// sweepUntilDone does at a steady pace what no event triggers.
func (c *controller) sweepUntilDone(ctx context.Context) error {
	ticker := c.clock.NewTicker(c.cfg.sweepPeriod())
	defer ticker.Stop()
	groupsChecked := c.clock.Now()
	// Asked before each sweep, as the ticker may be ready together with the end.
	for ctx.Err() == nil {
		if err := c.sweep(ctx); err != nil {
			c.log.V(1).Info("will sweep again", "cause", err.Error())
		}
		if c.clock.Since(groupsChecked) >= groupCheckPeriod {
			groupsChecked = c.clock.Now()
			if err := c.checkGroups(ctx); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
		case <-ticker.C():
		}
	}
	return nil
}

func (c *controller) sweep(ctx context.Context) error {
	c.noticeOrphans()
	c.noticeDuplicates(ctx)
	c.takeStock()
	if c.cfg.Registry != nil { // else nobody can read it
		c.countStock()
	}
	c.rosters.expire(c.clock.Now())
	suspects := c.state.suspects()
	c.metrics.suspects.Set(float64(len(suspects)))
	c.reportBreaker()
	gaps := c.lineage.gapCount()
	endpoints := int(c.endpointCount.Load())
	isAfterGap := gaps != c.gapsSeen
	if !isAfterGap && !c.breaker.needsList(endpoints, suspects, c.clock.Now()) && !c.breaker.isTruncated() {
		return nil
	}
	if err := c.listOwners(ctx, suspects); err != nil {
		return err
	}
	c.gapsSeen = gaps
	return nil
}

// listOwners reads all pods live, once, for two questions: who can vouch for
// bits whose lineage a watch gap broke, and which suspects really have no
// owner when there are implausibly many.
func (c *controller) listOwners(ctx context.Context, suspects map[types.UID]bool) error {
	before := c.clock.Now()
	pods := map[types.UID]*corev1.Pod{}
	list := c.core.CoreV1().Pods(metav1.NamespaceAll).List
	if err := eachPage(ctx, list, func(pod *corev1.Pod) error { pods[pod.UID] = pod; return nil }); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	if cached := int(c.podCount.Load()); len(pods)*2 < cached {
		c.breaker.setTruncated(fmt.Sprintf("a list of pods has %d, the cache %d", len(pods), cached))
		return nil
	}
	c.breaker.setTruncated("")
	ownerless := map[types.UID]bool{}
	for ep := range c.caches.everyEndpoint() {
		pod := pods[ep.Spec.PodUID]
		switch {
		case pod == nil && suspects[ep.UID]:
			ownerless[ep.UID] = true
		case pod != nil && isVouching(pod) && !c.isAmbiguous(ep):
			c.noteAlive(ep, pod, before)
		}
	}
	c.breaker.listed(ownerless, c.clock.Now())
	return nil
}

// eachPage calls f with every item of a complete live list, page by page. Any
// failure, an expired continuation included, makes the whole list a failure.
func eachPage[L metav1.ListInterface, T any](ctx context.Context, list func(context.Context, metav1.ListOptions) (L, error), f func(*T) error) error {
	options := metav1.ListOptions{Limit: listPage}
	for {
		page, err := onePage(ctx, list, options)
		if err != nil {
			return err
		}
		for _, item := range itemsOf[T](page) {
			if err := f(item); err != nil {
				return err
			}
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

func onePage[L metav1.ListInterface](ctx context.Context, list func(context.Context, metav1.ListOptions) (L, error), o metav1.ListOptions) (L, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return list(ctx, o)
}

func itemsOf[T any](page any) []*T {
	var items []*T
	switch p := page.(type) {
	case *corev1.PodList:
		for i := range p.Items {
			items = append(items, any(&p.Items[i]).(*T))
		}
	case *corev1.NodeList:
		for i := range p.Items {
			items = append(items, any(&p.Items[i]).(*T))
		}
	case *unstructured.UnstructuredList:
		for i := range p.Items {
			items = append(items, any(&p.Items[i]).(*T))
		}
	default:
		panic(fmt.Sprintf("no items known for %T", page))
	}
	return items
}

// reportBreaker says once when the breaker opens, for what reason, and when it
// closes.
func (c *controller) reportBreaker() {
	now := c.trip()
	why := now.why
	if why != "" {
		c.metrics.frozen.Set(1)
	} else {
		c.metrics.frozen.Set(0)
	}
	if why == c.frozenWhy {
		return
	}
	if (why == "") != (c.frozenWhy == "") {
		if why == "" {
			c.log.Info("circuit breaker closed, releasing again")
		} else {
			c.metrics.trips.WithLabelValues(string(now.cause)).Inc()
			c.log.Info("circuit breaker open, releasing nothing", "why", why)
			c.events.Eventf(leaseReference(c.cfg), corev1.EventTypeWarning, "ReleasesFrozen", "releasing nothing: %s", why)
		}
	}
	c.frozenWhy = why
}

// takeStock counts what cannot be read and forgets endpoints that are gone.
func (c *controller) takeStock() {
	broken, exists := 0, map[types.UID]bool{}
	for _, informer := range c.caches.all() {
		for _, object := range informer.store.List() {
			switch o := object.(type) {
			case *malformed:
				broken++
			case *danm.Endpoint:
				exists[o.UID] = true
			}
		}
	}
	c.metrics.malformed.Set(float64(broken))
	c.state.keepOnly(exists)
}
