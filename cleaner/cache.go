package cleaner

import (
	"iter"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// Indexes over the endpoint cache, so that no question needs a list.
const (
	byPod     = "pod"     // namespace/pod name
	byPodUID  = "podUID"  // UID of the owner
	byNetwork = "network" // NetworkRef as text
	byAddress = "address" // NetworkRef as text + " " + address
)

// malformed stands in the caches for an object that cannot be converted. It
// keeps the place, so that the object is reported and not forgotten.
type malformed struct {
	metav1.ObjectMeta
	err error
}

// informer keeps one cache and tells one handler of each change, in order and
// after the cache has it. client-go's shared informers, made for many handlers,
// give each of them two goroutines and a buffer of its own.
type informer struct {
	cache.Controller
	store cache.Store
}

// listeners hear of changes. They are called between one event and the next, so
// all that they do is to note them.
type listeners struct{ pods, endpoints, networks cache.ResourceEventHandler }

// caches are the informers' stores. What they say may be old: enough to
// suspect, never enough to release.
type caches struct {
	pods      informer
	nodes     informer
	endpoints informer
	index     cache.Indexer // of the endpoints
	networks  map[danm.NetworkKind]informer
}

func newCaches(cl clients, have map[string]bool, l *lineage, hear listeners) *caches {
	c := &caches{networks: map[danm.NetworkKind]informer{}}
	api := cl.core.CoreV1().RESTClient()
	c.pods = newInformer(cache.InformerOptions{
		ListerWatcher: coreListWatch(api, "/api/v1/pods"), ObjectType: &corev1.Pod{}, Transform: trimPod, Handler: hear.pods,
	})
	c.nodes = newInformer(cache.InformerOptions{
		ListerWatcher: coreListWatch(api, "/api/v1/nodes"), ObjectType: &corev1.Node{}, Transform: trimNode, Handler: cache.ResourceEventHandlerFuncs{},
	})
	c.endpoints = newInformer(cache.InformerOptions{
		ListerWatcher: listWatch(cl.danm.Endpoints("")), ObjectType: &unstructured.Unstructured{},
		Transform: transformEndpoint, Handler: hear.endpoints, Indexers: endpointIndexers(),
	})
	c.index = c.endpoints.store.(cache.Indexer) // it is one, as there are indexers
	for _, kind := range danm.NetworkKinds() {
		if have[kind.Resource()] {
			c.networks[kind] = newInformer(cache.InformerOptions{
				ListerWatcher: networkListWatch(cl.danm.Networks(kind, ""), kind, l), ObjectType: &unstructured.Unstructured{},
				Transform: transformNetwork(kind), Handler: hear.networks,
			})
		}
	}
	return c
}

func newInformer(o cache.InformerOptions) informer {
	store, controller := cache.NewInformerWithOptions(o)
	return informer{controller, store}
}

// all returns every informer in a fixed order.
func (c *caches) all() []informer {
	list := []informer{c.pods, c.nodes, c.endpoints}
	for _, kind := range danm.NetworkKinds() {
		if network, ok := c.networks[kind]; ok {
			list = append(list, network)
		}
	}
	return list
}

func (c *caches) endpoint(key string) (*danm.Endpoint, bool) {
	object, _, _ := c.endpoints.store.GetByKey(key)
	ep, ok := object.(*danm.Endpoint)
	return ep, ok
}

func (c *caches) network(ref danm.NetworkRef) (*openNetwork, bool) {
	informer, ok := c.networks[ref.Kind]
	if !ok {
		return nil, false
	}
	object, _, _ := informer.store.GetByKey(storeKey(ref.Namespace, ref.Name))
	n, ok := object.(*openNetwork)
	return n, ok
}

func (c *caches) pod(namespace, name string) (*corev1.Pod, bool) {
	object, _, _ := c.pods.store.GetByKey(storeKey(namespace, name))
	pod, ok := object.(*corev1.Pod)
	return pod, ok
}

func (c *caches) node(name string) (*corev1.Node, bool) {
	object, _, _ := c.nodes.store.GetByKey(name)
	node, ok := object.(*corev1.Node)
	return node, ok
}

// everyEndpoint yields the cached endpoints that can be read, in no order.
func (c *caches) everyEndpoint() iter.Seq[*danm.Endpoint] {
	return func(yield func(*danm.Endpoint) bool) {
		for _, object := range c.endpoints.store.List() {
			if ep, ok := object.(*danm.Endpoint); ok && !yield(ep) {
				return
			}
		}
	}
}

// endpointsBy returns the cached endpoints under a value of one of the indexes.
func (c *caches) endpointsBy(index, value string) []*danm.Endpoint {
	objects, err := c.index.ByIndex(index, value)
	if err != nil {
		panic(err) // the index is one of our own constants
	}
	var eps []*danm.Endpoint
	for _, object := range objects {
		if ep, ok := object.(*danm.Endpoint); ok {
			eps = append(eps, ep)
		}
	}
	return eps
}

func storeKey(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

func addressKey(ref danm.NetworkRef, a netip.Addr) string { return ref.String() + " " + a.String() }

func endpointIndexers() cache.Indexers {
	index := func(keys func(*danm.Endpoint) []string) cache.IndexFunc {
		return func(object any) ([]string, error) {
			if ep, ok := object.(*danm.Endpoint); ok {
				return keys(ep), nil
			}
			return nil, nil
		}
	}
	return cache.Indexers{
		byPod:     index(func(ep *danm.Endpoint) []string { return []string{ep.Namespace + "/" + ep.Spec.Pod} }),
		byPodUID:  index(func(ep *danm.Endpoint) []string { return []string{string(ep.Spec.PodUID)} }),
		byNetwork: index(func(ep *danm.Endpoint) []string { return []string{ep.Network().String()} }),
		byAddress: index(addressKeys),
	}
}

// addressKeys leaves out what cannot be parsed; the endpoint itself is reported
// as malformed by whoever reconciles it.
func addressKeys(ep *danm.Endpoint) []string {
	var keys []string
	addrs, _ := ep.Addresses()
	for _, a := range addrs {
		keys = append(keys, addressKey(ep.Network(), a))
	}
	return keys
}

func transformEndpoint(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	ep, err := danm.ToEndpoint(u)
	if err != nil {
		return newMalformed(u, err), nil
	}
	ep.Labels, ep.Annotations = nil, nil
	return ep, nil
}

func transformNetwork(kind danm.NetworkKind) cache.TransformFunc {
	return func(object any) (any, error) {
		u, ok := object.(*unstructured.Unstructured)
		if !ok {
			return object, nil
		}
		n, err := danm.ToNetwork(u)
		if err != nil {
			return newMalformed(u, err), nil
		}
		n.Kind = string(kind)
		return opened(n), nil
	}
}

// openNetwork is a network in the caches. Its pools are parsed once for all who
// look at them; nobody may change them.
type openNetwork struct {
	*danm.Network
	pools pools
}

func opened(n *danm.Network) *openNetwork { return &openNetwork{n, openPools(n)} }

func newMalformed(u *unstructured.Unstructured, err error) *malformed {
	return &malformed{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
		},
		err: err,
	}
}

// trimPod keeps what evidence is made of; a cluster has many pods.
func trimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	trimmed := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{Phase: pod.Status.Phase},
	}
	keys := []string{mirrorAnnotation, hashAnnotation}
	if pod.Status.Phase == corev1.PodPending { // it may wait for an address that it asks for
		keys = append(keys, danm.GroupDanmIO.InterfacesAnnotation(), danm.GroupDanmK8sIO.InterfacesAnnotation())
	}
	for _, key := range keys {
		if value, ok := pod.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&trimmed.ObjectMeta, key, value)
		}
	}
	return trimmed, nil
}

// trimNode keeps what fencing is made of.
func trimNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion,
			Labels: map[string]string{corev1.LabelHostname: node.Labels[corev1.LabelHostname]},
		},
		Spec:   corev1.NodeSpec{Taints: node.Spec.Taints},
		Status: corev1.NodeStatus{Conditions: node.Status.Conditions},
	}, nil
}
