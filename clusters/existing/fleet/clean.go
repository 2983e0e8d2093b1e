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
	return controlplane.CleanJournals(folder, runID, func(path string) error {
		return controlplane.CleanJournal(path, runID != "", out, readJournal, func(data journalData) error { return undo(ctx, data, out) })
	})
}

func undo(ctx context.Context, data journalData, out io.Writer) error {
	reached, err := existing.Reach(ctx, existing.Options{RunID: data.RunID, Kubeconfig: data.Kubeconfig, Context: data.Context})
	if err != nil {
		return err
	}
	if reached.Config.Host != data.Server {
		return fmt.Errorf("context %s of %s is now %s, but the fleet was on %s", data.Context, data.Kubeconfig, reached.Config.Host, data.Server)
	}
	fmt.Fprintf(out, "run %s: removing its fleet from %s at %s\n", data.RunID, data.Context, data.Server)
	return removeRun(ctx, reached.Core, data.RunID, out)
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
