package kind

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
	"github.com/danm-chaos/danm-chaos/clusters/kind/engine"
)

// Clean removes what killed runs left behind: containers with their volumes,
// networks, folders, journals. An empty runID means every run whose program is
// dead. A run that still goes is left alone, and is an error if it was asked
// for by its ID. What was done is written to out, one line each.
func Clean(ctx context.Context, runID string, out io.Writer) error {
	folder, err := runsFolder()
	if err != nil {
		return err
	}
	return controlplane.CleanJournals(folder, runID, func(path string) error {
		return controlplane.CleanJournal(path, runID != "", out, readJournal, func(data journalData) error { return undo(ctx, data, out) })
	})
}

// undo takes away everything of a run.
func undo(ctx context.Context, data journalData, out io.Writer) error {
	killed, err := controlplane.KillMarked(ctx, data.RunID)
	if err != nil {
		return err
	}
	if killed > 0 {
		fmt.Fprintf(out, "run %s: killed %d processes\n", data.RunID, killed)
	}
	return remove(ctx, data, out)
}

// remove takes away everything but processes and the journal.
func remove(ctx context.Context, data journalData, out io.Writer) error {
	if err := removeContainers(ctx, data, out); err != nil {
		return err
	}
	if err := removeNetwork(ctx, data, out); err != nil {
		return err
	}
	if err := removeCleanerImage(ctx, data.Cluster); err != nil {
		return err
	}
	if _, err := os.Stat(data.Folder); err == nil {
		fmt.Fprintf(out, "run %s: removing %s\n", data.RunID, data.Folder)
	}
	if err := os.RemoveAll(data.Folder); err != nil {
		return fmt.Errorf("removing folder: %w", err)
	}
	return nil
}

func removeContainers(ctx context.Context, data journalData, out io.Writer) error {
	names, err := engine.Lines(ctx, "ps", "--all", "--filter", "label="+kindClusterLabel+"="+data.Cluster, "--format", "{{.Names}}")
	if err != nil {
		return fmt.Errorf("listing containers: %w", err)
	}
	if len(names) == 0 {
		return nil
	}
	fmt.Fprintf(out, "run %s: removing containers %v\n", data.RunID, names)
	// With their volumes, which have no name of their own.
	if _, err := engine.Run(ctx, append([]string{"rm", "--force", "--volumes"}, names...)...); err != nil {
		return fmt.Errorf("removing containers: %w", err)
	}
	return nil
}

func removeNetwork(ctx context.Context, data journalData, out io.Writer) error {
	ids, err := engine.Lines(ctx, "network", "ls", "--quiet", "--filter", "label="+runLabel+"="+data.RunID)
	if err != nil {
		return fmt.Errorf("listing networks: %w", err)
	}
	for _, id := range ids {
		fmt.Fprintf(out, "run %s: removing network %s\n", data.RunID, data.Cluster)
		if _, err := engine.Run(ctx, "network", "rm", id); err != nil {
			return fmt.Errorf("removing network: %w", err)
		}
	}
	return nil
}
