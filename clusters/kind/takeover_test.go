package kind

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// takeoverMax is how long nobody may clean when the node of the cleaner that
// leads dies.
const takeoverMax = 20 * time.Second

// onWorkers keeps the cleaner where nodes are failed.
func onWorkers(s *corev1.PodSpec) {
	s.Affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: controlPlaneLabel, Operator: corev1.NodeSelectorOpDoesNotExist},
		}}},
	}}
}

// TestADeployedCleanerReleasesWhateverBecomesOfNodes puts two nodes of a cluster
// out of action: one hangs and comes back late, one takes the leader with it. If
// the leader is on the first as well, it ends when it finds its Lease lost.
func TestADeployedCleanerReleasesWhateverBecomesOfNodes(t *testing.T) {
	needEngine(t)
	watch := &stopwatch{t: t, began: time.Now()}
	recorder := &history.Memory{}
	c, err := Start(t.Context(), Options{
		RunID: "test-takeover-" + strconv.Itoa(os.Getpid()), Group: danm.GroupDanmIO, CNI: danmcni.Danm43, Recorder: recorder, Progress: os.Stderr,
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
	d, err := c.deployCleaner(t.Context(), clusters.CleanerSpec{
		Argv: []string{buildCleaner(t), "--release-quarantine", "1s", "--orphan-quarantine", "4s"}, Logs: t.Output(),
	}, onWorkers)
	w.do(err)
	w.createSet()
	w.awaitAllReady()
	watch.lap("cluster, cleaner and StatefulSet ready")

	w.wantAnotherLeader(c, d)
	watch.lap("the pod that led was killed, and another leads")

	w.wantHarmlessLateDel(c, recorder)
	watch.lap("a node hung, came back and freed nobody's address")
	w.wantTakeover(c)
	watch.lap("the node of the leader died, and its leftovers are released")
}

// wantAnotherLeader kills the pod that leads. That the API took it away is not
// the cleaner's fault.
func (w *world) wantAnotherLeader(c *Cluster, d *deployment) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), stepMax)
	defer cancel()
	isLeader := func(p clusters.CleanerPod) bool { return p.Leads }
	pods, err := c.CleanerPods(ctx)
	w.do(err)
	at := slices.IndexFunc(pods, isLeader)
	if len(pods) != 2 || at < 0 {
		w.t.Fatalf("pods of the cleaner are %+v: want two, of which one leads", pods)
	}
	killed := pods[at]
	w.do(w.client.CoreV1().Pods(killed.Namespace).Delete(ctx, killed.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	w.do(poll(ctx, func(ctx context.Context) (bool, error) {
		pods, err := c.CleanerPods(ctx)
		now := slices.IndexFunc(pods, isLeader)
		return len(pods) == 2 && now >= 0 && pods[now].UID != killed.UID, err
	}))
	if err := d.ExitError(); err != nil {
		w.t.Errorf("the killed pod counts as an end of the cleaner: %v", err)
	}
}

// wantHarmlessLateDel has a node hang for longer than its pods live. When it
// goes on, its CNI DELs are about addresses that others have.
func (w *world) wantHarmlessLateDel(c *Cluster, recorder *history.Memory) {
	w.t.Helper()
	victim := w.pods()[0].Spec.NodeName
	lost := on(w.pods(), victim)
	old := w.addressesByPodUID()
	w.do(c.PauseNode(w.t.Context(), victim))
	w.moveFrom(victim)
	w.awaitAgreement()
	w.scale(replicas + len(lost)) // DANM hands out the lowest free address
	w.await("pods on the old addresses", func(pods []corev1.Pod) bool {
		return len(pods) == replicas+len(lost) && all(pods, isPodReady) && w.areTaken(lost, old)
	})
	w.do(c.ResumeNode(w.t.Context(), victim))
	w.awaitNode(victim, true)
	w.awaitDetached(recorder, lost)
	w.do(c.DrainAudit(w.t.Context()))
	for _, r := range recorder.Records() {
		a := r.Audit
		if a != nil && a.User == clusters.UserNodePrefix+victim && a.Resource == danm.DanmNetResource && a.Verb == "update" && a.Begin.After(w.moved) && a.Code == 200 {
			w.t.Errorf("a late CNI DEL wrote the network: %+v", *a)
		}
	}
	if got, want := w.bits(), replicas+len(lost); got != want {
		w.t.Errorf("%d bits are set for %d pods", got, want)
	}
	w.wantAddresses()
	w.scale(replicas)
	w.awaitAgreement()
}

// areTaken tells whether somebody has every address that the lost pods had.
func (w *world) areTaken(lost []corev1.Pod, old map[string]string) bool {
	var now []string
	for _, address := range w.addressesByPodUID() {
		now = append(now, address)
	}
	for _, p := range lost {
		if !slices.Contains(now, old[string(p.UID)]) {
			return false
		}
	}
	return true
}

// awaitDetached waits until the node has begun a CNI DEL for each of the pods.
func (w *world) awaitDetached(recorder *history.Memory, lost []corev1.Pod) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), stepMax)
	defer cancel()
	w.do(poll(ctx, func(context.Context) (bool, error) {
		ended := map[string]bool{}
		for _, r := range recorder.Records() {
			if a := r.Attachment; a != nil && a.Event == history.Detaching {
				ended[a.PodUID] = true
			}
		}
		for _, p := range lost {
			if !ended[string(p.UID)] {
				return false, nil
			}
		}
		return true, nil
	}))
}

