package fleet_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/danm-chaos/danm-chaos/clusters"
)

// small makes simulations fast.
var small = []string{"node-shutdown", "--pods", "2"}

// search is what one process does with the same seeds.
func (w *world) search(seeds string, more ...string) *chaos {
	return w.chaos(slices.Concat([]string{"run"}, small, []string{"--cluster", "sim", "--seeds", seeds, "--out", "alone"}, more)...)
}

func digestIn(t *testing.T, text string) string {
	t.Helper()
	found := regexp.MustCompile(`digest of all histories: ([0-9a-f]{16})`).FindStringSubmatch(text)
	if found == nil {
		t.Fatal("no digest was printed")
	}
	return found[1]
}

// reproduce returns the arguments of the command in the last line.
func reproduce(text string) []string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	words := strings.Fields(lines[len(lines)-1])
	if len(words) < 2 || words[0] != "reproduce:" {
		return nil
	}
	return words[2:]
}

func everyPodPlays(string) fate { return plays }

func TestFourShardsFindWhatOneProcessFinds(t *testing.T) {
	w := newWorld(t)
	w.startNodes(everyPodPlays)
	code, text := w.fleet(append(small, "--seeds", "1-50", "--shards", "4")...).ends(t)
	if code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	_, alone := w.search("1-50").ends(t)
	if fleet, one := digestIn(t, text), digestIn(t, alone); fleet != one {
		t.Errorf("the fleet's digest is %s, that of one process %s", fleet, one)
	}
	if stored, err := os.ReadFile(filepath.Join(w.folder, "out", "latest", "run.json")); err != nil || !strings.Contains(string(stored), `"digest": "`+digestIn(t, text)+`"`) {
		t.Errorf("run.json does not hold the digest: %v", err)
	}
	for _, file := range []string{"verdicts.json", "report.html", "report.md", "junit.xml", "metrics.prom"} {
		if _, err := os.Stat(filepath.Join(w.folder, "out", "latest", file)); err != nil {
			t.Error(err)
		}
	}
	w.expectNothingLeft()
}

func TestALostShardIsUnknownAndOnlyItIsPlayedAgain(t *testing.T) {
	w := newWorld(t)
	first := w.startNodes(func(index string) fate {
		if index == "2" {
			return dies
		}
		return plays
	})
	code, text := w.fleet(append(small, "--seeds", "1-40", "--shards", "4", "--attempts", "1")...).ends(t)
	first.end()
	if code != 2 || !strings.Contains(text, "seeds 21-30 are lost: exit code 137, OOMKilled") {
		t.Errorf("exit code %d, want 2 and the seeds that are lost", code)
	}
	if again := reproduce(text); len(again) != 7 || again[0] != "fleet" || again[1] != "--resume" || !strings.HasPrefix(again[2], "out/") {
		t.Errorf("it is reproduced by %q", again)
	}
	w.expectNothingLeft()

	second := w.startNodes(everyPodPlays)
	code, text = w.fleet("--resume", "latest").ends(t)
	if ran := second.ran(); code != 0 || !slices.Equal(ran, []string{"0"}) {
		t.Errorf("exit code %d, pods of indexes %v, want one", code, ran)
	}
	_, alone := w.search("1-40").ends(t)
	if fleet, one := digestIn(t, text), digestIn(t, alone); fleet != one {
		t.Errorf("the fleet's digest is %s, that of one process %s", fleet, one)
	}
	w.expectNothingLeft()

	second.end()
	if code, text := w.fleet("--resume", "latest").ends(t); code != 0 || len(second.ran()) != 1 || !strings.Contains(text, "0 of them to play") {
		t.Errorf("exit code %d: a fleet that is whole needs no cluster", code)
	}
}

func TestAKilledFleetIsRemovedByClean(t *testing.T) {
	w := newWorld(t)
	n := w.startNodes(func(string) fate { return hangs })
	killed := w.fleet(append(small, "--seeds", "1-40")...)
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	w.await("the pods", func() bool { return len(n.ran()) == 4 })
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed.ends(t)
	left := w.fleets()
	if len(left) != 1 {
		t.Fatalf("the killed fleet left %v: the test proves nothing", left)
	}
	code, text := w.chaos("clean").ends(t)
	if code != 0 || !strings.Contains(text, "namespace "+left[0]+" removed") {
		t.Errorf("exit code %d, want 0 and what was removed", code)
	}
	w.expectNothingLeft()
}

// A laptop that was closed: the Job went on without it, and one of its pods
// stored its result and could not say that it was done.
func TestAKilledFleetIsResumedWhereItsJobIs(t *testing.T) {
	w := newWorld(t)
	stored := make(chan struct{})
	n := w.startNodes(func(index string) fate {
		switch index {
		case "0":
			return stops
		case "1":
			return plays
		}
		<-stored
		return plays
	})
	killed := w.fleet(append(small, "--seeds", "1-40")...)
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	w.await("two results", func() bool { return w.results() == 2 })
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed.ends(t)
	close(stored)
	code, text := w.fleet("--resume", "latest").ends(t)
	if ran := n.ran(); code != 0 || !slices.Equal(ran, []string{"0", "1", "2", "3"}) || !strings.Contains(text, "still goes") {
		t.Errorf("exit code %d, pods of indexes %v, want each once", code, ran)
	}
	_, alone := w.search("1-40").ends(t)
	if fleet, one := digestIn(t, text), digestIn(t, alone); fleet != one {
		t.Errorf("the fleet's digest is %s, that of one process %s", fleet, one)
	}
	w.expectNothingLeft()
}

