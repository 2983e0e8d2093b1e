package kind

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
)

// useCache gives the test journals of its own. The go command keeps its cache.
func useCache(t *testing.T) {
	t.Helper()
	if cache, err := os.UserCacheDir(); err == nil && os.Getenv("GOCACHE") == "" {
		t.Setenv("GOCACHE", filepath.Join(cache, "go-build"))
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
}

func TestJournalIsReadAsItWasWritten(t *testing.T) {
	useCache(t)
	data, err := newJournalData("run1")
	if err != nil {
		t.Fatal(err)
	}
	path, err := writeJournal(data)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(data, got); diff != "" {
		t.Error(diff)
	}
	if _, err := writeJournal(data); err == nil {
		t.Error("a second run has the same ID")
	}
}

func TestJournalRefusesAnIDThatIsAPath(t *testing.T) {
	useCache(t)
	for _, id := range []string{"", "../x", "a/b", "*"} {
		if path, err := writeJournal(journalData{RunID: id}); err == nil {
			t.Errorf("%q became %s", id, path)
		}
	}
}

func TestReadingRefusesAJournalOfSomethingElse(t *testing.T) {
	tests := []struct {
		name   string
		change func(*journalData)
	}{
		{"another format", func(d *journalData) { d.Version = 2 }},
		{"another run", func(d *journalData) { d.RunID = "run2" }},
		{"a folder that is no run's", func(d *journalData) { d.Folder = "/home" }},
		{"a folder that is not absolute", func(d *journalData) { d.Folder = folderName("run1") }},
		{"another cluster", func(d *journalData) { d.Cluster = "precious" }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			useCache(t)
			data, err := newJournalData("run1")
			if err != nil {
				t.Fatal(err)
			}
			test.change(&data)
			if data, err := readJournal(plant(t, "run1", data)); err == nil {
				t.Errorf("read %+v", data)
			}
		})
	}
}

func TestCleanLeavesARunThatStillGoes(t *testing.T) {
	useCache(t)
	data, err := newJournalData("run1") // of this very process
	if err != nil {
		t.Fatal(err)
	}
	path := plant(t, "run1", data)
	var said strings.Builder
	if err := Clean(t.Context(), "", &said); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(said.String(), "left alone") {
		t.Errorf("it said %q", said.String())
	}
	if err := Clean(t.Context(), "run1", &said); err == nil {
		t.Error("asked for by its ID it is no error")
	}
	if _, err := os.Stat(path); err != nil {
		t.Error("the journal is gone:", err)
	}
}

func TestCleanRemovesAnEmptyJournal(t *testing.T) {
	useCache(t)
	path, err := journalPath("run1")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	if err := Clean(t.Context(), "", &said); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}

func TestCleanRemovesWhatADeadRunLeft(t *testing.T) {
	needEngine(t)
	useCache(t)
	data, err := newJournalData("dead-run")
	if err != nil {
		t.Fatal(err)
	}
	data.Owner = controlplane.Process{PID: 1, BootID: "another boot"}
	path := plant(t, data.RunID, data)
	if err := os.MkdirAll(data.Folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := createNetwork(t.Context(), data); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	if err := Clean(t.Context(), "", &said); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{path, data.Folder} {
		if _, err := os.Stat(gone); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", gone, err)
		}
	}
	if !strings.Contains(said.String(), "removing network") {
		t.Errorf("it said %q", said.String())
	}
}

// plant writes a journal whatever it says.
func plant(t *testing.T, id string, data journalData) string {
	t.Helper()
	path, err := journalPath(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func journalPath(runID string) (string, error) {
	folder, err := runsFolder()
	return filepath.Join(folder, runID+".json"), err
}
