package controlplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// What all kinds of clusters do with the journals of their runs. Each kind keeps
// them in a folder of its own, as RUNID.json, in a format of its own.

// CleanJournals calls clean for each journal in the folder, sorted by run ID; an
// empty runID means all of them. Its errors are joined.
func CleanJournals(folder, runID string, clean func(path string) error) error {
	pattern := "*"
	if runID != "" {
		if !IsRunID(runID) {
			return fmt.Errorf("cleaning: %q is no run ID", runID)
		}
		pattern = runID
	}
	paths, err := filepath.Glob(filepath.Join(folder, pattern+".json")) // sorted
	if err != nil {
		return fmt.Errorf("listing run journals: %w", err)
	}
	var errs []error
	for _, path := range paths {
		errs = append(errs, clean(path))
	}
	return errors.Join(errs...)
}

// Journal is what the journals of all kinds of clusters have in common.
type Journal interface {
	// Head returns the run, and the program that runs it: while that lives,
	// nobody else undoes what it did.
	Head() (runID string, owner Process)
}

// CleanJournal undoes what the journal of a dead run tells and removes it. A run
// that still goes is left alone, and is an error if it was asked for.
func CleanJournal[J Journal](path string, asked bool, out io.Writer, read func(path string) (J, error), undo func(J) error) error {
	if IsEmptyJournal(path) {
		fmt.Fprintf(out, "%s: empty journal removed\n", path)
		return RemoveJournal(path)
	}
	data, err := read(path)
	if err != nil {
		return err
	}
	runID, owner := data.Head()
	if owner.IsAlive() {
		return LeaveAlone(runID, owner.PID, asked, out)
	}
	err = undo(data)
	if err == nil { // the journal goes last: whatever fails before can be tried again
		err = RemoveJournal(path)
	}
	if err != nil {
		return fmt.Errorf("cleaning run %s: %w", runID, err)
	}
	fmt.Fprintf(out, "run %s: cleaned\n", runID)
	return nil
}

// IsEmptyJournal tells whether a journal is that of a program that was killed
// between making and writing it: nothing else exists then.
func IsEmptyJournal(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() == 0
}

// LeaveAlone says that a run still goes: to out, or as an error if it was asked
// for by its ID.
func LeaveAlone(runID string, pid int, asked bool, out io.Writer) error {
	if asked {
		return fmt.Errorf("cleaning run %s: it still goes, as process %d", runID, pid)
	}
	fmt.Fprintf(out, "run %s: still goes, as process %d; left alone\n", runID, pid)
	return nil
}

// CreateJournal creates the empty journal of a new run, which nobody else can
// have then. The caller closes it.
func CreateJournal(folder, runID string) (*os.File, error) {
	if !IsRunID(runID) {
		return nil, fmt.Errorf("opening run journal: run ID %q is not of letters, digits, '.', '_' and '-'", runID)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("opening run journal: %w", err)
	}
	// O_EXCL keeps two runs with one ID apart.
	file, err := os.OpenFile(filepath.Join(folder, runID+".json"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("opening run journal: a run %s is there already; clean it first if it is dead", runID)
	}
	if err != nil {
		return nil, fmt.Errorf("opening run journal: %w", err)
	}
	return file, nil
}

// WriteJournal writes the journal of a run that never changes it, and returns
// its path. It is on the disk then: what a run makes may outlive the power.
func WriteJournal(folder, runID string, data any) (path string, err error) {
	text, err := json.MarshalIndent(data, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encoding run journal: %w", err)
	}
	file, err := CreateJournal(folder, runID)
	if err != nil {
		return "", err
	}
	_, err = file.Write(append(text, '\n'))
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("writing run journal: %w", err), os.Remove(file.Name()))
	}
	return file.Name(), nil
}

// ReadJournal reads a journal, unchecked, into data.
func ReadJournal(path string, data any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading run journal: %w", err)
	}
	if err := json.Unmarshal(text, data); err != nil {
		return fmt.Errorf("reading run journal %s: %w", path, err)
	}
	return nil
}

// CheckJournal refuses a journal of another format than known, or that is not of
// the run that its file is named after.
func CheckJournal(path string, version, known int, runID string) error {
	id := strings.TrimSuffix(filepath.Base(path), ".json")
	switch {
	case version != known:
		return fmt.Errorf("reading run journal %s: format %d, known is %d", path, version, known)
	case runID != id || !IsRunID(id):
		return fmt.Errorf("reading run journal %s: it is of run %q", path, runID)
	}
	return nil
}

// unfinished ends the name of a journal's next state while that is written.
const unfinished = ".next"

// RemoveJournal removes a journal, and what a write of it left that was broken
// off, if they are there.
func RemoveJournal(path string) error {
	for _, file := range []string{path + unfinished, path} {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing run journal: %w", err)
		}
	}
	return nil
}
