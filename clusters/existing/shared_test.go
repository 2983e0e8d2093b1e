package existing_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
)

// makeNetwork makes a ClusterNetwork in which a pod of others has an address.
func (w *world) makeNetwork(name string) *danm.Client {
	w.t.Helper()
	client := danm.NewClient(w.dynamic, danm.GroupDanmIO)
	spec := ipam.Spec{Object: name, CIDR: "10.30.0.0/24"}
	alloc, err := ipam.Empty(spec)
	if err != nil {
		w.t.Fatal(err)
	}
	bits, err := ipam.Decode(alloc)
	if err != nil {
		w.t.Fatal(err)
	}
	bits.Set(20) // of the endpoint below
	network := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "danm.io/v1", "kind": "ClusterNetwork", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"NetworkID": name, "NetworkType": "ipvlan", "Options": map[string]any{
			"host_device": "ens4", "container_prefix": "eth", "rt_tables": int64(200), "cidr": "10.30.0.0/24", "alloc": bits.Encode(),
			"allocation_pool": map[string]any{"start": "10.30.0.10", "end": "10.30.0.200"},
		}},
	}}
	if _, err := client.Networks(danm.ClusterNetwork, "").Create(w.t.Context(), network, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	pod, err := w.core.CoreV1().Pods(cleanerSpace).Get(w.t.Context(), cleanerName+"-0", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	endpoint := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "danm.io/v1", "kind": "DanmEp", "metadata": map[string]any{"namespace": cleanerSpace, "name": "theirs"},
		"spec": map[string]any{
			"NetworkName": name, "NetworkType": "ipvlan", "EndpointID": "theirs", "apiType": "ClusterNetwork", "Pod": pod.Name, "PodUID": string(pod.UID),
			"CID": "c", "Host": infraNode, "netns": "/n", "Interface": map[string]any{"Name": "eth1", "Address": "10.30.0.20/24", "AddressIPv6": "", "MacAddress": "",
				"proutes": map[string]any{}, "proutes6": map[string]any{}},
		},
	}}
	if _, err := client.Endpoints(cleanerSpace).Create(w.t.Context(), endpoint, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	return client
}

func TestANetworkOfOthersIsSharedOnlyIfToldAndLeftAsItWas(t *testing.T) {
	w := newWorld(t)
	client := w.makeNetwork("blue")
	w.startFixedCleaner()
	ref := danm.NetworkRef{Kind: danm.ClusterNetwork, Name: "blue"}
	before, err := client.GetNetwork(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	code, text := w.chaos(w.runArgs("node-shutdown", "--network", "blue")...).ends(t)
	if code != 64 || !strings.Contains(text, "others in the network: 1 endpoints of pods that are not ours") {
		t.Errorf("exit code %d, want the network to be refused", code)
	}
	code, text = w.chaos(w.runArgs("node-shutdown", "--network", "blue", "--share-network", "--iterations", "2", "--seed", "7")...).ends(t)
	if code != 0 || !strings.Contains(text, "has 190 spare addresses") {
		t.Errorf("exit code %d, want a Valid run", code)
	}
	after, err := client.GetNetwork(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if after.Spec.Options.Alloc != before.Spec.Options.Alloc {
		t.Errorf("bitmap %s, was %s", after.Spec.Options.Alloc, before.Spec.Options.Alloc)
	}
	if len(w.runNamespaces()) > 0 {
		t.Error("namespaces are left")
	}
}
