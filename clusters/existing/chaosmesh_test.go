package existing_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/cert"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/harness/nemesis/chaosmesh"
)

// meshVariable names the folder with what clusters/tools/chaosmesh/build.sh made.
const meshVariable = "CHAOS_MESH_DIR"

const (
	meshSpace   = "chaos-mesh"
	meshManager = "chaos-controller-manager"
)

// builtMesh returns the path of what was built of Chaos Mesh, and skips the test
// if it was not.
func (w *world) builtMesh(name string) string {
	w.t.Helper()
	path := filepath.Join(os.Getenv(meshVariable), name)
	if _, err := os.Stat(path); os.Getenv(meshVariable) == "" || err != nil {
		w.t.Skipf("%s names no folder with %s: use `make chaos-mesh`", meshVariable, name)
	}
	return path
}

// startChaosMesh runs Chaos Mesh's own controller-manager beside the cluster.
func (w *world) startChaosMesh() *exec.Cmd {
	w.t.Helper()
	program := w.builtMesh(meshManager)
	w.installMeshCRDs()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: meshSpace}}
	if _, err := w.core.CoreV1().Namespaces().Create(w.t.Context(), ns, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+w.kubeconfig, "NAMESPACE="+meshSpace, "CERTS_DIR="+w.meshCertificates(), "SECURITY_MODE=false", "ENABLE_LEADER_ELECTION=false",
		"WEBHOOK_HOST=127.0.0.1", "METRICS_HOST=127.0.0.1", fmt.Sprint("WEBHOOK_PORT=", freePort(w.t)), fmt.Sprint("METRICS_PORT=", freePort(w.t)),
		"CHAOS_DNS_SERVICE_PORT=9288")
	log, err := os.Create(filepath.Join(w.folder, "chaos-mesh.log"))
	if err != nil {
		w.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		log.Close()
		if w.t.Failed() {
			said, _ := os.ReadFile(log.Name())
			w.t.Logf("Chaos Mesh's last words:\n%s", said[max(0, len(said)-4<<10):])
		}
	})
	return cmd
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (w *world) meshCertificates() string {
	w.t.Helper()
	folder := w.t.TempDir()
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for name, data := range map[string][]byte{"tls.crt": certificate, "tls.key": key, "ca.crt": certificate} {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	return folder
}

// installMeshCRDs takes the definitions from the module that the program was
// built from.
func (w *world) installMeshCRDs() {
	w.t.Helper()
	out, err := exec.Command("go", "-C", "../tools/chaosmesh", "list", "-m", "-f", "{{.Dir}}", "github.com/chaos-mesh/chaos-mesh").Output()
	if err != nil {
		w.t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "config/crd/bases/*.yaml"))
	if err != nil || len(paths) == 0 {
		w.t.Fatalf("no definitions of Chaos Mesh: %v", err)
	}
	resource := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			w.t.Fatal(err)
		}
		var u unstructured.Unstructured
		if err := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), len(data)).Decode(&u.Object); err != nil {
			w.t.Fatalf("%s: %v", path, err)
		}
		if _, err := w.dynamic.Resource(resource).Create(w.t.Context(), &u, metav1.CreateOptions{}); err != nil {
			w.t.Fatalf("%s: %v", path, err)
		}
	}
	w.await("Chaos Mesh's definitions to be served", func() bool {
		list, err := w.core.Discovery().ServerResourcesForGroupVersion("chaos-mesh.org/v1alpha1")
		return err == nil && len(list.APIResources) >= len(paths)
	})
}

// midReleaseQuarantine is long enough for a kill to come between the first
// release and the last of pods that were deleted one after the other, and short
// enough for the first to be released by then.
const midReleaseQuarantine = 3 * time.Second

// runCleanerPods does what the nodes only pretend: a process for every pod of
// the cleaner, under the pod's name, killed when the pod is gone. Each has a log
// of its own, named after the pod's UID.
func (w *world) runCleanerPods() {
	w.t.Helper()
	if os.Geteuid() != 0 {
		w.t.Skip("giving each replica a host name of its own takes root")
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.followCleanerPods(ctx) })
	w.t.Cleanup(func() { cancel(); running.Wait() })
}

func (w *world) followCleanerPods(ctx context.Context) {
	processes := map[string]clusters.CleanerProcess{} // by pod UID
	ticker := time.NewTicker(waitInterval)
	defer ticker.Stop()
	for {
		pods, err := w.core.CoreV1().Pods(cleanerSpace).List(ctx, metav1.ListOptions{})
		if err == nil {
			w.matchCleanerPods(ctx, pods.Items, processes)
		}
		select {
		case <-ctx.Done():
			for _, p := range processes {
				_ = p.Kill(context.Background()) // the cluster ends it if this does not
			}
			return
		case <-ticker.C:
		}
	}
}

