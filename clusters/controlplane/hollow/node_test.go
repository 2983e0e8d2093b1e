package hollow_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane/hollow"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

const eventually = 20 * time.Second

// recorder keeps what a node tells.
type recorder struct {
	mu      sync.Mutex
	records []history.Attachment
}

func (r *recorder) Record(rec history.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, *rec.Attachment)
}

func (r *recorder) all() []history.Attachment {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.records)
}

// eventsOf returns "attached 1", where 1 is the pod's first sandbox.
func (r *recorder) eventsOf(pod string) []string {
	var events, ids []string
	for _, a := range r.all() {
		if a.Pod != pod {
			continue
		}
		if !slices.Contains(ids, a.ID) {
			ids = append(ids, a.ID)
		}
		events = append(events, fmt.Sprintf("%s %d", a.Event, slices.Index(ids, a.ID)+1))
	}
	return events
}

// world is a namespace, a network and a node of one test.
type world struct {
	*testing.T
	api      *apiServer
	client   *danm.Client
	ns       string
	net      danm.NetworkRef
	v4, v6   bool
	node     *hollow.Node
	recorder *recorder
	requests *requestLog
}

// requestLog notes the node's requests as "PUT danmnets" and the like.
type requestLog struct {
	total atomic.Int64
	mu    sync.Mutex
	count map[string]int
}

func (l *requestLog) note(r *http.Request) {
	l.total.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, resource := range []string{"danmeps", "danmnets", "tenantnetworks", "clusternetworks"} {
		if strings.Contains(r.URL.Path, "/"+resource) {
			if resource != danm.EndpointResource {
				resource = "networks"
			}
			if r.Method == http.MethodGet && isCollection(r.URL.Path) {
				resource += " (list)"
			}
			l.count[r.Method+" "+resource]++
		}
	}
}

func isCollection(p string) bool { return path.Base(p) == danm.EndpointResource }

func (l *requestLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(l.count)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, l.count[k]))
	}
	return strings.Join(parts, ", ")
}

func (l *requestLog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count = map[string]int{}
}

type shape struct {
	group   danm.Group
	kind    danm.NetworkKind
	variant danmcni.Variant
	v4, v6  bool
}

func (s shape) String() string {
	families := map[[2]bool]string{{true, false}: "IPv4", {false, true}: "IPv6", {true, true}: "dual stack"}
	return fmt.Sprintf("%s %s %s %s", s.kind, families[[2]bool{s.v4, s.v6}], s.variant, s.group)
}

var usual = shape{group: danm.GroupDanmIO, kind: danm.DanmNet, variant: danmcni.Danm43, v4: true}

var namespaces atomic.Int64

func newWorld(t *testing.T, s shape) *world {
	api := needServer(t)
	n := namespaces.Add(1)
	w := &world{
		T: t, api: api, client: danm.NewClient(api.dyn, s.group), ns: fmt.Sprintf("test-%d", n), v4: s.v4, v6: s.v6,
		net:      danm.NetworkRef{Kind: s.kind, Name: fmt.Sprintf("net-%d", n)},
		recorder: &recorder{}, requests: &requestLog{count: map[string]int{}},
	}
	if s.kind.IsNamespaced() {
		w.net.Namespace = w.ns
	}
	_, err := api.core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.node = w.startNode("n1", s)
	return w
}

// startNode starts a node whose object's name is unique to the test.
func (w *world) startNode(user string, s shape) *hollow.Node {
	rc := w.api.config("system:node:" + user)
	rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return countingTransport{next, w.requests.note} })
	node, err := hollow.Start(w.Context(), hollow.Config{
		Name: w.nodeName(user), Labels: map[string]string{"lane": w.ns}, REST: rc, Group: s.group, Variant: s.variant, Seed: 7, Recorder: w.recorder,
	})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(node.Stop)
	return node
}

func (w *world) nodeName(user string) string { return w.ns + "-" + user }

