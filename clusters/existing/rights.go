package existing

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/nemesis/chaosmesh"
)

// Right is one thing that a run must be allowed to do, in all namespaces.
type Right struct {
	Group, Resource, Verb string
	Why                   string
}

func (r Right) String() string {
	if r.Group == "" {
		return r.Verb + " " + r.Resource
	}
	return r.Verb + " " + r.Resource + "." + r.Group
}

// rightsFor lists what a run needs, and nothing that it does not.
func rightsFor(o Options, served []danm.NetworkKind) []Right {
	var all []Right
	add := func(group, resource, why string, verbs ...string) {
		for _, verb := range verbs {
			all = append(all, Right{group, resource, verb, why})
		}
	}
	add("", "namespaces", "every lane has its own", "get", "list", "create", "delete")
	add("", "pods", "the workload is watched, and its pods are deleted", "list", "watch", "delete")
	add("", "pods/eviction", "pods are evicted", "create")
	add("", "nodes", "workers are labelled, cordoned and tainted, and given back", "get", "list", "watch", "patch")
	add("apps", "statefulsets", "the workload, and its scale", "list", "create", "patch", "delete")
	add("coordination.k8s.io", "leases", "the leading replica of the cleaner is found", "list", "watch")
	add("apps", "deployments", "the cleaner is found by its Deployment", "list")
	add(string(o.Group), danm.EndpointResource, "endpoints are compared with pods", "list", "watch")
	for _, kind := range served {
		add(string(o.Group), kind.Resource(), "bitmaps are compared with endpoints", "get", "list", "watch")
	}
	if o.UsesChaosMesh {
		all = append(all, meshRights()...)
	}
	for _, kind := range o.Kinds {
		add(string(o.Group), danm.NetworkKind(kind).Resource(), "every lane has a network of its own", "create", "delete")
	}
	return all
}

// meshRights are those that faults of Chaos Mesh take.
func meshRights() []Right {
	const cut = "a pod is cut off from the API server's addresses"
	all := []Right{{"", "services", "get", cut}, {"discovery.k8s.io", "endpointslices", "list", cut}}
	for _, verb := range []string{"get", "update"} {
		all = append(all, Right{"chaos-mesh.org", chaosmesh.PodNetworks, verb, "a fault that Chaos Mesh cannot undo is withdrawn from its pod"})
	}
	for _, resource := range chaosmesh.Resources() {
		for _, verb := range []string{"get", "list", "create", "patch", "delete"} {
			all = append(all, Right{"chaos-mesh.org", resource, verb, "Chaos Mesh is told what to break"})
		}
	}
	return all
}

// MissingRights asks the API server for each.
func MissingRights(ctx context.Context, core kubernetes.Interface, rights []Right) ([]Right, error) {
	var missing []Right
	for _, r := range rights {
		resource, subresource, _ := strings.Cut(r.Resource, "/")
		review, err := core.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: r.Group, Resource: resource, Subresource: subresource, Verb: r.Verb,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("asking for the right to %s: %w", r, err)
		}
		if !review.Status.Allowed {
			missing = append(missing, r)
		}
	}
	return missing, nil
}
