package cleaner

import (
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
