package danm

import (
	"context"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// WithOptions adds the options of a list or a watch to a request. client-go's own
// clients find out by reflection, each time, which of them are set.
func WithOptions(r *rest.Request, o metav1.ListOptions) *rest.Request {
	set := func(name, value string) {
		if value != "" {
			r = r.Param(name, value)
		}
	}
	set("labelSelector", o.LabelSelector)
	set("fieldSelector", o.FieldSelector)
	set("resourceVersion", o.ResourceVersion)
	set("resourceVersionMatch", string(o.ResourceVersionMatch))
	set("continue", o.Continue)
	set("shardSelector", o.ShardSelector)
	if o.Watch {
		set("watch", "true")
	}
	if o.AllowWatchBookmarks {
		set("allowWatchBookmarks", "true")
	}
	if o.Limit != 0 {
		set("limit", strconv.FormatInt(o.Limit, 10))
	}
	if o.TimeoutSeconds != nil {
		set("timeoutSeconds", strconv.FormatInt(*o.TimeoutSeconds, 10))
	}
	if o.SendInitialEvents != nil {
		set("sendInitialEvents", strconv.FormatBool(*o.SendInitialEvents))
	}
	return r
}

// dynamicClient is client-go's, but for lists and watches.
type dynamicClient struct {
	dynamic.Interface
	client rest.Interface
}

// Resource implements dynamic.Interface.
func (c dynamicClient) Resource(r schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	all := c.Interface.Resource(r)
	return resourceClient{ResourceInterface: all, all: all, client: c.client, resource: r}
}

// resourceClient is one resource, in all namespaces or in one.
type resourceClient struct {
	dynamic.ResourceInterface
	all       dynamic.NamespaceableResourceInterface
	client    rest.Interface
	resource  schema.GroupVersionResource
	namespace string
}

// Namespace implements dynamic.NamespaceableResourceInterface.
func (c resourceClient) Namespace(namespace string) dynamic.ResourceInterface {
	c.ResourceInterface, c.namespace = c.all.Namespace(namespace), namespace
	return c
}

// isOdd tells whether client-go is to refuse the namespace.
func (c resourceClient) isOdd() bool { return len(rest.IsValidPathSegmentName(c.namespace)) > 0 }

func (c resourceClient) get(o metav1.ListOptions) *rest.Request {
	path := "/apis/" + c.resource.Group + "/" + c.resource.Version
	if c.namespace != "" {
		path += "/namespaces/" + c.namespace
	}
	return WithOptions(c.client.Get().AbsPath(path+"/"+c.resource.Resource), o)
}

// List implements dynamic.ResourceInterface.
func (c resourceClient) List(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	if c.isOdd() {
		return c.ResourceInterface.List(ctx, o)
	}
	list := &unstructured.UnstructuredList{}
	if err := c.get(o).Do(ctx).Into(list); err != nil {
		return nil, err
	}
	return list, nil
}

// Watch implements dynamic.ResourceInterface.
func (c resourceClient) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if c.isOdd() {
		return c.ResourceInterface.Watch(ctx, o)
	}
	o.Watch = true
	return c.get(o).Watch(ctx)
}
