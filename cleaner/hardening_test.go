package cleaner

import (
	"context"
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// FuzzReconcile lets the controller look at objects of any content. Whatever
// they are, it must not panic, and the healthy endpoint beside them must still
// be found. No request leaves: the context has ended.
func FuzzReconcile(f *testing.F) {
	for _, seed := range [][3]string{
		{`{"spec":{"NetworkName":"net","Pod":"p","PodUID":"1","Interface":{"Name":"eth0","Address":"10.0.0.5/28","AddressIPv6":"none"}}}`,
			`{"spec":{"Options":{"cidr":"10.0.0.0/28","alloc":"hAE="}}}`, `{"spec":{"network":{"name":"net","type":"DanmNet"},"ips":[{"address":"10.0.0.5"}]}}`},
		{`{"spec":{"NetworkName":"net","Pod":"","Interface":{"Address":7}}}`, `{"spec":{"Options":{"cidr":"10.0.0.0/99","alloc":"?"}}}`, `{"spec":{"ips":"x"}}`},
		{`{"spec":{"NetworkName":"net","Interface":{"Address":"300.1.1.1"}}}`, `{"spec":{"Options":{"cidr":"10.0.0.0/28","alloc":""}}}`, `{"spec":{"network":{"name":"net"},"ips":[null]}}`},
		{`{"spec":null}`, `{"spec":{"Options":{"allocation_pool_v6":{"cidr":"2001:db8::/120"},"alloc6":"gA=="}}}`, `{}`},
		{`{"metadata":{"uid":7}}`, `{"metadata":{"annotations":{"danm-cleaner.danm.io/pause":"yes"}}}`, `{"spec":{"network":7}}`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]), []byte(seed[2]))
	}
	ended, end := context.WithCancel(context.Background())
	end()
	f.Fuzz(func(t *testing.T, endpoint, network, reserved []byte) {
		c := testController(t)
		put(t, c.caches.endpoints.store, danm.EndpointKind, "odd", endpoint, transformEndpoint, c.endpointChanged)
		put(t, c.caches.networks[danm.DanmNet].store, string(danm.DanmNet), "net", network, transformNetwork(danm.DanmNet), func(o any) { c.networkChanged(nil, o) })
		if u, ok := objectOf("ReservedIP", "vip", reserved); ok {
			vip, a := reservedIPs{u}, netip.MustParseAddr("10.0.0.5")
			if vip.share(testRef, a) && !vip.setAside(testRef, a) {
				t.Error("an address is shared, but not set aside")
			}
		}
		healthy := endpointOf("healthy", "ss-0", "1")
		if err := c.caches.endpoints.store.Add(healthy); err != nil {
			t.Fatal(err)
		}
		for range 2 { // as a suspect, and for what follows from being one
			_, _ = c.reconcileEndpoint(ended, "ns/odd")
			_, _ = c.reconcileNetwork(ended, testRef)
			c.noticeOrphans()
			c.noticeDuplicates(ended)
			c.takeStock()
		}
		after, err := c.reconcileEndpoint(ended, "ns/healthy")
		if err != nil || after != c.cfg.ReleaseQuarantine || c.state.suspectSince(healthy.UID).IsZero() {
			t.Errorf("the endpoint beside it is not looked after: %s, %v", after, err)
		}
	})
}

// put brings an object into a cache the way an informer does.
func put(t *testing.T, store cache.Store, kind, name string, data []byte, transform cache.TransformFunc, changed func(any)) {
	t.Helper()
	u, ok := objectOf(kind, name, data)
	if !ok {
		return
	}
	object, err := transform(u)
	if err != nil {
		t.Fatalf("a transform that fails stops the informer: %v", err)
	}
	if err := store.Add(object); err != nil {
		t.Fatal(err)
	}
	changed(object)
}