func (w *world) matchCleanerPods(ctx context.Context, pods []corev1.Pod, processes map[string]clusters.CleanerProcess) {
	live := map[string]bool{}
	for _, pod := range pods {
		uid := string(pod.UID)
		live[uid] = true
		if processes[uid] != nil || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			continue
		}
		log, err := os.Create(w.cleanerLog(uid))
		if err != nil {
			w.t.Errorf("making the log of pod %s: %v", pod.Name, err)
			continue
		}
		w.t.Cleanup(func() { log.Close() })
		p, err := w.cluster.StartCleaner(ctx, clusters.CleanerSpec{Logs: log, Argv: []string{
			"unshare", "--uts", "sh", "-c", `hostname "$0" && exec "$@"`, pod.Name,
			filepath.Join(programs, "danm-cleaner"), "run", "--kubeconfig", "{{kubeconfig}}", "--danm-api", "danm.io",
			"--release-quarantine", midReleaseQuarantine.String(), "--orphan-quarantine=4s", "--leader-elect-namespace", cleanerSpace,
			"--metrics-bind-address=0", "--health-probe-bind-address=0"}})
		if err != nil {
			w.t.Errorf("starting the process of pod %s: %v", pod.Name, err)
			continue
		}
		processes[uid] = p
	}
	for uid, p := range processes {
		if !live[uid] {
			_ = p.Kill(ctx)
			delete(processes, uid)
		}
	}
}

