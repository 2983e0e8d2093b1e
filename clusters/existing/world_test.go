package existing_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
)

const (
	// hookVariable makes this program a hook: it holds the URL to tell.
	hookVariable = "DANM_CHAOS_TEST_HOOK"
	contextName  = "staging"
	cleanerSpace = "danm-system"
	cleanerName  = "danm-cleaner"
	infraNode    = "infra"
	waitMax      = time.Minute
	waitInterval = 100 * time.Millisecond
)

// programs are danm-chaos and danm-cleaner, side by side.
var programs string

func TestMain(m *testing.M) {
	if server := os.Getenv(hookVariable); server != "" {
		os.Exit(tell(server, os.Args[1:]))
	}
	os.Exit(run(m))
}

// tell asks the test that started us to switch a node.
func tell(server string, args []string) int {
	answer, err := http.Get(server + "/?" + url.Values{"do": {args[0]}, "node": {args[1]}}.Encode())
	if err != nil {
		fmt.Fprintln(os.Stderr, "the hook failed:", err)
		return 1
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		return 0
	}
	said, err := io.ReadAll(answer.Body)
	fmt.Fprintf(os.Stderr, "the hook failed: %s: %s (%v)\n", answer.Status, said, err)
	return 1
}

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "danm-chaos-existing-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	programs = folder
	return m.Run()
}

// build makes the programs once, and only if a test needs them. They are static,
// because an image has nothing else.
func build(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(programs, "danm-chaos")); err == nil {
		return
	}
	cmd := exec.Command("go", "build", "-o", programs, "../../cleaner/cmd/danm-cleaner", "../../harness/cmd/danm-chaos")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
}

// world is a cluster that "others" made: with nodes, DANM and a cleaner.
type world struct {
	t          *testing.T
	cluster    *controlplane.Cluster
	core       kubernetes.Interface
	dynamic    dynamic.Interface
	config     *rest.Config
	kubeconfig string
	hooks      *httptest.Server
	env        []string
	folder     string
	waitMax    time.Duration
	off        *sync.Map // names of the nodes that a hook switched off
}

func newWorld(t *testing.T) *world { return newWorldOf(t, 1) }

// newWorldOf has a cleaner of that many replicas.
func newWorldOf(t *testing.T, replicas int32) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real Kubernetes programs")
	}
	tools, err := controlplane.FindTools(t.Context(), controlplane.ToolSets())
	if os.Getenv("KUBERNETES_BIN_DIR") == "" && (err != nil || len(tools.Missing) > 0) {
		t.Skipf("the Kubernetes programs are not built yet: set KUBERNETES_BIN_DIR, or run `make chaos` once (%v)", err)
	}
	build(t)
	w := &world{t: t, folder: t.TempDir(), waitMax: waitMax, off: &sync.Map{}}
	w.start()
	w.hooks = httptest.NewServer(http.HandlerFunc(w.hook))
	t.Cleanup(w.hooks.Close)
	w.env = append(os.Environ(), hookVariable+"="+w.hooks.URL, "XDG_CACHE_HOME="+filepath.Join(w.folder, "cache"))
	for _, node := range []string{"n1", "n2", "n3", infraNode} {
		if err := w.cluster.AddNode(t.Context(), clusters.Node{Name: node, Labels: map[string]string{"role": node}}); err != nil {
			t.Fatal(err)
		}
	}
	w.deployCleaner(replicas)
	return w
}

func (w *world) start() {
	w.t.Helper()
	id := fmt.Sprintf("existing-test-%d-%s", os.Getpid(), strings.ToLower(filepath.Base(w.folder)))
	c, err := controlplane.Start(w.t.Context(), controlplane.Options{RunID: id, Group: danm.GroupDanmIO})
	if err != nil {
		w.t.Fatal(err)
	}
	w.cluster = c
	w.t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			w.t.Error(err)
		}
	})
	if w.config, err = c.RESTConfig(clusters.UserHarness); err != nil {
		w.t.Fatal(err)
	}
	w.core, w.dynamic = kubernetes.NewForConfigOrDie(w.config), dynamic.NewForConfigOrDie(w.config)
	w.kubeconfig = w.writeKubeconfig("admin", nil)
}

// writeKubeconfig writes one of the administrator, or of somebody that the
// administrator speaks for.
func (w *world) writeKubeconfig(name string, change func(*clientcmdapi.AuthInfo)) string {
	w.t.Helper()
	config := clientcmdapi.NewConfig()
	auth := &clientcmdapi.AuthInfo{Token: w.config.BearerToken}
	if change != nil {
		change(auth)
	}
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: w.config.Host, CertificateAuthorityData: w.config.CAData}
	config.AuthInfos["u"] = auth
	config.Contexts[contextName] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.Contexts["production-eu"] = config.Contexts[contextName]
	config.CurrentContext = contextName
	path := filepath.Join(w.folder, name+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *world) hook(answer http.ResponseWriter, r *http.Request) {
	node := r.URL.Query().Get("node")
	var err error
	switch r.URL.Query().Get("do") {
	case "down":
		if err = w.cluster.FailNode(r.Context(), node); err == nil {
			w.off.Store(node, true)
		}
	case "up":
		w.off.Delete(node)
		err = w.cluster.RestoreNode(context.WithoutCancel(r.Context()), node)
	case "nothing":
	default:
		err = fmt.Errorf("asked for %s", r.URL)
	}
	if err != nil {
		http.Error(answer, err.Error(), http.StatusInternalServerError)
	}
}

