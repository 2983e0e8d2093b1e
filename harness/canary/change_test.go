package canary

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/clusters/sim/apiserver"
)

// bench is a small cluster, seen through a canary's way to the API and past it.
type bench struct {
	t           *testing.T
	direct      *apiserver.Direct
	seen, plain clients
}

var benchNetwork = danm.NetworkRef{Kind: danm.DanmNet, Namespace: "default", Name: "net"}

func newBench(t *testing.T, name string) bench {
	t.Helper()
	n := 0
	server, err := apiserver.New(apiserver.Options{
		Now: time.Now, NewUID: func() types.UID { n++; return types.UID(fmt.Sprintf("uid-%d", n)) }, Groups: []danm.Group{danm.GroupDanmIO},
	})
	if err != nil {
		t.Fatal(err)
	}
	direct := apiserver.NewDirect(server)
	change, ok := ChangeOf(name, danm.GroupDanmIO)
	if !ok || change.Wrap == nil {
		t.Fatalf("%s changes nothing on the way to the API", name)
	}
	b := bench{t: t, direct: direct, plain: clientsOf(t, direct.RESTConfig("tester"))}
	b.seen = b.seenBy(change)
	b.furnish()
	return b
}

// seenBy is the cluster as a cleaner with that change sees it.
func (b bench) seenBy(change Change) clients {
	spoilt := b.direct.RESTConfig("cleaner")
	spoilt.Wrap(change.Wrap)
	return clientsOf(b.t, spoilt)
}

func clientsOf(t *testing.T, config *rest.Config) clients {
	t.Helper()
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return clients{core: core, danm: danm.NewClient(dyn, danm.GroupDanmIO)}
}

