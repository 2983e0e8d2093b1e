package main

import (
	"context"
	"time"

	"k8s.io/client-go/rest"

	"github.com/danm-chaos/danm-chaos/cleaner"
	"github.com/danm-chaos/danm-chaos/harness/canary"
)

// spoil returns the configuration of the cleaner that ships as a canary has it.
func spoil(c cleaner.Config, change canary.Change) cleaner.Config {
	replace := func(field *time.Duration, by time.Duration) {
		if by != 0 {
			*field = by
		}
	}
	replace(&c.ReleaseQuarantine, change.ReleaseQuarantine)
	replace(&c.OrphanQuarantine, change.OrphanQuarantine)
	replace(&c.CompletedAllowance, change.CompletedAllowance)
	c.DryRun = c.DryRun && !change.Writes
	if change.Wrap != nil {
		c.REST = rest.CopyConfig(c.REST)
		c.REST.Wrap(change.Wrap)
	}
	return c
}

// runCanary runs a canary in this process, with the quarantines that the fixed
// cleaner has in a run.
func runCanary(ctx context.Context, name string, c canary.Config) error {
	change, isChange := canary.ChangeOf(name, c.Group)
	if !isChange {
		return canary.Run(ctx, name, c)
	}
	c.Logger.Info("canary started", "canary", name, "defect", canary.Defect(name))
	config := rest.CopyConfig(c.REST)
	config.UserAgent = cleaner.LeaseName // as the shipped program has
	return cleaner.Run(ctx, spoil(cleaner.Config{
		REST: config, Group: c.Group, Logger: c.Logger,
		ReleaseQuarantine: defaultReleaseQuarantine, OrphanQuarantine: defaultOrphanQuarantine,
	}, change))
}
