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
	return controlplane.CleanJournals(folder, runID, func(path string) error { return cleanRun(ctx, path, runID != "", out) })
}

func cleanRun(ctx context.Context, path string, asked bool, out io.Writer) error {
	if controlplane.IsEmptyJournal(path) {
		fmt.Fprintf(out, "%s: empty journal removed\n", path)
		return os.Remove(path)
	}
	data, err := readJournal(path)
	if err != nil {
		return err
	}
	if data.Owner.IsAlive() {
		return controlplane.LeaveAlone(data.RunID, data.Owner.PID, asked, out)
	}
	killed, err := controlplane.KillMarked(ctx, data.RunID)
	if err != nil {
		return fmt.Errorf("cleaning run %s: %w", data.RunID, err)
	}
	if killed > 0 {
		fmt.Fprintf(out, "run %s: killed %d processes\n", data.RunID, killed)
	}
	if err := remove(ctx, data, path, out); err != nil {
		return fmt.Errorf("cleaning run %s: %w", data.RunID, err)
	}
	fmt.Fprintf(out, "run %s: cleaned\n", data.RunID)
	return nil
}

// remove takes away everything of a run. The journal goes last: whatever fails
// before can be tried again.
func remove(ctx context.Context, data journalData, journal string, out io.Writer) error {
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
	return controlplane.RemoveJournal(journal)
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
