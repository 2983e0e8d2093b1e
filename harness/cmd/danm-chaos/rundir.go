package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/danm-chaos/danm-chaos/reports"
)

// Names inside a run directory, besides those of package reports.
const (
	scheduleFile = "schedule.json"
	scenarioFile = "scenario.yaml"
	historyFile  = reports.HistoryFile
	logsDir      = "logs"
	latestLink   = "latest"
)

// runIDAttempts bounds how many runs may begin within one second.
const runIDAttempts = 100

// runDir is the directory of one run.
type runDir struct {
	id, path string
}

// newRunDir makes the directory of a run, named after the time and the seed,
// and points OUT/latest to it.
func newRunDir(out string, started time.Time, seed uint64) (runDir, error) {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return runDir{}, usagef("--out %s: %w: name a directory that can be written", out, pathReason(err))
	}
	base := fmt.Sprintf("%s-%04x", started.UTC().Format("20060102-150405"), seed&0xffff)
	for i := range runIDAttempts {
		id := base
		if i > 0 {
			id = fmt.Sprintf("%s.%d", base, i+1)
		}
		d := runDir{id: id, path: filepath.Join(out, id)}
		err := os.Mkdir(d.path, 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return runDir{}, usagef("--out %s: %w: name a directory that can be written", out, pathReason(err))
		}
		if err := os.Mkdir(d.join(logsDir), 0o755); err != nil {
			return runDir{}, fmt.Errorf("making the run directory: %w", err)
		}
		return d, d.linkLatest(out)
	}
	return runDir{}, fmt.Errorf("making the run directory: %d runs began within one second", runIDAttempts)
}

func (d runDir) join(elem ...string) string {
	return filepath.Join(append([]string{d.path}, elem...)...)
}

// linkLatest replaces the link by a rename, so that it always points somewhere.
func (d runDir) linkLatest(out string) error {
	temp := filepath.Join(out, "."+latestLink+"-"+d.id)
	if err := os.Symlink(d.id, temp); err != nil {
		return fmt.Errorf("linking the latest run: %w", err)
	}
	if err := os.Rename(temp, filepath.Join(out, latestLink)); err != nil {
		return errors.Join(fmt.Errorf("linking the latest run: %w", err), os.Remove(temp))
	}
	return nil
}
