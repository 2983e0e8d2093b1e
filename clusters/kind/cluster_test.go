package kind

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
	"github.com/danm-chaos/danm-chaos/clusters/kind/engine"
	"github.com/danm-chaos/danm-chaos/clusters/kind/nodeimage"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// integration is set where there is an engine whose containers a test may make
// and remove.
const integration = "DANM_KIND_TEST"

const (
	replicas  = 5
	namespace = "default"
	cidr      = "10.10.10.0/24"
	// stepMax bounds every wait, on a machine that is busy with other things.
	stepMax = 2 * time.Minute
)

// needEngine skips the test where it cannot run, and says why.
func needEngine(t *testing.T) {
	t.Helper()
	if os.Getenv(integration) == "" {
		t.Skipf("needs a container engine and a node image; set %s=1", integration)
	}
	h, err := examineHost(t.Context())
	if err != nil {
		t.Skipf("no cluster can run here: %v", err)
	}
	if err := h.check(); err != nil {
		t.Skipf("no cluster can run here: %v", err)
	}
	if plan := nodeimage.Find(t.Context(), nodeimage.Options{CgroupV1: h.cgroupV1}); !plan.IsThere {
		t.Skipf("there is no node image %s; go test ./clusters/kind/nodeimage makes it", plan.Image)
	}
}

// remains lists everything of the run that the engine still has.
func remains(t *testing.T, runID string) []string {
	t.Helper()
	var all []string
	for _, list := range [][]string{
		{"ps", "--all", "--format", "{{.Names}}", "--filter", "label=" + kindClusterLabel + "=" + clusterName(runID)},
		{"network", "ls", "--format", "{{.Name}}", "--filter", "label=" + runLabel + "=" + runID},
		{"volume", "ls", "--quiet"},
	} {
		lines, err := engine.Lines(context.WithoutCancel(t.Context()), list...)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, lines...)
	}
	return all
}

// stopwatch prints how long each step took.
type stopwatch struct {
	t     *testing.T
	began time.Time
}

func (s *stopwatch) lap(step string) {
	s.t.Logf("%6.1f s  %s", time.Since(s.began).Seconds(), step)
	s.began = time.Now()
}

