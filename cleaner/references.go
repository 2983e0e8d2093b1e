package cleaner

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// References for Events.

func endpointReference(g danm.Group, ep *danm.Endpoint) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: g.GroupVersion().String(), Kind: danm.EndpointKind,
		Namespace: ep.Namespace, Name: ep.Name, UID: ep.UID,
	}
}

// ownerReference stands for the pod that owns the endpoint.
func ownerReference(ep *danm.Endpoint) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: ep.Namespace, Name: ep.Spec.Pod, UID: ep.Spec.PodUID,
	}
}

func podReference(pod *corev1.Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
	}
}

func networkReference(g danm.Group, n *danm.Network) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: g.GroupVersion().String(), Kind: n.Kind,
		Namespace: n.Namespace, Name: n.Name, UID: n.UID,
	}
}

// leaseReference stands for the cleaner itself.
func leaseReference(cfg Config) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: cfg.LeaseNamespace, Name: LeaseName,
	}
}
