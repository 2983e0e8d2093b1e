package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
	"github.com/danm-chaos/danm-chaos/harness/search"
)

// tornWorker makes the test program a worker whose simulator is wrong.
const tornWorker = "DANM_CHAOS_TEST_TORN_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(tornWorker) == "" {
		os.Exit(m.Run())
	}
	if err := search.Work(os.Stdin, os.Stdout, playTorn); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// playTorn violates an invariant at seed 5, and plays seed 20 differently every
// time.
func playTorn(s schedule.Simulation, j search.Job) search.Played {
	p := search.Played{Digest: s.Seed, Verdict: check.Valid, Steps: 1, Trace: []string{"begin"}, Simulation: &s, Reached: map[string]int{"a failover": 1}}
	switch s.Seed {
	case 5:
		p.Verdict, p.Violations = check.Invalid, []check.Violation{{Invariant: check.LiveAttachment, Message: "ss-cinfo-0 lost its address"}}
	case 20:
		p.Digest = uint64(time.Now().UnixNano())
		p.Trace = append(p.Trace, fmt.Sprint(p.Digest))
	}
	return p
}

// tornPool is a pool of such workers.
func tornPool() search.Pool {
	return search.Pool{Workers: 1, Command: func(ctx context.Context) *exec.Cmd {
		c := exec.CommandContext(ctx, self())
		c.Env = append(os.Environ(), tornWorker+"=1")
		return c
	}}
}

func TestASearchThatEndsByADivergenceWritesDownWhatItMet(t *testing.T) {
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs}
	f := runFlags{
		cleaner: defaultCleaner, group: string(defaultGroup), cni: "careful", blame: string(check.BlameCleaner), seeds: "1-1000", keepGoing: true,
		releaseQuarantine: time.Second, orphanQuarantine: time.Second, out: t.TempDir(), reportFlags: reportFlags{format: "all"},
	}
	s, err := a.sweepOf(f, []string{"node-shutdown", "force-delete-loop"})
	if err != nil {
		t.Fatal(err)
	}
	s.Pool = tornPool()
	if code := a.exitCode(a.sweep(t.Context(), f, s)); code != exitHarnessBug {
		t.Errorf("exit code %d, want %d: %s", code, exitHarnessBug, &errs)
	}
	const again = "reproduce: danm-chaos stress force-delete-loop --cluster sim --cleaner fixed --seeds 20-20 --cni careful --repeat 200\n"
	if !strings.HasSuffix(out.String(), again) {
		t.Errorf("the last line is not %q:\n%s", again, &out)
	}
	for _, want := range []string{"1 Invalid", "seed 5: I1 LiveAttachment: ss-cinfo-0 lost its address", "sometimes"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &out)
		}
	}
	lookAtTornRun(t, filepath.Join(f.out, latestLink))
}

// lookAtTornRun reads what the search wrote.
func lookAtTornRun(t *testing.T, dir string) {
	t.Helper()
	if _, isSimulation, err := readSimulation(filepath.Join(dir, "failure-5.json")); err != nil || !isSimulation {
		t.Errorf("the failure: %v, %v", isSimulation, err)
	}
	var trouble search.Trouble
	readJSON(t, filepath.Join(dir, "divergence-20.json"), &trouble)
	if trouble.Kind != search.Diverged || trouble.Seed != 20 || trouble.Scenario != "force-delete-loop" || trouble.Step != 1 ||
		len(trouble.Once) != 2 || len(trouble.Again) != 2 || trouble.Simulation == nil {
		t.Errorf("the divergence: %+v", trouble)
	}
	var report check.Report
	readJSON(t, filepath.Join(dir, "verdicts.json"), &report)
	if report.Verdict != check.Invalid || len(report.Violations) != 1 || len(report.Unknowns) != 1 || !strings.Contains(report.Unknowns[0], "seed 20") {
		t.Errorf("verdicts: %+v", report)
	}
	var result harness.Result
	readJSON(t, filepath.Join(dir, "run.json"), &result)
	if result.Verdict != check.Invalid || !strings.Contains(result.Reproduce, "stress force-delete-loop") {
		t.Errorf("result: %s, %s", result.Verdict, result.Reproduce)
	}
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Error(err)
	}
}
