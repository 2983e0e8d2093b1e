package existing_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
	"github.com/danm-chaos/danm-chaos/clusters/kind"
)

const (
	// kindVariable is set where there is an engine whose containers a test may
	// make and remove.
	kindVariable      = "DANM_KIND_TEST"
	controlPlaneLabel = "node-role.kubernetes.io/control-plane"
	engine            = "docker"
	kindCleanerSpace  = "danm-cleaner"
	// kindWaitMax bounds what real nodes take, on a machine that is busy.
	kindWaitMax = 3 * time.Minute
)

// kindWorld is a real cluster that was made beforehand, with DANM's plugin on
// its nodes and a cleaner as users deploy it. To danm-chaos it is a cluster of
// others.
type kindWorld struct {
	*world
	kind    *kind.Cluster
	context string
}

func newKindWorld(t *testing.T, name string) *kindWorld {
	t.Helper()
	if os.Getenv(kindVariable) == "" {
		t.Skipf("needs a container engine and a node image; set %s=1", kindVariable)
	}
	err := kind.Prepare(t.Context(), "", os.Stderr)
	if unfit := (*kind.UnfitHostError)(nil); errors.As(err, &unfit) {
		t.Skipf("no cluster can run here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	build(t)
	w := &kindWorld{world: &world{t: t, folder: t.TempDir(), waitMax: kindWaitMax}}
	w.env = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(w.folder, "cache"))
	w.start(name)
	w.keepOthersOffWorkers()
	w.deployCleaner()
	return w
}

func (w *kindWorld) start(name string) {
	w.t.Helper()
	c, err := kind.Start(w.t.Context(), kind.Options{
		RunID: fmt.Sprintf("%s-%d", name, os.Getpid()), Group: danm.GroupDanmIO, CNI: danmcni.Danm43, Progress: os.Stderr,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.kind, w.kubeconfig = c, c.Kubeconfig()
	w.t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			w.t.Error(err)
		}
	})
	config, err := clientcmd.LoadFromFile(w.kubeconfig)
	if err != nil {
		w.t.Fatal(err)
	}
	w.context = config.CurrentContext
	if w.config, err = c.RESTConfig(clusters.UserHarness); err != nil {
		w.t.Fatal(err)
	}
	w.core, w.dynamic = kubernetes.NewForConfigOrDie(w.config), dynamic.NewForConfigOrDie(w.config)
}

