package kind

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
)

// journalVersion is the version of the file format. Clean refuses others.
const journalVersion = 1

// journalData says what a run may have left behind. Everything in it is known
// before the first thing is made, so it is written once.
type journalData struct {
	Version int    `json:"version"`
	RunID   string `json:"runId"`
	// Owner is the program that runs the cluster. While it lives, nobody else
	// touches what it made.
	Owner controlplane.Process `json:"owner"`
	// Cluster names the cluster and its network in the engine.
	Cluster string `json:"cluster"`
	// Folder holds the kubeconfig, the audit log and what is mounted.
	Folder string `json:"folder"`
}

func newJournalData(runID string) (journalData, error) {
	owner, err := controlplane.ThisProcess()
	return journalData{
		Version: journalVersion, RunID: runID, Owner: owner, Cluster: clusterName(runID),
		Folder: filepath.Join(os.TempDir(), folderName(runID)),
	}, err
}

func folderName(runID string) string { return "danm-chaos-kind-" + runID }

// check refuses a journal that would make Clean remove something else than
// what a run leaves.
func (d journalData) check(path string) error {
	id := strings.TrimSuffix(filepath.Base(path), ".json")
	switch {
	case d.Version != journalVersion:
		return fmt.Errorf("reading run journal %s: format %d, known is %d", path, d.Version, journalVersion)
	case d.RunID != id || !controlplane.IsRunID(id):
		return fmt.Errorf("reading run journal %s: it is of run %q", path, d.RunID)
	case filepath.Base(d.Folder) != folderName(id) || !filepath.IsAbs(d.Folder):
		return fmt.Errorf("reading run journal %s: %q is no folder of run %s", path, d.Folder, id)
	case d.Cluster != clusterName(id):
		return fmt.Errorf("reading run journal %s: %q is no cluster of run %s", path, d.Cluster, id)
	}
	return nil
}

// runsFolder is where the journals are; those of other kinds of clusters are
// of another format and elsewhere.
func runsFolder() (string, error) {
	cache, err := controlplane.CacheFolder()
	return filepath.Join(cache, "kind-runs"), err
}

func journalPath(runID string) (string, error) {
	folder, err := runsFolder()
	return filepath.Join(folder, runID+".json"), err
}

// writeJournal must be called before anything else of the run exists.
func writeJournal(data journalData) (path string, err error) {
	if !controlplane.IsRunID(data.RunID) {
		return "", fmt.Errorf("opening run journal: run ID %q is not of letters, digits, '.', '_' and '-'", data.RunID)
	}
	if path, err = journalPath(data.RunID); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("opening run journal: %w", err)
	}
	text, err := json.MarshalIndent(data, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encoding run journal: %w", err)
	}
	// O_EXCL keeps two runs with one ID apart.
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("opening run journal: a run %s is there already; clean it first if it is dead", data.RunID)
	}
	if err != nil {
		return "", fmt.Errorf("opening run journal: %w", err)
	}
	_, err = file.Write(append(text, '\n'))
	if err := errors.Join(err, file.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("writing run journal: %w", err), os.Remove(path))
	}
	return path, nil
}

func readJournal(path string) (journalData, error) {
	var data journalData
	text, err := os.ReadFile(path)
	if err != nil {
		return data, fmt.Errorf("reading run journal: %w", err)
	}
	if err := json.Unmarshal(text, &data); err != nil {
		return data, fmt.Errorf("reading run journal %s: %w", path, err)
	}
	return data, data.check(path)
}
