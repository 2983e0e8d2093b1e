package danmcni

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni/internal/memoryapi"
)

const (
	dynamicV4   = `[{"network":"net","ip":"dynamic"}]`
	dynamicDual = `[{"network":"net","ip":"dynamic","ip6":"dynamic"}]`
)

var (
	request   = Request{Namespace: "ns", Pod: "web-0", ContainerID: "cid-1"}
	compareIP = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

	comparePrefix = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
)

func bitmap(t *testing.T, cidr string, addrs ...string) string {
	t.Helper()
	spec := ipam.Spec{CIDR: cidr, IPv6: strings.Contains(cidr, ":")}
	var err error
	if spec.Alloc, err = ipam.Empty(spec); err != nil {
		t.Fatal(err)
	}
	pool, err := ipam.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		i, ok := pool.Index(netip.MustParseAddr(a))
		if !ok {
			t.Fatalf("%s is not in %s", a, cidr)
		}
		pool.Set(i)
	}
	return pool.Encode()
}

func v4Options(t *testing.T, addrs ...string) object {
	return object{
		"cidr": "10.10.10.0/24", "alloc": bitmap(t, "10.10.10.0/24", addrs...),
		"allocation_pool": object{"start": "10.10.10.10", "end": "10.10.10.20"},
	}
}

func dualOptions(t *testing.T) object {
	options := v4Options(t)
	options["net6"] = "2001:db8::/64"
	options["alloc6"] = bitmap(t, "2001:db8::100/120")
	options["allocation_pool_v6"] = object{"cidr": "2001:db8::100/120", "start": "2001:db8::102"}
	return options
}