func (w *world) createNetwork() {
	options := map[string]any{"host_device": "ens4", "future": "kept"}
	if w.v4 {
		spec := ipam.Spec{CIDR: "10.10.10.0/24", Gateways: []string{"10.10.10.1"}}
		options["cidr"], options["alloc"] = spec.CIDR, w.empty(spec)
		options["routes"] = map[string]any{"10.0.0.0/8": "10.10.10.1"}
		options["allocation_pool"] = map[string]any{"start": "10.10.10.10", "end": "10.10.10.250"}
	}
	if w.v6 {
		spec := ipam.Spec{CIDR: "2001:db8::/120", IPv6: true}
		options["net6"], options["alloc6"] = "2001:db8::/64", w.empty(spec)
		options["allocation_pool_v6"] = map[string]any{"cidr": spec.CIDR, "start": "2001:db8::10", "end": "2001:db8::fe"}
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"NetworkID": w.net.Name, "NetworkType": "ipvlan", "Options": options},
	}}
	u.SetGroupVersionKind(w.client.Group.GroupVersion().WithKind(string(w.net.Kind)))
	u.SetName(w.net.Name)
	if _, err := w.client.Networks(w.net.Kind, w.net.Namespace).Create(w.Context(), u, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) empty(s ipam.Spec) string {
	alloc, err := ipam.Empty(s)
	if err != nil {
		w.Fatal(err)
	}
	return alloc
}

func (w *world) annotation() map[string]string {
	key := map[danm.NetworkKind]string{danm.DanmNet: "network", danm.TenantNetwork: "tenantNetwork", danm.ClusterNetwork: "clusterNetwork"}
	ip := fmt.Sprintf(`"%s":"%s"`, key[w.net.Kind], w.net.Name)
	if w.v4 {
		ip += `,"ip":"dynamic"`
	}
	if w.v6 {
		ip += `,"ip6":"dynamic"`
	}
	return map[string]string{w.client.Group.InterfacesAnnotation(): "[{" + ip + "}]"}
}

// createPod makes a pod that is bound to the node from the start.
func (w *world) createPod(name string, annotations map[string]string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			NodeName:   w.nodeName("n1"),
			Containers: []corev1.Container{{Name: "main", Image: "pause"}},
		},
	}
	pod, err := w.api.core.CoreV1().Pods(w.ns).Create(w.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return pod
}

func (w *world) until(what string, condition func() bool) {
	w.Helper()
	err := wait.PollUntilContextTimeout(w.Context(), pollInterval, eventually, true, func(context.Context) (bool, error) {
		return condition(), nil
	})
	if err != nil {
		w.Fatalf("waiting until %s: %v", what, err)
	}
}

