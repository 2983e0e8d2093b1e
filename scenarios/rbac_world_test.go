package scenarios_test

import (
	"context"
	"encoding/json"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
)

// interrupt asks a program to end politely, as a kubelet does.
const interrupt = syscall.SIGTERM

func encode(v any) []byte {
	GinkgoHelper()
	data, err := json.Marshal(v)
	Expect(err).NotTo(HaveOccurred())
	return data
}

// createCompletedLeftover makes a pod that has succeeded on a node, and an
// endpoint of it: whether the node can still clean up is then the question.
func (w *orphanWorld) createCompletedLeftover(ctx context.Context) {
	GinkgoHelper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "-node"}}
	_, err := w.core.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) error {
		return w.core.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{})
	})
	ready := encode(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
	_, err = w.core.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, ready, metav1.PatchOptions{}, "status")
	Expect(err).NotTo(HaveOccurred())
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "completed", Namespace: w.namespace},
		Spec: corev1.PodSpec{
			NodeName: node.Name, Containers: []corev1.Container{{Name: "c", Image: "none"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
	pod, err = w.core.CoreV1().Pods(w.namespace).Create(ctx, pod, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = w.core.CoreV1().Pods(w.namespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
	Expect(err).NotTo(HaveOccurred())
	ep := &danm.Endpoint{ObjectMeta: metav1.ObjectMeta{Name: "completed", Namespace: w.namespace}}
	ep.Spec = danm.EndpointSpec{
		NetworkName: "test-net1", NetworkType: "ipvlan", EndpointID: "completed", Pod: pod.Name, PodUID: pod.UID,
		CID: "ended", Host: node.Name, APIType: string(danm.DanmNet), Interface: danm.EndpointInterface{Name: "eth0"},
	}
	u, err := ep.ToUnstructured(group)
	Expect(err).NotTo(HaveOccurred())
	_, err = w.danm.Endpoints(w.namespace).Create(ctx, u, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// sweepable names a network of another kind.
func (w *orphanWorld) sweepable(kind danm.NetworkKind) danm.NetworkRef {
	ref := danm.NetworkRef{Kind: kind, Name: w.namespace + "-sweepable"}
	if kind.IsNamespaced() {
		ref.Namespace = w.namespace
	}
	return ref
}

// createSweepable makes a network of the kind with one bit that no endpoint
// claims.
func (w *orphanWorld) createSweepable(ctx context.Context, kind danm.NetworkKind) {
	GinkgoHelper()
	alloc, err := ipam.Empty(ipam.Spec{CIDR: orphanCIDR})
	Expect(err).NotTo(HaveOccurred())
	bitmap, err := ipam.Decode(alloc)
	Expect(err).NotTo(HaveOccurred())
	bitmap.Set(w.index)
	ref := w.sweepable(kind)
	network := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group.GroupVersion().String(), "kind": string(kind), "metadata": map[string]any{"name": ref.Name},
		"spec": map[string]any{
			"NetworkID": "sweepable", "NetworkType": "ipvlan",
			"Options": map[string]any{"cidr": orphanCIDR, "alloc": bitmap.Encode()},
		},
	}}
	networks := w.danm.Networks(kind, ref.Namespace)
	_, err = networks.Create(ctx, network, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) error { return networks.Delete(ctx, ref.Name, metav1.DeleteOptions{}) })
}

func (w *orphanWorld) sweepableBitIsSet(ctx context.Context, kind danm.NetworkKind) (bool, error) {
	n, err := w.danm.GetNetwork(ctx, w.sweepable(kind))
	if err != nil {
		return false, err
	}
	bitmap, err := ipam.Decode(n.Spec.Options.Alloc)
	return bitmap.IsSet(w.index), err
}

// repairEvents lists the Events about bits that were set again.
func (w *orphanWorld) repairEvents(ctx context.Context) ([]corev1.Event, error) {
	list, err := w.core.CoreV1().Events(w.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=AddressRepaired"})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}
