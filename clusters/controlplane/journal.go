package controlplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
)

// journalVersion is the version of the file format. Clean refuses others.
const journalVersion = 1

// A run ID becomes part of file names and of a glob pattern.
var runIDPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// journalData says what a run may have left behind, for Clean.
type journalData struct {
	Version int    `json:"version"`
	RunID   string `json:"runId"`
	BootID  string `json:"bootId"`
	// Owner is the program that runs the cluster. While it lives, nobody else
	// touches what it made.
	Owner identity `json:"owner"`
	// FolderPattern is known before the folder is made and so covers the
	// moment between making it and writing it down.
	FolderPattern string           `json:"folderPattern"`
	Processes     []journalProcess `json:"processes"`
}

type journalProcess struct {
	Name string `json:"name"`
	identity
}

// journal is the file of a running cluster.
type journal struct {
	path string
	mu   sync.Mutex
	data journalData
}

// runsFolder is where the journals are.
func runsFolder() (string, error) {
	cache, err := cacheFolder()
	return filepath.Join(cache, "runs"), err
}

// openJournal writes the journal of a new run. It must be called before
// anything else of the run exists.
func openJournal(runID string) (*journal, error) {
	folder, err := runsFolder()
	if err != nil {
		return nil, err
	}
	data, err := newJournalData(runID)
	if err != nil {
		return nil, err
	}
	file, err := CreateJournal(folder, runID)
	if err != nil {
		return nil, err
	}
	j := &journal{path: file.Name(), data: data}
	if err := errors.Join(file.Close(), j.write()); err != nil {
		return nil, errors.Join(err, j.remove())
	}
	return j, nil
}

func newJournalData(runID string) (journalData, error) {
	boot, errBoot := bootID()
	owner, errOwner := identify(os.Getpid())
	return journalData{
		Version: journalVersion, RunID: runID, BootID: boot, Owner: owner,
		FolderPattern: filepath.Join(os.TempDir(), folderPrefix(runID)+"*"),
	}, errors.Join(errBoot, errOwner)
}

func folderPrefix(runID string) string { return "danm-chaos-" + runID + "-" }

// add records a process. It cannot be recorded before it has a pid; if we are
// killed in between, the parent-death signal ends it. Processes that have ended
// are dropped, so a run that restarts its cleaner a thousand times stays small.
func (j *journal) add(name string, id identity) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.data.Processes = slices.DeleteFunc(j.data.Processes, func(p journalProcess) bool { return !p.isAlive() })
	j.data.Processes = append(j.data.Processes, journalProcess{Name: name, identity: id})
	return j.write()
}

// write replaces the file in one step: a reader sees the old or the new one.
func (j *journal) write() error {
	data, err := json.MarshalIndent(j.data, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding run journal: %w", err)
	}
	next := j.path + unfinished
	if err := os.WriteFile(next, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing run journal: %w", err)
	}
	if err := os.Rename(next, j.path); err != nil {
		return fmt.Errorf("writing run journal: %w", err)
	}
	return nil
}

func (j *journal) remove() error { return RemoveJournal(j.path) }

func readJournal(path string) (journalData, error) {
	var data journalData
	if err := ReadJournal(path, &data); err != nil {
		return data, err
	}
	return data, data.check(path)
}

// Head implements Journal.
func (d journalData) Head() (string, Process) {
	return d.RunID, Process{PID: d.Owner.PID, StartTicks: d.Owner.StartTicks, BootID: d.BootID}
}

// check refuses a journal that would make Clean remove something else than
// what a run leaves.
func (d journalData) check(path string) error {
	if err := CheckJournal(path, d.Version, journalVersion, d.RunID); err != nil {
		return err
	}
	if filepath.Base(d.FolderPattern) != folderPrefix(d.RunID)+"*" {
		return fmt.Errorf("reading run journal %s: %q is no folder of run %s", path, d.FolderPattern, d.RunID)
	}
	return nil
}
