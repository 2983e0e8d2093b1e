package cleaner

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// vouchTriesMax bounds the live reads spent on one endpoint's lineage. An
// endpoint that nobody could vouch for is released all the same; only its bit
// takes the slower way through the orphan sweep.
const vouchTriesMax = 5

// tend looks after an endpoint with a living owner: its bits must be set, and
// somebody should vouch for their lineage.
func (c *controller) tend(ctx context.Context, ep *danm.Endpoint) (time.Duration, error) {
	network, ok := c.caches.network(ep.Network())
	if !ok {
		return 0, nil
	}
	ps := network.pools
	if isMissing(ps, ep) {
		if !c.cfg.scope.Repairs(ep.UID) {
			return 0, nil
		}
		return c.scheduleRepair(ep), nil
	}
	c.state.with(ep.UID, func(st *endpointState) { st.missingSince = time.Time{} })
	return c.vouch(ctx, ep, ps)
}

func isMissing(ps pools, ep *danm.Endpoint) bool {
	addrs, _ := ep.Addresses()
	for _, a := range addrs {
		if b, ok := ps.find(a); ok && !ps.isSet(b) {
			return true
		}
	}
	return false
}

// scheduleRepair asks for a repair once the bit has been clear for a while. A
// terminating pod is left to its CNI DEL.
func (c *controller) scheduleRepair(ep *danm.Endpoint) time.Duration {
	if pod, ok := c.caches.pod(ep.Namespace, ep.Spec.Pod); !ok || !isVouching(pod) {
		return 0
	}
	var left time.Duration
	now := c.clock.Now()
	c.state.with(ep.UID, func(st *endpointState) {
		if st.missingSince.IsZero() {
			st.missingSince = now
		}
		left = st.missingSince.Add(c.cfg.repairDelay()).Sub(now)
	})
	if left > 0 {
		return left
	}
	c.bits.addRepair(ep)
	c.networkQueue.AddAfter(ep.Network(), batchDelay) // the endpoint's siblings are due now, too
	return c.cfg.sweepPeriod()                        // to see that it helped
}

// vouch notes, by one live read of the pod, a moment at which the owner was
// alive and the bits were its own. Only that allows clearing them at once when
// the owner is gone; see lineage.
func (c *controller) vouch(ctx context.Context, ep *danm.Endpoint, ps pools) (time.Duration, error) {
	if ep.Spec.PodUID == "" || c.hasProof(ep, ps) || c.isAmbiguous(ep) {
		return 0, nil
	}
	tries := 0
	c.state.with(ep.UID, func(st *endpointState) { tries = st.vouchTries; st.vouchTries++ })
	switch {
	case tries == 0:
		return c.cfg.vouchDelay(), nil
	case tries > vouchTriesMax:
		return 0, nil
	}
	before := c.clock.Now()
	pod, err := c.livePod(ctx, ep)
	if err != nil {
		return 0, err
	}
	if pod == nil || pod.UID != ep.Spec.PodUID || !isVouching(pod) {
		return 0, nil
	}
	c.noteAlive(ep, pod, before)
	if !c.hasProof(ep, ps) {
		return c.cfg.vouchDelay(), nil // the network watch is behind
	}
	c.state.with(ep.UID, func(st *endpointState) { st.vouchTries = 0 })
	return 0, nil
}

// noteAlive keeps what a live read said. before is the time when it began.
func (c *controller) noteAlive(ep *danm.Endpoint, pod *corev1.Pod, before time.Time) {
	c.state.with(ep.UID, func(st *endpointState) {
		st.owner = owner{aliveAt: before, node: pod.Spec.NodeName, mirrorHash: mirrorHash(pod)}
	})
}

// hasProof tells whether every bit of the endpoint has been set since before
// its owner was last seen alive.
func (c *controller) hasProof(ep *danm.Endpoint, ps pools) bool {
	aliveAt := c.state.owner(ep.UID).aliveAt
	if aliveAt.IsZero() {
		return false
	}
	rises, ok := c.lineage.latest(ep.Network())
	if !ok {
		return false
	}
	addrs, _ := ep.Addresses()
	for _, a := range addrs {
		b, ok := ps.find(a)
		if ok && !ps.isReserved(b) && !isSetBefore(rises, b, aliveAt) {
			return false
		}
	}
	return true
}

func isSetBefore(rises map[bit]rise, b bit, t time.Time) bool {
	r, ok := rises[b]
	return ok && r.since.Before(t)
}

// isAmbiguous tells whether the owner has another endpoint for the same
// interface. Then one of the two belongs to an old sandbox, whose CNI DEL may
// have cleared the bit without anybody noticing: no lineage can be proven.
func (c *controller) isAmbiguous(ep *danm.Endpoint) bool {
	for _, other := range c.caches.endpointsBy(byPodUID, string(ep.Spec.PodUID)) {
		if other.UID != ep.UID && other.Namespace == ep.Namespace && other.Spec.Interface.Name == ep.Spec.Interface.Name {
			return true
		}
	}
	return false
}

func addressText(ep *danm.Endpoint) string {
	addrs, _ := ep.Addresses()
	texts := make([]string, len(addrs))
	for i, a := range addrs {
		texts[i] = a.String()
	}
	return strings.Join(texts, ", ")
}
