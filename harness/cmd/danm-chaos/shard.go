package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/danm-chaos/danm-chaos/clusters/existing/fleet"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
	"github.com/danm-chaos/danm-chaos/harness/search"
)

const shardCommand = "shard"

// shardSays is how often a shard tells how far it got.
const shardSays = 3 * time.Second

// shrunkMax is how many failures of a shard are shrunk, each of another
// invariant.
const shrunkMax = 3

// searchFlags names the flags that say what a search plays, for a fleet and its
// shards alike.
var searchFlags = []string{"cleaner", "danm-api", "cni", "blame", "keep-going", "pods"}

// registerSearch adds them, as run has them.
func (f *runFlags) registerSearch(fs *pflag.FlagSet) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.register(all)
	f.registerCleaner(all)
	f.registerPods(all)
	for _, name := range searchFlags {
		fs.AddFlag(all.Lookup(name))
	}
}

// shardFlags are those of the program that a pod of a fleet runs.
type shardFlags struct {
	runFlags
	shards, namespace string
	shrink            time.Duration
}

// shardCommand plays the seeds of one pod of a fleet. It is hidden, because
// fleets start it by themselves.
func (a *app) shardCommand() *cobra.Command {
	var f shardFlags
	c := &cobra.Command{
		Use:    shardCommand + " SCENARIO...",
		Short:  "Play a shard of a fleet's seeds, in a pod of the fleet",
		Hidden: true,
		RunE:   func(c *cobra.Command, names []string) error { return a.playShard(c.Context(), f, names) },
	}
	f.registerSearch(c.Flags())
	c.Flags().StringVar(&f.shards, "shards", "", "all shards, of which the pod's index chooses one")
	c.Flags().StringVar(&f.namespace, "namespace", "", "where the result is stored")
	c.Flags().DurationVar(&f.shrink, "shrink", shrinkMax, "how long to shrink each failure")
	c.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig; empty means the pod's own account")
	return c
}

// playShard plays, shrinks and stores. Whatever the seeds showed, a shard that
// could tell it has succeeded.
func (a *app) playShard(ctx context.Context, f shardFlags, names []string) error {
	name, err := fleet.ShardOfPod(f.shards)
	if err != nil {
		return usagef("%s: %w", shardCommand, err)
	}
	f.seeds = name
	s, err := a.sweepOf(f.runFlags, names)
	if err != nil {
		return err
	}
	config, err := f.restConfig()
	if err != nil {
		return err
	}
	ctx, signals := catchInterrupts(ctx, a.stderr)
	defer signals.release()
	s.Pool.Workers = 1 // a pod has one core
	said := time.Time{}
	s.Progress = func(t search.Totals) {
		if now := time.Now(); now.Sub(said) >= shardSays {
			said = now
			a.sayProgress(t)
		}
	}
	r, err := a.searchShard(ctx, s, f.shrink)
	if err != nil {
		return err
	}
	data, err := search.EncodeShard(r, fleet.ResultBytesMax)
	if err != nil {
		return err
	}
	return fleet.Store(ctx, config, f.namespace, name, data)
}

func (f shardFlags) restConfig() (*rest.Config, error) {
	if f.kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", f.kubeconfig)
}

// searchShard plays the seeds. A simulator that is wrong is a result: playing
// the same seeds again would only show it again.
func (a *app) searchShard(ctx context.Context, s search.Sweep, shrinkFor time.Duration) (search.ShardResult, error) {
	commit, _ := buildVersions()
	r := search.ShardResult{Shard: search.Shard{First: s.First, Last: s.Last}, Commit: commit}
	r.Totals = s.Run(ctx)
	r.Took = r.Totals.Took
	if ctx.Err() != nil {
		return r, fmt.Errorf("playing shard %s: %w", r.Shard, context.Cause(ctx))
	}
	a.sayProgress(r.Totals)
	if len(r.Totals.Troubles) > 0 {
		return r, nil // what would shrink may hang, too
	}
	var err error
	r.Shrunk, err = shrinkFailures(ctx, s, r.Totals.Failures, shrinkFor)
	return r, err
}

// sayProgress writes the totals so far as a line, which the fleet reads from the
// log.
func (a *app) sayProgress(t search.Totals) {
	t.Failures, t.Troubles = nil, nil
	if err := json.NewEncoder(a.stdout).Encode(t); err != nil {
		fmt.Fprintf(a.stderr, "danm-chaos: telling how far it got: %v\n", err)
	}
}

// shrinkFailures shrinks the first failure of each invariant.
func shrinkFailures(ctx context.Context, s search.Sweep, failures []search.Played, limit time.Duration) (map[uint64]schedule.Simulation, error) {
	small := map[uint64]schedule.Simulation{}
	seen := map[check.Invariant]bool{}
	for _, failure := range failures {
		if limit <= 0 || failure.Verdict != check.Invalid || seen[failure.Violations[0].Invariant] || len(small) == shrunkMax {
			continue
		}
		seen[failure.Violations[0].Invariant] = true
		simulation, err := shrinkFailure(ctx, s, failure, limit)
		if err != nil {
			return nil, fmt.Errorf("shrinking seed %d: %w", failure.Seed, err)
		}
		small[failure.Seed] = simulation
	}
	return small, nil
}

// shrinkFailure uses workers of its own: those that a time limit stopped in the
// middle of a simulation are of no use to the next.
func shrinkFailure(ctx context.Context, s search.Sweep, failure search.Played, limit time.Duration) (schedule.Simulation, error) {
	session, err := s.Pool.Open(ctx)
	if err != nil {
		return schedule.Simulation{}, err
	}
	defer session.Close()
	small, _, err := shrunk(ctx, session, failure, s.Cleaner, limit)
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return small, err
	}
	small, _, err = settled(ctx, small, s.Cleaner)
	return small, err
}
