package cleaner

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// noticeDuplicates reports addresses that several living pods hold. Which of
// them is right cannot be known from here, so nothing is released (R6).
func (c *controller) noticeDuplicates(ctx context.Context) {
	held := c.heldTwice()
	var reserved reservedIPs
	if len(held) > 0 {
		var err error
		if reserved, err = c.liveReservedIPs(ctx); err != nil {
			// Some may be meant to be held so. What was known before still stands.
			c.log.Info("cannot tell whether addresses held by several living pods are shareable", "addresses", len(held), "cause", err.Error())
			maps.DeleteFunc(held, func(key string, _ []*danm.Endpoint) bool { return !c.duplicated[key] })
		}
	}
	now := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(held)) {
		if holders := held[key]; !isShareable(holders[0], key, reserved) {
			now[key] = true
			if !c.duplicated[key] {
				c.reportDuplicate(holders)
			}
		}
	}
	c.duplicated = now
	c.metrics.duplicates.Set(float64(len(now)))
}

// heldTwice returns the endpoints of each address that several living pods hold.
func (c *controller) heldTwice() map[string][]*danm.Endpoint {
	held := map[string][]*danm.Endpoint{}
	for _, key := range c.caches.index.ListIndexFuncValues(byAddress) {
		claims := c.caches.endpointsBy(byAddress, key)
		if len(claims) < 2 {
			continue
		}
		if holders := c.livingHolders(claims); len(holders) > 1 {
			held[key] = holders
		}
	}
	return held
}

// livingHolders returns one endpoint of each living pod among those that claim an
// address.
func (c *controller) livingHolders(claims []*danm.Endpoint) []*danm.Endpoint {
	var living []*danm.Endpoint
	owners := map[types.UID]bool{}
	for _, ep := range claims {
		pod, ok := c.caches.pod(ep.Namespace, ep.Spec.Pod)
		if ok && pod.UID == ep.Spec.PodUID && isVouching(pod) && !owners[pod.UID] {
			owners[pod.UID] = true
			living = append(living, ep)
		}
	}
	return living
}

func isShareable(ep *danm.Endpoint, key string, reserved reservedIPs) bool {
	addrs, _ := ep.Addresses()
	for _, a := range addrs {
		if addressKey(ep.Network(), a) == key {
			return reserved.share(ep.Network(), a)
		}
	}
	return false
}

func (c *controller) reportDuplicate(holders []*danm.Endpoint) {
	for i, ep := range holders {
		other := holders[(i+1)%len(holders)]
		c.log.Info("address held by several living pods", "address", addressText(ep), "network", ep.Network().String(),
			"endpoint", ep.Namespace+"/"+ep.Name, "pod", ep.Namespace+"/"+ep.Spec.Pod, "otherPod", other.Namespace+"/"+other.Spec.Pod)
		for _, reference := range []*corev1.ObjectReference{endpointReference(c.danm.Group, ep), ownerReference(ep)} {
			c.events.Eventf(reference, corev1.EventTypeWarning, "DuplicateAddress",
				"%s is also held by pod %s/%s", addressText(ep), other.Namespace, other.Spec.Pod)
		}
	}
}
