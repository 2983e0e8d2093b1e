package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// pollInterval is how often conditions are looked at that nobody announces.
const pollInterval = 25 * time.Millisecond

// Clean removes what killed runs left behind: processes, folders, journals. An
// empty runID means every run whose program is dead. A run that still goes is
// left alone, and is an error if it was asked for by its ID. What was done is
// written to out, one line each.
func Clean(ctx context.Context, runID string, out io.Writer) error {
	folder, err := runsFolder()
	if err != nil {
		return err
	}
	return CleanJournals(folder, runID, func(path string) error {
		return CleanJournal(path, runID != "", out, readJournal, func(data journalData) error { return undo(ctx, data, out) })
	})
}

// undo takes away everything of a run. Processes of an earlier boot are gone, and
// their numbers others'.
func undo(ctx context.Context, data journalData, out io.Writer) error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	if data.BootID == boot {
		if err := killLeftovers(ctx, data, out); err != nil {
			return err
		}
	}
	return removeFolders(data, out)
}

func killLeftovers(ctx context.Context, data journalData, out io.Writer) error {
	var killed []identity
	for _, p := range data.Processes {
		victims, err := leftoversOf(p, data.RunID)
		if err != nil {
			return err
		}
		if len(victims) == 0 {
			if stat, err := readStat(p.PID); err == nil && stat.identity != p.identity {
				fmt.Fprintf(out, "run %s: pid %d is somebody else's now; left alone\n", data.RunID, p.PID)
			}
		}
		for _, v := range victims {
			if err := syscall.Kill(v.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("killing process %d of %s: %w", v.PID, p.Name, err)
			}
			fmt.Fprintf(out, "run %s: killed process %d of %s\n", data.RunID, v.PID, p.Name)
			killed = append(killed, v)
		}
	}
	return waitUntilDead(ctx, killed)
}

// leftoversOf returns the processes of p's group that still run. Where p itself
// is gone its number may have become another group's, so that only processes
// with the mark of the run count.
func leftoversOf(p journalProcess, runID string) ([]identity, error) {
	all, err := listProcesses()
	if err != nil {
		return nil, err
	}
	leaderLives := p.isAlive()
	var out []identity
	for _, stat := range all {
		isLeader := leaderLives && stat.identity == p.identity
		isMember := stat.group == p.PID && (leaderLives || hasEnvironment(stat.PID, runVariable+"="+runID))
		if isLeader || isMember {
			out = append(out, stat.identity)
		}
	}
	return out, nil
}

func waitUntilDead(ctx context.Context, ids []identity) error {
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	for _, id := range ids {
		err := poll(ctx, func(context.Context) (bool, error) { return !id.isAlive(), nil })
		if err != nil {
			return fmt.Errorf("waiting for process %d to end: %w", id.PID, err)
		}
	}
	return nil
}

func removeFolders(data journalData, out io.Writer) error {
	folders, err := filepath.Glob(data.FolderPattern)
	if err != nil {
		return fmt.Errorf("listing folders: %w", err)
	}
	for _, f := range folders {
		// A run whose ID continues ours with a hyphen matches the pattern too,
		// but what os.MkdirTemp adds has none.
		if strings.Contains(strings.TrimPrefix(filepath.Base(f), folderPrefix(data.RunID)), "-") {
			continue
		}
		if err := os.RemoveAll(f); err != nil {
			return fmt.Errorf("removing folder: %w", err)
		}
		fmt.Fprintf(out, "run %s: removed %s\n", data.RunID, f)
	}
	return nil
}

// poll waits until the condition holds. An error of the condition ends it, as
// does the end of the context.
func poll(ctx context.Context, condition func(context.Context) (bool, error)) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		if ok, err := condition(ctx); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}
