package kind

import (
	"context"
	"fmt"
	"time"

	"github.com/danm-chaos/danm-chaos/clusters"
)

var _ clusters.PluginBreaker = (*Cluster)(nil)

// RemovePlugin implements clusters.PluginBreaker.
func (c *Cluster) RemovePlugin(ctx context.Context, name string) error {
	return c.onPlugin(ctx, "removing the plugin of", name, "rm -f "+cniProgram)
}

// SlowPlugin implements clusters.PluginBreaker. The plugin hangs before it does
// anything, so a runtime that gives up kills one that did nothing.
func (c *Cluster) SlowPlugin(ctx context.Context, name string, delay time.Duration) error {
	return c.onPlugin(ctx, "slowing the plugin of", name, slowScript(delay))
}

// MendPlugin implements clusters.PluginBreaker.
func (c *Cluster) MendPlugin(ctx context.Context, name string) error {
	return c.onPlugin(ctx, "mending the plugin of", name, mendPluginScript)
}

func (c *Cluster) onPlugin(ctx context.Context, doing, name, script string) error {
	if c.options.CNI == "" {
		return fmt.Errorf("%s node %s: the cluster has none", doing, name)
	}
	return c.onWorker(ctx, doing, name, "exec", name, "sh", "-ec", script)
}

// Each script puts another file in the plugin's place in one step, so that a
// runtime finds the one or the other. The plugin itself is kept elsewhere.
const (
	cniProgramNew    = cniProgram + ".new"
	mendPluginScript = "ln -sf " + cniProgramKept + " " + cniProgramNew + " && mv -T " + cniProgramNew + " " + cniProgram
)

func slowScript(delay time.Duration) string {
	return fmt.Sprintf(`printf '#!/bin/sh\nsleep %.1f\nexec %s\n' >%s && chmod 0755 %s && mv -T %s %s`,
		delay.Seconds(), cniProgramKept, cniProgramNew, cniProgramNew, cniProgramNew, cniProgram)
}