func TestANodeDiesAndItsPodsComeBackElsewhere(t *testing.T) {
	needEngine(t)
	before := remains(t, "")
	runID := "test-" + strconv.Itoa(os.Getpid())
	watch := &stopwatch{t: t, began: time.Now()}
	recorder := &history.Memory{}
	c, err := Start(t.Context(), Options{
		RunID: runID, Group: danm.GroupDanmIO, Recorder: recorder, Progress: os.Stderr, KeepLogs: os.Getenv("DANM_KIND_LOGS"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	watch.lap("cluster ready")

	w := newWorld(t, c)
	w.createSet()
	w.await("all pods Ready", func(pods []corev1.Pod) bool { return len(pods) == replicas && all(pods, isPodReady) })
	watch.lap("StatefulSet of 5 Ready")

	victim := w.pods()[0].Spec.NodeName
	if err := c.FailNode(t.Context(), victim); err != nil {
		t.Fatal(err)
	}
	lost := on(w.pods(), victim)
	w.await("its pods Terminating", func(pods []corev1.Pod) bool { return all(on(pods, victim), isTerminating) })
	watch.lap(fmt.Sprintf("%d pods of the dead node Terminating", len(lost)))

	w.forceDelete(lost)
	w.await("all pods Ready elsewhere", func(pods []corev1.Pod) bool {
		return len(pods) == replicas && len(on(pods, victim)) == 0 && all(pods, isPodReady)
	})
	watch.lap("all 5 Ready again")

	if err := c.RestoreNode(t.Context(), victim); err != nil {
		t.Fatal(err)
	}
	if err := awaitReady(t.Context(), w.client); err != nil {
		t.Fatal(err)
	}
	watch.lap("node Ready again")

	w.createNetwork()
	if err := c.DrainAudit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !hasAudit(recorder.Records(), clusters.UserHarness, "create", danm.DanmNetResource) {
		t.Errorf("the audit log does not name the writer of a network: %+v", recorder.Records())
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	watch.lap("cluster removed")
	if after := remains(t, runID); len(after) > len(before) {
		t.Errorf("left behind: %v", after)
	}
}

func TestPodsHaveTheAddressOfTheirEndpoint(t *testing.T) {
	needEngine(t)
	watch := &stopwatch{t: t, began: time.Now()}
	recorder := &history.Memory{}
	c, err := Start(t.Context(), Options{
		RunID: "test-cni-" + strconv.Itoa(os.Getpid()), Group: danm.GroupDanmIO, Workers: 2,
		CNI: danmcni.Danm43, Recorder: recorder, Progress: os.Stderr,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	w := newWorld(t, c)
	w.createNetwork()
	w.annotations = map[string]string{danm.GroupDanmIO.InterfacesAnnotation(): `[{"network":"internal","ip":"dynamic"}]`}
	watch.lap("cluster ready")
	w.createSet()
	w.await("all pods Ready", func(pods []corev1.Pod) bool { return len(pods) == replicas && all(pods, isPodReady) })
	watch.lap("StatefulSet of 5 Ready, with addresses of DANM")

	w.wantAddresses()

	w.startCleaner(c)
	victim := w.pods()[0].Spec.NodeName
	w.do(c.FailNode(t.Context(), victim))
	w.await("its pods Terminating", func(pods []corev1.Pod) bool { return all(on(pods, victim), isTerminating) })
	watch.lap("pods of the dead node Terminating")
	w.forceDelete(on(w.pods(), victim))
	w.await("all pods Ready elsewhere", func(pods []corev1.Pod) bool {
		return len(pods) == replicas && len(on(pods, victim)) == 0 && all(pods, isPodReady)
	})
	watch.lap("all 5 Ready again")
	w.await("pods, endpoints and bits to agree", func(pods []corev1.Pod) bool {
		return len(w.addressesByPodUID()) == replicas && w.bits() == replicas
	})
	watch.lap("pods=5 eps=5 bits=5")
	w.wantAddresses()

	w.do(c.DrainAudit(t.Context()))
	for _, name := range c.Workers() {
		if !hasAudit(recorder.Records(), clusters.UserNodePrefix+name, "create", danm.EndpointResource) {
			t.Errorf("the audit log does not name %s as the writer of its endpoints", name)
		}
	}
	if !hasAudit(recorder.Records(), clusters.UserCleaner, "delete", danm.EndpointResource) {
		t.Error("the audit log does not name the cleaner as the one that deleted endpoints")
	}
}

// startCleaner builds the cleaner that ships and starts it.
func (w *world) startCleaner(c *Cluster) {
	w.t.Helper()
	program := buildCleaner(w.t)
	_, err := c.StartCleaner(w.t.Context(), clusters.CleanerSpec{Argv: []string{
		program, "--kubeconfig", "{{kubeconfig}}", "--release-quarantine", "1s", "--orphan-quarantine", "4s",
		"--leader-elect=false", "--metrics-bind-address", "0", "--health-probe-bind-address", "0",
	}})
	w.do(err)
}

func buildCleaner(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "danm-cleaner")
	build := exec.Command("go", "build", "-o", program, "../../cleaner/cmd/danm-cleaner")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// wantAddresses checks that every pod has the address of its endpoint.
func (w *world) wantAddresses() {
	w.t.Helper()
	addresses := w.addressesByPodUID()
	for _, p := range w.pods() {
		if got := addresses[string(p.UID)]; got != p.Status.PodIP+"/24" {
			w.t.Errorf("%s has %s, its endpoint %q", p.Name, p.Status.PodIP, got)
		}
	}
}

// bits counts the addresses that the network has handed out.
func (w *world) bits() int {
	w.t.Helper()
	network, err := danm.NewClient(w.objects, danm.GroupDanmIO).GetNetwork(w.t.Context(), danm.NetworkRef{
		Kind: danm.DanmNet, Namespace: namespace, Name: "internal",
	})
	w.do(err)
	pool, err := ipam.Open(ipam.Spec{Object: namespace + "/internal", CIDR: cidr, Alloc: network.Spec.Options.Alloc})
	w.do(err)
	return len(pool.Allocated())
}

func TestACancelledStartLeavesNothing(t *testing.T) {
	needEngine(t)
	before := remains(t, "")
	runID := "test-cancel-" + strconv.Itoa(os.Getpid())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // as soon as there is a node
		_ = poll(ctx, func(ctx context.Context) (bool, error) {
			names, err := engine.Lines(ctx, "ps", "--format", "{{.Names}}", "--filter", "label="+kindClusterLabel+"="+clusterName(runID))
			return len(names) > 0, err
		})
		cancel()
	}()
	c, err := Start(ctx, Options{RunID: runID, Group: danm.GroupDanmIO, Workers: 1})
	if err == nil {
		t.Fatal("started in spite of the cancellation", c.Close(context.Background()))
	}
	if after := remains(t, runID); len(after) > len(before) {
		t.Errorf("left behind: %v", after)
	}
	if err := Clean(t.Context(), runID, io.Discard); err != nil {
		t.Errorf("a journal is left: %v", err)
	}
}

// world is the cluster as the test sees it.
type world struct {
	t           *testing.T
	client      kubernetes.Interface
	objects     dynamic.Interface
	annotations map[string]string // of pods
	moved       time.Time         // when pods were last moved
}

func newWorld(t *testing.T, c *Cluster) *world {
	t.Helper()
	config, err := c.RESTConfig(clusters.UserHarness)
	if err != nil {
		t.Fatal(err)
	}
	client, errClient := kubernetes.NewForConfig(config)
	objects, errObjects := dynamic.NewForConfig(config)
	if errClient != nil || errObjects != nil {
		t.Fatal(errClient, errObjects)
	}
	return &world{t: t, client: client, objects: objects}
}

func (w *world) createSet() {
	w.t.Helper()
	count, grace, noToken := int32(replicas), int64(1), false
	labels := map[string]string{"app": "ss-cinfo"}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "ss-cinfo"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &count, ServiceName: "ss-cinfo", PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: w.annotations},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &noToken,
					Containers: []corev1.Container{{Name: "pause", Image: "pause", ImagePullPolicy: corev1.PullNever}},
				},
			},
		},
	}
	if _, err := w.client.AppsV1().StatefulSets(namespace).Create(w.t.Context(), set, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) createNetwork() {
	w.t.Helper()
	empty, err := ipam.Empty(ipam.Spec{Object: namespace + "/internal", CIDR: cidr})
	if err != nil {
		w.t.Fatal(err)
	}
	network := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": string(danm.GroupDanmIO) + "/v1", "kind": "DanmNet",
		"metadata": map[string]any{"name": "internal"},
		"spec": map[string]any{"NetworkID": "internal", "NetworkType": "ipvlan", "Options": map[string]any{
			"cidr": cidr, "allocation_pool": map[string]any{"start": "10.10.10.10", "end": "10.10.10.200"}, "alloc": empty,
		}},
	}}
	resource := w.objects.Resource(danm.GroupDanmIO.Resource(danm.DanmNetResource)).Namespace(namespace)
	if _, err := resource.Create(w.t.Context(), network, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) addressesByPodUID() map[string]string {
	w.t.Helper()
	list, err := danm.NewClient(w.objects, danm.GroupDanmIO).Endpoints(namespace).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]string{}
	for i := range list.Items {
		ep, err := danm.ToEndpoint(&list.Items[i])
		if err != nil {
			w.t.Fatal(err)
		}
		out[string(ep.Spec.PodUID)] = ep.Spec.Interface.Address
	}
	return out
}

