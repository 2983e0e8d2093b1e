package controlplane

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// startBound is what the issue allows a start to take.
const startBound = 10 * time.Second

// memoryRecorder keeps what it is given.
type memoryRecorder struct {
	mu      sync.Mutex
	records []history.Record
}

func (r *memoryRecorder) Record(rec history.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, rec)
}

func (r *memoryRecorder) audits() (audits []history.Audit, gaps []history.Gap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range r.records {
		if rec.Audit != nil {
			audits = append(audits, *rec.Audit)
		}
		if rec.Gap != nil {
			gaps = append(gaps, *rec.Gap)
		}
	}
	return audits, gaps
}

func needPrograms(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real Kubernetes programs")
	}
	_, missing, err := findPrograms(t.Context())
	if err != nil || len(missing) > 0 {
		t.Skipf("the Kubernetes programs are not built yet: set %s, or run `make chaos` once (%v)", binDirVariable, err)
	}
}

// isolate keeps journals and temporary folders of a test apart from real ones.
// The programs must be found first: the cache folder moves away.
func isolate(t *testing.T) (temp string) {
	t.Helper()
	found, _, err := findPrograms(t.Context())
	if err == nil && len(found) > 0 {
		t.Setenv(binDirVariable, linkTogether(t, found))
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	temp = t.TempDir()
	t.Setenv("TMPDIR", temp)
	return temp
}

func linkTogether(t *testing.T, found programs) string {
	t.Helper()
	dir := t.TempDir()
	for name, path := range found {
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func startCluster(t *testing.T, recorder history.Recorder) *Cluster {
	t.Helper()
	c, err := Start(t.Context(), Options{RunID: "test", Group: danm.GroupDanmIO, Recorder: recorder, Progress: t.Output(), KeepLogs: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

func clientOf(t *testing.T, c *Cluster, user string) *danm.Client {
	t.Helper()
	config, err := c.RESTConfig(user)
	if err != nil {
		t.Fatal(err)
	}
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return danm.NewClient(d, danm.GroupDanmIO)
}

func TestARealClusterIsReadyInTimeAndNamesEveryWriter(t *testing.T) {
	needPrograms(t)
	temp := isolate(t)
	recorder := &memoryRecorder{}
	began := time.Now()
	c := startCluster(t, recorder)
	if took := time.Since(began); took > startBound {
		t.Errorf("ready after %s, bound is %s", took, startBound)
	}
	logMemory(t, c)

	want := writeAsThreeUsers(t, c)
	if err := c.DrainAudit(t.Context()); err != nil {
		t.Fatal(err)
	}
	audits, gaps := recorder.audits()
	if len(gaps) > 0 {
		t.Errorf("gaps: %v", gaps)
	}
	var got []string
	for _, a := range audits {
		got = append(got, describeAudit(a))
		if a.Begin.IsZero() || a.End.Before(a.Begin) {
			t.Errorf("times of %s: %s to %s", describeAudit(a), a.Begin, a.End)
		}
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("audit records:\n%s\nwant:\n%s", g, w)
	}
	checkCloseLeavesNothing(t, c, temp)
}

func logMemory(t *testing.T, c *Cluster) {
	t.Helper()
	for _, p := range c.running {
		stat, err := readStat(p.PID)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d MiB resident", p.name, stat.rssPages*int64(os.Getpagesize())>>20)
	}
	total, err := c.ResidentBytes()
	if err != nil || total < 100<<20 {
		t.Errorf("all together %d bytes, error %v", total, err)
	}
}

func describeAudit(a history.Audit) string {
	return fmt.Sprintf("%s %s %s/%s/%s uid=%s rv=%d code=%d dryRun=%v", a.User, a.Verb, a.Resource, a.Namespace, a.Name, a.UID, a.RV, a.Code, a.DryRun)
}

// writeAsThreeUsers creates, patches and deletes, and returns what the audit
// must say about it.
func writeAsThreeUsers(t *testing.T, c *Cluster) (want []string) {
	t.Helper()
	ctx := t.Context()
	expect := func(user, verb, resource string, u *unstructured.Unstructured, rv string, code int, dryRun bool) {
		n, err := strconv.ParseUint(rv, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, describeAudit(history.Audit{User: user, Verb: verb, Resource: resource, Namespace: u.GetNamespace(),
			Name: u.GetName(), UID: string(u.GetUID()), RV: n, Code: code, DryRun: dryRun}))
	}
	harness, node, cleaner := clientOf(t, c, clusters.UserHarness), clientOf(t, c, "system:node:n1"), clientOf(t, c, clusters.UserCleaner)

	network := &unstructured.Unstructured{}
	mustUnmarshal(t, network, `{"apiVersion":"danm.io/v1","kind":"DanmNet","metadata":{"name":"net","namespace":"default"},
		"spec":{"NetworkID":"net","NetworkType":"ipvlan","Options":{"cidr":"10.0.0.0/24","alloc":"gAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE="}}}`)
	network, err := harness.Networks(danm.DanmNet, "default").Create(ctx, network, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expect(clusters.UserHarness, "create", "danmnets", network, network.GetResourceVersion(), 201, false)

	ep := &unstructured.Unstructured{}
	mustUnmarshal(t, ep, `{"apiVersion":"danm.io/v1","kind":"DanmEp","metadata":{"name":"ep","namespace":"default"},
		"spec":{"NetworkName":"net","NetworkType":"ipvlan","EndpointID":"ep","Pod":"p","PodUID":"u","Interface":{"Name":"eth0","Address":"10.0.0.1/24"}}}`)
	ep, err = node.Endpoints("default").Create(ctx, ep, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expect("system:node:n1", "create", "danmeps", ep, ep.GetResourceVersion(), 201, false)

	options := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	if err := cleaner.Endpoints("default").Delete(ctx, "ep", options); err != nil {
		t.Fatal(err)
	}
	expect(clusters.UserCleaner, "delete", "danmeps", ep, "0", 200, true)
	if err := cleaner.Endpoints("default").Delete(ctx, "ep", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(clusters.UserCleaner, "delete", "danmeps", ep, "0", 200, false)

	patch := []byte(`{"spec":{"Options":{"alloc":"wAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE="}}}`)
	network, err = cleaner.Networks(danm.DanmNet, "default").Patch(ctx, "net", types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expect(clusters.UserCleaner, "patch", "danmnets", network, network.GetResourceVersion(), 200, false)
	return want
}

func mustUnmarshal(t *testing.T, u *unstructured.Unstructured, text string) {
	t.Helper()
	if err := u.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func checkCloseLeavesNothing(t *testing.T, c *Cluster, temp string) {
	t.Helper()
	var ids []identity
	for _, p := range c.running {
		ids = append(ids, p.identity)
	}
	if len(ids) != 4 {
		t.Errorf("%d programs, want 4", len(ids))
	}
	began := time.Now()
	if err := c.Close(context.Background()); err != nil {
		t.Error(err)
	}
	t.Logf("closed in %s", time.Since(began))
	for _, id := range ids {
		if id.isAlive() {
			t.Errorf("process %d still runs", id.PID)
		}
	}
	checkEmpty(t, temp)
	checkNoJournal(t)
}

func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s is left in the folder for temporary files", e.Name())
	}
}

func checkNoJournal(t *testing.T) {
	t.Helper()
	runs, err := runsFolder()
	if err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(runs, "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("journals left: %v, error %v", left, err)
	}
}

func TestANodeBecomesReadyFailsAndReturns(t *testing.T) {
	needPrograms(t)
	isolate(t)
	c := startCluster(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	config, err := c.RESTConfig(clusters.UserHarness)
	if err != nil {
		t.Fatal(err)
	}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	waitNode := func(want string) {
		t.Helper()
		began := time.Now()
		err := poll(ctx, func(ctx context.Context) (bool, error) {
			n, err := core.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			for _, condition := range n.Status.Conditions {
				if condition.Type == "Ready" {
					return string(condition.Status) == want, nil
				}
			}
			return false, nil
		})
		if err != nil {
			t.Fatalf("waiting for Ready to be %s: %v", want, err)
		}
		t.Logf("Ready became %s after %s", want, time.Since(began))
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// A second node keeps the controller from taking the failure for its own.
	must(c.AddNode(ctx, clusters.Node{Name: "n0"}))
	must(c.AddNode(ctx, clusters.Node{Name: "n1", Labels: map[string]string{"lane": "1"}}))
	if err := c.AddNode(ctx, clusters.Node{Name: "n1"}); err == nil {
		t.Error("a node was added twice")
	}
	waitNode("True")
	must(c.FailNode(ctx, "n1"))
	waitNode("Unknown")
	must(c.RestoreNode(ctx, "n1"))
	waitNode("True")
	must(c.RemoveNode(ctx, "n1"))
	if err := c.FailNode(ctx, "n1"); err == nil {
		t.Error("a removed node could be failed")
	}
}

func TestACleanerRunsAndEnds(t *testing.T) {
	needPrograms(t)
	isolate(t)
	c := startCluster(t, nil)
	wait := func(p clusters.CleanerProcess) {
		t.Helper()
		select {
		case <-p.Exited():
		case <-time.After(10 * time.Second):
			t.Fatal("the cleaner did not end")
		}
	}
	var out strings.Builder
	p, err := c.StartCleaner(t.Context(), clusters.CleanerSpec{Argv: []string{"sh", "-c", "stat -c %a {{kubeconfig}}; echo problem >&2; exit 3"}, Logs: &out})
	if err != nil {
		t.Fatal(err)
	}
	wait(p)
	if want := "600\nproblem\n"; out.String() != want || p.ExitError() == nil || !strings.Contains(p.ExitError().Error(), "3") {
		t.Errorf("output %q, end %v", out.String(), p.ExitError())
	}

	// The shell waits for a grandchild, so that both have to be ended.
	p, err = c.StartCleaner(t.Context(), clusters.CleanerSpec{Argv: []string{"sh", "-c", "trap '' TERM; sleep 1000"}})
	if err != nil {
		t.Fatal(err)
	}
	if p.ExitError() != nil {
		t.Errorf("it runs, but ended with %v", p.ExitError())
	}
	if err := p.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	wait(p)
	if err := p.Stop(t.Context()); err != nil {
		t.Errorf("stopping what was killed: %v", err)
	}
	_, err = c.StartCleaner(t.Context(), clusters.CleanerSpec{Argv: []string{"/no/such/cleaner"}})
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "/no/such/cleaner") {
		t.Errorf("a missing program: %v", err)
	}
}

func TestAFailedStartSaysWhyAndLeavesNothing(t *testing.T) {
	needPrograms(t)
	temp := isolate(t)
	broken := t.TempDir()
	for _, set := range toolSets() {
		for _, program := range set.programs {
			target := filepath.Join(os.Getenv(binDirVariable), program.name)
			if program.name == schedulerProgram {
				target = filepath.Join(t.TempDir(), "broken")
				if err := os.WriteFile(target, []byte("#!/bin/sh\necho no scheduling today\nexit 4\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(target, filepath.Join(broken, program.name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv(binDirVariable, broken)
	_, err := Start(t.Context(), Options{RunID: "broken", Group: danm.GroupDanmIO})
	if err == nil || !strings.Contains(err.Error(), "no scheduling today") || !strings.Contains(err.Error(), "exit status 4") {
		t.Errorf("error: %v", err)
	}
	checkEmpty(t, temp)
	checkNoJournal(t)
}

func TestACancelledStartLeavesNothing(t *testing.T) {
	needPrograms(t)
	temp := isolate(t)
	ctx, cancel := context.WithCancel(t.Context())
	var once sync.Once
	// The first program that runs is the moment to give up.
	stopWatching := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		_ = poll(t.Context(), func(context.Context) (bool, error) {
			logs, _ := filepath.Glob(filepath.Join(temp, "*", apiserverProgram+".log"))
			if len(logs) > 0 {
				once.Do(cancel)
			}
			select {
			case <-stopWatching:
				return true, nil
			default:
				return len(logs) > 0, nil
			}
		})
	})
	_, err := Start(ctx, Options{RunID: "cancelled", Group: danm.GroupDanmIO})
	close(stopWatching)
	watching.Wait()
	cancel()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error: %v", err)
	}
	checkEmpty(t, temp)
	checkNoJournal(t)
}

// ownerVariable makes the test binary start a cluster and wait to be killed.
const ownerVariable = "CONTROLPLANE_TEST_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(ownerVariable) != "" {
		os.Exit(ownCluster())
	}
	os.Exit(m.Run())
}

func ownCluster() int {
	c, err := Start(context.Background(), Options{RunID: "killed", Group: danm.GroupDanmIO})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, err = c.StartCleaner(context.Background(), clusters.CleanerSpec{Argv: []string{"sh", "-c", "sleep 1000 & sleep 1000"}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("ready")
	select {}
}

func TestWhenTheOwnerIsKilledItsChildrenDieAndCleanRemovesTheRest(t *testing.T) {
	needPrograms(t)
	temp := isolate(t)
	owner := startOwner(t)
	runs, err := runsFolder()
	if err != nil {
		t.Fatal(err)
	}
	data, err := readJournal(filepath.Join(runs, "killed.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(data.Processes) != 5 {
		t.Fatalf("the journal has %d processes, want 4 programs and the cleaner: %v", len(data.Processes), data.Processes)
	}
	if err := Clean(t.Context(), "killed", t.Output()); err == nil {
		t.Error("a run that still goes was cleaned")
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // says that it was killed
	var ids []identity
	for _, p := range data.Processes {
		ids = append(ids, p.identity)
	}
	if err := waitUntilDead(t.Context(), ids); err != nil {
		t.Error(err)
	}
	if err := Clean(t.Context(), "", t.Output()); err != nil {
		t.Error(err)
	}
	all, err := listProcesses()
	if err != nil {
		t.Fatal(err)
	}
	for _, stat := range all {
		if hasEnvironment(stat.PID, runVariable+"=killed") {
			t.Errorf("process %d is left", stat.PID)
			_ = syscall.Kill(stat.PID, syscall.SIGKILL)
		}
	}
	checkEmpty(t, temp)
	checkNoJournal(t)
}

// startOwner returns when the cluster of the other program is ready.
func startOwner(t *testing.T) *exec.Cmd {
	t.Helper()
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerVariable+"=1")
	owner.Stderr = t.Output()
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = owner.Process.Kill() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the owner said %q, %v", line, err)
	}
	return owner
}

func TestSettingsAreValidJSON(t *testing.T) {
	files := layout{folder: t.TempDir(), logs: t.TempDir()}
	if err := writeSettings(files); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{files.auditPolicy(), files.schedulerConfig()} {
		data, err := os.ReadFile(path)
		if err != nil || !json.Valid(data) {
			t.Errorf("%s: %s %v", path, data, err)
		}
	}
}