func (w *world) pod(name string) *corev1.Pod {
	pod, err := w.api.core.CoreV1().Pods(w.ns).Get(w.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	return pod
}

func (w *world) untilRunning(names ...string) {
	w.Helper()
	for _, name := range names {
		w.until(name+" runs", func() bool {
			pod := w.pod(name)
			return pod != nil && pod.Status.Phase == corev1.PodRunning && isReady(pod)
		})
	}
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func (w *world) untilGone(name string) {
	w.Helper()
	w.until(name+" is gone", func() bool { return w.pod(name) == nil })
}

func (w *world) deletePod(name string, options metav1.DeleteOptions) {
	w.Helper()
	if err := w.api.core.CoreV1().Pods(w.ns).Delete(w.Context(), name, options); err != nil {
		w.Fatal(err)
	}
}

func force() metav1.DeleteOptions {
	now := int64(0)
	return metav1.DeleteOptions{GracePeriodSeconds: &now}
}

func (w *world) endpoints() []*danm.Endpoint {
	list, err := w.client.Endpoints(w.ns).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	var out []*danm.Endpoint
	for i := range list.Items {
		ep, err := danm.ToEndpoint(&list.Items[i])
		if err != nil {
			w.Fatal(err)
		}
		out = append(out, ep)
	}
	return out
}

func (w *world) claimed() []netip.Addr {
	var out []netip.Addr
	for _, ep := range w.endpoints() {
		addrs, err := ep.Addresses()
		if err != nil {
			w.Fatal(err)
		}
		out = append(out, addrs...)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// allocated returns the addresses whose bits are set.
func (w *world) allocated() []netip.Addr {
	n, err := w.client.GetNetwork(w.Context(), w.net)
	if err != nil {
		w.Fatal(err)
	}
	var out []netip.Addr
	for _, spec := range n.Pools() {
		pool, err := ipam.Open(ipam.Spec(spec.Fields))
		if err != nil {
			w.Fatal(err)
		}
		for _, i := range pool.Allocated() {
			out = append(out, pool.Addr(i))
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

func (w *world) wantAddresses(want ...string) {
	w.Helper()
	texts := func(addrs []netip.Addr) (out []string) {
		for _, a := range addrs {
			out = append(out, a.String())
		}
		return out
	}
	if diff := cmp.Diff(want, texts(w.allocated())); diff != "" {
		w.Errorf("set bits (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, texts(w.claimed())); diff != "" {
		w.Errorf("addresses of endpoints (-want +got):\n%s", diff)
	}
}

func TestAPodIsAttachedAndDetachedInEveryShape(t *testing.T) {
	for _, g := range danm.Groups() {
		for _, kind := range danm.NetworkKinds() {
			for _, v := range danmcni.Variants() {
				for _, families := range [][2]bool{{true, false}, {false, true}, {true, true}} {
					s := shape{group: g, kind: kind, variant: v, v4: families[0], v6: families[1]}
					t.Run(s.String(), func(t *testing.T) {
						t.Parallel()
						attachAndDetach(t, s)
					})
				}
			}
		}
	}
}

func attachAndDetach(t *testing.T, s shape) {
	w := newWorld(t, s)
	w.createNetwork()
	pod := w.createPod("web-0", w.annotation())
	w.untilRunning("web-0")
	var want []string
	if s.v4 {
		want = append(want, "10.10.10.10")
	}
	if s.v6 {
		want = append(want, "2001:db8::10")
	}
	w.wantAddresses(want...)
	w.wantEndpointOf(pod)
	added := w.requests.String()
	w.requests.reset()

	w.deletePod("web-0", metav1.DeleteOptions{})
	w.untilGone("web-0")
	w.wantAddresses()
	if diff := cmp.Diff([]string{"attached 1", "detaching 1"}, w.recorder.eventsOf("web-0")); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	w.wantUnknownFieldKept()
	t.Logf("ADD: %s, GET pod 1", added)
	t.Logf("DEL: %s", w.requests)
}

func (w *world) wantEndpointOf(pod *corev1.Pod) {
	w.Helper()
	eps, records := w.endpoints(), w.recorder.all()
	if len(eps) != 1 || len(records) != 1 || len(records[0].Interfaces) != 1 {
		w.Fatalf("%d endpoints, records %+v", len(eps), records)
	}
	ep, made := eps[0], records[0].Interfaces[0]
	if ep.Spec.PodUID != pod.UID || ep.Network() != w.net || ep.Spec.CID != records[0].ID {
		w.Errorf("endpoint %+v of pod %s", ep.Spec, pod.UID)
	}
	if made.Endpoint != ep.Name || made.EndpointUID != string(ep.UID) || made.Network != w.net.Name || made.NetworkKind != string(w.net.Kind) {
		w.Errorf("recorded %+v for endpoint %s", made, ep.Name)
	}
	if got := w.pod(pod.Name).Status.PodIP; got != made.Addresses[0] {
		w.Errorf("pod IP %s, recorded addresses %v", got, made.Addresses)
	}
}

func (w *world) wantUnknownFieldKept() {
	w.Helper()
	u, err := w.client.Networks(w.net.Kind, w.net.Namespace).Get(w.Context(), w.net.Name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	if got, _, _ := unstructured.NestedString(u.Object, "spec", "Options", "future"); got != "kept" {
		w.Errorf("a field that nobody knows became %q", got)
	}
}

func TestAPodWithoutAnnotationJustRuns(t *testing.T) {
	w := newWorld(t, usual)
	w.createPod("plain", nil)
	w.untilRunning("plain")
	w.deletePod("plain", metav1.DeleteOptions{})
	w.untilGone("plain")
	if records := w.recorder.all(); len(records) != 0 {
		t.Errorf("recorded %+v", records)
	}
}

func TestAFailedAddIsTriedAgainWithANewSandbox(t *testing.T) {
	w := newWorld(t, usual)
	w.createPod("early", w.annotation())
	w.until("ADD failed once", func() bool {
		w.requests.mu.Lock()
		defer w.requests.mu.Unlock()
		return w.requests.count["GET networks"] > 0
	})
	w.createNetwork()
	w.untilRunning("early")
	w.wantAddresses("10.10.10.10")
}

func TestAForceDeletedPodIsDetached(t *testing.T) {
	w := newWorld(t, usual)
	w.createNetwork()
	w.createPod("web-0", w.annotation())
	w.untilRunning("web-0")
	w.deletePod("web-0", force())
	w.until("nothing is left", func() bool { return len(w.endpoints()) == 0 })
	w.wantAddresses()
}

func TestManyPodsOfOneNetworkGetAddressesOfTheirOwn(t *testing.T) {
	const pods = 40
	w := newWorld(t, usual)
	w.createNetwork()
	names := w.createPods(pods)
	w.untilRunning(names...)
	if got := w.claimed(); len(got) != pods || len(slices.Compact(slices.Clone(got))) != pods {
		t.Errorf("%d pods claim %v", pods, got)
	}
	if diff := cmp.Diff(w.claimed(), w.allocated(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("endpoints and bits differ (-endpoints +bits):\n%s", diff)
	}
	t.Logf("%d ADDs: %s", pods, w.requests)
	w.requests.reset()
	for _, name := range names {
		w.deletePod(name, metav1.DeleteOptions{})
	}
	for _, name := range names {
		w.untilGone(name)
	}
	w.wantAddresses()
	t.Logf("%d DELs: %s", pods, w.requests)
}

func (w *world) createPods(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("web-%d", i))
		w.createPod(names[i], w.annotation())
	}
	return names
}

func TestFailStopsEverythingInTheMiddle(t *testing.T) {
	w := newWorld(t, usual)
	w.createNetwork()
	names := w.createPods(20)
	w.until("some ADDs succeeded", func() bool { return len(w.recorder.all()) > 3 })
	w.node.Fail()
	requests, records := w.requests.total.Load(), w.recorder.all()
	wantEveryAttachmentLost(t, records)

	// A node that is alive tells how long to look at one that should be dead.
	alive := w.startNodeElsewhere()
	w.until("a live node has renewed its lease", func() bool { return alive.total.Load() > 8 })
	if got := w.requests.total.Load(); got != requests {
		t.Errorf("the dead node made %d requests", got-requests)
	}
	if diff := cmp.Diff(records, w.recorder.all()); diff != "" {
		t.Errorf("the dead node recorded (-before +after):\n%s", diff)
	}
	w.wantLateDELs(names)
}

// wantLateDELs checks that sandboxes whose ADD never returned get a DEL too.
func (w *world) wantLateDELs(pods []string) {
	w.Helper()
	for _, name := range pods {
		w.deletePod(name, force())
	}
	if len(w.endpoints()) == 0 {
		w.Fatal("the dead node left no endpoint, so there is nothing to see")
	}
	if err := w.node.Restore(w.Context()); err != nil {
		w.Fatal(err)
	}
	if eps := w.endpoints(); len(eps) != 0 {
		w.Errorf("%d endpoints are left after the node came back", len(eps))
	}
	w.Logf("bits leaked by ADDs that died between their two writes: %d", len(w.allocated()))
}

func wantEveryAttachmentLost(t *testing.T, records []history.Attachment) {
	t.Helper()
	state := map[string]history.AttachmentEvent{}
	for _, a := range records {
		if a.Event == history.Attached && state[a.ID] != "" {
			t.Errorf("sandbox %s attached after %s", a.ID, state[a.ID])
		}
		state[a.ID] = a.Event
	}
	for _, id := range slices.Sorted(maps.Keys(state)) {
		if state[id] != history.Lost {
			t.Errorf("sandbox %s is recorded as %s on a dead node", id, state[id])
		}
	}
}

func (w *world) startNodeElsewhere() *requestLog {
	other := *w
	other.requests, other.recorder = &requestLog{count: map[string]int{}}, &recorder{}
	other.startNode("n2", usual)
	return other.requests
}

func TestARestoredNodeCleansUpAsAKubeletWould(t *testing.T) {
	w := newWorld(t, usual)
	w.createNetwork()
	gone, bound := w.createPod("gone", w.annotation()), w.createPod("bound", w.annotation())
	w.createPod("terminating", w.annotation())
	w.untilRunning("gone", "bound", "terminating")
	w.node.Fail()
	w.deletePod("gone", force())
	w.deletePod("terminating", metav1.DeleteOptions{})
	if got := len(w.endpoints()); got != 3 {
		t.Fatalf("%d endpoints while the node is off", got)
	}
	phases := w.watchPhases(bound)
	if err := w.node.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.untilGone("terminating")
	w.until("the pod that stayed runs again", func() bool {
		return slices.Contains(phases(), "Pending") && w.pod("bound").Status.Phase == corev1.PodRunning
	})
	w.wantRestored(gone.UID, bound.UID)
	if got := phases(); !slices.Equal(got, []string{"Pending", "Running"}) {
		t.Errorf("phases after the reboot: %v", got)
	}
}

func (w *world) wantRestored(gone, bound types.UID) {
	w.Helper()
	eps := w.endpoints()
	if len(eps) != 1 || eps[0].Spec.PodUID != bound {
		w.Fatalf("endpoints %+v, want one of %s and none of %s", eps, bound, gone)
	}
	if got := w.allocated(); len(got) != 1 {
		w.Errorf("set bits %v", got)
	}
	for pod, want := range map[string][]string{
		"gone":        {"attached 1", "lost 1", "detaching 1"},
		"terminating": {"attached 1", "lost 1", "detaching 1"},
		"bound":       {"attached 1", "lost 1", "detaching 1", "attached 2"},
	} {
		if diff := cmp.Diff(want, w.recorder.eventsOf(pod)); diff != "" {
			w.Errorf("records of %s (-want +got):\n%s", pod, diff)
		}
	}
}

// watchPhases returns a function that tells the phases which the pod passed
// since now, repetitions left out.
func (w *world) watchPhases(pod *corev1.Pod) func() []string {
	watcher, err := w.api.core.CoreV1().Pods(w.ns).Watch(w.Context(), metav1.ListOptions{
		FieldSelector: "metadata.name=" + pod.Name, ResourceVersion: w.pod(pod.Name).ResourceVersion,
	})
	if err != nil {
		w.Fatal(err)
	}
	var mu sync.Mutex
	var phases []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range watcher.ResultChan() {
			if p, ok := event.Object.(*corev1.Pod); ok && p.UID == pod.UID {
				mu.Lock()
				phases = slices.Compact(append(phases, string(p.Status.Phase)))
				mu.Unlock()
			}
		}
	}()
	w.Cleanup(func() { watcher.Stop(); <-done })
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(phases)
	}
}

func TestANodeRegistersAsAKubeletWould(t *testing.T) {
	w := newWorld(t, usual)
	name := w.nodeName("n1")
	node, err := w.api.core.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for label, want := range map[string]string{corev1.LabelHostname: name, "lane": w.ns} {
		if got := node.Labels[label]; got != want {
			t.Errorf("label %s is %q, want %q", label, got, want)
		}
	}
	w.wantNodeReady(name)
	w.untilLeaseRenewed(name)

	w.node.Fail()
	w.makeNotReady(name)
	if err := w.node.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.wantNodeReady(name)
	w.makeNotReady(name)
	w.until("a running node corrects its status", func() bool { return w.isNodeReady(name) })
}

func (w *world) isNodeReady(name string) bool {
	node, err := w.api.core.CoreV1().Nodes().Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func (w *world) wantNodeReady(name string) {
	w.Helper()
	if !w.isNodeReady(name) {
		w.Errorf("node %s is not Ready", name)
	}
}

// makeNotReady does what the controller-manager does to a silent node.
func (w *world) makeNotReady(name string) {
	patch := `{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`
	_, err := w.api.core.CoreV1().Nodes().Patch(w.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) untilLeaseRenewed(name string) {
	seen := map[time.Time]bool{}
	w.until("the lease was renewed twice", func() bool {
		lease, err := w.api.core.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(w.Context(), name, metav1.GetOptions{})
		if err == nil {
			seen[lease.Spec.RenewTime.Time] = true
		}
		return len(seen) > 2
	})
}

func TestStartEndsWithItsContextWhenThereIsNoAPI(t *testing.T) {
	api := needServer(t)
	rc := api.config("danm-harness")
	rc.Host = "https://127.0.0.1:1"
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := hollow.Start(ctx, hollow.Config{Name: "lost", REST: rc, Group: danm.GroupDanmIO}); err == nil {
		t.Fatal("a node started without an API server")
	} else if !strings.Contains(err.Error(), "lost") {
		t.Errorf("error %q does not name the node", err)
	}
}
