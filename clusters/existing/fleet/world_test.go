package fleet_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/retry"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
)

const (
	contextName  = "lab"
	waitMax      = 2 * time.Minute
	waitInterval = 50 * time.Millisecond
)

// program is danm-chaos.
var program string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "danm-chaos-fleet-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	program = filepath.Join(folder, "danm-chaos")
	code := m.Run()
	if shared != nil {
		if err := shared.Close(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// build makes the program once, and only if a test needs it.
func build(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(program); err == nil {
		return
	}
	c := exec.Command("go", "build", "-o", program, "../../../harness/cmd/danm-chaos")
	c.Env = append(os.Environ(), "CGO_ENABLED=0") // as in the image
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
}

// world is a cluster that others made, with Kubernetes' own controller of Jobs.
type world struct {
	t          *testing.T
	core       kubernetes.Interface
	config     *rest.Config
	kubeconfig string
	folder     string
	alone      *string // digest that one process found, once it is known
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real Kubernetes programs")
	}
	tools, err := controlplane.FindTools(t.Context(), controlplane.ToolSets())
	if os.Getenv("KUBERNETES_BIN_DIR") == "" && (err != nil || len(tools.Missing) > 0) {
		t.Skipf("the Kubernetes programs are not built yet: set KUBERNETES_BIN_DIR, or run `make chaos` once (%v)", err)
	}
	build(t)
	c, err := startShared()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, folder: t.TempDir()}
	if w.config, err = c.RESTConfig(clusters.UserHarness); err != nil {
		t.Fatal(err)
	}
	w.core = kubernetes.NewForConfigOrDie(w.config)
	w.kubeconfig = w.writeKubeconfig("admin", "")
	if left := w.fleets(); len(left) > 0 {
		t.Fatalf("an earlier test left %v", left)
	}
	return w
}

// shared is the control plane of all tests, once one of them needed it. What a
// fleet leaves behind is seen by the next.
var shared *controlplane.Cluster

func startShared() (*controlplane.Cluster, error) {
	if shared != nil {
		return shared, nil
	}
	var err error
	shared, err = controlplane.Start(context.Background(), controlplane.Options{
		RunID: fmt.Sprintf("fleet-test-%d", os.Getpid()), Group: danm.GroupDanmIO, Controllers: []string{"job-controller"},
	})
	return shared, err
}

// writeKubeconfig writes one of the administrator, or of somebody that the
// administrator speaks for.
func (w *world) writeKubeconfig(name, speaksFor string) string {
	w.t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: w.config.Host, CertificateAuthorityData: w.config.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: w.config.BearerToken, Impersonate: speaksFor}
	config.Contexts[contextName] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = contextName
	path := filepath.Join(w.folder, name+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// chaos is danm-chaos as a user runs it.
type chaos struct {
	*exec.Cmd
	mu     sync.Mutex
	output bytes.Buffer
}

func (w *world) chaos(args ...string) *chaos {
	c := &chaos{Cmd: exec.Command(program, args...)}
	c.Env, c.Dir = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(w.folder, "cache")), w.folder
	c.Stdout, c.Stderr = c, c
	return c
}

// Write collects what the program says.
func (c *chaos) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.output.Write(p)
}

func (c *chaos) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.output.String()
}

// ends returns the exit code and all that was printed. It starts the program if
// nobody did.
func (c *chaos) ends(t *testing.T) (int, string) {
	t.Helper()
	var err error
	if c.Process == nil {
		err = c.Run()
	} else {
		err = c.Wait()
	}
	if err != nil && c.ProcessState == nil {
		t.Fatal(err)
	}
	t.Logf("%s\n%s", strings.Join(c.Args[1:], " "), c.said())
	return c.ProcessState.ExitCode(), c.said()
}

func (w *world) fleet(more ...string) *chaos {
	return w.chaos(append([]string{"fleet", "--kubeconfig", w.kubeconfig, "--context", contextName, "--image", "danm-chaos:test", "--yes"}, more...)...)
}

func (w *world) await(what string, done func() bool) {
	w.t.Helper()
	deadline := time.After(waitMax)
	ticker := time.NewTicker(waitInterval)
	defer ticker.Stop()
	for !done() {
		select {
		case <-deadline:
			w.t.Fatalf("waited %s for %s", waitMax, what)
		case <-ticker.C:
		}
	}
}

