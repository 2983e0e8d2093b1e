package existing

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/danm-chaos/danm-chaos/clusters"
)

func deployment(namespace, name, image string, args ...string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{}, Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image, Args: args}}}}},
	}
}

func TestTheCleanerIsFoundByItsDeployment(t *testing.T) {
	ours := deployment("danm-cleaner", "danm-cleaner", "registry.example:5000/danm/danm-cleaner:v1.2", "run", "--release-quarantine=30s", "--orphan-quarantine", "2m")
	theirs := deployment("kube-system", "danm-cleaner", "cleaner:4.3")
	other := deployment("web", "log-cleaner", "busybox")
	for _, c := range []struct {
		name    string
		there   []*appsv1.Deployment
		asked   string
		want    string
		wantErr string
	}{
		{"the only one that looks like it", []*appsv1.Deployment{ours, other}, "", "danm-cleaner/danm-cleaner", ""},
		{"upstream's, in kube-system", []*appsv1.Deployment{theirs}, "", "kube-system/danm-cleaner", ""},
		{"two: nobody guesses", []*appsv1.Deployment{ours, theirs}, "", "", "several Deployments look like cleaners: danm-cleaner/danm-cleaner, kube-system/danm-cleaner"},
		{"two, and one is named", []*appsv1.Deployment{ours, theirs}, "kube-system/danm-cleaner", "kube-system/danm-cleaner", ""},
		{"one that is called otherwise is named", []*appsv1.Deployment{other}, "web/log-cleaner", "web/log-cleaner", ""},
		{"none", []*appsv1.Deployment{other}, "", "", "no Deployment looks like a cleaner of DANM"},
	} {
		t.Run(c.name, func(t *testing.T) {
			core := fake.NewClientset()
			for _, d := range c.there {
				if err := core.Tracker().Add(d); err != nil {
					t.Fatal(err)
				}
			}
			found, err := access{core: core}.findCleaner(t.Context(), Options{Cleaner: c.asked})
			if c.wantErr != "" {
				if err == nil || err.Error() != c.wantErr {
					t.Errorf("got %v, want %s", err, c.wantErr)
				}
				return
			}
			if err != nil || found.Namespace+"/"+found.Name != c.want {
				t.Errorf("got %v, %v, want %s", found, err, c.want)
			}
		})
	}
}

func TestADeploymentTellsVersionQuarantinesAndManagers(t *testing.T) {
	d := deployment("danm-cleaner", "danm-cleaner", "registry.example:5000/danm/danm-cleaner:v1.2", "run", "--release-quarantine=30s", "--orphan-quarantine", "2m")
	d.Spec.Template.Spec.Containers[0].Command = []string{"/bin/cleaner"}
	got := describe(d, Options{CleanerManagers: []string{"mine"}})
	want := []string{"v1.2", "30s", "2m0s", "cleaner,danm-cleaner,main,mine"}
	if diff := cmp.Diff(want, []string{got.Version, got.ReleaseQuarantine.String(), got.OrphanQuarantine.String(), strings.Join(got.Managers, ",")}); diff != "" {
		t.Errorf("wrong description (-want +got):\n%s", diff)
	}
	plain := describe(deployment("n", "c", "cleaner@sha256:0"), Options{})
	if plain.Version != "unknown" || plain.ReleaseQuarantine != releaseQuarantineDefault || plain.Managers[0] != "cleaner" {
		t.Errorf("got %+v", plain)
	}
}

func nodeWith(change func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	change(n)
	return n
}

