package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/reports"
)

// finished is a run that was Valid.
func finished(id string) harness.Result {
	return harness.Result{
		RunID: id, Scenario: "node-shutdown", Cluster: "controlplane", Cleaner: "fixed", Verdict: check.Valid, Planned: 1,
		Iterations: []harness.Iteration{{Number: 1, Verdict: check.Valid}}, Checked: map[check.Invariant]int{check.LiveAttachment: 3},
	}
}

func TestAReportOfABrokenDirectoryIsExit2(t *testing.T) {
	for name, breakIt := range map[string]func(dir string) error{
		"no result": func(dir string) error { return os.Remove(filepath.Join(dir, reports.RunFile)) },
		"half a result": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, reports.RunFile), []byte(`{"schemaVer`), 0o644)
		},
		"no history": func(dir string) error { return os.Remove(filepath.Join(dir, historyFile)) },
		"a broken history": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, historyFile), []byte("{]\n{}\n"), 0o644)
		},
		"half a history": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, historyFile), []byte(`{"n":1,"ti`), 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := storedRun(t, finished("a"))
			if name == "no result" { // an empty history alone is nothing
				if err := os.WriteFile(filepath.Join(dir, historyFile), []byte(`{"n":1,"time":"2026-01-02T03:04:05Z","gap":{"source":"a","reason":"b"}}`+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := breakIt(dir); err != nil {
				t.Fatal(err)
			}
			_, first, _ := execute(t, "", "report", dir)
			code, stdout, stderr := execute(t, "", "report", dir)
			if first != stdout {
				t.Errorf("the second time it says %s\nthe first time %s", stdout, first)
			}
			if code != exitUnknown || !strings.Contains(stderr, "is not whole") || !strings.Contains(stdout, "verdict: Unknown") {
				t.Errorf("exit code %d\nstderr: %s\nstdout: %s", code, stderr, stdout)
			}
			if _, err := os.Stat(filepath.Join(dir, reports.PageFile)); err != nil {
				t.Errorf("there is no page: %v", err)
			}
		})
	}
}

// folderOf stores runs as a run would, below one folder.
func folderOf(t *testing.T, results ...harness.Result) string {
	t.Helper()
	out := t.TempDir()
	for _, r := range results {
		dir := filepath.Join(out, r.RunID)
		if err := os.Rename(storedRun(t, r), dir); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestAReportOfAFolderIsTheIndex(t *testing.T) {
	out := folderOf(t, finished("a"), finished("b"))
	code, stdout, stderr := execute(t, "", "report", out)
	if want := filepath.Join(out, reports.IndexFile) + ": 2 runs\n"; code != exitValid || stdout != want {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	page, err := os.ReadFile(filepath.Join(out, reports.IndexFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`href="a/report.html"`, `href="b/report.html"`} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the index has no %s", want)
		}
	}
}

func TestAnIndexWithABrokenRunIsExit2(t *testing.T) {
	out := folderOf(t, finished("a"), finished("b"))
	if err := os.WriteFile(filepath.Join(out, "b", reports.RunFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := execute(t, "", "report", out); code != exitUnknown || !strings.Contains(stderr, "not every run could be read") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

func TestCompareEndsAsItComesOut(t *testing.T) {
	broken := finished("c")
	broken.Verdict, broken.Violations = check.Invalid, []check.Violation{{Invariant: check.SingleHolder, Message: "two pods on one address"}}
	less := finished("d")
	less.Checked = map[check.Invariant]int{check.Convergence: 1}
	base := folderOf(t, finished("a"))
	tests := []struct {
		name string
		new  harness.Result
		code int
		want string
	}{
		{"the same", finished("b"), exitValid, "danm-chaos compare: no regression"},
		{"a new violation", broken, exitInvalid, "**new**: I2 SingleHolder"},
		{"less tried", less, exitUnknown, "**no longer exercised**: I1 LiveAttachment"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			folder := folderOf(t, tt.new)
			for _, side := range []string{folder, filepath.Join(folder, tt.new.RunID), filepath.Join(folder, tt.new.RunID, reports.RunFile)} {
				written := t.TempDir()
				code, stdout, stderr := execute(t, "", "compare", base, side, "--out", written)
				if code != tt.code || !strings.Contains(stdout, tt.want) || stderr != "" {
					t.Errorf("exit code %d, want %d\nstdout: %s\nstderr: %s", code, tt.code, stdout, stderr)
				}
				for _, file := range []string{reports.CompareJSON, reports.ComparePage, reports.CompareJUnit, reports.CompareMarkdown} {
					if _, err := os.Stat(filepath.Join(written, file)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}
