package reports

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares with a file in testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func iteration(n int, v check.Verdict) harness.Iteration {
	return harness.Iteration{
		Number: n, Lane: "lane-3", Network: "DanmNet v4", Faults: []string{"fail-node lane-3-g1-node-1"}, Moved: 2,
		Pods: 5, Endpoints: 5, Bits: 5, Expected: 5, Verdict: v,
		Detected: 4700 * time.Millisecond, Recreated: 900 * time.Millisecond, Settled: 2500 * time.Millisecond, Took: 8100 * time.Millisecond,
	}
}

func validResult() harness.Result {
	return harness.Result{
		SchemaVersion: harness.ResultSchemaVersion, RunID: "20260102-030405-2a", Scenario: "node-shutdown", Cluster: "controlplane",
		Cleaner: "fixed", Group: "danm.io", CNI: "danm-4.3", Seed: 42, Commit: "abc123",
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), DurationSeconds: 16.2, Planned: 2,
		Iterations: []harness.Iteration{iteration(1, check.Valid), iteration(2, check.Valid)},
		Verdict:    check.Valid, Checked: map[check.Invariant]int{check.LiveAttachment: 812, check.Convergence: 2},
		FaultsPlanned: map[string]int{"fail-node": 2}, FaultsFired: map[string]int{"fail-node": 2},
		PeakBytes: 1 << 30, Reproduce: "danm-chaos run node-shutdown --cluster controlplane --cleaner fixed --seed 42 --iterations 2",
	}
}

func reportedViolation() check.Violation {
	return check.Violation{
		Invariant: check.LiveAttachment, Blame: check.BlameCleaner,
		Message: "danm-cleaner cleared the bit of 10.10.10.15, which ss-cinfo-0 holds",
		Lane:    "lane-3", Iteration: 2, Pod: "lane-3/ss-cinfo-0", PodUID: "6f1c", Endpoint: "lane-3/ep-77", Network: "DanmNet lane-3/test-net1",
		Address: "10.10.10.15", Writer: "danm-cleaner", RV: 4711, Step: "iteration 2 step 3 force-delete lane-3/ss-cinfo-0", Record: 812,
		Evidence: []string{"attached at record 790", `alloc "gDwA" before, <"gDgA"> after`},
	}
}

func invalidResult() harness.Result {
	r := validResult()
	r.Cleaner, r.Verdict = "canary:by-name", check.Invalid
	r.Iterations[1].Verdict, r.Iterations[1].Endpoints, r.Iterations[1].Bits = check.Invalid, 4, 4
	r.Iterations[1].Note = "ss-cinfo-0 has no endpoint"
	r.Violations = []check.Violation{reportedViolation()}
	r.Findings = []check.Violation{{Invariant: check.SingleHolder, Blame: check.BlameCNI, Message: "two pods hold 10.10.10.11"}}
	r.Reproduce = "danm-chaos run node-shutdown --cluster controlplane --cleaner canary:by-name --seed 42 --iterations 2"
	return r
}

func unknownResult() harness.Result {
	r := validResult()
	r.Cleaner, r.Verdict, r.Interrupted = "exec:/bin/false", check.Unknown, true
	r.Iterations = r.Iterations[:1]
	r.FaultsFired = map[string]int{"fail-node": 1}
	r.Unknowns = []string{"the cleaner exited with code 1 after 0.2s", "1 of 2 planned fail-node fired"}
	r.CleanerLogTail = []string{"panic: no config"}
	return r
}

func TestSummary(t *testing.T) {
	for name, r := range map[string]harness.Result{"valid": validResult(), "invalid": invalidResult(), "unknown": unknownResult()} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := Summary(&b, r); err != nil {
				t.Fatal(err)
			}
			golden(t, "summary_"+name+".txt", b.Bytes())
		})
	}
}

