package existing

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
)

// journalVersion is the version of the file format. Clean refuses others.
const journalVersion = 1

// journalData says how to reach a cluster in which a run may have left
// something. What it left is found there, by its label.
type journalData struct {
	Version int    `json:"version"`
	RunID   string `json:"runId"`
	// Owner is the program that runs. While it lives, nobody else undoes what it
	// did.
	Owner       controlplane.Process `json:"owner"`
	Kubeconfig  string               `json:"kubeconfig"`
	Context     string               `json:"context"`
	Server      string               `json:"server"`
	Group       danm.Group           `json:"group"`
	NodeDown    []string             `json:"nodeDown,omitempty"`
	NodeUp      []string             `json:"nodeUp,omitempty"`
	HookTimeout time.Duration        `json:"hookTimeoutNs"`
	NodeTimeout time.Duration        `json:"nodeTimeoutNs"`
	Expires     time.Time            `json:"expires"`
}

func newJournalData(o Options, server string, expires time.Time) (journalData, error) {
	owner, err := controlplane.ThisProcess()
	if err != nil {
		return journalData{}, err
	}
	path, err := filepath.Abs(o.Kubeconfig)
	return journalData{
		Version: journalVersion, RunID: o.RunID, Owner: owner, Kubeconfig: path, Context: o.Context, Server: server, Group: o.Group,
		NodeDown: o.NodeDown, NodeUp: o.NodeUp, HookTimeout: o.HookTimeout, NodeTimeout: o.NodeTimeout, Expires: expires,
	}, err
}

// options are those that undoing needs.
func (d journalData) options() Options {
	return Options{
		RunID: d.RunID, Kubeconfig: d.Kubeconfig, Context: d.Context, Group: d.Group,
		NodeDown: d.NodeDown, NodeUp: d.NodeUp, HookTimeout: d.HookTimeout, NodeTimeout: d.NodeTimeout,
	}.withDefaults()
}

// check refuses a journal that was not written by a run.
func (d journalData) check(path string) error {
	id := strings.TrimSuffix(filepath.Base(path), ".json")
	switch {
	case d.Version != journalVersion:
		return fmt.Errorf("reading run journal %s: format %d, known is %d", path, d.Version, journalVersion)
	case d.RunID != id || !controlplane.IsRunID(id):
		return fmt.Errorf("reading run journal %s: it is of run %q", path, d.RunID)
	}
	return nil
}

// runsFolder is where the journals are; those of other kinds of clusters are
// of another format and elsewhere.
func runsFolder() (string, error) {
	cache, err := controlplane.CacheFolder()
	return filepath.Join(cache, "existing-runs"), err
}

// writeJournal must be called before anything in the cluster is changed.
func writeJournal(data journalData) (path string, err error) {
	if !controlplane.IsRunID(data.RunID) {
		return "", fmt.Errorf("opening run journal: run ID %q is not of letters, digits, '.', '_' and '-'", data.RunID)
	}
	folder, err := runsFolder()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("opening run journal: %w", err)
	}
	text, err := json.MarshalIndent(data, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encoding run journal: %w", err)
	}
	path = filepath.Join(folder, data.RunID+".json")
	// O_EXCL keeps two runs with one ID apart.
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("opening run journal: a run %s is there already; clean it first if it is dead", data.RunID)
	}
	if err != nil {
		return "", fmt.Errorf("opening run journal: %w", err)
	}
	_, err = file.Write(append(text, '\n'))
	// A cluster that outlives this machine's power needs the journal to do so.
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
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

func removeJournal(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing run journal: %w", err)
	}
	return nil
}