// objectOf returns an object of any content, false if no API server sends such.
func objectOf(kind, name string, data []byte) (*unstructured.Unstructured, bool) {
	u := &unstructured.Unstructured{}
	if json.Unmarshal(data, &u.Object) != nil || u.Object == nil {
		return nil, false
	}
	if _, ok := u.Object["metadata"].(map[string]any); !ok {
		u.Object["metadata"] = map[string]any{}
	}
	u.SetKind(kind)
	u.SetNamespace("ns")
	u.SetName(name)
	return u, true
}

func TestMemoryOfWhatIsGoneIsGivenBack(t *testing.T) {
	c := testController(t)
	l := c.lineage
	l.observe(testNetwork("1", 5))
	l.breakOff(danm.DanmNet)
	c.noticeOrphans()
	if refs := l.refs(); len(refs) != 0 {
		t.Errorf("the lineage still holds %v, whose deletion a watch gap hid", refs)
	}
	c.state.suspect("ep-gone", true, second(1))
	c.takeStock()
	if n := c.state.suspectCount(); n != 0 || len(c.state.endpoints) != 0 {
		t.Errorf("the state still holds %d endpoints that are gone", len(c.state.endpoints))
	}
	b := &breaker{confirmed: uids(3, "gone")}
	b.needsList(1000, uids(1, "gone"), second(1))
	if len(b.confirmed) != 1 {
		t.Errorf("the breaker still holds %d confirmations, want that of the one suspect left", len(b.confirmed))
	}
	c.rosters.latest = &roster{began: second(1)}
	c.rosters.expire(second(1).Add(rosterAgeMax))
	if c.rosters.latest != nil {
		t.Error("an old roster is kept")
	}
}

func TestPausedNetwork(t *testing.T) {
	for _, tt := range []struct {
		name, value string
		paused      bool
	}{
		{"no annotation", "", false},
		{"true", "true", true},
		{"false", "false", false},
		{"misspelt: whoever writes it means it", "ture", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, n := testController(t), testNetwork("1", 5)
			if tt.value != "" {
				n.Annotations = map[string]string{danm.PauseAnnotation: tt.value}
			}
			if err := c.caches.networks[danm.DanmNet].store.Add(opened(n)); err != nil {
				t.Fatal(err)
			}
			if got := c.isPausedNetwork(testRef); got != tt.paused {
				t.Errorf("got %v, want %v", got, tt.paused)
			}
		})
	}
}

var nobody = map[string]listedPod{}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func TestOneMakesARosterForAllWhoCanUseIt(t *testing.T) {
	var r rosters
	isWorth := func() bool { return true }
	first, isMine := r.join(second(5), second(10), isWorth)
	if first == nil || !isMine {
		t.Fatalf("got %v, mine %v; want one to make", first, isMine)
	}
	if same, isMine := r.join(second(10), second(10), isWorth); same != first || isMine {
		t.Error("whose quarantine ends with the begin of the list does not wait for it")
	}
	if none, _ := r.join(second(10).Add(1), second(10).Add(1), isWorth); none != nil {
		t.Error("a second list within the period")
	}
	if next, isMine := r.join(second(11), second(11), isWorth); next == nil || next == first || !isMine {
		t.Error("nobody makes a later one while the first is being made")
	}
	close(r.latest.made) // it failed
	if next, isMine := r.join(second(5), second(12), isWorth); next == nil || !isMine {
		t.Error("a list that failed is used")
	}
}

