package cleaner

import (
	"context"

	leasesv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

// leasesGetter gives access to Leases as far as an election needs it. Every
// replica sends such a request every other second for as long as it lives, so
// their URLs are not put together from their parts, several times for each.
type leasesGetter struct{ api rest.Interface }

// Leases implements coordinationv1.LeasesGetter.
func (g leasesGetter) Leases(namespace string) coordinationv1.LeaseInterface {
	usual := coordinationv1.New(g.api).Leases(namespace)
	return leaseClient{usual, g.api, "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"}
}

type leaseClient struct {
	coordinationv1.LeaseInterface
	api  rest.Interface
	path string
}

// Get implements coordinationv1.LeaseInterface.
func (c leaseClient) Get(ctx context.Context, name string, _ metav1.GetOptions) (*leasesv1.Lease, error) {
	return leaseOf(c.api.Get().AbsPath(c.path + "/" + name).Do(ctx))
}

// Create implements coordinationv1.LeaseInterface.
func (c leaseClient) Create(ctx context.Context, lease *leasesv1.Lease, _ metav1.CreateOptions) (*leasesv1.Lease, error) {
	return leaseOf(c.api.Post().AbsPath(c.path).Body(lease).Do(ctx))
}

// Update implements coordinationv1.LeaseInterface.
func (c leaseClient) Update(ctx context.Context, lease *leasesv1.Lease, _ metav1.UpdateOptions) (*leasesv1.Lease, error) {
	return leaseOf(c.api.Put().AbsPath(c.path + "/" + lease.Name).Body(lease).Do(ctx))
}

func leaseOf(r rest.Result) (*leasesv1.Lease, error) {
	lease := &leasesv1.Lease{}
	return lease, r.Into(lease)
}
