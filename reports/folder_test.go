package reports

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
)

// written is the incident as a whole run directory.
func written(t *testing.T) string {
	t.Helper()
	dir, r := incidentDir(t, "ss-0")
	if err := Write(dir, r); err != nil {
		t.Fatal(err)
	}
	return dir
}

// damage changes a file of a run directory.
func damage(t *testing.T, dir, name string, change func([]byte) []byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func half(data []byte) []byte { return data[:len(data)/2] }

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func TestABrokenDirectoryIsShownAsFarAsItCanBeRead(t *testing.T) {
	secondLine := func(data []byte) []byte {
		lines := strings.SplitAfter(string(data), "\n")
		lines[20] = "{]\n"
		return []byte(strings.Join(lines, ""))
	}
	tests := []struct {
		name    string
		damage  func(*testing.T, string)
		problem string // a part of the first
		records bool
	}{
		{"whole", func(*testing.T, string) {}, "", true},
		{"no result, as a killed run leaves it", func(t *testing.T, dir string) { remove(t, dir, RunFile) }, "run.json: no such file", true},
		{"half a result", func(t *testing.T, dir string) { damage(t, dir, RunFile, half) }, "run.json: unexpected end of JSON input", true},
		{"a result of a later version", func(t *testing.T, dir string) {
			damage(t, dir, RunFile, func([]byte) []byte { return []byte(`{"schemaVersion": 99}`) })
		}, "schemaVersion 99, this program reads 1 to 2", true},
		{"a result that is something else", func(t *testing.T, dir string) {
			damage(t, dir, RunFile, func([]byte) []byte { return []byte(`[1, 2]`) })
		}, "cannot unmarshal array", true},
		{"no history", func(t *testing.T, dir string) { remove(t, dir, HistoryFile) }, "history.jsonl: no such file", false},
		{"an empty history", func(t *testing.T, dir string) { damage(t, dir, HistoryFile, func([]byte) []byte { return nil }) }, "", false},
		{"half a history", func(t *testing.T, dir string) { damage(t, dir, HistoryFile, half) }, "the last line is cut off", true},
		{"a bad line in the history", func(t *testing.T, dir string) { damage(t, dir, HistoryFile, secondLine) }, "history.jsonl:21: ", true},
		{"half of both", func(t *testing.T, dir string) { damage(t, dir, HistoryFile, half); damage(t, dir, RunFile, half) }, "run.json: unexpected end", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := written(t)
			tt.damage(t, dir)
			run, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			if tt.problem == "" && len(run.Problems) > 0 || tt.problem != "" && (len(run.Problems) == 0 || !strings.Contains(run.Problems[0], tt.problem)) {
				t.Errorf("problems %q, want one with %q", run.Problems, tt.problem)
			}
			if (len(run.Records) > 0) != tt.records {
				t.Errorf("%d records were read", len(run.Records))
			}
			if err := run.Write(dir, Formats()); err != nil {
				t.Fatal(err)
			}
			page, err := os.ReadFile(filepath.Join(dir, PageFile))
			if err != nil {
				t.Fatal(err)
			}
			if tt.problem != "" && !strings.Contains(string(page), "This report is not complete") {
				t.Error("the page does not say that it is not complete")
			}
		})
	}
}

func TestADirectoryWithNothingIsAnError(t *testing.T) {
	if _, err := Open(t.TempDir()); err == nil {
		t.Error("an empty directory is a run")
	}
}

func TestAResultThatCannotBeReadIsNotOverwritten(t *testing.T) {
	dir := written(t)
	later := []byte(`{"schemaVersion": 99}`)
	damage(t, dir, RunFile, func([]byte) []byte { return later })
	run, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Write(dir, Formats()); err != nil {
		t.Fatal(err)
	}
	damage(t, dir, RunFile, func(now []byte) []byte {
		if string(now) != string(later) {
			t.Errorf("it is now %s", now)
		}
		return now
	})
}

func TestAKilledRunIsRebuiltFromItsHistory(t *testing.T) {
	dir := written(t)
	remove(t, dir, RunFile)
	run, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if run.RunID != "20260102-030405-2a" || run.Scenario != "node-shutdown" || run.Seed != 42 || run.Verdict != check.Unknown || run.FaultsFired["fail-node"] != 1 {
		t.Errorf("rebuilt %+v", run.Result)
	}
	if len(run.Iterations) != 1 || run.Iterations[0].Pods != 2 || run.Iterations[0].Endpoints != 1 || run.Iterations[0].Network != "DanmNet v4" {
		t.Errorf("iterations %+v", run.Iterations)
	}
}

// TestARunOfThePreviousSchemaIsRendered: version 1 had no measured.
func TestARunOfThePreviousSchemaIsRendered(t *testing.T) {
	dir := written(t)
	toVersion1 := func(data []byte) []byte {
		var all map[string]any
		if err := json.Unmarshal(data, &all); err != nil {
			t.Fatal(err)
		}
		delete(all, "measured")
		all["schemaVersion"] = 1
		out, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	damage(t, dir, RunFile, toVersion1)
	run, err := Open(dir)
	if err != nil || len(run.Problems) > 0 {
		t.Fatalf("%v, %q", err, run.Problems)
	}
	if run.Measured == nil || len(run.Measured.Releases) != 1 {
		t.Errorf("measured is %+v, want what the history tells", run.Measured)
	}
	if err := run.Write(dir, Formats()); err != nil {
		t.Fatal(err)
	}
	back, err := Read(dir)
	if err != nil || back.SchemaVersion != harness.ResultSchemaVersion || back.Measured == nil {
		t.Errorf("%v: version %d, measured %+v", err, back.SchemaVersion, back.Measured)
	}
}

func TestARunOfThePreviousSchemaWithoutHistorySaysWhatIsMissing(t *testing.T) {
	dir := written(t)
	damage(t, dir, RunFile, func([]byte) []byte { return []byte(`{"schemaVersion": 1, "runId": "old", "verdict": "Valid"}`) })
	remove(t, dir, HistoryFile)
	run, err := Open(dir)
	if err != nil || len(run.Problems) != 1 || !strings.Contains(run.Problems[0], HistoryFile) {
		t.Fatalf("%v, %q", err, run.Problems)
	}
	if err := run.Write(dir, Formats()); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyTheFormatsAskedForAreWritten(t *testing.T) {
	dir, r := incidentDir(t, "ss-0")
	if err := Load(dir, r).Write(dir, []Format{HTML, Markdown}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{PageFile: true, MarkdownFile: true, RunFile: false, VerdictsFile: false, JUnitFile: false, MetricsFile: false} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFormatsAreParsed(t *testing.T) {
	for list, want := range map[string]int{"all": 5, "": 5, "json": 1, "html, junit": 2} {
		if got, err := ParseFormats(list); err != nil || len(got) != want {
			t.Errorf("%q: %v, %v", list, got, err)
		}
	}
	if _, err := ParseFormats("html,pdf"); err == nil || !strings.Contains(err.Error(), `unknown format "pdf"`) {
		t.Errorf("got %v", err)
	}
}
