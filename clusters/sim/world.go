package sim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
	"github.com/danm-chaos/danm-chaos/clusters/sim/apiserver"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// userControllers writes for Kubernetes' controllers and userAdmin for people
// who edit networks.
const (
	userControllers = "system:kube-controller-manager"
	userAdmin       = "kubernetes-admin"
)

// world is everything that happens in one bubble. Only the bubble's main
// goroutine touches it, while all others wait; what they bring back comes
// through inbox.
type world struct {
	plan    schedule.Simulation
	options Options
	server  *apiserver.Server
	gate    *gate
	record  *recorder
	choices *chooser
	faults  *faults
	user    *user

	variant danmcni.Variant
	network danm.NetworkRef

	pods      map[string]*corev1.Pod // by name, as committed
	podList   []*corev1.Pod          // the same, sorted; nil after a change
	endpoints map[string]*danm.Endpoint
	holders   map[netip.Addr]types.UID // of each address, the last
	bits      *danm.Network

	settled     bool
	settledAsOf settledAsOf
	last        *history.Snapshot // once everything is over

	moving         *moving                    // endpoints, between API groups; nil if they never were
	reservedIP     *unstructured.Unstructured // the only one; nil if there is none
	hidden         map[string]*hidden         // resources, from cleaners
	podNames       []string
	replicasWanted int
	isDraining     bool  // the namespace is being deleted
	drainedAsOf    int64 // resourceVersion after which draining it changed nothing
	nodes          []*node
	statics        []*staticPod
	sandboxes      []*sandbox // in the order of their making
	cleaners       []*replica
	sandboxOwner   map[string]types.UID    // by ID, of every sandbox that there ever was
	retryPod       map[types.UID]time.Time // when the kubelet tries again
	uids           int
	ids            int

	inbox   inbox
	group   sync.WaitGroup // every goroutine of the world
	scratch []option       // reused
	own     []option       // steps of the world as of some moment
	ownAsOf moment         // which
	stirred int            // changes of the world that no commit shows
	parked  []*call        // reused
	granted []*call        // since the last look
	worker  string         // replica of the cleaner that wrote last
	trouble error          // the simulator itself is wrong

	phase   phase
	steps   Steps
	reached map[string]int
	trace   []string
	story   []string
}

// phase is where a simulation stands.
type phase int

const (
	acting   phase = iota // the user has steps to take
	settling              // everything is healed, and has to agree in the end
	quiet                 // it agrees; nothing may break it again
)

// inbox takes what other goroutines have to report.
type inbox struct {
	mu   sync.Mutex
	done []func()
	keys []string
}

// put leaves a report under a key that sorts it among others.
func (b *inbox) put(key string, report func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keys, b.done = append(b.keys, key), append(b.done, report)
}

// empty runs all reports in the order of their keys, and returns how many.
func (b *inbox) empty() int {
	b.mu.Lock()
	keys, done := b.keys, b.done
	b.keys, b.done = nil, nil
	b.mu.Unlock()
	if len(keys) == 0 {
		return 0
	}
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return strings.Compare(keys[i], keys[j]) })
	for _, i := range order {
		done[i]()
	}
	return len(order)
}

func newWorld(plan schedule.Simulation, o Options) (*world, error) {
	variant, err := danmcni.ParseVariant(plan.World.CNI)
	if err != nil {
		return nil, err
	}
	group, err := danm.ParseGroup(plan.World.Group)
	if err != nil {
		return nil, err
	}
	w := &world{
		plan: plan, options: o, gate: newGate(), record: newRecorder(), choices: newChooser(plan), variant: variant,
		pods: map[string]*corev1.Pod{}, endpoints: map[string]*danm.Endpoint{}, holders: map[netip.Addr]types.UID{}, retryPod: map[types.UID]time.Time{}, sandboxOwner: map[string]types.UID{}, hidden: map[string]*hidden{},
		podNames: podNames(plan.World.Pods), replicasWanted: plan.World.Pods, reached: map[string]int{},
	}
	w.faults = newFaults(w, plan.Faults)
	w.user = &user{steps: plan.Steps}
	if err := w.openServer(group); err != nil {
		return nil, err
	}
	w.server.OnCommit(w.observe)
	return w, w.furnish(group)
}

// template is a server with DANM's CRDs and how many UIDs it took.
type template struct {
	server *apiserver.Server
	uids   int
}

// templates keeps one server for each API group. It is the same whoever makes
// it, so that the first simulation of a process is like the second.
var templates sync.Map