// results counts what pods have stored.
func (w *world) results() int {
	w.t.Helper()
	n := 0
	for _, ns := range w.fleets() {
		maps, err := w.core.CoreV1().ConfigMaps(ns).List(w.t.Context(), metav1.ListOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		for i := range maps.Items {
			n += len(maps.Items[i].BinaryData)
		}
	}
	return n
}

func TestAnInterruptedFleetNamesTheSeedsAndLeavesNothing(t *testing.T) {
	w := newWorld(t)
	n := w.startNodes(func(index string) fate {
		if index == "0" {
			return plays
		}
		return hangs
	})
	c := w.fleet(append(small, "--seeds", "1-20", "--shards", "2")...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w.await("the first shard", func() bool { return strings.Contains(c.said(), "1 of 2 shards, 10 seeds") })
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	code, text := c.ends(t)
	if code != 2 || !strings.Contains(text, "interrupted after 10 of 20 seeds") || !strings.Contains(text, "seeds 11-20 were not played to their end") {
		t.Errorf("exit code %d, want 2 and what is missing", code)
	}
	if again := reproduce(text); len(n.ran()) != 2 || !slices.Contains(again, "--resume") {
		t.Errorf("it is reproduced by %q", again)
	}
	w.expectNothingLeft()
}

func TestAViolationEndsTheFleetAndComesBackShrunk(t *testing.T) {
	w := newWorld(t)
	w.startNodes(everyPodPlays)
	code, text := w.fleet(append(small, "--seeds", "1-400", "--shards", "2", "--cleaner", "canary:by-name", "--shrink", "3s")...).ends(t)
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	w.expectNothingLeft()
	replay := reproduce(text)
	if len(replay) != 2 || replay[0] != "replay" {
		t.Fatalf("it is reproduced by %q", replay)
	}
	if code, _ := w.chaos(replay...).ends(t); code != 1 {
		t.Errorf("%q ends with exit code %d, want 1", replay, code)
	}
	shrunk := strings.TrimSuffix(replay[1], ".json") + ".small.json"
	if code, _ := w.chaos("replay", shrunk).ends(t); code != 1 {
		t.Errorf("%s ends with exit code %d, want 1", shrunk, code)
	}
}

func TestOnlyExpiredFleetsAreRemovedByTheNext(t *testing.T) {
	w := newWorld(t)
	for name, expires := range map[string]time.Duration{"chaos-fleet-old": -time.Minute, "chaos-fleet-new": time.Hour} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{clusters.FleetLabel: "true", clusters.RunLabel: name},
			Annotations: map[string]string{clusters.ExpiresAnnotation: time.Now().Add(expires).Format(time.RFC3339)}}}
		if _, err := w.core.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.startNodes(everyPodPlays)
	code, text := w.fleet(append(small, "--seeds", "1-4", "--shards", "1")...).ends(t)
	if code != 0 || !strings.Contains(text, "namespace chaos-fleet-old removed") {
		t.Errorf("exit code %d, want 0 and what was removed", code)
	}
	if left := w.fleets(); !slices.Equal(left, []string{"chaos-fleet-new"}) {
		t.Errorf("left: %v", left)
	}
	if err := w.core.CoreV1().Namespaces().Delete(t.Context(), "chaos-fleet-new", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.await("the other to go, too", func() bool { return len(w.fleets()) == 0 })
}

func TestWhoMayNotIsToldWhatIsMissingAndNothingIsMade(t *testing.T) {
	w := newWorld(t)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "viewer"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}}}}
	if _, err := w.core.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "viewer"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "viewer"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "viewer"}}}
	if _, err := w.core.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.kubeconfig = w.writeKubeconfig("viewer", "viewer")
	code, text := w.fleet(append(small, "--seeds", "1-4")...).ends(t)
	var missing []string
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "danm-chaos: right to "); ok {
			name, _, _ := strings.Cut(rest, ":")
			missing = append(missing, name)
		}
	}
	want := []string{"create namespaces", "delete namespaces", "create serviceaccounts", "create roles.rbac.authorization.k8s.io",
		"create rolebindings.rbac.authorization.k8s.io", "create jobs.batch", "delete jobs.batch", "create configmaps", "deletecollection pods"}
	if code != 64 || !slices.Equal(missing, want) {
		t.Errorf("exit code %d, missing %q, want %q", code, missing, want)
	}
	if left := w.fleets(); len(left) > 0 {
		t.Errorf("made: %v", left)
	}
	if _, err := os.Stat(filepath.Join(w.folder, "out")); err == nil {
		t.Error("a run directory was made")
	}
}