// wantTakeover lets the node of the leader die.
func (w *world) wantTakeover(c *Cluster) {
	w.t.Helper()
	leader := w.leader()
	name, _, _ := strings.Cut(leader, "_")
	pod, err := w.client.CoreV1().Pods(cleanerNamespace).Get(w.t.Context(), name, metav1.GetOptions{})
	w.do(err)
	began := time.Now()
	w.do(c.FailNode(w.t.Context(), pod.Spec.NodeName))
	ctx, cancel := context.WithTimeout(w.t.Context(), stepMax)
	defer cancel()
	w.do(poll(ctx, func(context.Context) (bool, error) { return w.leader() != leader, nil }))
	if took := time.Since(began); took > takeoverMax {
		w.t.Errorf("the standby took over after %s", took)
	} else {
		w.t.Logf("the standby took over after %.1f s", took.Seconds())
	}
	w.moveFrom(pod.Spec.NodeName)
	w.awaitAgreement()
}

// leader returns who holds the Lease: the pod's name and more.
func (w *world) leader() string {
	w.t.Helper()
	lease, err := w.client.CoordinationV1().Leases(cleanerNamespace).Get(w.t.Context(), cleanerName, metav1.GetOptions{})
	w.do(err)
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// moveFrom forces the pods off a node that does not answer any more.
func (w *world) moveFrom(name string) {
	w.t.Helper()
	w.await("its pods Terminating", func(pods []corev1.Pod) bool { return all(on(pods, name), isTerminating) })
	w.forceDelete(on(w.pods(), name))
	w.await("all pods Ready elsewhere", func(pods []corev1.Pod) bool {
		return len(pods) == replicas && len(on(pods, name)) == 0 && all(pods, isPodReady)
	})
	w.moved = time.Now()
}

func (w *world) awaitAgreement() {
	w.t.Helper()
	w.await("pods, endpoints and bits to agree", func(pods []corev1.Pod) bool {
		return len(pods) == replicas && len(w.addressesByPodUID()) == replicas && w.bits() == replicas
	})
}

func (w *world) scale(count int) {
	w.t.Helper()
	sets := w.client.AppsV1().StatefulSets(namespace)
	scale, err := sets.GetScale(w.t.Context(), "ss-cinfo", metav1.GetOptions{})
	w.do(err)
	scale.Spec.Replicas = int32(count)
	_, err = sets.UpdateScale(w.t.Context(), "ss-cinfo", scale, metav1.UpdateOptions{})
	w.do(err)
}
