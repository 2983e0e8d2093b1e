package kind

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
)

var _ clusters.CleanerRunner = (*Cluster)(nil)

// StartCleaner implements clusters.CleanerRunner. Unless it is to be deployed,
// the program runs on this machine and reaches the API server as any user of
// the cluster does.
func (c *Cluster) StartCleaner(ctx context.Context, s clusters.CleanerSpec) (clusters.CleanerProcess, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("starting the cleaner: %w", err)
	}
	if s.IsDeployed {
		d, err := c.deployCleaner(ctx, s, onControlPlane)
		if err != nil {
			return nil, err
		}
		return d, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errors.New("starting the cleaner: the cluster is closed")
	}
	p, err := controlplane.StartCleaner(s, c.cleanerKubeconfig(), c.data.RunID)
	if err != nil {
		return nil, err
	}
	c.cleaners = append(c.cleaners, p)
	return p, nil
}

// stopCleaners ends those that still run here. Pods are left to whoever removes
// their nodes. The caller holds the lock.
func (c *Cluster) stopCleaners(ctx context.Context) error {
	for _, d := range c.deployments {
		d.leave()
	}
	var errs []error
	for _, p := range c.cleaners {
		errs = append(errs, p.Kill(ctx))
	}
	return errors.Join(errs...)
}

// writeCleanerKubeconfig makes the administrator's kubeconfig that of the
// cleaner, whose name the audit log then shows.
func (c *Cluster) writeCleanerKubeconfig() error {
	admin, err := os.ReadFile(c.kubeconfig())
	if err != nil {
		return fmt.Errorf("reading the administrator's kubeconfig: %w", err)
	}
	text, err := impersonating(admin, clusters.UserCleaner)
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.cleanerKubeconfig(), text, 0o600); err != nil {
		return fmt.Errorf("writing the cleaner's kubeconfig: %w", err)
	}
	return nil
}

func (c *Cluster) cleanerKubeconfig() string {
	return filepath.Join(c.data.Folder, "kubeconfig-"+clusters.UserCleaner)
}

// impersonating turns the administrator's kubeconfig into one of a user: the
// API server takes and audits what is done with it as done by that user.
func impersonating(admin []byte, user string) ([]byte, error) {
	config, err := clientcmd.Load(admin)
	if err != nil {
		return nil, fmt.Errorf("reading the administrator's kubeconfig: %w", err)
	}
	groups, err := groupsOf(user)
	if err != nil {
		return nil, err
	}
	for _, auth := range config.AuthInfos {
		auth.Impersonate, auth.ImpersonateGroups = user, groups
	}
	return clientcmd.Write(*config)
}
