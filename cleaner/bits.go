package cleaner

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
)

// lagTriesMax bounds how often a clear waits for the network watch to catch up
// with a live read before the bit is left to the sweep. No number of lagDelays is
// another delay: where a repair becomes due at the very moment of such a try,
// chance decides whether it is part of that.
const (
	lagTriesMax = 20
	lagDelay    = 97 * time.Millisecond
)

// pools are the parsed families of one network.
type pools map[danm.Family]*ipam.Pool

// openPools parses what can be parsed. A family that cannot is left out: its
// bits are neither cleared nor set. The network's event has reported it.
func openPools(n *danm.Network) pools {
	ps := pools{}
	for _, spec := range n.Pools() {
		if pool, err := ipam.Open(ipam.Spec(spec.Fields)); err == nil {
			ps[spec.Family] = pool
		}
	}
	return ps
}

// find returns the bit of an address, or false if no pool covers it.
func (ps pools) find(a netip.Addr) (bit, bool) {
	family := danm.FamilyOf(a)
	pool, ok := ps[family]
	if !ok {
		return bit{}, false
	}
	i, ok := pool.Index(a)
	return bit{family, i}, ok
}

func (ps pools) isSet(b bit) bool { p, ok := ps[b.family]; return ok && p.IsSet(b.index) }

func (ps pools) addr(b bit) netip.Addr { return ps[b.family].Addr(b.index) }

// covers tells whether the bit is that of the address.
func (ps pools) covers(b bit, a netip.Addr) bool { found, ok := ps.find(a); return ok && found == b }

// isReserved tells whether the bit can belong to no pod.
func (ps pools) isReserved(b bit) bool {
	p, ok := ps[b.family]
	if !ok {
		return true
	}
	_, reserved := p.Reserved(b.index)
	return reserved
}

// changes returns the difference between the network as read and the pools.
func (ps pools) changes(n *danm.Network) []danm.AllocChange {
	var out []danm.AllocChange
	for _, spec := range n.Pools() {
		if pool, ok := ps[spec.Family]; ok && pool.Encode() != spec.Fields.Alloc {
			out = append(out, danm.AllocChange{Family: spec.Family, Old: spec.Fields.Alloc, New: pool.Encode()})
		}
	}
	return out
}

// changedAddresses lists the addresses whose bits differ between two states of
// a network; before may be nil.
func changedAddresses(before, after pools) []netip.Addr {
	var addrs []netip.Addr
	for _, family := range []danm.Family{danm.IPv4, danm.IPv6} {
		pool, ok := after[family]
		if !ok {
			continue
		}
		var was []int
		if old, ok := before[family]; ok {
			was = old.Allocated()
		}
		for _, i := range inOneOnly(was, pool.Allocated()) {
			if _, reserved := pool.Reserved(i); !reserved {
				addrs = append(addrs, pool.Addr(i))
			}
		}
	}
	return addrs
}

// inOneOnly returns, in ascending order, what one of two ascending lists has and
// the other has not.
func inOneOnly(a, b []int) []int {
	var out []int
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			out, a = append(out, a[0]), a[1:]
		case a[0] > b[0]:
			out, b = append(out, b[0]), b[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
	return append(append(out, a...), b...)
}

func compareBits(a, b bit) int {
	return cmp.Or(cmp.Compare(a.family, b.family), cmp.Compare(a.index, b.index))
}

func sortedBits[V any](m map[bit]V) []bit { return slices.SortedFunc(maps.Keys(m), compareBits) }

// bitWork collects what is to be done to the bits of each network, so that
// what is ready together goes into one patch.
type bitWork struct {
	mu      sync.Mutex
	clears  map[danm.NetworkRef]map[bit]clearRequest
	repairs map[danm.NetworkRef]map[string]*danm.Endpoint
}

func newBitWork() *bitWork {
	return &bitWork{
		clears:  map[danm.NetworkRef]map[bit]clearRequest{},
		repairs: map[danm.NetworkRef]map[string]*danm.Endpoint{},
	}
}

func (w *bitWork) addClear(ref danm.NetworkRef, b bit, r clearRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.clears[ref] == nil {
		w.clears[ref] = map[bit]clearRequest{}
	}
	w.clears[ref][b] = r
}

func (w *bitWork) addRepair(ep *danm.Endpoint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ref := ep.Network()
	if w.repairs[ref] == nil {
		w.repairs[ref] = map[string]*danm.Endpoint{}
	}
	w.repairs[ref][storeKey(ep.Namespace, ep.Name)] = ep
}

// clearing lists the networks that have bits to clear, sorted by their text.
func (w *bitWork) clearing() []danm.NetworkRef {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.SortedFunc(maps.Keys(w.clears), compareRefs)
}

// takeClears empties and returns the clears of a network. Whoever fails to do
// them adds them again.
func (w *bitWork) takeClears(ref danm.NetworkRef) map[bit]clearRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.clears[ref]
	delete(w.clears, ref)
	return taken
}

