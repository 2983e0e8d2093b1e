package existing

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/nemesis/chaosmesh"
)

// right is one thing that a run must be allowed to do, in all namespaces.
type right struct {
	group, resource, verb string
	why                   string
}

func (r right) String() string {
	if r.group == "" {
		return r.verb + " " + r.resource
	}
	return r.verb + " " + r.resource + "." + r.group
}

// rightsFor lists what a run needs, and nothing that it does not.
func rightsFor(o Options, served []danm.NetworkKind) []right {
	var all []right
	add := func(group, resource, why string, verbs ...string) {
		for _, verb := range verbs {
			all = append(all, right{group, resource, verb, why})
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
func meshRights() []right {
	const cut = "a pod is cut off from the API server's addresses"
	all := []right{{"", "services", "get", cut}, {"discovery.k8s.io", "endpointslices", "list", cut}}
	for _, verb := range []string{"get", "update"} {
		all = append(all, right{"chaos-mesh.org", chaosmesh.PodNetworks, verb, "a fault that Chaos Mesh cannot undo is withdrawn from its pod"})
	}
	for _, resource := range chaosmesh.Resources() {
		for _, verb := range []string{"get", "list", "create", "patch", "delete"} {
			all = append(all, right{"chaos-mesh.org", resource, verb, "Chaos Mesh is told what to break"})
		}
	}
	return all
}

// missingRights asks the API server for each.
func (a access) missingRights(ctx context.Context, rights []right) ([]right, error) {
	var missing []right
	for _, r := range rights {
		resource, subresource, _ := strings.Cut(r.resource, "/")
		review, err := a.core.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: r.group, Resource: resource, Subresource: subresource, Verb: r.verb,
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