func TestNothingIsMadeUntilTheContextIsTyped(t *testing.T) {
	w := newWorld(t)
	w.startNodes(everyPodPlays)
	for answer, want := range map[string]int{"": 64, "yes\n": 64, contextName + "\n": 0} {
		c := w.fleet(append(small, "--seeds", "1-4", "--shards", "1", "--yes=false", "--out", "asked")...)
		c.Stdin = strings.NewReader(answer)
		code, _ := c.ends(t)
		made, err := filepath.Glob(filepath.Join(w.folder, "asked", "2*"))
		if err != nil {
			t.Fatal(err)
		}
		if code != want || (len(made) > 0) != (want == 0) {
			t.Errorf("answer %q: exit code %d, want %d, made %v", answer, code, want, made)
		}
		if err := os.RemoveAll(filepath.Join(w.folder, "asked")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAPodMayStoreResultsAndNothingElse(t *testing.T) {
	w := newWorld(t)
	n := w.startNodes(func(string) fate { return hangs })
	c := w.fleet(append(small, "--seeds", "1-4", "--shards", "1")...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() }) // it has ended unless the test failed
	w.await("the pod", func() bool { return len(n.ran()) == 1 })
	ns := w.fleets()[0]
	config, err := clientcmd.BuildConfigFromFlags("", w.writeKubeconfig("pod", "system:serviceaccount:"+ns+":shard"))
	if err != nil {
		t.Fatal(err)
	}
	pod := kubernetes.NewForConfigOrDie(config)
	for _, tt := range []struct {
		verb, group, resource, namespace string
		want                             bool
	}{
		{"create", "", "configmaps", ns, true}, {"create", "", "configmaps", "default", false}, {"get", "", "configmaps", ns, false},
		{"update", "", "configmaps", ns, false}, {"delete", "", "configmaps", ns, false}, {"create", "", "pods", ns, false},
		{"get", "", "secrets", ns, false}, {"list", "", "namespaces", "", false}, {"create", "batch", "jobs", ns, false},
	} {
		review, err := pod.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: tt.namespace, Group: tt.group, Resource: tt.resource, Verb: tt.verb}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed != tt.want {
			t.Errorf("%s %s in %q is allowed: %v", tt.verb, tt.resource, tt.namespace, review.Status.Allowed)
		}
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.ends(t)
	w.expectNothingLeft()
}

// firstOf gives that fate to the first pod of the index; all others play.
func firstOf(index string, what fate) func(string) fate {
	first := make(chan struct{}, 1)
	first <- struct{}{}
	return func(of string) fate {
		if of == index {
			select {
			case <-first:
				return what
			default:
			}
		}
		return plays
	}
}

func TestADeletedPodIsRunAgain(t *testing.T) {
	w := newWorld(t)
	n := w.startNodes(firstOf("1", hangs))
	c := w.fleet(append(small, "--seeds", "1-20", "--shards", "2")...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w.await("both pods", func() bool { return len(n.ran()) == 2 })
	w.deletePod(t.Context(), "1")
	code, text := c.ends(t)
	if ran := n.ran(); code != 0 || !slices.Equal(ran, []string{"0", "1", "1"}) {
		t.Errorf("exit code %d, pods of indexes %v", code, ran)
	}
	_, alone := w.search("1-20").ends(t)
	if fleet, one := digestIn(t, text), digestIn(t, alone); fleet != one {
		t.Errorf("the fleet's digest is %s, that of one process %s", fleet, one)
	}
	w.expectNothingLeft()
}

// Nobody is there any more who could say that the pod has ended, neither for its
// Job nor for the end of the namespace.
func TestAShardWhoseNodeIsLostIsPlayedElsewhere(t *testing.T) {
	w := newWorld(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "lost"}, Spec: corev1.NodeSpec{Unschedulable: true}}
	if _, err := w.core.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.core.CoreV1().Nodes().Delete(context.Background(), "lost", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	n := w.startNodes(firstOf("1", isLost))
	c := w.fleet(append(small, "--seeds", "1-20", "--shards", "2")...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w.await("both pods", func() bool { return len(n.ran()) == 2 })
	w.deletePod(t.Context(), "1") // as Kubernetes does when the node was silent for long enough
	code, _ := c.ends(t)
	if ran := n.ran(); code != 0 || !slices.Equal(ran, []string{"0", "1", "1"}) {
		t.Errorf("exit code %d, pods of indexes %v", code, ran)
	}
	w.expectNothingLeft()
}

func (w *world) deletePod(ctx context.Context, index string) {
	w.t.Helper()
	p := w.podOf(index)
	if err := w.core.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// podOf returns the only pod of a shard.
func (w *world) podOf(index string) *corev1.Pod {
	w.t.Helper()
	pods, err := w.core.CoreV1().Pods("").List(w.t.Context(), metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-completion-index=" + index})
	if err != nil || len(pods.Items) != 1 {
		w.t.Fatalf("pods of index %s: %d, %v", index, len(pods.Items), err)
	}
	return &pods.Items[0]
}
