package controlplane

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/deploy"
)

var crdResource = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// installCRDs creates DANM's resources and returns when all are served.
func installCRDs(ctx context.Context, client dynamic.Interface, group danm.Group) error {
	crds, err := deploy.CRDs(group)
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if _, err := client.Resource(crdResource).Create(ctx, crd, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating CRD %s: %w", crd.GetName(), err)
		}
	}
	for _, crd := range crds {
		if err := waitServed(ctx, client, crd, group); err != nil {
			return fmt.Errorf("waiting for CRD %s to be served: %w", crd.GetName(), err)
		}
	}
	return nil
}

// waitServed waits for the condition and then for a first answer: the server
// says Established shortly before it answers requests.
func waitServed(ctx context.Context, client dynamic.Interface, crd *unstructured.Unstructured, group danm.Group) error {
	plural, _, err := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	if err != nil {
		return err
	}
	return poll(ctx, func(ctx context.Context) (bool, error) {
		now, err := client.Resource(crdResource).Get(ctx, crd.GetName(), metav1.GetOptions{})
		if err != nil || !isEstablished(now) {
			return false, err
		}
		_, err = client.Resource(group.Resource(plural)).List(ctx, metav1.ListOptions{Limit: 1})
		// Until it is served there is no such path, and just after that its
		// storage may still be starting.
		if apierrors.IsNotFound(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) {
			return false, nil
		}
		return err == nil, err
	})
}

func isEstablished(crd *unstructured.Unstructured) bool {
	conditions, _, err := unstructured.NestedSlice(crd.Object, "status", "conditions")
	if err != nil {
		return false
	}
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "Established" {
			return m["status"] == "True"
		}
	}
	return false
}