func TestSummaryEndsWithTheCommandUnlessValid(t *testing.T) {
	for want, r := range map[string]harness.Result{
		"verdict: Valid": validResult(),
		"reproduce: " + invalidResult().Reproduce: invalidResult(),
		"reproduce: again":                        {Reproduce: "again"},
	} {
		var b bytes.Buffer
		if err := Summary(&b, r); err != nil {
			t.Fatal(err)
		}
		all := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		if got := all[len(all)-1]; got != want {
			t.Errorf("last line %q, want %q", got, want)
		}
	}
}

func TestSummaryShowsTheFirstViolationsAndCountsTheRest(t *testing.T) {
	r := invalidResult()
	for range 11 {
		r.Violations = append(r.Violations, reportedViolation())
	}
	var b bytes.Buffer
	if err := Summary(&b, r); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(b.String(), reportedViolation().Message); got != violationsShown {
		t.Errorf("%d shown, want %d", got, violationsShown)
	}
	if !strings.Contains(b.String(), "violations: 12") || !strings.Contains(b.String(), "and 9 more in verdicts.json") {
		t.Errorf("the rest is not counted:\n%s", b.String())
	}
}

func TestJUnit(t *testing.T) {
	for name, r := range map[string]harness.Result{"valid": validResult(), "invalid": invalidResult(), "unknown": unknownResult()} {
		t.Run(name, func(t *testing.T) {
			got, err := junit(r)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "junit_"+name+".xml", got)
			var back junitSuites
			if err := xml.Unmarshal(got, &back); err != nil {
				t.Fatal(err)
			}
			if back.Tests != len(back.Suites[0].Cases) {
				t.Errorf("%d tests counted, %d there", back.Tests, len(back.Suites[0].Cases))
			}
		})
	}
}

// TestJUnitIsNeverGreenUnlessValid guards what CI looks at.
func TestJUnitIsNeverGreenUnlessValid(t *testing.T) {
	bare := validResult()
	bare.Verdict = ""
	interrupted := validResult()
	interrupted.Interrupted = true
	for name, r := range map[string]harness.Result{"invalid": invalidResult(), "unknown": unknownResult(), "no verdict": bare, "interrupted": interrupted} {
		got, err := junit(r)
		if err != nil {
			t.Fatal(err)
		}
		var back junitSuites
		if err := xml.Unmarshal(got, &back); err != nil {
			t.Fatal(err)
		}
		if back.Failures+back.Errors == 0 {
			t.Errorf("%s: neither failure nor error", name)
		}
	}
}

func TestWriteLeavesWholeFilesAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	for range 2 { // the second time over the first
		if err := Write(dir, validResult()); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{JUnitFile, MetricsFile, PageFile, MarkdownFile, RunFile, VerdictsFile}, names); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	back, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := withLists(validResult())
	if diff := cmp.Diff(want, back); diff != "" {
		t.Errorf("run.json (-written +read):\n%s", diff)
	}
}

func TestVerdictsHoldListsAndNeverNull(t *testing.T) {
	dir := t.TempDir()
	if err := Write(dir, harness.Result{Verdict: check.Unknown}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, VerdictsFile))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"violations", "findings", "unknowns"} {
		if _, ok := got[field].([]any); !ok {
			t.Errorf("%s is %v, want a list", field, got[field])
		}
	}
}

func TestReadRefusesAnotherSchema(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, RunFile), []byte(`{"schemaVersion":99}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "schemaVersion 99") {
		t.Errorf("got %v", err)
	}
}

func TestSummaryShowsAnOutageBeforeManyLeaks(t *testing.T) {
	r := harness.Result{Verdict: check.Invalid}
	for i := range 10 {
		r.Violations = append(r.Violations, check.Violation{Invariant: check.Convergence, Message: fmt.Sprintf("leak %d", i)})
	}
	r.Violations = append(r.Violations, check.Violation{Invariant: check.LiveAttachment, Message: "a living pod lost its address"})
	var out strings.Builder
	if err := Summary(&out, r); err != nil {
		t.Fatal(err)
	}
	outage, leak := strings.Index(out.String(), "a living pod lost its address"), strings.Index(out.String(), "leak 0")
	if outage < 0 || leak < outage {
		t.Errorf("the outage is at %d, the first leak at %d:\n%s", outage, leak, out.String())
	}
}
