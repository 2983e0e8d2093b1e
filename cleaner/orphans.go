package cleaner

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// setBackTriesMax bounds the attempts to set a bit again that turned out to be
// claimed. If all fail, the endpoint's own reconciliation repairs it.
const setBackTriesMax = 5

// lonely is how long a set bit goes without endpoint: by the clock, and by how
// many sweeps in a row found it so. A clock that is set forward makes no ADD
// shorter, so both must agree; sweeps are paced by a timer.
type lonely struct {
	since time.Time
	looks int
}

// orphans remembers since when each set bit goes without endpoint.
type orphans struct {
	mu        sync.Mutex
	unclaimed map[danm.NetworkRef]map[bit]lonely
	// claimed holds the bits outside the dynamic pool that an endpoint was
	// seen to claim. Of other such bits nobody knows that a pod ever had them.
	claimed map[danm.NetworkRef]map[bit]bool
}

func newOrphans() *orphans {
	return &orphans{
		unclaimed: map[danm.NetworkRef]map[bit]lonely{},
		claimed:   map[danm.NetworkRef]map[bit]bool{},
	}
}

// since returns when each of the network's unclaimed bits was first seen so.
func (o *orphans) since(ref danm.NetworkRef) map[bit]lonely {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unclaimed[ref]
}

// replace stores the latest look at a network; empty maps are dropped.
func (o *orphans) replace(ref danm.NetworkRef, unclaimed map[bit]lonely, claimed map[bit]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unclaimed[ref], o.claimed[ref] = unclaimed, claimed
	if len(unclaimed) == 0 {
		delete(o.unclaimed, ref)
	}
	if len(claimed) == 0 {
		delete(o.claimed, ref)
	}
}

func (o *orphans) wasClaimed(ref danm.NetworkRef, b bit) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.claimed[ref][b]
}

// keepOnly forgets networks that no longer exist.
func (o *orphans) keepOnly(exists func(danm.NetworkRef) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for ref := range o.unclaimed {
		if !exists(ref) {
			delete(o.unclaimed, ref)
		}
	}
	for ref := range o.claimed {
		if !exists(ref) {
			delete(o.claimed, ref)
		}
	}
}

// noticeOrphans looks at every network's bits in the caches and queues those
// networks that have bits without endpoint for long enough.
func (c *controller) noticeOrphans() {
	refs := c.lineage.refs()
	known := map[danm.NetworkRef]bool{}
	for _, ref := range refs {
		known[ref] = true
		if n, ok := c.caches.network(ref); ok {
			c.noticeOrphansOf(n)
			if len(c.ripe(ref)) > 0 && !n.IsPaused() {
				c.networkQueue.Add(ref)
			}
		}
	}
	c.lineage.forgetStale(func(ref danm.NetworkRef) bool { _, ok := c.caches.network(ref); return ok })
	c.orphans.keepOnly(func(ref danm.NetworkRef) bool { return known[ref] })
}

func (c *controller) noticeOrphansOf(n *openNetwork) {
	ref, ps, now := n.Ref(), n.pools, c.clock.Now()
	rises, ok := c.lineage.latest(ref)
	if !ok {
		return
	}
	before := c.orphans.since(ref)
	unclaimed, claimed := map[bit]lonely{}, map[bit]bool{}
	for b, r := range rises {
		if ps.isReserved(b) {
			continue
		}
		isStatic := !ps[b.family].IsDynamic(b.index)
		switch {
		case len(c.caches.endpointsBy(byAddress, addressKey(ref, ps.addr(b)))) > 0:
			claimed[b] = isStatic
		case isStatic && !r.watched && !c.orphans.wasClaimed(ref, b):
			// Outside the dynamic pool and already set when we came: an
			// administrator's reservation, for all that anybody knows.
		default:
			unclaimed[b] = before[b].seenAgain(r.since, now)
			claimed[b] = isStatic
		}
	}
	for b, isStatic := range claimed {
		if !isStatic {
			delete(claimed, b)
		}
	}
	c.orphans.replace(ref, unclaimed, claimed)
}

// seenAgain takes one more sweep into account that finds the bit set and without
// endpoint. Being set again in between begins it all anew.
func (l lonely) seenAgain(rise, now time.Time) lonely {
	switch {
	case l.since.IsZero():
		return lonely{now, 1}
	case rise.After(l.since):
		return lonely{rise, 1}
	}
	return lonely{l.since, l.looks + 1}
}

// ripe returns the network's bits whose orphan quarantine is over.
func (c *controller) ripe(ref danm.NetworkRef) map[bit]time.Time {
	out := map[bit]time.Time{}
	for b, l := range c.orphans.since(ref) {
		if c.clock.Since(l.since) >= c.cfg.OrphanQuarantine && l.looks > c.cfg.sweepsOfQuarantine() {
			out[b] = l.since
		}
	}
	return out
}

