package cleaner

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// reservedIPOf sets 10.0.0.5 of the test's network aside.
func reservedIPOf(isShareable bool) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "danm.io/v1", "kind": "ReservedIP", "metadata": map[string]any{"namespace": "ns", "name": "vip"},
		"spec": map[string]any{
			"network": map[string]any{"name": "net", "type": string(danm.DanmNet)},
			"ips":     []any{map[string]any{"address": "10.0.0.5", "shareable": isShareable}},
		},
	}}
}

// holdTwice gives the controller two living pods with one address. answer is
// what a list of ReservedIPs finds; nil is a failure.
func holdTwice(t *testing.T, c *controller, answer []*unstructured.Unstructured) {
	t.Helper()
	dyn := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		c.danm.Group.Resource(danm.ReservedIPResource): "ReservedIPList",
	})
	dyn.PrependReactor("list", danm.ReservedIPResource, func(clienttesting.Action) (bool, runtime.Object, error) {
		if answer == nil {
			return true, nil, errors.New("not now")
		}
		list := &unstructured.UnstructuredList{}
		for _, u := range answer {
			list.Items = append(list.Items, *u)
		}
		return true, list, nil
	})
	c.danm = danm.NewClient(dyn, c.danm.Group)
	for _, uid := range []types.UID{"a", "b"} {
		ep := endpointOf("of-"+string(uid), "pod-"+string(uid), uid)
		ep.Spec.NetworkName, ep.Spec.Interface.Address = "net", "10.0.0.5/28"
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: ep.Spec.Pod, UID: uid}}
		if err := errors.Join(c.caches.endpoints.store.Add(ep), c.caches.pods.store.Add(pod)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnAddressThatIsHeldTwiceIsReportedUnlessItIsShareable(t *testing.T) {
	type answer = []*unstructured.Unstructured
	for _, tt := range []struct {
		name    string
		answers []answer // to the sweeps, one after the other
		without bool     // the cluster has no ReservedIPs
		events  int      // after all sweeps: two for each pod
		known   float64
	}{
		{"no ReservedIP: reported", []answer{{}}, false, 4, 1},
		{"reported once", []answer{{}, {}}, false, 4, 1},
		{"a ReservedIP that does not share it: reported", []answer{{reservedIPOf(false)}}, false, 4, 1},
		{"a ReservedIP that shares it: as it should be", []answer{{reservedIPOf(true)}}, false, 0, 0},
		{"it is no longer shared: reported", []answer{{reservedIPOf(true)}, {}}, false, 4, 1},
		{"it is shared from now on: well again", []answer{{}, {reservedIPOf(true)}}, false, 4, 0},
		{"nobody knows: nothing is said", []answer{nil}, false, 0, 0},
		{"nobody knew, and then it is known: reported", []answer{nil, {}}, false, 4, 1},
		{"known before, and now nobody knows: it stands", []answer{{}, nil}, false, 4, 1},
		{"a cluster without ReservedIPs is not asked", []answer{nil}, true, 4, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, events := testController(t), record.NewFakeRecorder(100)
			c.events = events
			if tt.without {
				delete(c.found.resources, danm.ReservedIPResource)
			}
			for _, a := range tt.answers {
				holdTwice(t, c, a)
				c.noticeDuplicates(t.Context())
			}
			if got := len(events.Events); got != tt.events {
				t.Errorf("%d Events, want %d", got, tt.events)
			}
			if got := testutil.ToFloat64(c.metrics.duplicates); got != tt.known {
				t.Errorf("%v addresses are known, want %v", got, tt.known)
			}
		})
	}
}
