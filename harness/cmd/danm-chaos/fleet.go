package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/danm-chaos/danm-chaos/clusters/existing"
	"github.com/danm-chaos/danm-chaos/clusters/existing/fleet"
	"github.com/danm-chaos/danm-chaos/clusters/sim"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
	"github.com/danm-chaos/danm-chaos/harness/search"
)

func (a *app) fleetCommand() *cobra.Command {
	var f fleetFlags
	c := &cobra.Command{
		Use:   "fleet [SCENARIO...] --seeds A-B",
		Short: "Search with the simulator in many pods of a cluster of yours, and sum up as one run",
		RunE: func(c *cobra.Command, names []string) error {
			if f.resume == "" {
				return a.newFleet(c.Context(), f, names)
			}
			fixed := slices.Concat([]string{"seeds", "shards"}, searchFlags)
			if len(names) > 0 || slices.ContainsFunc(fixed, c.Flags().Changed) {
				return usagef("--resume %s: what it plays is settled: leave out scenarios, --%s", f.resume, strings.Join(fixed, ", --"))
			}
			return a.resumeFleet(c.Context(), f)
		},
	}
	f.register(c.Flags())
	return c
}

// newFleet begins a fleet after somebody agreed.
func (a *app) newFleet(ctx context.Context, f fleetFlags, names []string) error {
	if f.seeds == "" {
		return usagef("--seeds is missing: give a range of seeds, for example --seeds 1-10000")
	}
	s, err := a.sweepOf(f.runFlags, names)
	if err != nil {
		return err
	}
	p, err := newFleetPlan(f, s)
	if err != nil {
		return err
	}
	if err := a.examineFleet(ctx, f, p, p.Shards); err != nil {
		return err
	}
	ctx, signals := catchInterrupts(ctx, a.stderr)
	defer signals.release()
	p.Started = time.Now()
	dir, err := newRunDir(f.out, p.Started, s.First)
	if err != nil {
		return err
	}
	p.RunID = dir.id
	folder := fleetFolder{dir}
	if err := folder.create(p); err != nil {
		return err
	}
	c := &campaign{app: a, flags: f, plan: p, folder: folder, sweep: s, gathered: map[search.Shard]search.ShardResult{}}
	return c.run(ctx, signals)
}

// resumeFleet goes on with a fleet. If nothing is left to play, no cluster is
// asked.
func (a *app) resumeFleet(ctx context.Context, f fleetFlags) error {
	folder, p, err := openFleetFolder(f)
	if err != nil {
		return err
	}
	f = p.flags(f)
	s, err := a.sweepOf(f.runFlags, p.Scenarios)
	if err != nil {
		return err
	}
	c := &campaign{app: a, flags: f, plan: p, folder: folder, sweep: s}
	if c.gathered, err = folder.kept(p); err != nil {
		return err
	}
	if left := c.left(); len(left) > 0 {
		if err := a.examineFleet(ctx, f, p, left); err != nil {
			return err
		}
	}
	ctx, signals := catchInterrupts(ctx, a.stderr)
	defer signals.release()
	return c.run(ctx, signals)
}

// examineFleet asks the cluster and then whoever sits there.
func (a *app) examineFleet(ctx context.Context, f fleetFlags, p fleetPlan, left []search.Shard) error {
	o, err := f.fleetOptions(p, left)
	if err != nil {
		return err
	}
	found, err := fleet.Examine(ctx, o)
	if err != nil {
		return a.refused(err)
	}
	if err := a.printFindings(found.Findings); err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "\na fleet of %d shards will, in context %s:\n", len(left), f.context)
	for _, line := range found.Actions {
		fmt.Fprintf(a.stdout, "  %s\n", line)
	}
	return a.agree(f.existingFlags)
}

// campaign is a fleet under way.
type campaign struct {
	app      *app
	flags    fleetFlags
	plan     fleetPlan
	folder   fleetFolder
	sweep    search.Sweep // what one process would run
	gathered map[search.Shard]search.ShardResult
	lost     map[search.Shard]string // why each has no result
	leftover error                   // what could not be removed from the cluster
	began    time.Time
	before   int // seeds that were gathered by then
}

