package cleaner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
)

// filled returns metrics that have at least one series of every name.
func filled(t *testing.T) (*metrics, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	m, err := newMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	m.requests.WithLabelValues("get", "200")
	m.stock.replace(map[poolKey]*poolStock{{danm.NetworkRef{Kind: danm.DanmNet, Namespace: "ns", Name: "n"}, danm.IPv4}: {}})
	return m, registry
}

func families(t *testing.T, registry *prometheus.Registry) map[string]string {
	t.Helper()
	gathered, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range gathered {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		out[f.GetName()] = strings.TrimSpace(strings.ToLower(f.GetType().String()) + " " + strings.Join(labels, " "))
	}
	return out
}

// Dashboards and alerts of other people hang on these names.
func TestMetricsAreCalledThis(t *testing.T) {
	_, registry := filled(t)
	const network = "gauge family kind network network_namespace"
	want := map[string]string{
		"danm_cleaner_addresses_released_total":    "counter by",
		"danm_cleaner_addresses_repaired_total":    "counter",
		"danm_cleaner_api_requests_total":          "counter code verb",
		"danm_cleaner_breaker_open":                "gauge",
		"danm_cleaner_breaker_trips_total":         "counter reason",
		"danm_cleaner_conflicts_total":             "counter write",
		"danm_cleaner_duplicate_addresses":         "gauge",
		"danm_cleaner_endpoints_released_total":    "counter reason",
		"danm_cleaner_errors_total":                "counter queue",
		"danm_cleaner_leader":                      "gauge",
		"danm_cleaner_malformed_objects":           "gauge",
		"danm_cleaner_network_addresses":           network,
		"danm_cleaner_network_addresses_allocated": network,
		"danm_cleaner_network_addresses_free":      network,
		"danm_cleaner_network_addresses_unclaimed": network,
		"danm_cleaner_network_endpoints":           network,
		"danm_cleaner_network_endpoints_held":      network,
		"danm_cleaner_network_endpoints_suspect":   network,
		"danm_cleaner_reconcile_duration_seconds":  "histogram queue",
		"danm_cleaner_release_log_errors_total":    "counter",
		"danm_cleaner_suspects":                    "gauge",
		"danm_cleaner_time_to_release_seconds":     "histogram",
	}
	if diff := cmp.Diff(want, families(t, registry)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, error %v", problems, err)
	}
}

func TestRulesAndDashboardUseOnlyMetricsThatExist(t *testing.T) {
	_, registry := filled(t)
	exists := families(t, registry)
	name := regexp.MustCompile(`danm_cleaner_\w+`)
	for _, file := range []string{"rules.yaml", "rules.test.yaml", "dashboard.json"} {
		text, err := os.ReadFile("deploy/monitoring/" + file)
		if err != nil {
			t.Fatal(err)
		}
		used := name.FindAllString(string(text), -1)
		if len(used) == 0 {
			t.Errorf("%s uses no metric: is the name still right?", file)
		}
		for _, n := range used {
			kind := exists[strings.TrimSuffix(n, "_bucket")]
			if _, ok := exists[n]; !ok && !strings.HasPrefix(kind, "histogram") {
				t.Errorf("%s uses %s, which does not exist", file, n)
			}
		}
	}
	dashboard, err := os.ReadFile("deploy/monitoring/dashboard.json")
	if err != nil || !json.Valid(dashboard) {
		t.Errorf("the dashboard is no JSON: %v", err)
	}
}

