package existing

import (
	"context"
	"fmt"
	"io"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
)

// Clean undoes what killed runs of this machine did to clusters of others. An
// empty runID means every run whose program is dead. A run that still goes is
// left alone, and is an error if it was asked for by its ID. What was done is
// written to out, one line each.
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
	a, err := connect(data.options())
	if err != nil {
		return fmt.Errorf("cleaning run %s: %w", data.RunID, err)
	}
	if a.config.Host != data.Server {
		return fmt.Errorf("cleaning run %s: context %s of %s is now %s, but the run was on %s", data.RunID, data.Context, data.Kubeconfig, a.config.Host, data.Server)
	}
	fmt.Fprintf(out, "run %s: giving back the cluster %s at %s\n", data.RunID, data.Context, data.Server)
	u := undoing{access: a, options: data.options(), run: clusters.RunLabelValue(data.RunID), out: out}
	if err := u.all(ctx); err != nil {
		return fmt.Errorf("cleaning run %s: %w", data.RunID, err)
	}
	// The journal goes last: whatever fails before can be tried again.
	if err := controlplane.RemoveJournal(path); err != nil {
		return fmt.Errorf("cleaning run %s: %w", data.RunID, err)
	}
	fmt.Fprintf(out, "run %s: cleaned\n", data.RunID)
	return nil
}
