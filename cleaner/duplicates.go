package cleaner

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// claim is an address of a network that an endpoint says to have.
type claim struct {
	network danm.NetworkRef
	addr    netip.Addr
}

// claims holds the endpoints that make each claim.
type claims map[claim][]*danm.Endpoint

// cachedClaims looks at every endpoint once, for all that a sweep asks about them.
func (c *controller) cachedClaims() claims {
	all := claims{}
	for ep := range c.caches.everyEndpoint() {
		addrs, _ := ep.Addresses()
		for _, a := range addrs {
			key := claim{ep.Network(), a}
			all[key] = append(all[key], ep)
		}
	}
	return all
}

// noticeDuplicates reports addresses that several living pods hold. Which of
// them is right cannot be known from here, so nothing is released (R6).
func (c *controller) noticeDuplicates(ctx context.Context, claims claims) {
	held := c.heldTwice(claims)
	var reserved reservedIPs
	if len(held) > 0 {
		var err error
		if reserved, err = c.liveReservedIPs(ctx); err != nil {
			// Some may be meant to be held so. What was known before still stands.
			c.log.Info("cannot tell whether addresses held by several living pods are shareable", "addresses", len(held), "cause", err.Error())
			maps.DeleteFunc(held, func(key claim, _ []*danm.Endpoint) bool { return !c.duplicated[key] })
		}
	}
	now := map[claim]bool{}
	for _, key := range slices.SortedFunc(maps.Keys(held), compareClaims) {
		if reserved.share(key.network, key.addr) {
			continue
		}
		now[key] = true
		if !c.duplicated[key] {
			c.reportDuplicate(held[key])
		}
	}
	c.duplicated = now
	c.metrics.duplicates.Set(float64(len(now)))
}

func compareClaims(a, b claim) int {
	return cmp.Or(compareRefs(a.network, b.network), a.addr.Compare(b.addr))
}

// heldTwice returns the claims of several living pods.
func (c *controller) heldTwice(all claims) claims {
	held := claims{}
	for key, eps := range all {
		if len(eps) < 2 {
			continue
		}
		if holders := c.livingHolders(eps); len(holders) > 1 {
			held[key] = holders
		}
	}
	return held
}

// livingHolders returns one endpoint of each living pod among those that claim an
// address.
func (c *controller) livingHolders(eps []*danm.Endpoint) []*danm.Endpoint {
	var living []*danm.Endpoint
	owners := map[types.UID]bool{}
	for _, ep := range eps {
		pod, ok := c.caches.pod(ep.Namespace, ep.Spec.Pod)
		if ok && pod.UID == ep.Spec.PodUID && isVouching(pod) && !owners[pod.UID] {
			owners[pod.UID] = true
			living = append(living, ep)
		}
	}
	return living
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
