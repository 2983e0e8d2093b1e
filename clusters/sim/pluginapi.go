package sim

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
	"github.com/danm-chaos/danm-chaos/clusters/sim/apiserver"
)

// The CNI plugins are part of the world and not under test, so they come to the
// gate without client-go's HTTP and decode nothing that the server has decoded
// already. Their requests are the same as over HTTP, and wait as others do.
// Methods that no plugin uses are left nil, and panic.

// tooManyMax is how often client-go tries again when it is told to be slower.
const tooManyMax = 10

// retryAfter is the pace that a refusal asks for.
const retryAfter = time.Second

// pluginAPI is access to the API for the plugins: which of them calls, its
// context says.
type pluginAPI struct {
	gate *gate
	// legacy tells whether the plugin is so old that its endpoints carry no UID.
	legacy func() bool
}

// Resource implements dynamic.Interface.
func (p pluginAPI) Resource(r schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return pluginResource{api: p, resource: r}
}

// Pods implements typedcorev1.PodsGetter.
func (p pluginAPI) Pods(namespace string) typedcorev1.PodInterface {
	return pluginPods{api: p, namespace: namespace}
}

// send passes a request through the gate and returns the answer.
func (p pluginAPI) send(ctx context.Context, r apiserver.Request) (apiserver.Response, error) {
	a, ok := ctx.Value(actorKey{}).(*actor)
	if !ok {
		return apiserver.Response{}, fmt.Errorf("%s %s: no plugin is named by the context", r.Method, r.Path)
	}
	r.User, r.Accept = a.user, apiserver.ContentObjects
	for attempt := 1; ; attempt++ {
		response, err := p.try(ctx, r, a)
		if err != nil {
			return response, fmt.Errorf("%s %s: %w", r.Method, r.Path, err)
		}
		if response.Code != http.StatusTooManyRequests || attempt > tooManyMax {
			return response, refused(response)
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
			return response, ctx.Err()
		}
	}
}

func (p pluginAPI) try(ctx context.Context, r apiserver.Request, a *actor) (apiserver.Response, error) {
	switch {
	case ctx.Err() != nil:
		return apiserver.Response{}, ctx.Err()
	case a.isDead.Load():
		return apiserver.Response{}, errDead
	}
	c := newCall(r, a)
	if name := danmcni.InterfaceOf(ctx); name != "" {
		c.key += " for " + name
	}
	got, err := p.gate.pass(ctx, c)
	if err != nil {
		return apiserver.Response{}, err
	}
	return got.response, nil
}

// refused returns the error that a response stands for, as client-go does.
func refused(r apiserver.Response) error {
	if r.Code < http.StatusBadRequest {
		return nil
	}
	return apierrors.FromObject(r.Status)
}

// pluginResource is one resource, in all namespaces or in one.
type pluginResource struct {
	dynamic.NamespaceableResourceInterface
	api       pluginAPI
	resource  schema.GroupVersionResource
	namespace string
}

// Namespace implements dynamic.NamespaceableResourceInterface.
func (p pluginResource) Namespace(namespace string) dynamic.ResourceInterface {
	p.namespace = namespace
	return p
}

func (p pluginResource) path(name string) string {
	path := "/apis/" + p.resource.Group + "/" + p.resource.Version
	if p.namespace != "" {
		path += "/namespaces/" + p.namespace
	}
	path += "/" + p.resource.Resource
	if name != "" {
		path += "/" + name
	}
	return path
}

// one sends a request whose answer is one object. It is the server's own: who
// changes it makes a copy first.
func (p pluginResource) one(ctx context.Context, r apiserver.Request) (*unstructured.Unstructured, error) {
	response, err := p.api.send(ctx, r)
	if err != nil {
		return nil, err
	}
	return response.Objects[0].(*unstructured.Unstructured), nil
}

// Get implements dynamic.ResourceInterface.
func (p pluginResource) Get(ctx context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	return p.one(ctx, apiserver.Request{Method: http.MethodGet, Path: p.path(name)})
}

// List implements dynamic.ResourceInterface.
func (p pluginResource) List(ctx context.Context, _ metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	response, err := p.api.send(ctx, apiserver.Request{Method: http.MethodGet, Path: p.path("")})
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{Items: make([]unstructured.Unstructured, len(response.Objects))}
	for i, object := range response.Objects {
		list.Items[i] = *object.(*unstructured.Unstructured)
	}
	return list, nil
}

// Create implements dynamic.ResourceInterface.
func (p pluginResource) Create(ctx context.Context, u *unstructured.Unstructured, _ metav1.CreateOptions, _ ...string) (*unstructured.Unstructured, error) {
	if p.api.legacy() {
		unstructured.RemoveNestedField(u.Object, "spec", "PodUID")
	}
	return p.write(ctx, http.MethodPost, "", u)
}

// Update implements dynamic.ResourceInterface.
func (p pluginResource) Update(ctx context.Context, u *unstructured.Unstructured, _ metav1.UpdateOptions, _ ...string) (*unstructured.Unstructured, error) {
	return p.write(ctx, http.MethodPut, u.GetName(), u)
}

// Patch implements dynamic.ResourceInterface.
func (p pluginResource) Patch(ctx context.Context, name string, pt types.PatchType, patch []byte, _ metav1.PatchOptions, _ ...string) (*unstructured.Unstructured, error) {
	return p.one(ctx, apiserver.Request{Method: http.MethodPatch, Path: p.path(name), ContentType: string(pt), Body: patch})
}

// Delete implements dynamic.ResourceInterface.
func (p pluginResource) Delete(ctx context.Context, name string, o metav1.DeleteOptions, _ ...string) error {
	_, err := p.api.send(ctx, apiserver.Request{Method: http.MethodDelete, Path: p.path(name), Deletion: &o})
	return err
}

// write sends an object, which is the server's from then on.
func (p pluginResource) write(ctx context.Context, method, name string, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return p.one(ctx, apiserver.Request{Method: method, Path: p.path(name), Object: u})
}

// pluginPods are the pods of a namespace.
type pluginPods struct {
	typedcorev1.PodInterface
	api       pluginAPI
	namespace string
}

// Get implements typedcorev1.PodInterface.
func (p pluginPods) Get(ctx context.Context, name string, _ metav1.GetOptions) (*corev1.Pod, error) {
	response, err := p.api.send(ctx, apiserver.Request{
		Method: http.MethodGet, Path: podPath(p.namespace, name),
	})
	if err != nil {
		return nil, err
	}
	return response.Objects[0].(*corev1.Pod), nil
}
