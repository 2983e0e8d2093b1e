package cleaner

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
)

// tellWaiter puts an Event on the pod that has the former owner's name and
// cannot start, once per pod: with a static address it waits for exactly this
// endpoint, and nothing else would tell its user so.
func (c *controller) tellWaiter(ep *danm.Endpoint, why ownership.Reason) {
	pod, ok := c.caches.pod(ep.Namespace, ep.Spec.Pod)
	if !ok || pod.UID == ep.Spec.PodUID || pod.Status.Phase != corev1.PodPending {
		return
	}
	isNews := false
	c.state.with(ep.UID, func(st *endpointState) { isNews, st.waiter = st.waiter != pod.UID, pod.UID })
	if !isNews {
		return
	}
	c.events.Eventf(podReference(pod), corev1.EventTypeWarning, "AddressHeld",
		"%s is held by endpoint %s of the pod's predecessor %s on node %s: %s",
		addressText(ep), ep.Name, ep.Spec.PodUID, ep.Spec.Host, why)
}

// isAwaited tells whether pod, which has the owner's name, cannot start before
// the endpoint is gone: it is another pod, it asks for one of the endpoint's
// addresses by name, and that address is still its predecessor's for certain.
func (c *controller) isAwaited(ep *danm.Endpoint, pod *corev1.Pod) bool {
	if pod.UID == ep.Spec.PodUID || pod.Status.Phase != corev1.PodPending || pod.DeletionTimestamp != nil {
		return false
	}
	network, ok := c.caches.network(ep.Network())
	return ok && asksFor(c.danm.Group, pod, ep) && c.hasProof(ep, network.pools)
}

// asksFor tells whether the pod's annotation names an address of the endpoint.
func asksFor(g danm.Group, pod *corev1.Pod, ep *danm.Endpoint) bool {
	requests, err := danm.Requests(g, pod)
	if err != nil {
		return false // such a pod gets no address at all
	}
	addrs, _ := ep.Addresses()
	for _, r := range requests {
		for _, a := range []danm.AddressRequest{r.IPv4, r.IPv6} {
			if r.Network == ep.Network() && a.Kind == danm.Static && slices.Contains(addrs, a.Addr) {
				return true
			}
		}
	}
	return false
}