// hookFlags are the flags that make this program the hooks.
func (w *world) hookFlags() []string {
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	return []string{"--node-down", self + " down {{node}}", "--node-up", self + " up {{node}}"}
}

// deployCleaner makes the Deployment that is found. The cluster runs no
// controller of Deployments, so a StatefulSet makes its pods and the status is
// written here. Nodes only pretend to run them; what they would do is done by
// processes.
func (w *world) deployCleaner(replicas int32) {
	w.t.Helper()
	ctx := w.t.Context()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cleanerSpace}}
	if _, err := w.core.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": cleanerName}}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selector.MatchLabels}, Spec: corev1.PodSpec{
		NodeSelector: map[string]string{"role": infraNode},
		Containers: []corev1.Container{{Name: "cleaner", Image: "danm-cleaner:v9",
			Args: []string{"run", "--release-quarantine=1s", "--orphan-quarantine", "4s"}}},
	}}
	meta := metav1.ObjectMeta{Namespace: cleanerSpace, Name: cleanerName}
	set := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, Selector: selector, Template: template, PodManagementPolicy: appsv1.ParallelPodManagement}}
	if _, err := w.core.AppsV1().StatefulSets(cleanerSpace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.await("the cleaner's pods to be ready", func() bool {
		s, err := w.core.AppsV1().StatefulSets(cleanerSpace).Get(ctx, cleanerName, metav1.GetOptions{})
		return err == nil && s.Status.ReadyReplicas == replicas
	})
	d, err := w.core.AppsV1().Deployments(cleanerSpace).Create(ctx, &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: selector, Template: template}}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	d.Status = appsv1.DeploymentStatus{Replicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas}
	if _, err := w.core.AppsV1().Deployments(cleanerSpace).UpdateStatus(ctx, d, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// startCleaner runs the program that the Deployment names.
func (w *world) startCleaner(program string, args ...string) {
	w.t.Helper()
	argv := append([]string{program}, args...)
	p, err := w.cluster.StartCleaner(w.t.Context(), clusters.CleanerSpec{Argv: argv})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = p.Stop(context.Background()) }) // the cluster ends it if this does not
}

func (w *world) startFixedCleaner() {
	w.t.Helper()
	w.startCleaner(filepath.Join(programs, "danm-cleaner"), "run", "--kubeconfig", "{{kubeconfig}}", "--danm-api", string(danm.GroupDanmIO),
		"--release-quarantine=1s", "--orphan-quarantine=4s", "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0")
}

func (w *world) await(what string, done func() bool) {
	w.t.Helper()
	deadline := time.After(w.waitMax)
	ticker := time.NewTicker(waitInterval)
	defer ticker.Stop()
	for !done() {
		select {
		case <-deadline:
			w.t.Fatalf("waited %s for %s", w.waitMax, what)
		case <-ticker.C:
		}
	}
}

// chaos is danm-chaos as a user runs it.
type chaos struct {
	*exec.Cmd
	output bytes.Buffer
}

func (w *world) chaos(args ...string) *chaos {
	c := &chaos{Cmd: exec.Command(filepath.Join(programs, "danm-chaos"), args...)}
	c.Env, c.Dir = w.env, w.folder
	c.Stdout, c.Stderr = &c.output, &c.output
	return c
}

// ends runs it and returns its exit code and all that it printed.
func (c *chaos) ends(t *testing.T) (int, string) {
	t.Helper()
	if err := c.Run(); err != nil && c.ProcessState == nil {
		t.Fatal(err)
	}
	t.Logf("%s\n%s", strings.Join(c.Args[1:], " "), c.output.String())
	return c.ProcessState.ExitCode(), c.output.String()
}

func (w *world) reach(kubeconfig string) []string {
	return []string{"--cluster", "existing", "--kubeconfig", kubeconfig, "--context", contextName}
}

// runArgs are those of a run that only its iterations are missing of.
func (w *world) runArgs(scenario string, more ...string) []string {
	args := append([]string{"run", scenario}, w.reach(w.kubeconfig)...)
	args = append(args, w.hookFlags()...)
	return append(append(args, "--on-nodes", "n1,n2,n3", "--out", filepath.Join(w.folder, "out"), "--yes"), more...)
}
