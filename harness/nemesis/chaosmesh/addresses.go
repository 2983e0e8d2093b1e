package chaosmesh

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// APIServerAddresses are those that pods reach the API server by, in order.
func APIServerAddresses(ctx context.Context, core kubernetes.Interface) ([]string, error) {
	const service = "kubernetes"
	var addresses []string
	s, err := core.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, service, metav1.GetOptions{})
	if err == nil && s.Spec.ClusterIP != corev1.ClusterIPNone {
		addresses = append(addresses, s.Spec.ClusterIPs...)
	}
	found, errSlices := core.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + service})
	if err := errors.Join(ignoreNotFound(err), ignoreNotFound(errSlices)); err != nil {
		return nil, fmt.Errorf("finding the API server's addresses: %w", err)
	}
	if found != nil {
		for i := range found.Items {
			for _, e := range found.Items[i].Endpoints {
				addresses = append(addresses, e.Addresses...)
			}
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses), nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
