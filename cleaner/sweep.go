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
	c.noticeDuplicates()
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
	for _, object := range c.caches.endpoints.store.List() {
		ep, ok := object.(*danm.Endpoint)
		if !ok {
			continue
		}
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

// noticeDuplicates reports addresses that several living pods hold. Which of
// them is right cannot be known from here, so nothing is released (R6).
func (c *controller) noticeDuplicates() {
	now := map[string]bool{}
	for _, key := range c.caches.index.ListIndexFuncValues(byAddress) {
		holders := c.livingHolders(key)
		if len(holders) < 2 || c.isShareable(holders[0], key) {
			continue
		}
		now[key] = true
		if c.duplicated[key] {
			continue
		}
		for i, ep := range holders {
			other := holders[(i+1)%len(holders)]
			c.log.Info("address held by several living pods", "address", addressText(ep), "network", ep.Network().String(),
				"endpoint", ep.Namespace+"/"+ep.Name, "pod", ep.Namespace+"/"+ep.Spec.Pod, "otherPod", other.Namespace+"/"+other.Spec.Pod)
			c.events.Eventf(endpointReference(c.danm.Group, ep), corev1.EventTypeWarning, "DuplicateAddress",
				"%s is also held by pod %s/%s", addressText(ep), other.Namespace, other.Spec.Pod)
			c.events.Eventf(ownerReference(ep), corev1.EventTypeWarning, "DuplicateAddress",
				"%s is also held by pod %s/%s", addressText(ep), other.Namespace, other.Spec.Pod)
		}
	}
	c.duplicated = now
	c.metrics.duplicates.Set(float64(len(now)))
}

func (c *controller) livingHolders(key string) []*danm.Endpoint {
	var living []*danm.Endpoint
	owners := map[types.UID]bool{}
	for _, ep := range c.caches.endpointsBy(byAddress, key) {
		pod, ok := c.caches.pod(ep.Namespace, ep.Spec.Pod)
		if ok && pod.UID == ep.Spec.PodUID && isVouching(pod) && !owners[pod.UID] {
			owners[pod.UID] = true
			living = append(living, ep)
		}
	}
	return living
}

func (c *controller) isShareable(ep *danm.Endpoint, key string) bool {
	addrs, _ := ep.Addresses()
	for _, a := range addrs {
		if addressKey(ep.Network(), a) == key {
			return c.hasReservedIP(func(u *unstructured.Unstructured) bool { return danm.SharesAddress(u, ep.Network(), a) })
		}
	}
	return false
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
