package clusters

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// CleanerPod is a pod that the cleaner under test runs in.
type CleanerPod struct {
	Namespace, Name, UID, Container string
	Leads                           bool // it holds the Lease
}

// CleanerPodLister is a cluster whose cleaner runs in pods.
type CleanerPodLister interface {
	// CleanerPods returns those that run and are to go on, by name.
	CleanerPods(ctx context.Context) ([]CleanerPod, error)
}

// ListCleanerPods finds the pods that a Deployment of a cleaner has, and which
// of them leads: a replica names itself after its pod in the Lease.
func ListCleanerPods(ctx context.Context, core kubernetes.Interface, namespace, selector string) ([]CleanerPod, error) {
	pods, err := core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("listing the cleaner's pods: %w", err)
	}
	holders, err := leaseHolders(ctx, core, namespace)
	if err != nil {
		return nil, err
	}
	var found []CleanerPod
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		leads := slices.ContainsFunc(holders, func(h string) bool { return h == pod.Name || strings.HasPrefix(h, pod.Name+"_") })
		found = append(found, CleanerPod{
			Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Container: pod.Spec.Containers[0].Name, Leads: leads,
		})
	}
	slices.SortFunc(found, func(a, b CleanerPod) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

func leaseHolders(ctx context.Context, core kubernetes.Interface, namespace string) ([]string, error) {
	leases, err := core.CoordinationV1().Leases(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the cleaner's Leases: %w", err)
	}
	var holders []string
	for i := range leases.Items {
		if holder := leases.Items[i].Spec.HolderIdentity; holder != nil {
			holders = append(holders, *holder)
		}
	}
	return holders, nil
}