func TestANodeIsUsedOnlyIfNobodyNeedsItOtherwise(t *testing.T) {
	for _, c := range []struct {
		name string
		node *corev1.Node
		want string
	}{
		{"a Ready worker: fit", nodeWith(func(*corev1.Node) {}), ""},
		{"one that others would rather not use: fit", nodeWith(func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectPreferNoSchedule}}
		}), ""},
		{"none", nil, "does not exist"},
		{"not Ready", nodeWith(func(n *corev1.Node) { n.Status.Conditions = nil }), "is not Ready"},
		{"cordoned", nodeWith(func(n *corev1.Node) { n.Spec.Unschedulable = true }), "is cordoned"},
		{"another run's", nodeWith(func(n *corev1.Node) { n.Labels = map[string]string{clusters.RunLabel: "r"} }), "is used by run r"},
		{"the control plane", nodeWith(func(n *corev1.Node) { n.Labels = map[string]string{controlPlaneLabels[0]: ""} }), "is of the control plane"},
		{"tainted", nodeWith(func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		}), "is tainted gpu"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := unfitness(c.node); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestOnlyWhatARunDidIsTakenBackFromANode(t *testing.T) {
	for _, c := range []struct {
		name string
		node *corev1.Node
		want string
	}{
		{"cordoned by somebody else: it stays so", nodeWith(func(n *corev1.Node) { n.Spec.Unschedulable = true }), "null"},
		{"cordoned by us", nodeWith(func(n *corev1.Node) {
			n.Annotations = map[string]string{cordonedAnnotation: "r"}
		}), `{"unschedulable":null}`},
		{"tainted by us: the taints of others stay", nodeWith(func(n *corev1.Node) {
			n.Annotations = map[string]string{taintedAnnotation: "r"}
			n.Spec.Taints = []corev1.Taint{{Key: "gpu"}, {Key: corev1.TaintNodeOutOfService}}
		}), `{"taints":[{"key":"gpu","effect":""}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, spec := taken(c.node)
			got, err := json.Marshal(spec)
			if err != nil || string(got) != c.want {
				t.Errorf("got %s, %v, want %s", got, err, c.want)
			}
		})
	}
}

func TestWhatExpiresWhenIsReadFromTheCluster(t *testing.T) {
	core := fake.NewClientset()
	at := func(run, expires string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Name: "o-" + run + expires, Labels: map[string]string{clusters.RunLabel: run}}
		if expires != "" {
			m.Annotations = map[string]string{clusters.ExpiresAnnotation: expires}
		}
		return m
	}
	early, late := "2026-03-01T08:00:00Z", "2026-03-01T09:00:00Z"
	for _, m := range []metav1.ObjectMeta{at("a", early), at("a", late), at("b", ""), at("b", early)} {
		m.Name = strings.ToLower(strings.ReplaceAll(m.Name, ":", "-"))
		if err := core.Tracker().Add(&corev1.Namespace{ObjectMeta: m}); err != nil {
			t.Fatal(err)
		}
	}
	if err := core.Tracker().Add(&corev1.Node{ObjectMeta: at("c", early)}); err != nil {
		t.Fatal(err)
	}
	got, err := access{core: core}.leftovers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lateTime, _ := time.Parse(time.RFC3339, late)
	earlyTime, _ := time.Parse(time.RFC3339, early)
	if diff := cmp.Diff(map[string]time.Time{"a": lateTime, "b": never, "c": earlyTime}, got); diff != "" {
		t.Errorf("a run lasts as long as its last object (-want +got):\n%s", diff)
	}
}

func TestAHookIsToldItsNodeAndBounded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "said")
	if err := runHook(t.Context(), []string{"sh", "-c", `echo "$0" > "$1"`, "{{node}}", file}, "n7", time.Minute); err != nil {
		t.Fatal(err)
	}
	if said, err := os.ReadFile(file); err != nil || string(said) != "n7\n" {
		t.Errorf("the hook was told %q, %v", said, err)
	}
	err := runHook(t.Context(), []string{"sh", "-c", "echo no power >&2; exit 3"}, "n7", time.Minute)
	if err == nil || !strings.Contains(err.Error(), "exit status 3: no power") {
		t.Errorf("got %v, want what the hook said", err)
	}
	began := time.Now()
	err = runHook(t.Context(), []string{"sh", "-c", "sleep 600 & sleep 600"}, "n7", 100*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "not through after 100ms") || time.Since(began) > time.Minute {
		t.Errorf("got %v after %s, want it to be ended", err, time.Since(began))
	}
}
