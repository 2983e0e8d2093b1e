package existing_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/clusters"
)

func (w *world) scenario(name, faults string) string {
	w.t.Helper()
	path := filepath.Join(w.folder, name+".yaml")
	text := `apiVersion: chaos.danm/v1alpha1
kind: Scenario
name: ` + name + `
replicas: 5
nodesPerLane: 3
interfaces: 1
terminationGracePeriodSeconds: 1
kinds: [DanmNet]
families: [v4]
budgets: {terminating: 30s, recreate: 60s, settle: 30s}
lanes: 1
iterations: 2
faults: ` + faults + "\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// runFile runs a scenario file.
func (w *world) runFile(path string, more ...string) (int, string) {
	w.t.Helper()
	args := append(w.runArgs("-f", more...), "")
	copy(args[3:], args[2:])
	args[2] = path
	return w.chaos(args...).ends(w.t)
}

func TestPodsAreEvictedNodesDrainedAndTheStatefulSetScaled(t *testing.T) {
	w := newWorld(t)
	w.startFixedCleaner()
	before := w.objects()
	path := w.scenario("disturb", "{disturbance: {acts: [evict, drain, scale, mesh-pod-kill], roundsMax: 4, podsMax: 2}}")
	code, text := w.runFile(path, "--seed", "5", "--iterations", "4")
	// Pods that end in an orderly way leave the cleaner nothing to do, so it is
	// not tried, and no Valid is to be had.
	if code != 2 || !strings.Contains(text, "released no address in the whole run") {
		t.Errorf("exit code %d, want Unknown because the cleaner had nothing to do", code)
	}
	for _, want := range []string{"evict", "drain", "scale", "mesh-pod-kill: Chaos Mesh is not installed"} {
		if !strings.Contains(text, want) {
			t.Errorf("the run does not say %q", want)
		}
	}
	if strings.Contains(text, " Invalid") {
		t.Error("something was broken")
	}
	w.expectUntouched(before)
}

func TestADeadNodeIsDeclaredOutOfServiceWhileTheCleanerFailsOver(t *testing.T) {
	w := newWorld(t)
	w.startFixedCleaner()
	before := w.objects()
	path := w.scenario("out-of-service", "{nodeShutdown: {target: node-with-pods, returns: [after-recreate], outOfService: true, meanwhile: [kill-cleaner]}}")
	code, text := w.runFile(path, "--seed", "5")
	if code != 0 || !strings.Contains(text, "taint-node 2 of 2 fired") || !strings.Contains(text, "kill-cleaner 2 of 2 fired") {
		t.Errorf("exit code %d, want a Valid run with both faults", code)
	}
	for key := range before { // the cleaner's pods were killed on purpose
		if strings.Contains(key, cleanerSpace) {
			delete(before, key)
		}
	}
	after := w.objects()
	for key, state := range before {
		if after[key] != state {
			t.Errorf("%s was %s and is %s", key, state, after[key])
		}
	}
}

func TestAHookThatDoesNothingFailsNoNode(t *testing.T) {
	w := newWorld(t)
	w.startFixedCleaner()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	before := w.objects()
	args := w.runArgs("node-shutdown", "--iterations", "1", "--node-timeout", "3s", "--node-down", self+" nothing {{node}}", "--node-up", self+" nothing {{node}}")
	code, text := w.chaos(args...).ends(t)
	if code != 2 || !strings.Contains(text, "--node-down ended well, but node") {
		t.Errorf("exit code %d, want Unknown because the node stayed Ready", code)
	}
	w.expectUntouched(before)
}

func TestTheNextRunRemovesWhatAnExpiredOneLeft(t *testing.T) {
	w := newWorld(t)
	w.startFixedCleaner()
	before := w.objects()
	labels := map[string]string{clusters.RunLabel: "deadbeef"}
	expired := map[string]string{clusters.ExpiresAnnotation: time.Now().Add(-time.Minute).Format(time.RFC3339)}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "chaos-left", Labels: labels, Annotations: expired}}
	if _, err := w.core.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := []byte(`{"metadata":{"labels":{"chaos.danm/run":"deadbeef"},"annotations":{"chaos.danm/expires":"` + expired[clusters.ExpiresAnnotation] + `"}}}`)
	if _, err := w.core.CoreV1().Nodes().Patch(t.Context(), infraNode, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	code, text := w.chaos(w.runArgs("node-shutdown", "--iterations", "1", "--seed", "7")...).ends(t)
	if code != 0 || !strings.Contains(text, "run deadbeef expired") || !strings.Contains(text, "namespace chaos-left removed") {
		t.Errorf("exit code %d, want a Valid run after the other's things were removed", code)
	}
	w.expectUntouched(before)
}
