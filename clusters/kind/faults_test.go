package kind

import (
	"context"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
)

func TestParseSandboxesSortsByName(t *testing.T) {
	got, err := parseSandboxes(`{"items":[
		{"id":"2","metadata":{"name":"b","uid":"u2","namespace":"n","attempt":0},"state":"SANDBOX_READY"},
		{"id":"1","metadata":{"name":"a","uid":"u1","namespace":"n","attempt":0},"state":"SANDBOX_READY"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	want := []clusters.Sandbox{{ID: "1", Namespace: "n", Pod: "a", PodUID: "u1"}, {ID: "2", Namespace: "n", Pod: "b", PodUID: "u2"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got, err := parseSandboxes("nothing"); err == nil {
		t.Errorf("got %v from nonsense", got)
	}
}

func TestCuttingAndMendingAreAboutTheSameRules(t *testing.T) {
	const cut = `set -e
iptables -w 5 -C INPUT -s 10.0.0.2 -j DROP || iptables -w 5 -I INPUT -s 10.0.0.2 -j DROP
iptables -w 5 -C OUTPUT -d 10.0.0.2 -j DROP || iptables -w 5 -I OUTPUT -d 10.0.0.2 -j DROP
`
	const mend = `set -e
if iptables -w 5 -C INPUT -s 10.0.0.2 -j DROP; then iptables -w 5 -D INPUT -s 10.0.0.2 -j DROP; fi
if iptables -w 5 -C OUTPUT -d 10.0.0.2 -j DROP; then iptables -w 5 -D OUTPUT -d 10.0.0.2 -j DROP; fi
`
	if diff := cmp.Diff(cut, cutScript("10.0.0.2")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(mend, mendScript("10.0.0.2")); diff != "" {
		t.Error(diff)
	}
}

func TestFaultsHitWorkersOnly(t *testing.T) {
	c := &Cluster{nodes: []node{{name: "cp", isControlPlane: true}, {name: "w1"}}, options: Options{CNI: danmcni.Danm43}}
	for _, name := range []string{"cp", "stranger", ""} {
		for _, fault := range []func(context.Context, string) error{
			c.FailNode, c.RestoreNode, c.PauseNode, c.ResumeNode, c.StopKubelet, c.StartKubelet, c.KillRuntime, c.PartitionNode, c.HealNode,
			c.DeleteNode, c.FenceNode, c.UnfenceNode, c.RemovePlugin, c.MendPlugin,
		} {
			if err := fault(t.Context(), name); err == nil {
				t.Errorf("a fault hit %q", name)
			}
		}
	}
}

func TestNodesComeBackFromEveryFault(t *testing.T) {
	needEngine(t)
	c, err := Start(t.Context(), Options{
		RunID: "test-faults-" + strconv.Itoa(os.Getpid()), Group: danm.GroupDanmIO, Workers: 2, CNI: danmcni.Danm43, Progress: os.Stderr,
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
	watch := &stopwatch{t: t, began: time.Now()}
	w.createSet()
	w.await("all pods Ready", func(pods []corev1.Pod) bool { return len(pods) == replicas && all(pods, isPodReady) })
	watch.lap("StatefulSet of 5 Ready")
	victim := c.Workers()[0]

	w.killRuntime(c, victim)
	watch.lap("runtime killed and back, its pods untouched")
	for _, fault := range []struct {
		name         string
		inject, heal func(context.Context, string) error
	}{
		// First, while it has pods; afterwards they are elsewhere.
		{"cut off", c.PartitionNode, c.HealNode},
		{"hang", c.PauseNode, c.ResumeNode},
		{"kubelet stopped", c.StopKubelet, c.StartKubelet},
	} {
		w.do(fault.inject(t.Context(), victim))
		w.awaitNode(victim, false)
		watch.lap(fault.name + ": NotReady")
		if fault.name == "cut off" {
			w.wantDeletedPodsRunning(c, victim)
		}
		w.do(fault.heal(t.Context(), victim))
		w.awaitNode(victim, true)
		watch.lap(fault.name + ": Ready again")
	}
	w.wantPluginFaults(c, victim)
	watch.lap("plugin missing, slow and mended")
	w.wantFencing(c, victim)
	watch.lap("fenced, its pods elsewhere, back")
	w.wantDeletion(c, victim)
	watch.lap("Node deleted and back")
}

// recreate deletes all pods by force, so that both nodes get new ones.
func (w *world) recreate() {
	w.t.Helper()
	w.forceDelete(w.pods())
}

func (w *world) awaitAllReady() {
	w.t.Helper()
	w.await("all pods Ready", func(pods []corev1.Pod) bool { return len(pods) == replicas && all(pods, isPodReady) })
}

// wantPluginFaults takes the plugin away, so that no pod starts on the node,
// and then makes it slow, so that pods start late.
func (w *world) wantPluginFaults(c *Cluster, name string) {
	w.t.Helper()
	w.do(c.RemovePlugin(w.t.Context(), name))
	w.recreate()
	w.await("pods that cannot start", func(pods []corev1.Pod) bool {
		return len(pods) == replicas && slices.ContainsFunc(pods, isPodReady) && len(on(pods, name)) > 0 && !slices.ContainsFunc(on(pods, name), isPodReady)
	})
	w.do(c.MendPlugin(w.t.Context(), name))
	w.awaitAllReady()

	const delay = 3 * time.Second
	w.do(c.SlowPlugin(w.t.Context(), name, delay))
	w.recreate()
	w.awaitAllReady()
	for _, p := range on(w.pods(), name) {
		if took := p.Status.ContainerStatuses[0].State.Running.StartedAt.Sub(p.CreationTimestamp.Time); took < delay-time.Second {
			w.t.Errorf("%s started within %s", p.Name, took)
		}
	}
	w.do(c.MendPlugin(w.t.Context(), name))
}

// wantFencing lets a node die and be declared dead: nobody forces a pod.
func (w *world) wantFencing(c *Cluster, name string) {
	w.t.Helper()
	w.do(c.FailNode(w.t.Context(), name))
	w.awaitNode(name, false)
	w.do(c.FenceNode(w.t.Context(), name))
	w.await("all pods Ready elsewhere", func(pods []corev1.Pod) bool {
		return len(pods) == replicas && len(on(pods, name)) == 0 && all(pods, isPodReady)
	})
	w.do(c.RestoreNode(w.t.Context(), name))
	w.do(c.UnfenceNode(w.t.Context(), name))
	w.awaitNode(name, true)
}

// wantDeletion deletes a Node object under a kubelet that runs, and has the
// machine join again.
func (w *world) wantDeletion(c *Cluster, name string) {
	w.t.Helper()
	w.do(c.DeleteNode(w.t.Context(), name))
	w.do(c.RemoveNode(w.t.Context(), name))
	w.do(c.AddNode(w.t.Context(), clusters.Node{Name: name, Labels: map[string]string{"chaos.danm/lane": "x"}}))
	w.awaitNode(name, true)
}

func (w *world) do(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// awaitNode waits until the API server takes the node for ready, or for not.
func (w *world) awaitNode(name string, ready bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), stepMax)
	defer cancel()
	w.do(poll(ctx, func(ctx context.Context) (bool, error) {
		n, err := w.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		return err == nil && isReady(*n) == ready, err
	}))
}

// killRuntime kills it and waits until it answers again with the same sandboxes.
func (w *world) killRuntime(c *Cluster, name string) {
	w.t.Helper()
	before, err := c.Sandboxes(w.t.Context(), name)
	w.do(err)
	w.do(c.KillRuntime(w.t.Context(), name))
	ctx, cancel := context.WithTimeout(w.t.Context(), stepMax)
	defer cancel()
	w.do(poll(ctx, func(ctx context.Context) (bool, error) {
		after, err := c.Sandboxes(ctx, name)
		return err == nil && cmp.Equal(before, after), nil // it may not be up yet
	}))
}

// wantDeletedPodsRunning force-deletes the pods of a node that is cut off: the
// API forgets them, the node cannot.
func (w *world) wantDeletedPodsRunning(c *Cluster, name string) {
	w.t.Helper()
	w.await("its pods Terminating", func(pods []corev1.Pod) bool { return all(on(pods, name), isTerminating) })
	lost := on(w.pods(), name)
	if len(lost) == 0 {
		w.t.Fatal("no pod was on the node that is cut off")
	}
	w.forceDelete(lost)
	sandboxes, err := c.Sandboxes(w.t.Context(), name)
	w.do(err)
	running := map[string]bool{}
	for _, s := range sandboxes {
		running[s.PodUID] = true
	}
	for _, p := range lost {
		if !running[string(p.UID)] {
			w.t.Errorf("%s does not run on the node that is cut off, of %v", p.Name, sandboxes)
		}
	}
	w.t.Logf("%d force-deleted pods run on", len(lost))
}
