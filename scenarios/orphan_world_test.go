package scenarios_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/clusters"
)

// orphanWorld is the smallest world with a leftover: a network, and an endpoint
// with its bit whose pod does not exist. One bystander pod without interfaces
// keeps "no pods at all" from tripping the circuit breaker.
type orphanWorld struct {
	core      kubernetes.Interface
	danm      *danm.Client
	namespace string
	index     int
}

const (
	orphanAddress = "10.10.10.15"
	orphanCIDR    = "10.10.10.0/24"
	orphanName    = "leftover"
)

func newOrphanWorld(ctx context.Context, namespace string) *orphanWorld {
	GinkgoHelper()
	config, err := cluster.RESTConfig(clusters.UserHarness)
	Expect(err).NotTo(HaveOccurred())
	core := kubernetes.NewForConfigOrDie(config)
	w := &orphanWorld{core: core, danm: danm.NewClient(dynamic.NewForConfigOrDie(config), group), namespace: namespace}
	_, err = core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) error {
		return core.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{})
	})
	bystander := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "bystander", Namespace: namespace},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	_, err = core.CoreV1().Pods(namespace).Create(ctx, bystander, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	w.createNetwork(ctx)
	w.createEndpoint(ctx)
	return w
}

func (w *orphanWorld) createNetwork(ctx context.Context) {
	GinkgoHelper()
	alloc, err := ipam.Empty(ipam.Spec{CIDR: orphanCIDR})
	Expect(err).NotTo(HaveOccurred())
	pool, err := ipam.Open(ipam.Spec{CIDR: orphanCIDR, Alloc: alloc})
	Expect(err).NotTo(HaveOccurred())
	bitmap, err := ipam.Decode(alloc)
	Expect(err).NotTo(HaveOccurred())
	w.index, _ = pool.Index(mustAddr(orphanAddress))
	bitmap.Set(w.index)
	network := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group.GroupVersion().String(), "kind": string(danm.DanmNet),
		"metadata": map[string]any{"name": "test-net1"},
		"spec": map[string]any{
			"NetworkID": "test-net1", "NetworkType": "ipvlan",
			"Options": map[string]any{"cidr": orphanCIDR, "alloc": bitmap.Encode()},
		},
	}}
	_, err = w.danm.Networks(danm.DanmNet, w.namespace).Create(ctx, network, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

func (w *orphanWorld) createEndpoint(ctx context.Context) {
	GinkgoHelper()
	ep := &danm.Endpoint{ObjectMeta: metav1.ObjectMeta{Name: orphanName, Namespace: w.namespace}}
	ep.Spec = danm.EndpointSpec{
		NetworkName: "test-net1", NetworkType: "ipvlan", EndpointID: orphanName,
		Pod: "ss-cinfo-0", PodUID: "00000000-0000-0000-0000-000000000001", CID: "dead", Host: "dead-node",
		APIType:   string(danm.DanmNet),
		Interface: danm.EndpointInterface{Name: "eth0", Address: orphanAddress + "/24"},
	}
	u, err := ep.ToUnstructured(group)
	Expect(err).NotTo(HaveOccurred())
	_, err = w.danm.Endpoints(w.namespace).Create(ctx, u, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

func (w *orphanWorld) endpointExists(ctx context.Context) (bool, error) {
	_, err := w.danm.GetEndpoint(ctx, w.namespace, orphanName)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func (w *orphanWorld) bitIsSet(ctx context.Context) (bool, error) {
	n, err := w.danm.GetNetwork(ctx, danm.NetworkRef{Kind: danm.DanmNet, Namespace: w.namespace, Name: "test-net1"})
	if err != nil {
		return false, err
	}
	bitmap, err := ipam.Decode(n.Spec.Options.Alloc)
	return bitmap.IsSet(w.index), err
}

// reservedBits returns the states of the first and the last bit.
func (w *orphanWorld) reservedBits(ctx context.Context) []bool {
	GinkgoHelper()
	bitmap, err := ipam.Decode(w.network(ctx).Spec.Options.Alloc)
	Expect(err).NotTo(HaveOccurred())
	return []bool{bitmap.IsSet(0), bitmap.IsSet(bitmap.Len() - 1)}
}

func (w *orphanWorld) networkVersion(ctx context.Context) string {
	GinkgoHelper()
	return w.network(ctx).ResourceVersion
}

func (w *orphanWorld) network(ctx context.Context) *danm.Network {
	GinkgoHelper()
	n, err := w.danm.GetNetwork(ctx, danm.NetworkRef{Kind: danm.DanmNet, Namespace: w.namespace, Name: "test-net1"})
	Expect(err).NotTo(HaveOccurred())
	return n
}

// giveToBystander makes the living pod the owner of the leftover.
func (w *orphanWorld) giveToBystander(ctx context.Context) {
	GinkgoHelper()
	pod, err := w.core.CoreV1().Pods(w.namespace).Get(ctx, "bystander", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	patch := fmt.Sprintf(`{"spec":{"Pod":"bystander","PodUID":%q}}`, pod.UID)
	_, err = w.danm.Endpoints(w.namespace).Patch(ctx, orphanName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// clearBit frees the address as a misguided writer would.
func (w *orphanWorld) clearBit(ctx context.Context) {
	GinkgoHelper()
	n := w.network(ctx)
	bitmap, err := ipam.Decode(n.Spec.Options.Alloc)
	Expect(err).NotTo(HaveOccurred())
	bitmap.Clear(w.index)
	_, err = w.danm.PatchAlloc(ctx, n, []danm.AllocChange{{Family: danm.IPv4, Old: n.Spec.Options.Alloc, New: bitmap.Encode()}})
	Expect(err).NotTo(HaveOccurred())
}