// left lists the shards that are not gathered, in order.
func (c *campaign) left() []search.Shard {
	return slices.DeleteFunc(slices.Clone(c.plan.Shards), func(s search.Shard) bool { _, ok := c.gathered[s]; return ok })
}

// run plays what is left and sums up.
func (c *campaign) run(ctx context.Context, signals *interrupts) error {
	c.began = time.Now()
	c.before = c.merged().Seeds
	fmt.Fprintf(c.app.stdout, "%s, cleaner %s, seeds %s in %d shards, %d of them to play, run %s\n",
		scenarioList(c.sweep), c.plan.Cleaner, c.plan.Seeds, len(c.plan.Shards), len(c.left()), c.plan.RunID)
	if len(c.left()) > 0 {
		if err := c.play(ctx, signals); err != nil {
			return err
		}
	}
	return c.conclude(ctx)
}

// play has the cluster play the shards that are left, and leaves nothing there.
func (c *campaign) play(ctx context.Context, signals *interrupts) error {
	o, err := c.flags.fleetOptions(c.plan, c.left())
	if err != nil {
		return err
	}
	o.Progress = c.app.stdout
	f, err := fleet.Open(ctx, o, time.Now())
	if refusal := (*existing.Refusal)(nil); errors.As(err, &refusal) {
		return c.app.refused(err)
	}
	if err != nil {
		c.loseLeft(ctx, err)
		return nil
	}
	lost, err := f.Gather(ctx, fleet.Sink{Took: c.took, Told: c.told})
	cleanup, cancel := signals.cleanup(ctx)
	defer cancel()
	c.leftover = f.Close(cleanup)
	if err != nil {
		c.loseLeft(ctx, err)
	}
	for name, why := range lost {
		if shard, err := search.ParseShard(name); err == nil {
			c.lose(shard, why)
		}
	}
	return nil
}

