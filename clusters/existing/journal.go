package existing

import (
	"path/filepath"
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

// Head implements controlplane.Journal.
func (d journalData) Head() (string, controlplane.Process) { return d.RunID, d.Owner }

// check refuses a journal that was not written by a run.
func (d journalData) check(path string) error {
	return controlplane.CheckJournal(path, d.Version, journalVersion, d.RunID)
}

// runsFolder is where the journals are; those of other kinds of clusters are
// of another format and elsewhere.
func runsFolder() (string, error) {
	cache, err := controlplane.CacheFolder()
	return filepath.Join(cache, "existing-runs"), err
}

// writeJournal must be called before anything in the cluster is changed.
func writeJournal(data journalData) (path string, err error) {
	folder, err := runsFolder()
	if err != nil {
		return "", err
	}
	return controlplane.WriteJournal(folder, data.RunID, data)
}

func readJournal(path string) (journalData, error) {
	var data journalData
	if err := controlplane.ReadJournal(path, &data); err != nil {
		return data, err
	}
	return data, data.check(path)
}