func networkOf(t *testing.T, name string, set ...int) *danm.Network {
	t.Helper()
	n := &danm.Network{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	n.Kind, n.Spec.Options.CIDR = string(danm.DanmNet), "10.0.0.0/24"
	alloc, err := ipam.Empty(ipam.Spec{CIDR: n.Spec.Options.CIDR})
	if err != nil {
		t.Fatal(err)
	}
	bits, err := ipam.Decode(alloc)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range set {
		bits.Set(i)
	}
	n.Spec.Options.Alloc = bits.Encode()
	return n
}

func TestStockCountsPerNetworkAndForgetsDeletedOnes(t *testing.T) {
	c := testController(t)
	store := c.caches.networks[danm.DanmNet].store
	for _, n := range []*danm.Network{networkOf(t, "a", 5, 6), networkOf(t, "b")} {
		if err := store.Add(opened(n)); err != nil {
			t.Fatal(err)
		}
	}
	for i, address := range []string{"10.0.0.5/24", "10.0.0.6/24", "10.0.0.7/24"} {
		ep := endpointOf(fmt.Sprint(i), "p", types.UID(fmt.Sprint(i)))
		ep.Spec.NetworkName, ep.Spec.Interface.Address = "a", address
		if i == 2 {
			ep.Spec.NetworkName = "unknown"
		}
		if err := c.caches.endpoints.store.Add(ep); err != nil {
			t.Fatal(err)
		}
	}
	c.state.suspect("ep-0", true, time.Now())
	c.state.hold("ep-1", ownership.NodeNotFenced)
	c.countStock()
	a := (*c.metrics.stock.counted.Load())[poolKey{danm.NetworkRef{Kind: danm.DanmNet, Namespace: "ns", Name: "a"}, danm.IPv4}]
	want := poolStock{usage: ipam.Usage{Total: 254, Allocated: 2, Free: 252}, endpoints: 2, suspects: 1, held: 1}
	if diff := cmp.Diff(&want, a, cmp.AllowUnexported(poolStock{})); diff != "" {
		t.Errorf("stock of a (-want +got):\n%s", diff)
	}
	before := testutil.CollectAndCount(c.metrics.stock)
	if err := store.Delete(networkOf(t, "b")); err != nil {
		t.Fatal(err)
	}
	c.countStock()
	if after := testutil.CollectAndCount(c.metrics.stock); after != before/2 {
		t.Errorf("%d series with two networks, %d with one", before, after)
	}
}

func TestRequestsAreCountedByTheVerbOfTheirRole(t *testing.T) {
	for _, tt := range []struct{ method, url, want string }{
		{"GET", "/api/v1/pods?limit=500", "list"},
		{"GET", "/api/v1/pods?watch=true", "watch"},
		{"GET", "/api/v1/namespaces/ns/pods/p", "get"},
		{"GET", "/apis/danm.io/v1/namespaces/ns/danmeps", "list"},
		{"GET", "/apis/danm.io/v1/clusternetworks/c", "get"},
		{"GET", "/apis/danm.io/v1", "get"},
		{"POST", "/api/v1/namespaces/ns/events", "create"},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l", "update"},
		{"PATCH", "/apis/danm.io/v1/clusternetworks/c", "patch"},
		{"DELETE", "/apis/danm.io/v1/namespaces/ns/danmeps/e", "delete"},
	} {
		if got := verbOf(httptest.NewRequest(tt.method, tt.url, nil)); got != tt.want {
			t.Errorf("%s %s: got %s, want %s", tt.method, tt.url, got, tt.want)
		}
	}
}

func TestRequestsAreCountedByCode(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	m, _ := filled(t)
	client, err := rest.HTTPClientFor(m.countRequests(&rest.Config{Host: server.URL}))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Get(server.URL + "/api/v1/pods")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	server.Close()
	if _, err := client.Get(server.URL + "/api/v1/pods"); err == nil {
		t.Fatal("a closed server answered")
	}
	for code, want := range map[string]float64{"403": 1, "error": 1} {
		if got := testutil.ToFloat64(m.requests.WithLabelValues("list", code)); got != want {
			t.Errorf("code %s was counted %v times, want %v", code, got, want)
		}
	}
}

func TestReleaseRecordsSayWhoHeldWhatByWhatEvidence(t *testing.T) {
	c := testController(t)
	var log bytes.Buffer
	c.cfg.ReleaseLog = &log
	ep := endpointOf("leftover", "ss-0", "1")
	ep.ResourceVersion, ep.Spec.NetworkName, ep.Spec.Host = "7", "n", "w1"
	ep.Spec.Interface.Name, ep.Spec.Interface.Address = "eth0", "10.0.0.5/24"
	suspect := c.clock.Now().Add(-time.Minute)
	c.recordEndpoint(ep, "9", ownership.PodReplaced, endpointState{suspectSince: suspect})
	c.recordClear(networkOf(t, "n"), clearRequest{endpoint: ep, addr: netip.MustParseAddr("10.0.0.5")}, suspect)
	var got []Record
	for line := range strings.Lines(log.String()) {
		var r Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		got = append(got, r)
	}
	if len(got) != 2 {
		t.Fatalf("got %d records, want 2:\n%s", len(got), log.String())
	}
	holder := &Holder{Namespace: "ns", Endpoint: "leftover", EndpointUID: "ep-1", Pod: "ss-0", PodUID: "1", Host: "w1", Interface: "eth0"}
	for i, kind := range []RecordKind{EndpointReleased, AddressReleased} {
		r := got[i]
		if r.SchemaVersion != RecordVersion || r.Kind != kind || !slices.Equal(r.Addresses, []string{"10.0.0.5"}) || r.Time.IsZero() {
			t.Errorf("record %d is %+v", i, r)
		}
		if diff := cmp.Diff(holder, r.Holder); diff != "" {
			t.Errorf("holder (-want +got):\n%s", diff)
		}
	}
	want := RecordEvidence{Reason: ownership.PodReplaced, SuspectSince: suspect.UTC().Round(0), EndpointResourceVersion: "7", NetworkResourceVersion: "9"}
	if diff := cmp.Diff(want, got[0].Evidence); diff != "" {
		t.Errorf("evidence (-want +got):\n%s", diff)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestAFullDiskIsCountedAndStopsNothing(t *testing.T) {
	c := testController(t)
	c.cfg.ReleaseLog = fullDisk{}
	c.recordSweep(networkOf(t, "n"), openPools(networkOf(t, "n")), []bit{{danm.IPv4, 5}}, nil)
	if got := testutil.ToFloat64(c.metrics.unrecorded); got != 1 {
		t.Errorf("counted %v lost records, want 1", got)
	}
}

func TestThePodThatWaitsForAHeldAddressIsToldOnce(t *testing.T) {
	events := record.NewFakeRecorder(10)
	c := testController(t)
	c.events = events
	ep := endpointOf("leftover", "ss-0", "1")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ss-0", UID: "1"}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	for _, step := range []struct {
		name  string
		uid   types.UID
		phase corev1.PodPhase
		want  int
	}{
		{"the owner itself does not wait", "1", corev1.PodPending, 0},
		{"a pod that runs does not wait", "2", corev1.PodRunning, 0},
		{"its successor is told", "2", corev1.PodPending, 1},
		{"and not told again", "2", corev1.PodPending, 0},
		{"the successor's successor is told", "3", corev1.PodPending, 1},
	} {
		pod.UID, pod.Status.Phase = step.uid, step.phase
		if err := c.caches.pods.store.Add(pod); err != nil {
			t.Fatal(err)
		}
		c.lookAgain(ep, ownership.Decision{Action: ownership.Wait, Reason: ownership.NodeNotFenced})
		if got := len(events.Events); got != step.want {
			t.Errorf("%s: %d Events, want %d", step.name, got, step.want)
		}
		for range len(events.Events) {
			if e := <-events.Events; !strings.Contains(e, "AddressHeld") {
				t.Errorf("unexpected Event %q", e)
			}
		}
	}
}

func TestATripIsCountedByItsCause(t *testing.T) {
	for cause, b := range map[tripCause]*breaker{
		bothGroupsActive: {bothGroups: "x"}, truncatedList: {truncated: "x"}, noPods: {},
	} {
		c := testController(t)
		c.breaker = b
		c.endpointCount.Store(1)
		c.reportBreaker()
		c.reportBreaker()
		if got := testutil.ToFloat64(c.metrics.trips.WithLabelValues(string(cause))); got != 1 {
			t.Errorf("%s was counted %v times, want once", cause, got)
		}
	}
}
