package existing_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/cert"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// managerVariable holds the path of Chaos Mesh's controller-manager.
const managerVariable = "CHAOS_CONTROLLER_MANAGER"

const meshSpace = "chaos-mesh"

// startChaosMesh runs Chaos Mesh's own controller-manager beside the cluster.
func (w *world) startChaosMesh() *exec.Cmd {
	w.t.Helper()
	program := os.Getenv(managerVariable)
	if program == "" {
		w.t.Skipf("%s names no controller-manager of Chaos Mesh: use `make chaos-mesh`", managerVariable)
	}
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

// runCleanerPods does what the nodes only pretend: a process for every pod of
// the cleaner, under the pod's name, killed when the pod is gone.
func (w *world) runCleanerPods(logs io.Writer) {
	w.t.Helper()
	if os.Geteuid() != 0 {
		w.t.Skip("giving each replica a host name of its own takes root")
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.followCleanerPods(ctx, logs) })
	w.t.Cleanup(func() { cancel(); running.Wait() })
}

func (w *world) followCleanerPods(ctx context.Context, logs io.Writer) {
	processes := map[string]clusters.CleanerProcess{} // by pod UID
	ticker := time.NewTicker(waitInterval)
	defer ticker.Stop()
	for {
		pods, err := w.core.CoreV1().Pods(cleanerSpace).List(ctx, metav1.ListOptions{})
		if err == nil {
			w.matchCleanerPods(ctx, pods.Items, processes, logs)
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

func (w *world) matchCleanerPods(ctx context.Context, pods []corev1.Pod, processes map[string]clusters.CleanerProcess, logs io.Writer) {
	live := map[string]bool{}
	for _, pod := range pods {
		uid := string(pod.UID)
		live[uid] = true
		if processes[uid] != nil || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			continue
		}
		p, err := w.cluster.StartCleaner(ctx, clusters.CleanerSpec{Logs: logs, Argv: []string{
			"unshare", "--uts", "sh", "-c", `hostname "$0" && exec "$@"`, pod.Name,
			filepath.Join(programs, "danm-cleaner"), "run", "--kubeconfig", "{{kubeconfig}}", "--danm-api", "danm.io",
			"--release-quarantine=1s", "--orphan-quarantine=4s", "--leader-elect-namespace", cleanerSpace,
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

func TestChaosMeshKillsTheLeadingCleanerInTheMiddleOfReleases(t *testing.T) {
	w := newWorldOf(t, 2)
	w.startChaosMesh()
	w.runCleanerPods(io.Discard)
	w.await("a leader", func() bool { return w.leaderIn(cleanerSpace) != "" })
	scenario := filepath.Join(w.folder, "failover.yaml")
	shipped, err := os.ReadFile("../../scenarios/cleaner-failover.yaml")
	if err != nil {
		t.Fatal(err)
	}
	meshOnly := strings.Replace(string(shipped), "[kill-cleaner, mesh-cleaner-kill]", "[mesh-cleaner-kill]", 1)
	if err := os.WriteFile(scenario, []byte(meshOnly), 0o644); err != nil {
		t.Fatal(err)
	}
	code, text := w.runFile(scenario, "--iterations", "3", "--seed", "11")
	if code != 0 || !strings.Contains(text, "verdict: Valid") || !strings.Contains(text, "mesh-inject 3 of 3 fired") {
		t.Errorf("exit code %d, want a Valid run with three faults of Chaos Mesh", code)
	}
	killed, holders := w.failovers()
	if killed != 3 || holders < 2 {
		t.Errorf("the history has %d kills by Chaos Mesh with its time, and %d holders of the Lease", killed, holders)
	}
	if left := w.runNamespaces(); len(left) > 0 {
		t.Errorf("namespaces %v are left", left)
	}
}

// failovers reads from the last history what Chaos Mesh recorded, and how many
// held the Lease.
func (w *world) failovers() (killed, holders int) {
	w.t.Helper()
	records, err := history.Read(filepath.Join(w.folder, "out", "latest", "history.jsonl"))
	if err != nil {
		w.t.Fatal(err)
	}
	recorded := regexp.MustCompile(`Apply danm-system/danm-cleaner-\d succeeded at 20\d\d-`)
	holder := regexp.MustCompile(`"holderIdentity":"([^"]+)"`)
	seen := map[string]bool{}
	for _, r := range records {
		if r.Op != nil && r.Op.F == "mesh-inject" && r.Op.Type == history.OK && recorded.MatchString(r.Op.Note) {
			killed++
		}
		if r.Write == nil || r.Write.Resource != "leases" {
			continue
		}
		if found := holder.FindSubmatch(r.Write.Object); found != nil {
			seen[string(found[1])] = true
		}
	}
	return killed, len(seen)
}