func (w *bitWork) takeRepairs(ref danm.NetworkRef) map[string]*danm.Endpoint {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.repairs[ref]
	delete(w.repairs, ref)
	return taken
}

// reconcileNetwork does all the work on one network's bits. The queue lets only
// one worker at a time near a network, so our own writes never conflict.
func (c *controller) reconcileNetwork(ctx context.Context, ref danm.NetworkRef) (time.Duration, error) {
	if err := c.repair(ctx, ref); err != nil {
		return 0, err
	}
	after, err := c.clearReleased(ctx, ref)
	if err != nil || after > 0 {
		return after, err
	}
	return 0, c.clearOrphans(ctx, ref)
}

// clearReleased clears the bits of endpoints that we deleted, as far as their
// lineage is proven. What cannot be proven is left to the orphan sweep.
func (c *controller) clearReleased(ctx context.Context, ref danm.NetworkRef) (time.Duration, error) {
	requests := c.bits.takeClears(ref)
	if len(requests) == 0 {
		return 0, nil
	}
	reserved, err := c.liveReservedIPs(ctx)
	if err != nil {
		c.putBack(ref, requests)
		return 0, err
	}
	network, err := c.liveNetwork(ctx, ref)
	if err != nil {
		c.putBack(ref, requests)
		return 0, err
	}
	if network == nil {
		return 0, nil
	}
	if network.IsPaused() {
		return 0, nil // the bits are left to the sweep, for after the pause
	}
	rises, ok := c.lineage.at(ref, network.UID, network.ResourceVersion)
	if !ok {
		return c.waitForWatch(ref, requests), nil
	}
	ps := openPools(network)
	cleared := map[bit]clearRequest{}
	for _, b := range sortedBits(requests) {
		r := requests[b]
		if why := c.whyNotClear(network, ps, b, r, rises, reserved.setAside); why != "" {
			c.log.V(1).Info("bit left alone", "network", ref.String(), "address", r.addr.String(), "why", why)
			continue
		}
		ps[b.family].Clear(b.index)
		cleared[b] = r
	}
	if len(cleared) == 0 {
		return 0, nil
	}
	// Whether this write took effect or not, the proof is made afresh before
	// the next: a bit that somebody set since then no longer has one.
	if err := c.patchAlloc(ctx, network, ps.changes(network)); err != nil {
		c.putBack(ref, cleared)
		return 0, err
	}
	for _, b := range sortedBits(cleared) {
		r := cleared[b]
		c.metrics.cleared.WithLabelValues(byLineage).Inc()
		c.log.Info("released address", "network", ref.String(), "networkResourceVersion", network.ResourceVersion,
			"address", r.addr.String(), "endpointUID", r.endpoint.UID, "pod", r.endpoint.Namespace+"/"+r.endpoint.Spec.Pod,
			"podUID", r.endpoint.Spec.PodUID, "ownerSeenAlive", r.aliveAt, "setSince", rises[b].since)
		c.recordClear(network, r, rises[b].since)
	}
	return 0, nil
}

// waitForWatch puts the clears back until the watch has seen what the live
// read saw, and gives up on those that waited too often.
func (c *controller) waitForWatch(ref danm.NetworkRef, requests map[bit]clearRequest) time.Duration {
	waiting := map[bit]clearRequest{}
	for b, r := range requests {
		if r.tries++; r.tries < lagTriesMax {
			waiting[b] = r
		}
	}
	c.putBack(ref, waiting)
	if len(waiting) == 0 {
		return 0
	}
	return lagDelay
}

