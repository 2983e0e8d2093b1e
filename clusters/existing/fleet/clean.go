package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
	"github.com/danm-chaos/danm-chaos/clusters/existing"
)

// Clean removes the fleets of killed programs of this machine from their
// clusters. An empty runID means every one whose program is dead. A fleet that
// is still gathered is left alone, and is an error if it was asked for by its
// ID. What was done is written to out, one line each.
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
		return controlplane.RemoveJournal(path)
	}
	data, err := readJournal(path)
	if err != nil {
		return err
	}
	if data.Owner.IsAlive() {
		return controlplane.LeaveAlone(data.RunID, data.Owner.PID, asked, out)
	}
	reached, err := existing.Reach(ctx, existing.Options{RunID: data.RunID, Kubeconfig: data.Kubeconfig, Context: data.Context})
	if err != nil {
		return fmt.Errorf("cleaning run %s: %w", data.RunID, err)
	}
	if reached.Config.Host != data.Server {
		return fmt.Errorf("cleaning run %s: context %s of %s is now %s, but the fleet was on %s",
			data.RunID, data.Context, data.Kubeconfig, reached.Config.Host, data.Server)
	}
	fmt.Fprintf(out, "run %s: removing its fleet from %s at %s\n", data.RunID, data.Context, data.Server)
	if err := removeRun(ctx, reached.Core, data.RunID, out); err != nil {
		return fmt.Errorf("cleaning run %s: %w", data.RunID, err)
	}
	// The journal goes last: whatever fails before can be tried again.
	if err := controlplane.RemoveJournal(path); err != nil {
		return fmt.Errorf("cleaning run %s: %w", data.RunID, err)
	}
	fmt.Fprintf(out, "run %s: cleaned\n", data.RunID)
	return nil
}

func readJournal(path string) (journalData, error) {
	var data journalData
	if err := controlplane.ReadJournal(path, &data); err != nil {
		return data, err
	}
	return data, controlplane.CheckJournal(path, data.Version, journalVersion, data.RunID)
}

// inherit takes the journal of a dead program of the same run away, so that the
// caller can write its own. Dying in between leaves a fleet that only its expiry
// removes, or resuming once more.
func inherit(path string) error {
	if controlplane.IsEmptyJournal(path) {
		return controlplane.RemoveJournal(path)
	}
	data, err := readJournal(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if data.Owner.IsAlive() {
		return existing.Refuse(fmt.Sprintf("run %s is still gathered by process %d", data.RunID, data.Owner.PID))
	}
	return controlplane.RemoveJournal(path)
}