// leaderIn is who holds the Lease of the cleaner in a namespace.
func (w *world) leaderIn(namespace string) string {
	list, err := w.core.CoordinationV1().Leases(namespace).List(w.t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 || list.Items[0].Spec.HolderIdentity == nil {
		return ""
	}
	return *list.Items[0].Spec.HolderIdentity
}

func (w *world) cleanerLog(uid string) string { return filepath.Join(w.folder, "cleaner-"+uid+".log") }

// TestChaosMeshKillsTheLeadingCleanerInTheMiddleOfReleases has 15 pods on the
// node that is shut down, deleted within 4.5 s and more, and a quarantine of 3 s.
func TestChaosMeshKillsTheLeadingCleanerInTheMiddleOfReleases(t *testing.T) {
	w := newWorldOf(t, 2)
	w.startChaosMesh()
	w.runCleanerPods()
	w.await("a leader", func() bool { return w.leaderIn(cleanerSpace) != "" })
	path := w.scenario("failover", "{nodeShutdown: {target: busiest-node, returns: [after-settle], meanwhile: [mesh-cleaner-kill]}}")
	w.edit(path, "replicas: 5", "replicas: 30\nspareNodes: 1")
	code, text := w.runFile(path, "--iterations", "3", "--seed", "11")
	if code != 0 || !strings.Contains(text, "verdict: Valid") || !strings.Contains(text, "mesh-inject 3 of 3 fired") {
		t.Errorf("exit code %d, want a Valid run with three faults of Chaos Mesh", code)
	}
	backlogs := w.backlogs()
	if len(backlogs) != 3 {
		t.Fatalf("the history has %d node shutdowns, want 3", len(backlogs))
	}
	for i, b := range backlogs {
		t.Logf("iteration %d: %d releases before the failover, %d after it", i+1, b.before, b.after)
		if b.recorded != 1 || b.before == 0 || b.after == 0 || !b.isInOrder {
			t.Errorf("iteration %d: want a kill with Chaos Mesh's time, releases of the old leader and then of the new one, have %+v", i+1, b)
		}
	}
	if left := w.runNamespaces(); len(left) > 0 {
		t.Errorf("namespaces %v are left", left)
	}
}

// TestWhatChaosMeshCannotDoMakesTheRunUnknown asks for a partition, which
// takes the daemon that is not there.
func TestWhatChaosMeshCannotDoMakesTheRunUnknown(t *testing.T) {
	w := newWorldOf(t, 2)
	w.startChaosMesh()
	w.runCleanerPods()
	w.await("a leader", func() bool { return w.leaderIn(cleanerSpace) != "" })
	before := w.objects()
	path := w.scenario("partition", "{nodeShutdown: {target: busiest-node, returns: [after-recreate], meanwhile: [mesh-cleaner-partition]}}")
	code, text := w.runFile(path, "--iterations", "1", "--seed", "11")
	if code != 2 || !strings.Contains(text, "verdict: Unknown") || !strings.Contains(text, "mesh-inject 0 of 1 fired") {
		t.Errorf("exit code %d, want an Unknown run whose fault did not fire", code)
	}
	if !strings.Contains(text, "cannot find daemonIP") {
		t.Error("the run does not tell why")
	}
	after := w.objects()
	for key := range after {
		if pod, ok := strings.CutPrefix(key, "podnetworkchaos "+cleanerSpace+"/"); ok {
			w.expectNothingWanted(pod)
			delete(after, key) // Chaos Mesh's own, for as long as the pod lives
		}
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the cluster is not what it was (-before +after):\n%s", diff)
	}
}

// expectNothingWanted checks that Chaos Mesh is not to do anything to the network
// of a pod of the cleaner, whenever it may be able to.
func (w *world) expectNothingWanted(pod string) {
	w.t.Helper()
	resource := schema.GroupVersionResource{Group: "chaos-mesh.org", Version: "v1alpha1", Resource: chaosmesh.PodNetworks}
	u, err := w.dynamic.Resource(resource).Namespace(cleanerSpace).Get(w.t.Context(), pod, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, list := range []string{"ipsets", "iptables", "tcs"} {
		if left, _, err := unstructured.NestedSlice(u.Object, "spec", list); err != nil || len(left) > 0 {
			w.t.Errorf("%s of pod %s: %v, %v", list, pod, left, err)
		}
	}
}

// edit replaces a part of a file that must be there.
func (w *world) edit(path, old, replacement string) {
	w.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(data), old) {
		w.t.Fatalf("%s does not say %q: %v", path, old, err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), old, replacement, 1)), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// backlog is what one node shutdown left to release, and who released it.
type backlog struct {
	recorded      int  // kills of the cleaner that Chaos Mesh recorded, with its time
	before, after int  // releases until the Lease had another holder, and later
	isInOrder     bool // the old holder's process made the former, and no other than the new one's the latter
}

// backlogs reads the last history. Its resourceVersions order releases and the
// change of the Lease; whose process it was each cleaner's own log says.
func (w *world) backlogs() []backlog {
	w.t.Helper()
	records, err := history.Read(filepath.Join(w.folder, "out", "latest", "history.jsonl"))
	if err != nil {
		w.t.Fatal(err)
	}
	var found []backlog
	var window []history.Record
	for _, r := range records {
		isOver := r.Op != nil && r.Op.Type == history.Invoke && r.Op.F == "restore-node"
		if r.Op != nil && r.Op.Type == history.Invoke && r.Op.F == "fail-node" {
			window = nil
		}
		window = append(window, r)
		if isOver {
			found = append(found, w.backlogOf(window))
		}
	}
	return found
}

var (
	killRecorded = regexp.MustCompile(`Apply danm-system/danm-cleaner-\d succeeded at 20\d\d-`)
	leaseHolder  = regexp.MustCompile(`"holderIdentity":"([^"]+)"`)
)

// backlogOf looks at what happened between two records.
func (w *world) backlogOf(window []history.Record) backlog {
	b := backlog{isInOrder: true}
	var takenOver uint64 // resourceVersion of the Lease
	for _, r := range window {
		if r.Op != nil && r.Op.F == "mesh-inject" && r.Op.Type == history.OK && killRecorded.MatchString(r.Op.Note) {
			b.recorded++
		}
		if r.Write != nil && r.Write.Resource == "leases" && leaseHolder.Match(r.Write.Object) && takenOver == 0 {
			takenOver = r.Write.RV
		}
	}
	whose := map[bool]map[string]bool{false: {}, true: {}} // processes before and after
	for _, r := range window {
		if r.Write == nil || r.Write.Resource != "danmeps" || r.Write.Type != history.Deleted || takenOver == 0 {
			continue
		}
		isAfter := r.Write.RV > takenOver
		if isAfter {
			b.after++
		} else {
			b.before++
		}
		if process := w.releaserOf(r.Write.UID); process != "" { // the one that was killed may have had no time to say
			whose[isAfter][process] = true
		}
	}
	for process := range whose[true] {
		b.isInOrder = b.isInOrder && !whose[false][process]
	}
	b.isInOrder = b.isInOrder && len(whose[false]) == 1 && len(whose[true]) == 1
	return b
}

// releaserOf names the log of the process that released an endpoint.
func (w *world) releaserOf(uid string) string {
	w.t.Helper()
	logs, err := filepath.Glob(w.cleanerLog("*"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, path := range logs {
		data, err := os.ReadFile(path)
		if err != nil {
			w.t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if strings.Contains(line, `"released endpoint"`) && strings.Contains(line, fmt.Sprintf("endpointUID=%q", uid)) {
				return path
			}
		}
	}
	return ""
}
