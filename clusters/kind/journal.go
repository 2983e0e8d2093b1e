package kind

import (
	"fmt"
	"os"
	"path/filepath"

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

// Head implements controlplane.Journal.
func (d journalData) Head() (string, controlplane.Process) { return d.RunID, d.Owner }

// check refuses a journal that would make Clean remove something else than
// what a run leaves.
func (d journalData) check(path string) error {
	if err := controlplane.CheckJournal(path, d.Version, journalVersion, d.RunID); err != nil {
		return err
	}
	switch id := d.RunID; {
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

// writeJournal must be called before anything else of the run exists.
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
