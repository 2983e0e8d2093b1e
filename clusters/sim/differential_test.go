package sim

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
	"github.com/danm-chaos/danm-chaos/scenarios"
)

// The same schedules are played by the real control plane and here. When things
// happen, and on which node the scheduler puts a pod, differs; what a pod and
// its endpoint go through must not.

const (
	differentialSeed  = 11
	differentialLanes = 3
	playsOfSchedule   = 12 // of each schedule here, with other choices
)

func TestObjectsGoThroughWhatTheyGoThroughOnARealControlPlane(t *testing.T) {
	if testing.Short() || os.Getenv("KUBERNETES_BIN_DIR") == "" {
		t.Skip("needs the Kubernetes programs in KUBERNETES_BIN_DIR")
	}
	for _, name := range []string{"node-shutdown", "node-shutdown-backlog", "force-delete-loop"} {
		t.Run(name, func(t *testing.T) {
			real, planned := playForReal(t, name)
			compareLives(t, real, livesHere(t, planned))
		})
	}
}

// livesHere plays the schedules of a real run with other choices each time.
func livesHere(t *testing.T, planned schedule.Schedule) map[string]int {
	t.Helper()
	simulated := map[string]int{}
	for lane, iteration := range planned.Iterations {
		for seed := range uint64(playsOfSchedule) {
			records := playHere(t, planned.Lanes[lane].Networks[0], iteration.Steps, seed+1)
			for life, n := range livesOf(records) {
				simulated[life] += n
			}
		}
	}
	return simulated
}

func compareLives(t *testing.T, real, simulated map[string]int) {
	t.Helper()
	for _, life := range slices.Sorted(maps.Keys(real)) {
		t.Logf("real %3d, here %4d: %s", real[life], simulated[life], life)
		if simulated[life] == 0 {
			t.Errorf("no pod here went through: %s", life)
		}
	}
	if len(real) < 2 {
		t.Errorf("only %d kinds of lives: nothing happened to any pod", len(real))
	}
	for _, life := range slices.Sorted(maps.Keys(simulated)) {
		if real[life] == 0 {
			t.Logf("only here, %d: %s", simulated[life], life)
		}
	}
}

// playForReal runs the schedules of a scenario under the shipped cleaner on a
// real control plane, each in a lane of its own.
func playForReal(t *testing.T, name string) (map[string]int, schedule.Schedule) {
	t.Helper()
	scenario, err := scenarios.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	path := filepath.Join(out, "history.jsonl")
	file, err := history.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	cluster, err := controlplane.Start(t.Context(), controlplane.Options{
		RunID: "differential", Group: danm.GroupDanmIO, Seed: differentialSeed, Recorder: file, Progress: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	result, err := harness.Run(t.Context(), harness.Config{
		Scenario: scenario, Cluster: cluster, Seed: differentialSeed, Iterations: differentialLanes, Lanes: differentialLanes,
		RunID: "differential", Out: out, History: file, HistoryPath: path, Cleaner: clusters.CleanerSpec{Argv: shippedCleaner(t)},
	})
	if err != nil || result.Verdict == check.Invalid {
		t.Fatalf("%s: %v %v", result.Verdict, err, result.Violations)
	}
	records, err := history.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return livesOf(records), storedSchedule(t, out)
}

func storedSchedule(t *testing.T, dir string) schedule.Schedule {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, harness.ScheduleFile))
	if err != nil {
		t.Fatal(err)
	}
	var s schedule.Schedule
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func shippedCleaner(t *testing.T) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "danm-cleaner")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/danm-chaos/danm-chaos/cleaner/cmd/danm-cleaner")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the cleaner: %v: %s", err, out)
	}
	return []string{
		path, "run", "--kubeconfig", "{{kubeconfig}}", "--release-quarantine", "1s", "--orphan-quarantine", "4s",
		"--leader-elect=false", "--metrics-bind-address", "0", "--health-probe-bind-address", "0",
	}
}