// keepOthersOffWorkers has all that runs elsewhere than on workers: Kubernetes
// moves pods off a node that is switched off, whosever they are, and then the
// cluster is not what it was.
func (w *kindWorld) keepOthersOffWorkers() {
	w.t.Helper()
	ctx, apps := w.t.Context(), w.core.AppsV1()
	list, err := apps.Deployments("").List(ctx, metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"nodeSelector":{%q:""}}}}}`, controlPlaneLabel)
	for _, d := range list.Items {
		if _, err := apps.Deployments(d.Namespace).Patch(ctx, d.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	w.await("the pods of others to be moved", func() bool { return w.areAllSettled() && len(w.deployedOnWorkers()) == 0 })
}

// areAllSettled tells whether no Deployment or DaemonSet is on its way.
func (w *kindWorld) areAllSettled() bool {
	deployments, err := w.core.AppsV1().Deployments("").List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		return false
	}
	for _, d := range deployments.Items {
		s := d.Status
		if s.ObservedGeneration < d.Generation || s.Replicas != *d.Spec.Replicas || s.UpdatedReplicas != s.Replicas || s.ReadyReplicas != s.Replicas {
			return false
		}
	}
	sets, err := w.core.AppsV1().DaemonSets("").List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		return false
	}
	for _, d := range sets.Items {
		if s := d.Status; s.ObservedGeneration < d.Generation || s.NumberReady != s.DesiredNumberScheduled {
			return false
		}
	}
	return true
}

// deployedOnWorkers names the pods of Deployments that are on workers.
func (w *kindWorld) deployedOnWorkers() []string {
	w.t.Helper()
	pods, err := w.core.CoreV1().Pods("").List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, p := range pods.Items {
		owner := metav1.GetControllerOf(&p)
		if owner != nil && owner.Kind == "ReplicaSet" && slices.Contains(w.kind.Workers(), p.Spec.NodeName) {
			names = append(names, p.Name)
		}
	}
	return names
}

func (w *kindWorld) deployCleaner() {
	w.t.Helper()
	_, err := w.kind.StartCleaner(w.t.Context(), clusters.CleanerSpec{
		IsDeployed: true, Logs: w.t.Output(),
		Argv: []string{filepath.Join(programs, "danm-cleaner"), "--release-quarantine", "1s", "--orphan-quarantine", "4s"},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.await("the cleaner to lead", func() bool { return w.leaderIn(kindCleanerSpace) != "" && w.areAllSettled() })
}

// objects are all that is in the cluster. Compared by resourceVersion, but for
// what kubelets keep writing, of nodes and of what runs on every node: Node
// objects, DaemonSets and their pods. Of those all but the status is compared.
func (w *kindWorld) objects() map[string]string {
	w.t.Helper()
	return w.objectsBy(func(resource string, o unstructured.Unstructured) string {
		owner := metav1.GetControllerOf(&o)
		if resource == "nodes" || resource == "daemonsets" || owner != nil && owner.Kind == "DaemonSet" {
			return withoutStatus(w.t, o)
		}
		return o.GetResourceVersion()
	})
}

// expectGivenBack compares the cluster with what it was, once what ran on the
// nodes that were switched off runs again.
func (w *kindWorld) expectGivenBack(before map[string]string) {
	w.t.Helper()
	w.await("what runs on every node to run again", w.areAllSettled)
	if diff := cmp.Diff(before, w.objects()); diff != "" {
		w.t.Errorf("the cluster is not what it was (-before +after):\n%s", diff)
	}
}

// expectRoutes checks that every node knows the way to the pods of the others:
// routes are of a node's memory, and the engine's own start knows nothing of them.
func (w *kindWorld) expectRoutes() {
	w.t.Helper()
	nodes, err := w.core.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, from := range nodes.Items {
		routes, err := exec.Command(engine, "exec", from.Name, "ip", "route", "show").Output()
		if err != nil {
			w.t.Fatal(err)
		}
		for _, to := range nodes.Items {
			if to.Name != from.Name && !strings.Contains(string(routes), to.Spec.PodCIDR+" via ") {
				w.t.Errorf("%s has no route to the pods of %s:\n%s", from.Name, to.Name, routes)
			}
		}
	}
}

// args are those of a run on the cluster, with the engine's own commands for
// hooks. What is to be run is missing.
func (w *kindWorld) args(more ...string) []string {
	args := []string{"run", "--cluster", "existing", "--kubeconfig", w.kubeconfig, "--context", w.context, "--yes",
		"--node-down", engine + " kill {{node}}", "--node-up", engine + " start {{node}}", "--out", filepath.Join(w.folder, "out")}
	return append(args, more...)
}

// kubeconfigOf writes the kubeconfig of somebody that the administrator speaks for.
func (w *kindWorld) kubeconfigOf(user string) string {
	w.t.Helper()
	config, err := clientcmd.LoadFromFile(w.kubeconfig)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, auth := range config.AuthInfos {
		auth.Impersonate = user
	}
	path := filepath.Join(w.folder, user+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// in returns the same world for a part of the test.
func (w *kindWorld) in(t *testing.T) *kindWorld {
	inner, outer := *w.world, *w
	inner.t, outer.world = t, &inner
	return &outer
}

func (w *kindWorld) hasPower(node string) bool {
	w.t.Helper()
	out, err := exec.Command(engine, "inspect", "--format", "{{.State.Running}}", node).Output()
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSpace(string(out)) == "true"
}

func TestAKindClusterOfOthersIsTestedAndGivenBack(t *testing.T) {
	w := newKindWorld(t, "existing")
	w.allowReading("viewer")
	before := w.objects()
	t.Run("who may only read is told what is missing", func(t *testing.T) {
		w := w.in(t)
		w.expectRightsMissing([]string{"--cluster", "existing", "--kubeconfig", w.kubeconfigOf("viewer"), "--context", w.context})
		w.expectGivenBack(before)
	})
	t.Run("five node shutdowns by the engine's own commands are Valid", func(t *testing.T) {
		w := w.in(t)
		code, text := w.chaos(w.args("node-shutdown", "--iterations", "5", "--seed", "7")...).ends(t)
		if code != 0 || !strings.Contains(text, "verdict: Valid") {
			t.Errorf("exit code %d, want a Valid run", code)
		}
		for _, want := range []string{"fail-node 5 of 5 fired", "danm-cleaner/danm-cleaner, image danm-chaos/cleaner:", "2 of 2 replicas ready"} {
			if !strings.Contains(text, want) {
				t.Errorf("the run does not say %q", want)
			}
		}
		w.expectGivenBack(before)
		w.expectNoJournal()
		w.expectRoutes()
	})
	t.Run("a run that is killed while a node is down is undone by clean", func(t *testing.T) {
		w := w.in(t)
		isOff := func(node string) bool { return !w.hasPower(node) }
		w.expectCleaned(w.killInMidFault(isOff, w.args("node-shutdown", "--iterations", "5", "--seed", "7")))
		w.expectGivenBack(before)
	})
}
