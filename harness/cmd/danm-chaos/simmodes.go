package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
	"github.com/danm-chaos/danm-chaos/harness/search"
)

// enumerate plays all interleavings of the smallest world.
func (a *app) enumerate(ctx context.Context, f runFlags) error {
	s, err := a.sweepOf(f, nil)
	if err != nil {
		return err
	}
	ctx, signals := catchInterrupts(ctx, a.stderr)
	defer signals.release()
	began := time.Now()
	out, err := search.Enumeration{
		Pool: s.Pool, Cleaner: s.Cleaner, Bound: f.systematic, BlameAny: s.BlameAny,
		Of: search.SmallestWorld(s.Shapes[0].Group, s.Shapes[0].CNI),
		Progress: func(played, planned, preemptions int) {
			fmt.Fprintf(a.stdout, "%d of %d interleavings with %d preemptions\n", played, planned, preemptions)
		},
	}.Run(ctx)
	if err != nil {
		fmt.Fprintf(a.stderr, "danm-chaos: bug in the simulator: %v\n", err)
		return exitWith(exitHarnessBug)
	}
	took := time.Since(began)
	for preemptions, n := range out.ByPreemptions {
		fmt.Fprintf(a.stdout, "%7d interleavings with %d preemptions\n", n, preemptions)
	}
	fmt.Fprintf(a.stdout, "%7d in all, %d left, in %s: %.0f/s, %.0f steps/s\n", out.Played(), out.Left, took.Round(time.Millisecond),
		rate(out.Played(), took), rate(int(out.Steps), took))
	verdict := check.Valid
	if out.Left > 0 || ctx.Err() != nil {
		verdict = check.Unknown
	}
	return a.concludeMode(f, out.Failures, verdict)
}

// sieveAll plays one fault at a time at every place of a clean run.
func (a *app) sieveAll(ctx context.Context, f runFlags, names []string) error {
	s, err := a.sweepOf(f, names)
	if err != nil {
		return err
	}
	ctx, signals := catchInterrupts(ctx, a.stderr)
	defer signals.release()
	sieve := search.Sieve{Pool: s.Pool, Cleaner: s.Cleaner, BlameAny: s.BlameAny}
	sieve.Of = append(sieve.Of, search.SmallestWorld(s.Shapes[0].Group, s.Shapes[0].CNI))
	for _, shape := range s.Shapes {
		shape.Seed, shape.Calm = s.First, true
		sim, err := schedule.Draw(shape)
		if err != nil {
			return err
		}
		sim.Search = schedule.Search{} // a clean run: everybody is quick
		sieve.Of = append(sieve.Of, sim)
	}
	began := time.Now()
	out, trouble := sieve.Run(ctx)
	table := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "fault\tplaces\t")
	for _, kind := range slices.Sorted(maps.Keys(out.Places)) {
		fmt.Fprintf(table, "%s\t%d\t\n", kind, out.Places[kind])
	}
	table.Flush()
	fmt.Fprintf(a.stdout, "%d plans in %s\n", out.Played, time.Since(began).Round(time.Millisecond))
	verdict := check.Valid
	if trouble != nil || ctx.Err() != nil {
		verdict = check.Unknown
	}
	concluded := a.concludeMode(f, out.Failures, verdict)
	if trouble != nil && ctx.Err() == nil {
		fmt.Fprintf(a.stderr, "danm-chaos: bug in the simulator: %v\n", trouble)
		return exitWith(exitHarnessBug)
	}
	return concluded
}

// concludeMode stores what failed, and says how to see it again.
func (a *app) concludeMode(f runFlags, failures []search.Played, verdict check.Verdict) error {
	if len(failures) == 0 {
		fmt.Fprintln(a.stdout, verdict)
		return exitWith(codeOf(verdict))
	}
	dir, err := newRunDir(f.out, time.Now(), 0)
	if err != nil {
		return err
	}
	for i, failure := range failures {
		verdict = check.Merge(verdict, failure.Verdict)
		if err := storeSimulation(dir.join(fmt.Sprintf("failure-%d.json", i)), *failure.Simulation); err != nil {
			return err
		}
		if i < violationsShown {
			printFirst(a, failure)
		}
	}
	fmt.Fprintf(a.stdout, "%s: %d failures\nreproduce: %s\n", verdict, len(failures), commandLine(programName(), "replay", dir.join("failure-0.json")))
	return exitWith(codeOf(verdict))
}
