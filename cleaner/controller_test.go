package cleaner

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// testController returns a controller whose caches are empty and not running.
func testController(t *testing.T) *controller {
	t.Helper()
	cfg, err := Config{REST: &rest.Config{Host: "https://127.0.0.1:1"}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	core, dyn, err := newClients(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cl := clients{core: core, danm: danm.NewClient(dyn, danm.GroupDanmIO)}
	found := discovered{group: danm.GroupDanmIO, resources: map[string]bool{danm.DanmNetResource: true, danm.ReservedIPResource: true}}
	return newController(cl, cfg, found, makeMetrics(), &record.FakeRecorder{})
}

func TestPodEventsReachEndpointsOfNameAndUID(t *testing.T) {
	c := testController(t)
	old := endpointOf("old", "ss-0", "1")
	fresh := endpointOf("fresh", "ss-0", "2")
	other := endpointOf("other", "ss-1", "3")
	for _, e := range []*danm.Endpoint{old, fresh, other} {
		if err := c.caches.endpoints.store.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ss-0", UID: "1"}}
	handler := onChange(c.podChanged)
	handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "ns/ss-0", Obj: pod})
	if got := c.endpointQueue.Len(); got != 2 {
		t.Errorf("a tombstone queued %d endpoints, want the 2 of that pod name", got)
	}
}

func endpointOf(name, pod string, uid types.UID) *danm.Endpoint {
	e := &danm.Endpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "ep-" + uid}}
	e.Spec.Pod, e.Spec.PodUID = pod, uid
	return e
}

func TestErrorsThatProveNothing(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, tt := range []struct {
		name string
		err  error
		gone bool
	}{
		{"the API server says so", apierrors.NewNotFound(pods, "a"), true},
		{"a bare 404 from a load balancer", apierrors.NewGenericServerResponse(404, "get", pods, "a", "no backend", 0, true), false},
		{"forbidden", apierrors.NewForbidden(pods, "a", errors.New("no")), false},
		{"time-out", apierrors.NewTimeoutError("slow", 1), false},
		{"network", errors.New("connection refused"), false},
		{"none", nil, false},
	} {
		if got := isGone(tt.err); got != tt.gone {
			t.Errorf("%s: isGone = %v, want %v", tt.name, got, tt.gone)
		}
	}
}

func TestMalformedObjectsKeepTheirPlace(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{
		"kind": "DanmEp", "metadata": map[string]any{"namespace": "ns", "name": "bad", "uid": "u"},
		"spec": map[string]any{"Interface": map[string]any{"Address": int64(7)}},
	}}
	object, err := transformEndpoint(u)
	if err != nil {
		t.Fatal(err)
	}
	broken, ok := object.(*malformed)
	if !ok || broken.Name != "bad" || broken.err == nil {
		t.Errorf("got %#v, want a malformed object that keeps name and error", object)
	}
	c := testController(t)
	if err := c.caches.endpoints.store.Add(broken); err != nil {
		t.Errorf("the cache does not take it: %v", err)
	}
	if _, ok := c.caches.endpoint("ns/bad"); ok {
		t.Error("a malformed object is handed out as an endpoint")
	}
}

func TestReservedIPsAreKept(t *testing.T) {
	c := testController(t)
	u := &unstructured.Unstructured{Object: map[string]any{
		"kind": "ReservedIP", "metadata": map[string]any{"namespace": "ns", "name": "vip"},
		"spec": map[string]any{
			"network": map[string]any{"name": "net", "type": "DanmNet"},
			"ips":     []any{map[string]any{"address": "10.0.0.5", "shareable": true}},
		},
	}}
	u.SetAPIVersion(c.danm.Group.GroupVersion().String())
	c.danm.Dynamic = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		c.danm.Group.Resource(danm.ReservedIPResource): "ReservedIPList",
	}, u)
	reserved, err := c.liveReservedIPs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := testNetwork("1", 5)
	ps := openPools(n)
	b, _ := ps.find(ps.addr(bit{danm.IPv4, 5}))
	r := clearRequest{endpoint: endpointOf("e", "p", "1"), addr: ps.addr(b), aliveAt: second(10)}
	if why := c.whyNotClear(n, ps, b, r, map[bit]rise{b: {since: second(1)}}, reserved.setAside); why != "ReservedIP" {
		t.Errorf("got %q, want ReservedIP", why)
	}
}

func TestChangedAddressesAreThoseWhoseBitsDiffer(t *testing.T) {
	routed := func(n *danm.Network) *danm.Network {
		n.Spec.Options.Routes = map[string]string{"0.0.0.0/0": "10.0.0.1", "10.1.0.0/16": "10.0.0.5"}
		return n
	}
	without := testNetwork("3")
	without.Spec.Options = danm.NetworkOptions{}
	for _, tt := range []struct {
		name          string
		before, after *danm.Network
		want          []string
	}{
		{"a network that is new: all that are set", nil, testNetwork("1", 5, 7), []string{"10.0.0.5", "10.0.0.7"}},
		{"nothing changed", testNetwork("1", 5), testNetwork("2", 5), nil},
		{"one was set and another cleared", testNetwork("1", 5, 9), testNetwork("2", 5, 7), []string{"10.0.0.7", "10.0.0.9"}},
		{"the last was cleared", testNetwork("1", 5), testNetwork("2"), []string{"10.0.0.5"}},
		{"what is a gateway now is nobody's", testNetwork("1"), routed(testNetwork("2", 5)), nil},
		{"what was a gateway is somebody's now", routed(testNetwork("1", 5)), testNetwork("2", 5), []string{"10.0.0.5"}},
		{"a network that has no addresses any more", testNetwork("1", 5), without, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var before pools
			if tt.before != nil {
				before = openPools(tt.before)
			}
			var got []string
			for _, a := range changedAddresses(before, openPools(tt.after)) {
				got = append(got, a.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
