package cleaner

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
)

// release confirms by a live read that the endpoint is an orphan, deletes it
// and hands its bits on. The order of the steps is the protocol's R3: pod,
// delete, and only then the bits. Dying after the delete leaks bits, which the
// sweep finds; the other order could free an address that was already given to
// another pod.
//
// Two reads of R3 are not made one by one for each endpoint:
//   - The endpoint is judged as the cache has it. DELETE carries that object's
//     UID and resourceVersion, so what is deleted is exactly what was judged,
//     and a cache that is behind costs a Conflict and nothing else.
//   - The network is read once for all bits that are ready together, by
//     clearReleased. It is not needed here: the proof for a bit is that the
//     watch shows it set without a gap from before the owner was seen alive up
//     to the very version that is patched, which is stronger than "the network
//     has not changed since r0".
func (c *controller) release(ctx context.Context, ep *danm.Endpoint) (time.Duration, error) {
	if c.isPausedNetwork(ep.Network()) {
		return c.cfg.sweepPeriod(), nil
	}
	evidence, err := c.liveEvidence(ctx, ep)
	if err != nil {
		return 0, err
	}
	now := c.clock.Now()
	decision := ownership.Decide(evidence, c.cfg.policy(), now)
	c.state.suspect(ep.UID, decision.Suspect, now)
	if decision.Action != ownership.Release {
		return c.lookAgain(ep, decision), nil
	}
	if why := c.frozen(); why != "" {
		return c.cfg.sweepPeriod(), nil
	}
	if c.cfg.DryRun {
		c.reportOnce(ep, decision)
		return c.cfg.sweepPeriod(), nil
	}
	network, _ := c.caches.network(ep.Network())
	return c.deleteOrphan(ctx, ep, network, decision)
}

func (c *controller) deleteOrphan(ctx context.Context, ep *danm.Endpoint, network *openNetwork, decision ownership.Decision) (time.Duration, error) {
	// Asked before the delete, because its event makes the state go.
	st := c.state.get(ep.UID)
	err := c.deleteEndpoint(ctx, ep)
	switch {
	case isGone(err), danm.IsChanged(err):
		// Somebody else acted, so nothing is ours to release. Should the endpoint
		// still be there, its event need not bring it back: a conflict may be
		// answered without any change.
		c.metrics.conflicts.WithLabelValues("endpoint").Inc()
		return c.cfg.sweepPeriod(), nil
	case err != nil:
		return 0, fmt.Errorf("releasing endpoint %s/%s: %w", ep.Namespace, ep.Name, err)
	}
	c.metrics.released.WithLabelValues(string(decision.Reason)).Inc()
	networkVersion := ""
	if network != nil {
		networkVersion = network.ResourceVersion
	}
	c.log.Info("released endpoint", "endpoint", ep.Namespace+"/"+ep.Name, "endpointUID", ep.UID,
		"resourceVersion", ep.ResourceVersion, "pod", ep.Namespace+"/"+ep.Spec.Pod, "podUID", ep.Spec.PodUID,
		"host", ep.Spec.Host, "interface", ep.Spec.Interface.Name, "network", ep.Network().String(),
		"networkResourceVersion", networkVersion, "address", ep.Spec.Interface.Address,
		"address6", ep.Spec.Interface.AddressIPv6, "reason", decision.Reason, "suspectSince", st.suspectSince)
	c.recordEndpoint(ep, networkVersion, decision.Reason, st)
	if network != nil {
		c.handOnBits(ep, network, st.owner)
	}
	return 0, nil
}

// batchDelay lets the bits of endpoints that are released or repaired one after
// the other gather, so that many go into one read and one patch of their network.
const batchDelay = 100 * time.Millisecond

// handOnBits queues the addresses of a deleted endpoint for clearing. network
// is what the cache has; which bit an address is, is checked again on the
// network that is patched.
func (c *controller) handOnBits(ep *danm.Endpoint, network *openNetwork, o owner) {
	addrs, err := ep.Addresses()
	if err != nil {
		c.log.Info("cannot read addresses, bits left to the sweep", "cause", err.Error())
		return
	}
	for _, addr := range addrs {
		if b, ok := network.pools.find(addr); ok {
			c.bits.addClear(network.Ref(), b, clearRequest{endpoint: ep, addr: addr, aliveAt: o.aliveAt})
		}
	}
	c.networkQueue.AddAfter(network.Ref(), batchDelay)
}

// reportOnce logs what a dry run would do, once per suspicion.
func (c *controller) reportOnce(ep *danm.Endpoint, decision ownership.Decision) {
	first := false
	c.state.with(ep.UID, func(st *endpointState) { first, st.reported = !st.reported, true })
	if first {
		c.log.Info("would release endpoint", "endpoint", ep.Namespace+"/"+ep.Name, "pod", ep.Namespace+"/"+ep.Spec.Pod,
			"podUID", ep.Spec.PodUID, "network", ep.Network().String(), "address", ep.Spec.Interface.Address,
			"address6", ep.Spec.Interface.AddressIPv6, "reason", decision.Reason)
	}
}

// liveNetwork reads a network, nil if there is none.
func (c *controller) liveNetwork(ctx context.Context, ref danm.NetworkRef) (*danm.Network, error) {
	if _, ok := c.caches.networks[ref.Kind]; !ok {
		return nil, nil // the cluster does not have such networks
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	n, err := c.danm.GetNetwork(ctx, ref)
	if isGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", ref, err)
	}
	return n, nil
}

// liveEndpoint reads the endpoint again, nil if that very object is gone.
func (c *controller) liveEndpoint(ctx context.Context, cached *danm.Endpoint) (*danm.Endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ep, err := c.danm.GetEndpoint(ctx, cached.Namespace, cached.Name)
	if isGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading endpoint %s/%s: %w", cached.Namespace, cached.Name, err)
	}
	if ep.UID != cached.UID {
		return nil, nil
	}
	return ep, nil
}

// deleteEndpoint, like every write, is not broken off by the end of ctx: what
// was sent may take effect all the same, and nobody would know.
func (c *controller) deleteEndpoint(ctx context.Context, ep *danm.Endpoint) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	return c.danm.DeleteEndpoint(ctx, ep)
}

// patchAlloc writes the pools' changed bitmaps, on the condition that the
// network is still what was read.
func (c *controller) patchAlloc(ctx context.Context, read *danm.Network, changes []danm.AllocChange) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	_, err := c.danm.PatchAlloc(ctx, read, changes)
	if danm.IsChanged(err) {
		c.metrics.conflicts.WithLabelValues("network").Inc()
	}
	if err != nil {
		return fmt.Errorf("writing bitmap of %s: %w", read.Ref(), err)
	}
	return nil
}

// clearRequest is an address whose endpoint we deleted.
type clearRequest struct {
	endpoint *danm.Endpoint
	addr     netip.Addr
	aliveAt  time.Time // zero: nobody vouched for the owner
	tries    int
}