func wantRequests(t *testing.T, a *memoryAPI, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, a.Requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestAddWritesTheBitBeforeTheEndpoint(t *testing.T) {
	a := newMemoryAPI()
	a.addPod(dynamicDual)
	a.addNetwork(dualOptions(t))
	got, err := a.plugin(t, nil).Add(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	want := []Interface{{
		Name: "eth0", Endpoint: "id-1", EndpointUID: "uid-of-id-1",
		Network:   danm.NetworkRef{Kind: danm.DanmNet, Namespace: "ns", Name: "net"},
		Addresses: []netip.Addr{netip.MustParseAddr("10.10.10.10"), netip.MustParseAddr("2001:db8::102")},
		Prefixes:  []netip.Prefix{netip.MustParsePrefix("10.10.10.10/24"), netip.MustParsePrefix("2001:db8::102/64")},
		Routes:    map[string]string{},
	}}
	if diff := cmp.Diff(want, got, compareIP, comparePrefix); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
	wantRequests(t, a, "GET pods/web-0 200", "GET danmeps 200", "GET danmnets/net 200", "PUT danmnets/net 200",
		"POST danmeps 201", "GET danmnets/net 200")
	checkDualNetwork(t, a)
	checkEndpoint(t, a)
}

func checkDualNetwork(t *testing.T, a *memoryAPI) {
	t.Helper()
	want := object{
		"cidr": "10.10.10.0/24", "alloc": bitmap(t, "10.10.10.0/24", "10.10.10.10"),
		"allocation_pool":    object{"start": "10.10.10.10", "end": "10.10.10.20", "lastIp": "10.10.10.10/24"},
		"net6":               "2001:db8::/64",
		"alloc6":             bitmap(t, "2001:db8::100/120", "2001:db8::102"),
		"allocation_pool_v6": object{"cidr": "2001:db8::100/120", "start": "2001:db8::102", "lastIp": "2001:db8::102/64"},
	}
	if diff := cmp.Diff(want, a.option()); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(object{"x": float64(1)}, a.Objects[netPath]["spec"].(object)["Future"]); diff != "" {
		t.Errorf("a field unknown to us was lost (-want +got):\n%s", diff)
	}
}

func checkEndpoint(t *testing.T, a *memoryAPI) {
	t.Helper()
	want := object{
		"kind": "DanmEp", "apiVersion": "danm.io/v1",
		"metadata": object{"name": "id-1", "namespace": "ns", "labels": object{"app": "web"}},
		"spec": object{
			"NetworkName": "net", "NetworkType": "ipvlan", "EndpointID": "id-1", "Host": "node-a",
			"Pod": "web-0", "PodUID": "pod-uid", "CID": "cid-1", "netns": "/var/run/netns/cid-1", "apiType": "DanmNet",
			"Interface": object{"Name": "eth0", "Address": "10.10.10.10/24", "AddressIPv6": "2001:db8::102/64"},
		},
	}
	serverSet := cmpopts.IgnoreMapEntries(func(k string, _ any) bool {
		return k == "uid" || k == "resourceVersion" || k == "creationTimestamp"
	})
	if diff := cmp.Diff(want, a.Objects[epsPath+"/id-1"], serverSet); diff != "" {
		t.Errorf("endpoint (-want +got):\n%s", diff)
	}
}

func TestDelOfDanmClearsEachFamilyFromTheSameStaleCopy(t *testing.T) {
	a := attached(t, dynamicDual, dualOptions(t), nil)
	if err := a.plugin(t, nil).Del(t.Context(), "cid-1"); err != nil {
		t.Fatal(err)
	}
	wantRequests(t, a, "GET danmeps 200", "GET danmnets/net 200", "PUT danmnets/net 200",
		"PUT danmnets/net 409", "GET danmnets/net 200", "PUT danmnets/net 200", "DELETE danmeps/id-1 200")
	wantFree(t, a)
	if got := a.option("alloc6"); got != bitmap(t, "2001:db8::100/120") {
		t.Errorf("alloc6 is %v after DEL", got)
	}
}

// attached returns an API to which ADD has attached a pod; the requests of the
// ADD are forgotten.
func attached(t *testing.T, annotation string, options object, change func(*Config)) *memoryAPI {
	t.Helper()
	a := newMemoryAPI()
	a.addPod(annotation)
	a.addNetwork(options)
	if _, err := a.plugin(t, change).Add(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	a.Requests = nil
	return a
}

func wantFree(t *testing.T, a *memoryAPI) {
	t.Helper()
	if got := a.option("alloc"); got != bitmap(t, "10.10.10.0/24") {
		t.Errorf("alloc is %v, want it empty", got)
	}
	if names := a.endpointNames(); len(names) != 0 {
		t.Errorf("endpoints %v are left", names)
	}
}

func careful(c *Config) { c.Variant = Careful }

func TestDelOfCarefulDeletesTheEndpointFirst(t *testing.T) {
	a := attached(t, dynamicV4, v4Options(t), careful)
	if err := a.plugin(t, careful).Del(t.Context(), "cid-1"); err != nil {
		t.Fatal(err)
	}
	wantRequests(t, a, "GET danmeps 200", "DELETE danmeps/id-1 200", "GET danmnets/net 200", "GET danmeps 200", "PATCH danmnets/net 200")
	wantFree(t, a)
}

// reusedDuringDel runs a DEL during which somebody else frees the address and
// gives it to another pod, endpoint included.
func reusedDuringDel(t *testing.T, change func(*Config)) *memoryAPI {
	t.Helper()
	a := attached(t, dynamicV4, v4Options(t), change)
	p := a.plugin(t, func(c *Config) {
		change(c)
		c.Delay = func(_ context.Context, at Point) error {
			if at != BeforeClear {
				return nil
			}
			a.Mu.Lock()
			defer a.Mu.Unlock()
			taken := memoryapi.Clone(a.Objects[epsPath+"/id-1"])
			delete(a.Objects, epsPath+"/id-1")
			a.setOptions("alloc", bitmap(t, "10.10.10.0/24"))
			taken["metadata"].(object)["name"] = "id-9"
			taken["spec"].(object)["CID"] = "cid-9"
			a.Store(epsPath+"/id-9", taken)
			a.setOptions("alloc", bitmap(t, "10.10.10.0/24", "10.10.10.10"))
			return nil
		}
	})
	if err := p.Del(t.Context(), "cid-1"); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestLateDelOfDanmFreesTheAddressOfItsNewOwner(t *testing.T) {
	a := reusedDuringDel(t, func(*Config) {})
	if got := a.option("alloc"); got != bitmap(t, "10.10.10.0/24") {
		t.Errorf("alloc is %v: the weakness of DANM is not reproduced", got)
	}
}

func TestLateDelOfCarefulLeavesTheAddressToItsNewOwner(t *testing.T) {
	a := reusedDuringDel(t, careful)
	if got := a.option("alloc"); got != bitmap(t, "10.10.10.0/24", "10.10.10.10") {
		t.Errorf("alloc is %v: the new owner lost its bit", got)
	}
}

func TestAddAllocatesAnewAfterAConflict(t *testing.T) {
	for _, v := range Variants() {
		t.Run(string(v), func(t *testing.T) {
			a := newMemoryAPI()
			a.addPod(dynamicV4)
			a.addNetwork(v4Options(t))
			p := a.plugin(t, func(c *Config) {
				c.Variant = v
				c.Delay = func(_ context.Context, at Point) error {
					if at == BeforeReserve {
						a.Mu.Lock()
						defer a.Mu.Unlock()
						a.setOptions("alloc", bitmap(t, "10.10.10.0/24", "10.10.10.10"))
					}
					return nil
				}
			})
			made, err := p.Add(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			if got := made[0].Addresses[0].String(); got != "10.10.10.11" {
				t.Errorf("address %s, want the next free one", got)
			}
			if got := a.option("alloc"); got != bitmap(t, "10.10.10.0/24", "10.10.10.10", "10.10.10.11") {
				t.Errorf("alloc is %v", got)
			}
		})
	}
}

func TestARefusedEndpointLeaksItsBitInDanmOnly(t *testing.T) {
	for variant, want := range map[Variant]string{
		Danm43:  bitmap(t, "10.10.10.0/24", "10.10.10.10"),
		Careful: bitmap(t, "10.10.10.0/24"),
	} {
		t.Run(string(variant), func(t *testing.T) {
			a := newMemoryAPI()
			a.addPod(dynamicV4)
			a.addNetwork(v4Options(t))
			a.OnRequest = refuse(http.MethodPost, "danmeps", 403)
			_, err := a.plugin(t, func(c *Config) { c.Variant = variant }).Add(t.Context(), request)
			if err == nil {
				t.Fatal("ADD succeeded without an endpoint")
			}
			if got := a.option("alloc"); got != want {
				t.Errorf("alloc is %v, want %v", got, want)
			}
		})
	}
}

func refuse(method, shortened string, status int) func(method, path string) int {
	return func(m, p string) int {
		if m == method && memoryapi.ShortPath(p) == shortened {
			return status
		}
		return 0
	}
}

func TestAFailureAfterTheEndpointIsRolledBack(t *testing.T) {
	for _, v := range Variants() {
		t.Run(string(v), func(t *testing.T) {
			a := newMemoryAPI()
			a.addPod(dynamicV4)
			a.addNetwork(v4Options(t))
			failed := false
			a.OnRequest = func(method, p string) int {
				created := len(a.endpointNames()) > 0
				if method == http.MethodGet && p == netPath && created && !failed {
					failed = true
					return 500
				}
				return 0
			}
			if _, err := a.plugin(t, func(c *Config) { c.Variant = v }).Add(t.Context(), request); err == nil {
				t.Fatal("ADD succeeded although the network could not be read again")
			}
			wantFree(t, a)
		})
	}
}

func TestAKilledPluginRollsNothingBack(t *testing.T) {
	for _, v := range Variants() {
		t.Run(string(v), func(t *testing.T) {
			a := newMemoryAPI()
			a.addPod(`[{"network":"net","ip":"dynamic"},{"network":"net","ip":"dynamic"}]`)
			a.addNetwork(v4Options(t))
			p := a.plugin(t, func(c *Config) {
				c.Variant = v
				c.Delay = func(_ context.Context, at Point) error {
					if at == BetweenReserveAndCreate {
						return errors.New("out of memory")
					}
					return nil
				}
			})
			_, err := p.Add(t.Context(), request)
			if err == nil || !strings.Contains(err.Error(), "out of memory") {
				t.Fatalf("error %v does not tell why the plugin ended", err)
			}
			if names := a.endpointNames(); len(names) != 0 {
				t.Errorf("endpoints %v were created after the end", names)
			}
			if got := a.option("alloc"); got == bitmap(t, "10.10.10.0/24") {
				t.Error("the reservation was rolled back")
			}
		})
	}
}

func TestAddRemovesWhatAnEarlierSandboxOfThePodLeft(t *testing.T) {
	for _, v := range Variants() {
		t.Run(string(v), func(t *testing.T) {
			set := func(c *Config) { c.Variant = v }
			a := attached(t, dynamicV4, v4Options(t), set)
			p := a.plugin(t, func(c *Config) {
				c.Variant = v
				c.NewID = func() string { return "id-2" }
			})
			if _, err := p.Add(t.Context(), Request{Namespace: "ns", Pod: "web-0", ContainerID: "cid-2"}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"id-2"}, a.endpointNames()); diff != "" {
				t.Errorf("endpoints (-want +got):\n%s", diff)
			}
			if got := a.option("alloc"); got != bitmap(t, "10.10.10.0/24", "10.10.10.10") {
				t.Errorf("alloc is %v", got)
			}
		})
	}
}

func TestOnlyCarefulComparesThePodUID(t *testing.T) {
	stale := request
	stale.PodUID = "older-uid"
	for _, v := range Variants() {
		a := newMemoryAPI()
		a.addPod(dynamicV4)
		a.addNetwork(v4Options(t))
		_, err := a.plugin(t, func(c *Config) { c.Variant = v }).Add(t.Context(), stale)
		if got, want := err != nil, v == Careful; got != want {
			t.Errorf("%s: error %v", v, err)
		}
	}
}

func TestCarefulKnowsAStaticPodByItsMirror(t *testing.T) {
	a := newMemoryAPI()
	a.addPod(dynamicV4)
	a.addNetwork(v4Options(t))
	a.Objects[podPath]["metadata"].(object)["annotations"].(object)["kubernetes.io/config.hash"] = "hash-of-manifest"
	r := request
	r.PodUID = "hash-of-manifest"
	if _, err := a.plugin(t, careful).Add(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func TestTheEndpointHoldsTheNamespaceThatTheRuntimeMade(t *testing.T) {
	a := newMemoryAPI()
	a.addPod(dynamicV4)
	a.addNetwork(v4Options(t))
	r := request
	r.Netns = "/run/netns/cni-1"
	if _, err := a.plugin(t, nil).Add(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got := a.Objects[epsPath+"/id-1"]["spec"].(object)["netns"]; got != r.Netns {
		t.Errorf("netns is %v, want %s", got, r.Netns)
	}
}

func TestDelOfDanmSwallowsTroubleAndCarefulReturnsIt(t *testing.T) {
	for _, v := range Variants() {
		set := func(c *Config) { c.Variant = v }
		a := attached(t, dynamicV4, v4Options(t), set)
		a.OnRequest = refuse(http.MethodDelete, "danmeps/id-1", 500)
		err := a.plugin(t, set).Del(t.Context(), "cid-1")
		if got, want := err != nil, v == Careful; got != want {
			t.Errorf("%s: error %v", v, err)
		}
	}
}

func TestDelReturnsTheEndOfItsContext(t *testing.T) {
	for _, v := range Variants() {
		set := func(c *Config) { c.Variant = v }
		a := attached(t, dynamicV4, v4Options(t), set)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := a.plugin(t, set).Del(ctx, "cid-1"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v", v, err)
		}
		if len(a.endpointNames()) != 1 {
			t.Errorf("%s: the endpoint is gone", v)
		}
	}
}

func TestDelOfDanmTriesTheListTenTimes(t *testing.T) {
	a := newMemoryAPI()
	a.OnRequest = func(string, string) int { return 403 }
	if err := a.plugin(t, nil).Del(t.Context(), "cid-1"); err != nil {
		t.Fatal(err)
	}
	if len(a.Requests) != listAttemptsMax {
		t.Errorf("%d requests", len(a.Requests))
	}
}

func TestParseVariantKnowsEveryVariantAndNoOther(t *testing.T) {
	for _, v := range Variants() {
		if got, err := ParseVariant(string(v)); err != nil || got != v {
			t.Errorf("ParseVariant(%q) = %q, %v", v, got, err)
		}
	}
	if _, err := ParseVariant("danm-4.4"); err == nil || !strings.Contains(err.Error(), "careful") {
		t.Errorf("error %v does not list the variants", err)
	}
}
