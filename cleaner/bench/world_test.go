package bench_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
)

// concurrency is the number of requests under way at the same time, for
// everything that is measured or made here. It is the cleaner's default too.
const concurrency = 16

const cidr = "10.16.0.0/16"

// world makes pods, networks and endpoints as the harness.
type world struct {
	t    *testing.T
	core kubernetes.Interface
	danm *danm.Client
}

func newWorld(t *testing.T, c *controlplane.Cluster) *world {
	t.Helper()
	config, err := c.RESTConfig(clusters.UserHarness)
	if err != nil {
		t.Fatal(err)
	}
	dyn := dynamic.NewForConfigOrDie(config)
	config = rest.CopyConfig(config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	return &world{t: t, core: kubernetes.NewForConfigOrDie(config), danm: danm.NewClient(dyn, group)}
}

// parallel calls f with 0 to n-1, as many at once as concurrency says, and
// fails the test with the first error.
func parallel(t *testing.T, n int, f func(ctx context.Context, i int) error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	next := make(chan int)
	var workers sync.WaitGroup
	for range concurrency {
		workers.Go(func() {
			for i := range next {
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	workers.Wait()
	if err := context.Cause(ctx); err != nil {
		t.Fatal(err)
	}
}

func (w *world) createNamespace(name string) {
	w.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := w.core.CoreV1().Namespaces().Create(w.t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// createPods makes pods that no scheduler cares about and returns their UIDs.
func (w *world) createPods(namespace, prefix string, n int) []types.UID {
	w.t.Helper()
	uids := make([]types.UID, n)
	parallel(w.t, n, func(ctx context.Context, i int) error {
		pod, err := w.core.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: podName(prefix, i), Labels: map[string]string{"app": prefix}},
			Spec:       corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}, metav1.CreateOptions{})
		if err == nil {
			uids[i] = pod.UID
		}
		return err
	})
	return uids
}

func podName(prefix string, i int) string { return fmt.Sprintf("%s-%d", prefix, i) }

// address is the i-th that is handed out. 0 is the network itself.
func address(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 16, byte((i + 1) >> 8), byte(i + 1)})
}

// createNetwork makes a network of 65,536 addresses of which the first are
// handed out.
func (w *world) createNetwork(namespace, name string, allocated int) danm.NetworkRef {
	w.t.Helper()
	alloc, err := ipam.Empty(ipam.Spec{CIDR: cidr})
	if err != nil {
		w.t.Fatal(err)
	}
	bitmap, err := ipam.Decode(alloc)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range allocated {
		bitmap.Set(i + 1)
	}
	network := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group.GroupVersion().String(), "kind": string(danm.DanmNet),
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"NetworkID": name, "NetworkType": "ipvlan",
			"Options": map[string]any{"cidr": cidr, "alloc": bitmap.Encode()},
		},
	}}
	if _, err = w.danm.Networks(danm.DanmNet, namespace).Create(w.t.Context(), network, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	return danm.NetworkRef{Kind: danm.DanmNet, Namespace: namespace, Name: name}
}

// endpoint is that of interface iface of a pod on a network.
func endpoint(ref danm.NetworkRef, name, pod string, uid types.UID, iface string, a netip.Addr) *danm.Endpoint {
	ep := &danm.Endpoint{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ref.Namespace}}
	ep.Spec = danm.EndpointSpec{
		NetworkName: ref.Name, NetworkType: "ipvlan", EndpointID: name, Pod: pod, PodUID: uid, CID: "cid-" + name,
		Host: "worker-0", APIType: string(ref.Kind),
		Interface: danm.EndpointInterface{Name: iface, Address: a.String() + "/16", AddressIPv6: "none", MacAddress: "02:00:00:00:00:01"},
	}
	return ep
}

func (w *world) create(ctx context.Context, ep *danm.Endpoint) (*danm.Endpoint, error) {
	u, err := ep.ToUnstructured(group)
	if err != nil {
		return nil, err
	}
	if u, err = w.danm.Endpoints(ep.Namespace).Create(ctx, u, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	return danm.ToEndpoint(u)
}

// createEndpoints gives each pod an endpoint; addresses are those after first.
func (w *world) createEndpoints(ref danm.NetworkRef, prefix, iface string, uids []types.UID, first int) []*danm.Endpoint {
	w.t.Helper()
	eps := make([]*danm.Endpoint, len(uids))
	parallel(w.t, len(uids), func(ctx context.Context, i int) (err error) {
		eps[i], err = w.create(ctx, endpoint(ref, podName(prefix, i)+"-"+ref.Name+"-"+iface, podName(prefix, i), uids[i], iface, address(first+i)))
		return err
	})
	return eps
}

// forceDelete removes pods as an operator does whose node died.
func (w *world) forceDelete(namespace, prefix string) {
	w.t.Helper()
	now := int64(0)
	err := w.core.CoreV1().Pods(namespace).DeleteCollection(w.t.Context(),
		metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{LabelSelector: "app=" + prefix})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) patchNetwork(ref danm.NetworkRef, patch string) {
	w.t.Helper()
	_, err := w.danm.Networks(ref.Kind, ref.Namespace).Patch(w.t.Context(), ref.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) bitmap(ref danm.NetworkRef) ipam.Bitmap {
	w.t.Helper()
	n, err := w.danm.GetNetwork(w.t.Context(), ref)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.decode(n)
}

// decode reads a bitmap that we know to be well formed.
func (w *world) decode(n *danm.Network) ipam.Bitmap {
	b, err := ipam.Decode(n.Spec.Options.Alloc)
	if err != nil {
		panic(err)
	}
	return b
}

// countSet counts the bits of addresses first to first+n-1.
func countSet(b ipam.Bitmap, first, n int) int {
	set := 0
	for i := range n {
		if b.IsSet(first + i + 1) {
			set++
		}
	}
	return set
}
