package existing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
)

// Cluster is a cluster of somebody else, while a run uses it.
type Cluster struct {
	options Options
	access  access
	workers []string
	cleaner Deployed
	expires time.Time
	journal string

	mu     sync.Mutex
	closed bool
}

var (
	_ clusters.Cluster       = (*Cluster)(nil)
	_ clusters.NodeAdder     = (*Cluster)(nil)
	_ clusters.WorkerLister  = (*Cluster)(nil)
	_ clusters.NodeTimer     = (*Cluster)(nil)
	_ clusters.CleanerRunner = (*Cluster)(nil)
	_ clusters.Observed      = (*Cluster)(nil)
)

// Open takes the cluster for a run, after everything that expired runs left in
// it was removed. What it cannot use it refuses, and then nothing was changed.
// The result is a NodeFailer only if hooks say how to switch nodes.
func Open(ctx context.Context, o Options, now time.Time) (clusters.Cluster, error) {
	o = o.withDefaults()
	p, err := Examine(ctx, o)
	if err != nil {
		return nil, err
	}
	if reasons := p.Refusals(); len(reasons) > 0 {
		return nil, Refuse(reasons...)
	}
	c := &Cluster{options: o, access: p.access, workers: p.Workers, cleaner: p.Cleaner, expires: now.Add(o.Lifetime)}
	data, err := newJournalData(o, p.access.config.Host, c.expires)
	if err != nil {
		return nil, err
	}
	if c.journal, err = writeJournal(data); err != nil {
		return nil, err
	}
	if err := undoExpired(ctx, p.access, o, now, o.Progress); err != nil {
		return nil, errors.Join(fmt.Errorf("removing what expired runs left: %w", err), controlplane.RemoveJournal(c.journal))
	}
	if o.hasHooks() {
		return switchable{c}, nil
	}
	return c, nil
}

// Name implements clusters.Cluster.
func (c *Cluster) Name() string { return "existing" }

// Expires is from when anybody may remove what the run left.
func (c *Cluster) Expires() time.Time { return c.expires }

// RESTConfig implements clusters.Cluster. There is one user, whoever the
// kubeconfig names.
func (c *Cluster) RESTConfig(user string) (*rest.Config, error) {
	if user != clusters.UserHarness {
		return nil, fmt.Errorf("getting access as %s: an existing cluster has its own users", user)
	}
	return rest.CopyConfig(c.access.config), nil
}

// CleanerManagers implements clusters.Observed.
func (c *Cluster) CleanerManagers() []string { return c.cleaner.Managers }

// CleanerNamespace implements clusters.Observed.
func (c *Cluster) CleanerNamespace() string { return c.cleaner.Namespace }

// Close implements clusters.Cluster: it undoes everything that the run did.
func (c *Cluster) Close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // half undone is worse than late
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	u := undoing{access: c.access, options: c.options, run: clusters.RunLabelValue(c.options.RunID), out: io.Discard}
	if err := u.all(ctx); err != nil {
		return fmt.Errorf("giving the cluster back: %w", err)
	}
	if err := controlplane.RemoveJournal(c.journal); err != nil {
		return err
	}
	c.closed = true
	return nil
}

// StartCleaner implements clusters.CleanerRunner. The cleaner under test runs
// already, and goes on when the run is over.
func (c *Cluster) StartCleaner(ctx context.Context, s clusters.CleanerSpec) (clusters.CleanerProcess, error) {
	if len(s.Argv) > 0 {
		return nil, fmt.Errorf("starting the cleaner: %s/%s runs in the cluster already", c.cleaner.Namespace, c.cleaner.Name)
	}
	return deployedProcess{}, ctx.Err()
}

// deployedProcess is the cleaner in the cluster, which is not ours to end.
type deployedProcess struct{}

// Exited implements clusters.CleanerProcess. Its Deployment starts it again.
func (deployedProcess) Exited() <-chan struct{} { return nil }

// ExitError implements clusters.CleanerProcess.
func (deployedProcess) ExitError() error { return nil }

// Stop implements clusters.CleanerProcess.
func (deployedProcess) Stop(context.Context) error { return nil }

// Kill implements clusters.CleanerProcess.
func (deployedProcess) Kill(context.Context) error {
	return fmt.Errorf("killing the cleaner: it is not a process of ours: %w", errors.ErrUnsupported)
}