// epoch is when every bubble begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (w *world) openServer(group danm.Group) error {
	found, ok := templates.Load(group)
	if !ok {
		server, err := apiserver.New(apiserver.Options{
			Now: func() time.Time { return epoch }, NewUID: w.newUID, Groups: []danm.Group{group},
		})
		if err != nil {
			return err
		}
		found, _ = templates.LoadOrStore(group, template{server, w.uids})
	}
	t := found.(template)
	w.uids = t.uids
	w.server = t.server.Clone(apiserver.Options{Now: time.Now, NewUID: w.newUID, WatchList: w.plan.World.WatchList})
	return nil
}

// newUID returns UIDs in a row. They look like UIDs, and sort by age.
func (w *world) newUID() types.UID {
	w.uids++
	return types.UID(fmt.Sprintf("%08d-0000-4000-8000-000000000000", w.uids))
}

// observe follows the commits, as every part of the world would on a watch.
func (w *world) observe(c apiserver.Commit) {
	if !isRecorded(c.Resource.Resource) || c.Resource.Group != "" && c.Resource.Group != w.plan.World.Group {
		return
	}
	w.record.commit(c)
	w.noteCommit(c)
	switch c.Resource.Resource {
	case "pods":
		w.podList = nil
		if pod, ok := c.New.(*corev1.Pod); ok {
			w.pods[c.Name] = pod
		} else {
			delete(w.pods, c.Name)
			w.noteUnsigned(c.Old.GetUID())
		}
	case danm.EndpointResource:
		w.observeEndpoint(c)
	case danm.ReservedIPResource:
		w.reservedIP, _ = c.New.(*unstructured.Unstructured)
	default:
		w.observeNetwork(c)
	}
}

// fail notes that the simulator itself did something wrong.
func (w *world) fail(err error) {
	if w.trouble == nil {
		w.trouble = err
	}
}

// do sends a request of the world itself, which does not wait at the gate: the
// step that makes it was chosen already. The body is an object, which is the
// server's from then on, the options of a removal, or a document in JSON.
// Refusals are part of the play; the caller asks for the code.
func (w *world) do(user, method, path string, body any) int {
	r := apiserver.Request{User: user, Method: method, Path: path, Accept: apiserver.ContentObjects}
	switch body := body.(type) {
	case nil:
	case apiserver.Object:
		r.Object = body
	case *metav1.DeleteOptions:
		r.Deletion = body
	default:
		var err error
		if r.Body, r.ContentType, err = encodeBody(method, body); err != nil {
			w.fail(fmt.Errorf("encoding a request: %w", err))
			return 0
		}
	}
	response := w.server.Serve(r)
	if !w.isPartOfThePlay(response.Code) {
		w.fail(fmt.Errorf("%s %s by %s: %d %v", method, path, user, response.Code, response.Status))
	}
	return response.Code
}

// isPartOfThePlay tells whether a request of the world may be answered so: its
// object may be gone or be another, and nothing is made in a namespace that goes.
func (w *world) isPartOfThePlay(code int) bool {
	switch code {
	case http.StatusNotFound, http.StatusConflict:
		return true
	case http.StatusForbidden:
		return w.isDraining
	}
	return code < http.StatusBadRequest
}

func encodeBody(method string, body any) (data []byte, contentType string, err error) {
	data, err = json.Marshal(body)
	if method == http.MethodPatch {
		return data, string(types.MergePatchType), err
	}
	return data, runtime.ContentTypeJSON, err
}

func podPath(namespace, name string) string {
	return "/api/v1/namespaces/" + namespace + "/pods/" + name
}

// deletePod deletes exactly that pod. grace is nil for the pod's own.
func (w *world) deletePod(user string, pod *corev1.Pod, grace *int64) {
	w.do(user, http.MethodDelete, podPath(pod.Namespace, pod.Name), &metav1.DeleteOptions{
		GracePeriodSeconds: grace, Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
}

// sortedPods returns the pods by name.
func (w *world) sortedPods() []*corev1.Pod {
	if w.podList == nil {
		w.podList = slices.Collect(maps.Values(w.pods))
		slices.SortFunc(w.podList, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	}
	return w.podList
}

func isRunning(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil
}

func isCompleted(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// reach notes that something worth having happened did happen.
func (w *world) reach(what string) { w.reached[what]++ }

func (w *world) runHeader() history.Record {
	return history.Record{Run: &history.Run{
		SchemaVersion: history.SchemaVersion, RunID: w.plan.Name, Scenario: w.plan.Name, Cluster: "sim", Seed: w.plan.Seed,
		Group: w.plan.World.Group, DryRun: w.plan.World.DryRun, CleanerUser: clusters.UserCleaner, CNIUserPrefix: clusters.UserNodePrefix,
	}}
}
