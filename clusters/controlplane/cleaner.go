package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/danm-chaos/danm-chaos/clusters"
)

const (
	// cleanerStopGrace is what a cleaner gets to give back its lease and end.
	cleanerStopGrace = 5 * time.Second
	// kubeconfigPlaceholder stands for the path of the cleaner's kubeconfig.
	kubeconfigPlaceholder = "{{kubeconfig}}"
	cleanerName           = "cleaner"
)

// cleanerProcess is a cleaner under test.
type cleanerProcess struct{ *process }

var _ clusters.CleanerProcess = cleanerProcess{}

// StartCleaner implements clusters.CleanerRunner.
func (c *Cluster) StartCleaner(ctx context.Context, s clusters.CleanerSpec) (clusters.CleanerProcess, error) {
	if len(s.Argv) == 0 {
		return nil, errors.New("starting the cleaner: no program given")
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("starting the cleaner: %w", err)
	}
	kubeconfig := c.files.kubeconfig(clusters.UserCleaner)
	argv := make([]string, len(s.Argv))
	for i, arg := range s.Argv {
		argv[i] = strings.ReplaceAll(arg, kubeconfigPlaceholder, kubeconfig)
	}
	if s.Logs == nil {
		s.Logs = io.Discard
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errors.New("starting the cleaner: the cluster is closed")
	}
	p, err := startProcess(command{name: cleanerName, argv: argv, env: []string{c.runMark()}, output: s.Logs})
	if err != nil {
		return nil, fmt.Errorf("starting the cleaner: %w", err)
	}
	c.cleaners = append(slices.DeleteFunc(c.cleaners, (*process).hasEnded), p)
	if err := c.journal.add(cleanerName, p.identity); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the cleaner: %w", err), p.kill())
	}
	return cleanerProcess{p}, nil
}

// Exited implements clusters.CleanerProcess.
func (p cleanerProcess) Exited() <-chan struct{} { return p.done }

// ExitError implements clusters.CleanerProcess.
func (p cleanerProcess) ExitError() error { return p.exitError() }

// Stop implements clusters.CleanerProcess.
func (p cleanerProcess) Stop(ctx context.Context) error { return p.stop(ctx, cleanerStopGrace) }

// Kill implements clusters.CleanerProcess.
func (p cleanerProcess) Kill(context.Context) error { return p.kill() }