func (w *world) pods() []corev1.Pod {
	w.t.Helper()
	list, err := w.client.CoreV1().Pods(namespace).List(w.t.Context(), metav1.ListOptions{LabelSelector: "app=ss-cinfo"})
	if err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

func (w *world) await(what string, condition func([]corev1.Pod) bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), stepMax)
	defer cancel()
	if err := poll(ctx, func(context.Context) (bool, error) { return condition(w.pods()), nil }); err != nil {
		w.t.Fatalf("waiting for %s: %v; pods are %+v", what, err, w.pods())
	}
}

func (w *world) forceDelete(pods []corev1.Pod) {
	w.t.Helper()
	now := int64(0)
	for _, p := range pods {
		options := metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.UID}}
		if err := w.client.CoreV1().Pods(namespace).Delete(w.t.Context(), p.Name, options); err != nil {
			w.t.Fatal(err)
		}
	}
}

func all(pods []corev1.Pod, is func(corev1.Pod) bool) bool {
	for _, p := range pods {
		if !is(p) {
			return false
		}
	}
	return true
}

func on(pods []corev1.Pod, name string) []corev1.Pod {
	var out []corev1.Pod
	for _, p := range pods {
		if p.Spec.NodeName == name {
			out = append(out, p)
		}
	}
	return out
}

func isTerminating(p corev1.Pod) bool { return p.DeletionTimestamp != nil }

func isPodReady(p corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func hasAudit(records []history.Record, user, verb, resource string) bool {
	for _, r := range records {
		if a := r.Audit; a != nil && a.User == user && a.Verb == verb && a.Resource == resource {
			return true
		}
	}
	return false
}