// clearOrphans clears the ripe bits of a network that no endpoint claims in a
// live list (R5), and sets back what an endpoint claims after all.
func (c *controller) clearOrphans(ctx context.Context, ref danm.NetworkRef) error {
	ripe := c.ripe(ref)
	if len(ripe) == 0 || c.frozen() != "" {
		return nil
	}
	claims, err := c.liveClaims(ctx, ref)
	if err != nil {
		return err
	}
	reserved, err := c.liveReservedIPs(ctx)
	if err != nil {
		return err
	}
	network, err := c.liveNetwork(ctx, ref)
	if err != nil || network == nil || network.IsPaused() {
		return err
	}
	rises, ok := c.lineage.at(ref, network.UID, network.ResourceVersion)
	if !ok {
		return fmt.Errorf("sweeping %s: the network watch is behind", ref)
	}
	ps := openPools(network)
	var cleared []bit
	for _, b := range sortedBits(ripe) {
		r, set := rises[b]
		if !set || !ps.isSet(b) || ps.isReserved(b) || r.since.After(ripe[b]) || claims[ps.addr(b)] ||
			reserved.setAside(ref, ps.addr(b)) || !c.cfg.scope.Clears(ref, ps.addr(b)) {
			continue
		}
		ps[b.family].Clear(b.index)
		cleared = append(cleared, b)
	}
	if len(cleared) == 0 {
		return nil
	}
	return c.clearUnclaimed(ctx, network, ps, cleared, ripe)
}

func (c *controller) clearUnclaimed(ctx context.Context, network *danm.Network, ps pools, cleared []bit, since map[bit]time.Time) error {
	message := "released address that no endpoint claims"
	if c.cfg.DryRun {
		message = "would release address that no endpoint claims"
	} else if err := c.patchAlloc(ctx, network, ps.changes(network)); err != nil {
		return err
	}
	ref := network.Ref()
	for _, b := range cleared {
		c.log.Info(message, "network", ref.String(), "networkResourceVersion", network.ResourceVersion,
			"address", ps.addr(b).String(), "unclaimedSince", since[b])
	}
	if c.cfg.DryRun {
		return nil
	}
	c.recordSweep(network, ps, cleared, since)
	c.metrics.cleared.WithLabelValues(bySweep).Add(float64(len(cleared)))
	return c.setBackClaimed(ctx, ref, ps, cleared)
}

// setBackClaimed lists once more after a clear: an ADD that took longer than
// any ADD may take could have written its endpoint in between.
func (c *controller) setBackClaimed(ctx context.Context, ref danm.NetworkRef, ps pools, cleared []bit) error {
	claims, err := c.liveClaims(ctx, ref)
	if err != nil {
		// The endpoint, should there be one, is repaired when its event comes.
		return fmt.Errorf("looking for late endpoints of %s: %w", ref, err)
	}
	late := map[bit]bool{}
	for _, b := range cleared {
		if claims[ps.addr(b)] {
			late[b] = true
		}
	}
	if len(late) == 0 {
		return nil
	}
	for range setBackTriesMax {
		if err = c.setBits(ctx, ref, late); err == nil {
			return nil
		}
	}
	return fmt.Errorf("setting bits of late endpoints again: %w", err)
}

// setBits sets those of the bits that are clear and still claimed. The claims are
// read after the network that is patched: an endpoint that is there now was there
// while its bit was clear, and is not one that another replica has released, with
// its bit, in the meantime.
func (c *controller) setBits(ctx context.Context, ref danm.NetworkRef, bits map[bit]bool) error {
	network, err := c.liveNetwork(ctx, ref)
	if err != nil || network == nil {
		return err
	}
	claims, err := c.liveClaims(ctx, ref)
	if err != nil {
		return err
	}
	ps := openPools(network)
	for _, b := range sortedBits(bits) {
		if pool, ok := ps[b.family]; ok && !pool.IsSet(b.index) && claims[ps.addr(b)] {
			pool.Set(b.index)
			c.log.Info("setting address back, an endpoint claims it after all", "network", ref.String(), "address", ps.addr(b).String())
		}
	}
	changes := ps.changes(network)
	if len(changes) == 0 {
		return nil
	}
	if err := c.patchAlloc(ctx, network, changes); err != nil {
		return err
	}
	c.metrics.repaired.Add(float64(len(bits)))
	c.events.Eventf(networkReference(c.danm.Group, network), corev1.EventTypeWarning, "AddressSetBack",
		"%d addresses were released and claimed at the same moment; marked allocated again", len(bits))
	return nil
}

// liveClaims returns every address of the network that some endpoint claims,
// by a complete live list. Endpoints of a namespaced network are in its own
// namespace. An unreadable endpoint makes the answer an error: nobody knows
// what it claims.
func (c *controller) liveClaims(ctx context.Context, ref danm.NetworkRef) (map[netip.Addr]bool, error) {
	claims := map[netip.Addr]bool{}
	err := eachPage(ctx, c.danm.Endpoints(ref.Namespace).List, func(u *unstructured.Unstructured) error {
		ep, err := danm.ToEndpoint(u)
		if err != nil {
			return err
		}
		if ep.Network() != ref {
			return nil
		}
		addrs, err := ep.Addresses()
		for _, a := range addrs {
			claims[a] = true
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing endpoints of %s: %w", ref, err)
	}
	return claims, nil
}
