package danm

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// Client reads and writes the objects of one group. Its reads are quorum reads
// unless the options say otherwise. It keeps objects unstructured on the wire,
// so that one malformed object cannot spoil a whole list.
type Client struct {
	Group   Group
	Dynamic dynamic.Interface
}

// NewClient returns a client for the group.
func NewClient(d dynamic.Interface, g Group) *Client { return &Client{Group: g, Dynamic: d} }

// Endpoints gives access to the endpoints of a namespace, or of all with "".
func (c *Client) Endpoints(namespace string) dynamic.ResourceInterface {
	return c.Dynamic.Resource(c.Group.Resource(EndpointResource)).Namespace(namespace)
}

// Networks gives access to the networks of a kind; namespace is ignored for
// ClusterNetwork.
func (c *Client) Networks(kind NetworkKind, namespace string) dynamic.ResourceInterface {
	r := c.Dynamic.Resource(c.Group.Resource(kind.Resource()))
	if kind.IsNamespaced() {
		return r.Namespace(namespace)
	}
	return r
}

// GetEndpoint reads one endpoint. API errors stay recognisable by apierrors.
func (c *Client) GetEndpoint(ctx context.Context, namespace, name string) (*Endpoint, error) {
	u, err := c.Endpoints(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return ToEndpoint(u)
}

// DeleteEndpoint deletes exactly the endpoint that the caller read: another
// UID or resourceVersion is answered by a Conflict, absence by a NotFound.
func (c *Client) DeleteEndpoint(ctx context.Context, read *Endpoint) error {
	uid, rv := read.UID, read.ResourceVersion
	return c.Endpoints(read.Namespace).Delete(ctx, read.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &rv},
	})
}

// GetNetwork reads one network. API errors stay recognisable by apierrors.
func (c *Client) GetNetwork(ctx context.Context, ref NetworkRef) (*Network, error) {
	u, err := c.Networks(ref.Kind, ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return ToNetwork(u)
}

// AllocChange replaces one bitmap of a network.
type AllocChange struct {
	Family   Family
	Old, New string // base64, as read and as it shall be
}

// PatchAlloc replaces bitmaps of the network that the caller read, if and only
// if it is still exactly that version. A changed network is answered by an
// Invalid or Conflict error, for which IsChanged returns true. Nothing but
// alloc and alloc6 is ever written. It returns the network after the write.
func (c *Client) PatchAlloc(ctx context.Context, read *Network, changes []AllocChange) (*Network, error) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value string `json:"value"`
	}
	ops := []operation{
		{"test", "/metadata/uid", string(read.UID)},
		{"test", "/metadata/resourceVersion", read.ResourceVersion},
	}
	for _, ch := range changes {
		path := "/spec/Options/" + ch.Family.Field()
		ops = append(ops, operation{"test", path, ch.Old}, operation{"replace", path, ch.New})
	}
	patch, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("encoding patch: %w", err)
	}
	ref := read.Ref()
	var u *unstructured.Unstructured
	u, err = c.Networks(ref.Kind, ref.Namespace).Patch(ctx, ref.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, err
	}
	return ToNetwork(u)
}

// IsChanged tells whether a write was refused because the object is no longer
// what the caller read. A failed test of a JSON patch is answered by Invalid, a
// lost race inside the API server by Conflict.
func IsChanged(err error) bool { return apierrors.IsConflict(err) || apierrors.IsInvalid(err) }