func playHere(t *testing.T, network schedule.Network, steps []schedule.Step, seed uint64) []history.Record {
	t.Helper()
	plan := drawn(t, seed, true)
	plan.World.Network = network
	plan.Steps = append([]schedule.Step{{Do: schedule.AwaitReady}}, steps...)
	out := Play(t, plan, Options{Start: startFixed})
	if out.Err != nil {
		t.Fatalf("seed %d: %v", seed, out.Err)
	}
	return out.Records
}

// life is what happened to one pod, from its first write to its last.
type life struct {
	stations       []string
	added, deleted int // endpoints
}

func (l *life) reach(station string) {
	if !slices.Contains(l.stations, station) {
		l.stations = append(l.stations, station)
	}
}

// livesOf counts the pods by what they went through.
func livesOf(records []history.Record) map[string]int {
	lives := map[string]*life{}
	of := func(uid string) *life {
		if lives[uid] == nil {
			lives[uid] = &life{}
		}
		return lives[uid]
	}
	for _, r := range records {
		switch {
		case r.Write == nil:
		case r.Write.Resource == "pods":
			of(r.Write.UID).write(r.Write)
		case r.Write.Resource == danm.EndpointResource:
			countEndpoint(of, r.Write)
		}
	}
	counts := map[string]int{}
	for _, l := range lives {
		counts[l.String()]++
	}
	return counts
}

func (l *life) write(w *history.Write) {
	var pod corev1.Pod
	if json.Unmarshal(w.Object, &pod) != nil {
		l.reach("unreadable")
		return
	}
	l.reach("created")
	if pod.Spec.NodeName != "" {
		l.reach("bound")
	}
	if pod.Status.Phase != corev1.PodPending && pod.Status.Phase != "" {
		l.reach(strings.ToLower(string(pod.Status.Phase)))
	}
	if pod.DeletionTimestamp != nil {
		l.reach("terminating")
	}
	if w.Type == history.Deleted {
		l.reach("gone")
	}
}

func countEndpoint(of func(uid string) *life, w *history.Write) {
	var ep danm.Endpoint
	if json.Unmarshal(w.Object, &ep) != nil {
		return
	}
	switch w.Type {
	case history.Added:
		of(string(ep.Spec.PodUID)).added++
	case history.Deleted:
		of(string(ep.Spec.PodUID)).deleted++
	}
}

// String names the stations, and how many endpoints came and went.
func (l *life) String() string {
	return strings.Join(l.stations, ", ") + "; endpoints " + strconv.Itoa(l.added) + " made, " + strconv.Itoa(l.deleted) + " deleted"
}

func TestLivesOfPodsAreToldApart(t *testing.T) {
	pod := func(effect history.WriteType, uid, object string) history.Record {
		return history.Record{Write: &history.Write{Type: effect, Resource: "pods", UID: uid, Object: json.RawMessage(object)}}
	}
	ep := func(effect history.WriteType) history.Record {
		return history.Record{Write: &history.Write{Type: effect, Resource: danm.EndpointResource, Object: json.RawMessage(`{"spec":{"PodUID":"a"}}`)}}
	}
	got := livesOf([]history.Record{
		pod(history.Added, "a", `{"status":{"phase":"Pending"}}`), pod(history.Added, "b", `{}`), ep(history.Added),
		pod(history.Modified, "a", `{"spec":{"nodeName":"n"},"status":{"phase":"Running"}}`),
		pod(history.Modified, "a", `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"nodeName":"n"},"status":{"phase":"Running"}}`),
		pod(history.Deleted, "a", `{"spec":{"nodeName":"n"},"status":{"phase":"Running"}}`), ep(history.Deleted),
	})
	want := map[string]int{
		"created, bound, running, terminating, gone; endpoints 1 made, 1 deleted": 1,
		"created; endpoints 0 made, 0 deleted":                                    1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
