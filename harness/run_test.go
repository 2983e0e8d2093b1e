package harness_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/scenarios"
)

// settleBudget is short: these cleaners never release anything.
const settleBudget = 3 * time.Second

// config starts a real control plane and returns a run on it of one iteration.
func config(t *testing.T, argv ...string) harness.Config {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real control plane, which -short forbids")
	}
	scenario, err := scenarios.Get("node-shutdown")
	if err != nil {
		t.Fatal(err)
	}
	scenario.Budgets.Settle.Duration = settleBudget
	out := t.TempDir()
	path := filepath.Join(out, "history.jsonl")
	records, err := history.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { records.Close() })
	runID := strings.ReplaceAll(t.Name(), "/", "-")
	cluster, err := controlplane.Start(t.Context(), controlplane.Options{RunID: runID, Group: danm.GroupDanmIO, Seed: 1, Recorder: records, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return harness.Config{
		Scenario: scenario, Cluster: cluster, Seed: 1, Iterations: 1, Lanes: 1, RunID: runID,
		Out: out, History: records, HistoryPath: path,
		Cleaner: clusters.CleanerSpec{Argv: argv}, CleanerName: "exec:" + strings.Join(argv, " "),
	}
}

// TestACleanerThatDoesNothingIsInvalid: leaks are found by convergence, and
// schedule and history are there to show them.
func TestACleanerThatDoesNothingIsInvalid(t *testing.T) {
	t.Parallel()
	c := config(t, "sleep", "1000000")
	result, err := harness.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if result.Verdict != check.Invalid || !slices.ContainsFunc(result.Violations, func(v check.Violation) bool {
		return v.Invariant == check.Convergence && v.Endpoint != "" && v.Address != ""
	}) {
		t.Errorf("verdict %s, violations %+v", result.Verdict, result.Violations)
	}
	if len(result.Iterations) != 1 || result.Iterations[0].Moved == 0 || result.Iterations[0].Verdict != check.Invalid {
		t.Errorf("iterations %+v", result.Iterations)
	}
	if result.FaultsFired["fail-node"] != 1 || result.FaultsFired["force-delete"] != result.FaultsPlanned["force-delete"] {
		t.Errorf("planned %v, fired %v", result.FaultsPlanned, result.FaultsFired)
	}
	if _, err := os.Stat(filepath.Join(c.Out, harness.ScheduleFile)); err != nil {
		t.Error(err)
	}
	if !strings.HasSuffix(result.Reproduce, "--seed 1 --lanes 1 --iterations 1") {
		t.Errorf("reproduce: %s", result.Reproduce)
	}
}

func TestACleanerThatEndsStopsTheRun(t *testing.T) {
	t.Parallel()
	result, err := harness.Run(t.Context(), config(t, "sh", "-c", "echo what went wrong; exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	if result.Verdict == check.Valid || len(result.Iterations) > 0 {
		t.Errorf("verdict %s after %d iterations", result.Verdict, len(result.Iterations))
	}
	if !slices.Contains(result.CleanerLogTail, "what went wrong") {
		t.Errorf("log tail %q", result.CleanerLogTail)
	}
}

// interrupter cancels a run when a lane waits for the pods of a failed node.
type interrupter struct {
	cancel context.CancelFunc
	once   sync.Once
}

func (i *interrupter) LanePhase(_, phase string) {
	if phase == "await-terminating" {
		i.once.Do(i.cancel)
	}
}
func (*interrupter) IterationDone(harness.Iteration, int, int) {}
func (*interrupter) RunPhase(string)                           {}

func TestAnInterruptedRunIsJudgedButNeverValid(t *testing.T) {
	t.Parallel()
	c := config(t, "sleep", "1000000")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.Observer = &interrupter{cancel: cancel}
	result, err := harness.Run(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if !result.Interrupted || result.Verdict == check.Valid {
		t.Errorf("interrupted %v, verdict %s", result.Interrupted, result.Verdict)
	}
	records, err := history.Read(c.HistoryPath)
	if err != nil || len(records) == 0 {
		t.Errorf("%d records, %v", len(records), err)
	}
}
