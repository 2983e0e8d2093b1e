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
	return controlplane.CleanJournals(folder, runID, func(path string) error {
		return controlplane.CleanJournal(path, runID != "", out, readJournal, func(data journalData) error { return undo(ctx, data, out) })
	})
}

func undo(ctx context.Context, data journalData, out io.Writer) error {
	a, err := connect(data.options())
	if err != nil {
		return err
	}
	if a.config.Host != data.Server {
		return fmt.Errorf("context %s of %s is now %s, but the run was on %s", data.Context, data.Kubeconfig, a.config.Host, data.Server)
	}
	fmt.Fprintf(out, "run %s: giving back the cluster %s at %s\n", data.RunID, data.Context, data.Server)
	u := undoing{access: a, options: data.options(), run: clusters.RunLabelValue(data.RunID), out: out}
	return u.all(ctx)
}