// fleets returns the namespaces of fleets.
func (w *world) fleets() []string {
	w.t.Helper()
	list, err := w.core.CoreV1().Namespaces().List(w.t.Context(), metav1.ListOptions{LabelSelector: clusters.FleetLabel})
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// expectNothingLeft looks at the cluster and at the journals.
func (w *world) expectNothingLeft() {
	w.t.Helper()
	if left := w.fleets(); len(left) > 0 {
		w.t.Errorf("namespaces left: %v", left)
	}
	journals, err := os.ReadDir(filepath.Join(w.folder, "cache", "danm-chaos", "fleet-runs"))
	if err != nil || len(journals) > 0 {
		w.t.Errorf("journals left: %v, %v", journals, err)
	}
}

// fate is what becomes of the pod of a shard.
type fate string

const (
	plays  fate = "plays"        // as a container would
	dies   fate = "dies at once" // for want of memory
	hangs  fate = "does not end" // until it is deleted
	waits  fate = "has no image" // for good
	isLost fate = "is on a node that is lost"
	stops  fate = "stores, hangs" // its node is lost before it can say that it is done
)

// nodes does what nodes do: it runs the program of each pod as its account, and
// ends it when the pod is deleted.
type nodes struct {
	w       *world
	fateOf  func(index string) fate
	mu      sync.Mutex
	seen    map[string]context.CancelFunc // end pods, by UID
	started []string                      // indexes, in the order of start
	running sync.WaitGroup
	stop    context.CancelFunc
}

func (w *world) startNodes(fateOf func(index string) fate) *nodes {
	ctx, cancel := context.WithCancel(w.t.Context())
	n := &nodes{w: w, fateOf: fateOf, seen: map[string]context.CancelFunc{}, stop: cancel}
	n.running.Go(func() {
		ticker := time.NewTicker(waitInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				n.look(ctx)
			}
		}
	})
	w.t.Cleanup(n.end)
	return n
}

func (n *nodes) end() {
	n.stop()
	n.running.Wait()
}

// ran returns the indexes of all pods that were started, sorted.
func (n *nodes) ran() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(slices.Values(n.started))
}

func (n *nodes) look(ctx context.Context) {
	pods, err := n.w.core.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: clusters.FleetLabel})
	if err != nil {
		return // the next look tells more
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		end := n.seen[string(p.UID)]
		switch {
		case end == nil:
			podCtx, cancel := context.WithCancel(ctx)
			n.seen[string(p.UID)] = cancel
			n.running.Go(func() { n.run(podCtx, p) })
		case p.Spec.NodeName != "": // which nobody looks after
		case p.DeletionTimestamp != nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded:
			end()
			n.report(ctx, p, corev1.PodFailed, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 143}})
		}
	}
}

func (n *nodes) run(ctx context.Context, p *corev1.Pod) {
	index := p.Annotations["batch.kubernetes.io/job-completion-index"]
	what := n.fateOf(index)
	if what == isLost {
		n.bind(ctx, p, "lost")
	}
	n.mu.Lock()
	n.started = append(n.started, index)
	n.mu.Unlock()
	switch what {
	case hangs:
		n.report(ctx, p, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
	case waits:
		n.report(ctx, p, corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"}})
	case dies:
		n.report(ctx, p, corev1.PodFailed, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}})
	case plays, stops:
		n.report(ctx, p, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
		end := n.container(ctx, p, index)
		if what == stops {
			return
		}
		phase := corev1.PodSucceeded
		if end.ExitCode != 0 {
			phase = corev1.PodFailed
		}
		n.report(ctx, p, phase, corev1.ContainerState{Terminated: &end})
	}
}

// bind makes the pod one of a node.
func (n *nodes) bind(ctx context.Context, p *corev1.Pod, node string) {
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	if err := n.w.core.CoreV1().Pods(p.Namespace).Bind(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		n.w.t.Errorf("binding pod %s: %v", p.Name, err)
	}
}

// container runs the program with the rights of the pod.
func (n *nodes) container(ctx context.Context, p *corev1.Pod, index string) corev1.ContainerStateTerminated {
	spec := p.Spec.Containers[0]
	account := "system:serviceaccount:" + p.Namespace + ":" + p.Spec.ServiceAccountName
	c := exec.CommandContext(ctx, program, append(slices.Clone(spec.Args), "--kubeconfig", n.w.writeKubeconfig(p.Name, account))...)
	c.Env = append(os.Environ(), "JOB_COMPLETION_INDEX="+index)
	out, err := c.CombinedOutput()
	end := corev1.ContainerStateTerminated{Message: string(out)}
	if err != nil && ctx.Err() == nil {
		n.w.t.Logf("pod of index %s: %v\n%s", index, err, out)
		end.ExitCode = int32(max(1, c.ProcessState.ExitCode()))
	}
	return end
}

func (n *nodes) report(ctx context.Context, p *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) {
	pods := n.w.core.CoreV1().Pods(p.Namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		current, err := pods.Get(ctx, p.Name, metav1.GetOptions{})
		if err != nil || current.UID != p.UID || current.Status.Phase == corev1.PodFailed || current.Status.Phase == corev1.PodSucceeded {
			return nil // it is gone, or ended before
		}
		current.Status.Phase = phase
		current.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: p.Spec.Containers[0].Name, State: state}}
		_, err = pods.UpdateStatus(ctx, current, metav1.UpdateOptions{})
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil { // it may go between the two
		n.w.t.Errorf("reporting pod %s: %v", p.Name, err)
	}
}