// loseLeft notes that all shards without result have none for the same reason.
// An interruption is told as such.
func (c *campaign) loseLeft(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	for _, shard := range c.left() {
		c.lose(shard, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

// lose notes why a shard has no result, unless that is known.
func (c *campaign) lose(shard search.Shard, why string) {
	if c.lost == nil {
		c.lost = map[search.Shard]string{}
	}
	if c.lost[shard] == "" {
		c.lost[shard] = why
	}
}

// took keeps the result of a shard. One violation is enough, unless all are
// wanted.
func (c *campaign) took(name string, data []byte) (more bool, err error) {
	shard, err := search.ParseShard(name)
	if err != nil {
		return false, err
	}
	r, err := search.DecodeShard(data, shard)
	if err != nil {
		c.lose(shard, err.Error())
		return true, nil
	}
	if err := c.folder.keep(shard, data); err != nil {
		return false, err
	}
	c.gathered[shard] = r
	return len(r.Totals.Troubles) == 0 && (c.plan.KeepGoing || r.Totals.Verdicts[check.Invalid] == 0), nil
}

// told prints how far all shards together got.
func (c *campaign) told(s fleet.Status) {
	t := c.merged()
	for _, shard := range slices.Sorted(maps.Keys(s.Words)) {
		var part search.Totals
		if json.Unmarshal([]byte(s.Words[shard]), &part) == nil {
			t.Merge(part)
		}
	}
	t.Took = time.Since(c.began)
	fmt.Fprintln(c.app.stdout, progressLine(t, t.Seeds-c.before, s, len(c.gathered), len(c.plan.Shards)))
}

// progressLine tells shards, seeds, failures and coverage so far.
func progressLine(t search.Totals, played int, s fleet.Status, gathered, all int) string {
	fired := 0
	for _, kind := range schedule.SimFaultKinds() {
		fired += min(1, t.Fired[kind])
	}
	reached := 0
	for _, what := range sim.Sometimes() {
		reached += min(1, t.Reached[what])
	}
	line := fmt.Sprintf("%d of %d shards, %d seeds, %.0f/s, %d Invalid, %d of %d faults fired, %d of %d sometimes reached",
		gathered, all, t.Seeds, rate(played, t.Took), t.Verdicts[check.Invalid], fired, len(schedule.SimFaultKinds()), reached, len(sim.Sometimes()))
	for _, reason := range slices.Sorted(maps.Keys(s.Waiting)) {
		line += fmt.Sprintf(", waiting: %d %s", s.Waiting[reason], reason)
	}
	return line
}

// merged sums the gathered shards up, in the order of their seeds.
func (c *campaign) merged() search.Totals {
	var t search.Totals
	for _, shard := range c.plan.Shards {
		if r, ok := c.gathered[shard]; ok {
			t.Merge(r.Totals)
		}
	}
	return t
}

// conclude reports like a search of one process.
func (c *campaign) conclude(ctx context.Context) error {
	t := c.merged()
	t.Took = c.duration()
	s := searched{sweep: c.sweep, flags: c.flags.runFlags, totals: t, missing: slices.Concat(c.lacks(), missing(ctx, c.sweep, t)), dir: c.folder.runDir, started: c.plan.Started}
	if commits := c.commits(); len(commits) == 1 {
		s.commit = commits[0]
	}
	if len(c.left()) > 0 {
		s.resume = commandLine(programName(), "fleet", "--resume", c.folder.path, "--kubeconfig", c.flags.kubeconfig, "--context", c.flags.context)
	}
	if err := c.storeShrunk(s); err != nil {
		return err
	}
	clean := c.cleanCode()
	code, err := c.app.concludeSearch(s)
	if err != nil {
		return err
	}
	return exitWith(worse(code, clean))
}

// duration is how long the seeds took, side by side. Of a fleet that was resumed
// nobody knows more than its slowest shard.
func (c *campaign) duration() time.Duration {
	if c.before == 0 {
		return time.Since(c.began)
	}
	var slowest time.Duration
	for _, r := range c.gathered {
		slowest = max(slowest, r.Took)
	}
	return slowest
}

// cleanCode tells what is left in the cluster, and how to remove it.
func (c *campaign) cleanCode() int {
	if c.leftover == nil {
		return exitValid
	}
	fmt.Fprintf(c.app.stderr, "danm-chaos: cleanup incomplete: %v: run `%s`\n", c.leftover, commandLine(programName(), "clean", c.plan.RunID))
	return exitUnclean
}

// lacks lists why the fleet as a whole answers less than it was asked.
func (c *campaign) lacks() []string {
	var lines []string
	for _, shard := range c.plan.Shards {
		r, ok := c.gathered[shard]
		switch why := c.lost[shard]; {
		case !ok && why != "":
			lines = append(lines, fmt.Sprintf("seeds %s are lost: %s", shard, why))
		case !ok:
			lines = append(lines, fmt.Sprintf("seeds %s were not played to their end", shard))
		case r.Omitted > 0:
			lines = append(lines, fmt.Sprintf("seeds %s: %d failures more had no room in the result", shard, r.Omitted))
		}
	}
	if commits := c.commits(); len(commits) > 1 {
		lines = append(lines, "shards were played by different builds: "+strings.Join(commits, ", "))
	}
	return lines
}

// commits are those that the programs in the pods were built from.
func (c *campaign) commits() []string {
	seen := map[string]bool{}
	for _, r := range c.gathered {
		seen[r.Commit] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// storeShrunk stores the failures that shards made small.
func (c *campaign) storeShrunk(s searched) error {
	var errs []error
	for _, shard := range c.plan.Shards {
		small := c.gathered[shard].Shrunk
		for _, seed := range slices.Sorted(maps.Keys(small)) {
			errs = append(errs, storeSimulation(s.failurePath(seed, ".small"), small[seed]))
		}
	}
	return errors.Join(errs...)
}