// furnish makes a network with bits 10 and 11 set, and a pod with an endpoint.
func (b bench) furnish() {
	b.t.Helper()
	_, err := b.plain.danm.Networks(danm.DanmNet, "default").Create(b.t.Context(), &unstructured.Unstructured{Object: object{
		"apiVersion": "danm.io/v1", "kind": "DanmNet", "metadata": object{"name": "net"},
		"spec": object{"NetworkID": "net", "Options": object{"cidr": "10.10.10.0/24", "alloc": bitmap(0, 10, 11, 255)}},
	}}, metav1.CreateOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	pod := b.createPod()
	_, err = b.plain.danm.Endpoints("default").Create(b.t.Context(), &unstructured.Unstructured{Object: object{
		"apiVersion": "danm.io/v1", "kind": "DanmEp", "metadata": object{"name": "ep"},
		"spec": object{
			"NetworkName": "net", "NetworkType": "ipvlan", "EndpointID": "ep", "Pod": "pod", "PodUID": string(pod.UID),
			"apiType": "DanmNet", "Interface": object{"Name": "eth0", "Address": "10.10.10.10/24"},
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b bench) createPod() *corev1.Pod {
	b.t.Helper()
	pod, err := b.plain.core.CoreV1().Pods("default").Create(b.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return pod
}

func bitmap(set ...int) string {
	bits := make(ipam.Bitmap, 32)
	for _, i := range set {
		bits.Set(i)
	}
	return bits.Encode()
}

func (b bench) network(c clients) *danm.Network {
	b.t.Helper()
	n, err := c.danm.GetNetwork(b.t.Context(), benchNetwork)
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// patch replaces the network's bits as the cleaner does, which read it before
// between happened.
func (b bench) patch(to string, between func(clients)) error {
	b.t.Helper()
	read := b.network(b.seen)
	between(b.plain)
	_, err := b.seen.danm.PatchAlloc(b.t.Context(), read, []danm.AllocChange{{Family: danm.IPv4, Old: read.Spec.Options.Alloc, New: to}})
	return err
}

// write sets the network's bits past the canary.
func (b bench) write(to string) func(clients) {
	return func(c clients) {
		read := b.network(c)
		if _, err := c.danm.PatchAlloc(b.t.Context(), read, []danm.AllocChange{{Family: danm.IPv4, Old: read.Spec.Options.Alloc, New: to}}); err != nil {
			b.t.Fatal(err)
		}
	}
}

func nothing(clients) {}

func TestWhatCanariesDoToBits(t *testing.T) {
	was, cleared := bitmap(0, 10, 11, 255), bitmap(0, 11, 255)
	tests := []struct {
		canary  string
		to      string
		between string // bits that somebody else writes after the cleaner has read
		want    string
	}{
		{"no-compare", cleared, bitmap(0, 10, 11, 12, 255), cleared},
		{"full-update", cleared, bitmap(0, 10, 11, 12, 255), cleared},
		{"blind-retry", cleared, bitmap(0, 10, 11, 12, 255), bitmap(0, 11, 12, 255)},
		{"next-address", cleared, "", bitmap(0, 10, 255)},
		{"frees-reserved", cleared, "", bitmap(11, 255)},
		{"keeps-bits", cleared, "", was},
		{"no-repair", cleared, "", cleared},
		{"no-repair", bitmap(0, 10, 11, 12, 255), "", was},
		{"annotates-networks", cleared, "", cleared},
		{"remembers-addresses", cleared, "", cleared},
		{"no-lineage", cleared, "", cleared},
	}
	for _, tt := range tests {
		t.Run(tt.canary+" writes "+tt.to, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, between := newBench(t, tt.canary), nothing
				if tt.between != "" {
					between = b.write(tt.between)
				}
				if err := b.patch(tt.to, between); err != nil {
					t.Fatal(err)
				}
				if got := b.network(b.plain).Spec.Options.Alloc; got != tt.want {
					t.Errorf("bits are %s, want %s", got, tt.want)
				}
			})
		})
	}
}

func TestRemembersAddressesClearsThemAgain(t *testing.T) {
	b := newBench(t, "remembers-addresses")
	if err := b.patch(bitmap(0, 11, 255), nothing); err != nil {
		t.Fatal(err)
	}
	b.write(bitmap(0, 10, 11, 255))(b.plain)
	if err := b.patch(bitmap(0, 10, 255), nothing); err != nil {
		t.Fatal(err)
	}
	if got, want := b.network(b.plain).Spec.Options.Alloc, bitmap(0, 255); got != want {
		t.Errorf("bits are %s, want %s", got, want)
	}
}

func TestNoLineageHidesThatABitWasClear(t *testing.T) {
	b := newBench(t, "no-lineage")
	b.network(b.seen)
	b.write(bitmap(0, 11, 255))(b.plain)
	if got, want := b.network(b.seen).Spec.Options.Alloc, bitmap(0, 10, 11, 255); got != want {
		t.Errorf("it sees %s, want %s", got, want)
	}
	if err := b.patch(bitmap(0, 10, 255), nothing); err != nil {
		t.Fatal(err)
	}
	if got, want := b.network(b.plain).Spec.Options.Alloc, bitmap(0, 255); got != want {
		t.Errorf("bits are %s, want %s", got, want)
	}
}

func TestAnnotatesNetworksLeavesANote(t *testing.T) {
	b := newBench(t, "annotates-networks")
	if err := b.patch(bitmap(0, 11, 255), nothing); err != nil {
		t.Fatal(err)
	}
	if n := b.network(b.plain); n.Annotations["cleaner"] == "" {
		t.Errorf("annotations: %v", n.Annotations)
	}
}

// deleteEndpoint deletes the endpoint through the canary.
func (b bench) deleteEndpoint() {
	b.t.Helper()
	ep, err := b.seen.danm.GetEndpoint(b.t.Context(), "default", "ep")
	if err == nil {
		err = b.seen.danm.DeleteEndpoint(b.t.Context(), ep)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func TestBitFirstClearsTheBitByItself(t *testing.T) {
	b := newBench(t, "bit-first")
	b.deleteEndpoint()
	if got, want := b.network(b.plain).Spec.Options.Alloc, bitmap(0, 11, 255); got != want {
		t.Errorf("bits are %s, want %s", got, want)
	}
	if _, err := b.plain.danm.GetEndpoint(t.Context(), "default", "ep"); !apierrors.IsNotFound(err) {
		t.Errorf("the endpoint: %v", err)
	}
}

func TestKeepsEndpointsKeepsThem(t *testing.T) {
	b := newBench(t, "keeps-endpoints")
	b.deleteEndpoint()
	if _, err := b.plain.danm.GetEndpoint(t.Context(), "default", "ep"); err != nil {
		t.Error(err)
	}
}

// getPod reads the pod through the canary, nil if it seems gone.
func (b bench) getPod() *corev1.Pod {
	b.t.Helper()
	pod, err := b.seen.core.CoreV1().Pods("default").Get(b.t.Context(), "pod", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return pod
}

func (b bench) listPods() int {
	b.t.Helper()
	list, err := b.seen.core.CoreV1().Pods("").List(b.t.Context(), metav1.ListOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return len(list.Items)
}

func (b bench) setPhase(phase corev1.PodPhase) {
	b.t.Helper()
	patch := fmt.Sprintf(`{"status":{"phase":%q}}`, phase)
	if _, err := b.plain.core.CoreV1().Pods("default").Patch(b.t.Context(), "pod", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		b.t.Fatal(err)
	}
}

func (b bench) deletePod(grace int64) {
	b.t.Helper()
	if err := b.plain.core.CoreV1().Pods("default").Delete(b.t.Context(), "pod", metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		b.t.Fatal(err)
	}
}

func TestPodsThatSeemGone(t *testing.T) {
	b := newBench(t, "not-running-is-gone")
	if b.getPod() != nil || b.listPods() != 0 {
		t.Error("a pending pod is seen")
	}
	b.setPhase(corev1.PodRunning)
	if b.getPod() == nil || b.listPods() != 1 {
		t.Error("a running pod is not seen")
	}
	b = newBench(t, "terminating-is-gone")
	if b.getPod() == nil {
		t.Error("a pod is not seen")
	}
	b.deletePod(30)
	if b.getPod() != nil || b.listPods() != 0 {
		t.Error("a terminating pod is seen")
	}
}

func TestSilentNodeIsGoneHidesItsPods(t *testing.T) {
	b := newBench(t, "silent-node-is-gone")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	if _, err := b.plain.core.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if b.getPod() == nil {
		t.Error("the pod is hidden before anybody heard of the node")
	}
	if _, err := b.seen.core.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if b.getPod() != nil {
		t.Error("the pod of a silent node is seen")
	}
}

func TestCachedReadsAnswerFromTheLastList(t *testing.T) {
	b := newBench(t, "cached-reads")
	first := b.getPod()
	b.listPods()
	b.deletePod(0)
	b.createPod()
	if again := b.getPod(); again == nil || again.UID != first.UID {
		t.Errorf("read %v, listed UID %s", again, first.UID)
	}
}

func TestUnknownIsGoneHidesFailures(t *testing.T) {
	change, _ := ChangeOf("unknown-is-gone", danm.GroupDanmIO)
	for _, answer := range []func(*http.Request) (*http.Response, error){
		func(r *http.Request) (*http.Response, error) {
			return exchange{request: r}.answerBytes(http.StatusInternalServerError, nil), nil
		},
		func(*http.Request) (*http.Response, error) { return nil, errors.New("connection reset") },
	} {
		config := &rest.Config{Host: "http://nowhere", Transport: change.Wrap(roundTripper(answer))}
		_, err := clientsOf(t, config).core.CoreV1().Pods("default").Get(t.Context(), "pod", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("got %v", err)
		}
	}
}

func TestNameIsOwnerGivesPodAndEndpointOneIdentity(t *testing.T) {
	b := newBench(t, "name-is-owner")
	ep, err := b.seen.danm.GetEndpoint(t.Context(), "default", "ep")
	if err != nil {
		t.Fatal(err)
	}
	b.deletePod(0)
	b.createPod()
	if pod := b.getPod(); pod.UID != ep.Spec.PodUID || pod.UID == "" {
		t.Errorf("pod %s, owner %s", pod.UID, ep.Spec.PodUID)
	}
}

func TestWatchesLoseWhatTheirCanaryDoesNotHear(t *testing.T) { synctest.Test(t, losesDeletions) }

func losesDeletions(t *testing.T) {
	b := newBench(t, "drops-deletions")
	b.listPods()
	pods, err := b.seen.core.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	defer pods.Stop()
	if e := <-pods.ResultChan(); e.Type != "ADDED" {
		t.Fatalf("saw %s", e.Type)
	}
	b.deletePod(0) // marked, and then gone
	b.createPod()
	b.setPhase(corev1.PodRunning)
	if e := <-pods.ResultChan(); e.Type != "MODIFIED" || e.Object.(*corev1.Pod).DeletionTimestamp == nil {
		t.Errorf("saw %s of %v", e.Type, e.Object)
	}
	synctest.Wait()
	select {
	case e := <-pods.ResultChan():
		t.Errorf("saw %s of %v", e.Type, e.Object)
	default:
	}
}

func TestSweepsAreChangedByConfigurationAlone(t *testing.T) {
	for name, want := range map[string]time.Duration{"hasty-sweep": time.Second, "no-sweep": neverAgain} {
		if c, ok := ChangeOf(name, danm.GroupDanmIO); !ok || c.OrphanQuarantine != want || c.Wrap != nil {
			t.Errorf("%s: %+v", name, c)
		}
	}
}