func TestRosterProvesOnlyAbsence(t *testing.T) {
	for _, tt := range []struct {
		name  string
		began time.Time
		pods  map[string]listedPod
		edit  func(*danm.Endpoint)
		want  bool
	}{
		{"no pod of the name in a list made after the quarantine: gone", second(100), nobody, nil, true},
		{"another UID has the name: gone", second(100), map[string]listedPod{"ns/ss-0": {uid: "2"}}, nil, true},
		{"the owner is there: read it", second(100), map[string]listedPod{"ns/ss-0": {uid: "1"}}, nil, false},
		{"a mirror pod has the name: read it", second(100), map[string]listedPod{"ns/ss-0": {uid: "2", isMirror: true}}, nil, false},
		{"the list was made before the quarantine ended: read it", second(50), nobody, nil, false},
		{"the list failed: read it", second(100), nil, nil, false},
		{"the endpoint names no UID: read it", second(100), nobody, func(ep *danm.Endpoint) { ep.Spec.PodUID = "" }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := testController(t)
			c.clock = testingclock.NewFakeClock(second(101))
			ep := endpointOf("e", "ss-0", "1")
			if tt.edit != nil {
				tt.edit(ep)
			}
			c.state.suspect(ep.UID, true, second(1)) // the quarantine is a minute
			c.rosters.latest = &roster{began: tt.began, made: closed(), pods: tt.pods}
			c.rosters.tried = second(101)
			if _, got, err := c.ownerFromRoster(t.Context(), ep); got != tt.want || err != nil {
				t.Errorf("got %v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

// An endpoint that claims a cleared bit may be released by another replica before
// the bit is set back. Then it must stay clear.
func TestABitIsSetBackOnlyForAnEndpointThatIsStillThere(t *testing.T) {
	for name, isReleased := range map[string]bool{"still there": false, "released meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			c := testController(t)
			late := endpointOf("late", "ss-0", "1")
			late.Spec.NetworkName, late.Spec.APIType, late.Spec.Interface.Address = "net", string(danm.DanmNet), "10.0.0.5/28"
			dyn := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
				c.danm.Group.Resource(danm.EndpointResource): "DanmEpList", c.danm.Group.Resource(danm.DanmNetResource): "DanmNetList",
			}, asUnstructured(t, late, danm.EndpointKind), asUnstructured(t, testNetwork("1"), string(danm.DanmNet)))
			c.danm = danm.NewClient(dyn, c.danm.Group)
			dyn.PrependReactor("get", danm.DanmNetResource, func(clienttesting.Action) (bool, runtime.Object, error) {
				if isReleased {
					_ = dyn.Tracker().Delete(c.danm.Group.Resource(danm.EndpointResource), late.Namespace, late.Name)
				}
				return false, nil, nil
			})
			ps := openPools(testNetwork("1"))
			b, _ := ps.find(netip.MustParseAddr("10.0.0.5"))
			if err := c.setBackClaimed(t.Context(), testRef, ps, []bit{b}); err != nil {
				t.Fatal(err)
			}
			now, err := c.liveNetwork(t.Context(), testRef)
			if err != nil {
				t.Fatal(err)
			}
			if got := openPools(now).isSet(b); got == isReleased {
				t.Errorf("the bit is set: %v", got)
			}
		})
	}
}

func asUnstructured(t *testing.T, object any, kind string) *unstructured.Unstructured {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetAPIVersion("danm.io/v1")
	u.SetKind(kind)
	return u
}

func TestAddressesWithoutBitAreLeftAlone(t *testing.T) {
	delegated := testNetwork("1")
	delegated.Spec.Options = danm.NetworkOptions{}
	for _, tt := range []struct {
		name, address, address6 string
		network                 *danm.Network
	}{
		{"a delegated network keeps no bitmap", "10.0.0.5/28", "none", delegated},
		{"a delegate's address outside the prefix", "192.168.7.7/24", "", testNetwork("1", 5)},
		{"a static IPv6 address outside the pool", "none", "2001:db8::7/64", testNetwork("1", 5)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := testController(t)
			ep := endpointOf("e", "p", "1")
			ep.Spec.NetworkName, ep.Spec.Interface.Address, ep.Spec.Interface.AddressIPv6 = "net", tt.address, tt.address6
			ps := openPools(tt.network)
			if isMissing(ps, ep) {
				t.Error("a bit is to be set")
			}
			c.handOnBits(ep, opened(tt.network), owner{aliveAt: second(1)})
			if clears := c.bits.takeClears(testRef); len(clears) > 0 {
				t.Errorf("bits are to be cleared: %v", clears)
			}
		})
	}
}