func (c *controller) putBack(ref danm.NetworkRef, requests map[bit]clearRequest) {
	for b, r := range requests {
		c.bits.addClear(ref, b, r)
	}
}

// whyNotClear returns why the bit of a deleted endpoint must not be cleared
// now, or "" if everything is proven.
func (c *controller) whyNotClear(n *danm.Network, ps pools, b bit, r clearRequest, rises map[bit]rise, isSetAside setAside) string {
	switch {
	case !ps.covers(b, r.addr):
		return "the network's prefix has changed"
	case ps.isReserved(b):
		return "reserved"
	case !ps.isSet(b):
		return "already clear"
	case len(c.otherClaims(n.Ref(), r)) > 0:
		return "another endpoint claims the address"
	case isSetAside(n.Ref(), r.addr):
		return "ReservedIP"
	case r.aliveAt.IsZero():
		return "owner never seen alive, left to the sweep"
	case !rises[b].since.Before(r.aliveAt):
		return "set again since the owner was seen alive, left to the sweep"
	}
	return ""
}

func (c *controller) otherClaims(ref danm.NetworkRef, r clearRequest) []*danm.Endpoint {
	return slices.DeleteFunc(c.caches.endpointsBy(byAddress, addressKey(ref, r.addr)), func(ep *danm.Endpoint) bool {
		return ep.UID == r.endpoint.UID
	})
}

// repair sets the bits of living endpoints again (R6). Everything is read live
// first: an ordinary CNI DEL also clears the bit before the endpoint goes.
func (c *controller) repair(ctx context.Context, ref danm.NetworkRef) error {
	wanted := c.bits.takeRepairs(ref)
	if len(wanted) == 0 {
		return nil
	}
	network, err := c.liveNetwork(ctx, ref)
	if err != nil || network == nil {
		return err
	}
	ps := openPools(network)
	var repaired []*danm.Endpoint
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		ep, err := c.confirmLiving(ctx, wanted[key])
		if err != nil {
			return err
		}
		if ep != nil && setMissing(ps, ep) {
			repaired = append(repaired, ep)
		}
	}
	if len(repaired) == 0 {
		return nil
	}
	if c.cfg.DryRun {
		for _, ep := range repaired {
			c.reportRepair("would set bit of living pod again", ep)
		}
		return nil
	}
	if err := c.patchAlloc(ctx, network, ps.changes(network)); err != nil {
		for _, ep := range repaired {
			c.bits.addRepair(ep)
		}
		return err
	}
	for _, ep := range repaired {
		c.metrics.repaired.Inc()
		c.reportRepair("set bit of living pod again", ep)
		c.events.Eventf(endpointReference(c.danm.Group, ep), corev1.EventTypeWarning, "AddressRepaired",
			"%s was marked free in %s while pod %s held it; marked allocated again",
			addressText(ep), ref, ep.Spec.Pod)
	}
	return nil
}

func (c *controller) reportRepair(message string, ep *danm.Endpoint) {
	c.log.Info(message, "endpoint", ep.Namespace+"/"+ep.Name, "pod", ep.Namespace+"/"+ep.Spec.Pod,
		"podUID", ep.Spec.PodUID, "network", ep.Network().String(), "address", addressText(ep))
}

// confirmLiving reads endpoint and owner again, nil if either is gone or going.
func (c *controller) confirmLiving(ctx context.Context, cached *danm.Endpoint) (*danm.Endpoint, error) {
	ep, err := c.liveEndpoint(ctx, cached)
	if err != nil || ep == nil {
		return nil, err
	}
	pod, err := c.livePod(ctx, ep)
	if err != nil || pod == nil || !isVouching(pod) {
		return nil, err
	}
	e := c.endpointEvidence(ep)
	e.Pod = podEvidence(pod, time.Time{})
	if ownership.Decide(e, c.cfg.policy(), c.clock.Now()).Action != ownership.Keep {
		return nil, nil
	}
	return ep, nil
}

// setMissing sets the endpoint's clear bits and tells whether there were any.
func setMissing(ps pools, ep *danm.Endpoint) bool {
	addrs, _ := ep.Addresses()
	any := false
	for _, a := range addrs {
		if b, ok := ps.find(a); ok && !ps.isSet(b) {
			ps[b.family].Set(b.index)
			any = true
		}
	}
	return any
}
