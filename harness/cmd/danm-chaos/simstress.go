package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/danm-chaos/danm-chaos/harness/search"
)

// Defaults of the determinism test: twice as many workers as most machines have
// cores, so that they are interrupted everywhere.
const (
	stressSeeds   = "1-500"
	stressRepeat  = 20
	stressWorkers = 4
)

// stressCommand is hidden, because it tests the simulator and no cleaner.
func (a *app) stressCommand() *cobra.Command {
	f := runFlags{}
	var repeat, processes int
	c := &cobra.Command{
		Use:    "stress [SCENARIO...]",
		Short:  "Check that equal simulations give equal histories",
		Hidden: true,
		RunE: func(c *cobra.Command, names []string) error {
			if f.seeds == "" {
				f.seeds = stressSeeds
			}
			s, err := a.sweepOf(f, names)
			if err != nil {
				return err
			}
			s.Pool.Workers = processes
			return a.stress(c.Context(), search.Stress{
				Pool: s.Pool, Cleaner: s.Cleaner, Shapes: s.Shapes, First: s.First, Last: s.Last, Repeat: repeat,
			})
		},
	}
	f.registerPods(c.Flags())
	f.registerCleaner(c.Flags())
	f.register(c.Flags())
	c.Flags().IntVar(&repeat, "repeat", stressRepeat, "how often each seed is run")
	c.Flags().IntVar(&processes, "workers", stressWorkers, "how many processes")
	return c
}

func (a *app) stress(ctx context.Context, s search.Stress) error {
	ctx, signals := catchInterrupts(ctx, a.stderr)
	defer signals.release()
	s.Progress = func(runs, divergences int) { fmt.Fprintf(a.stdout, "%d runs, %d divergences\n", runs, divergences) }
	out, err := s.Run(ctx)
	for _, d := range out.Divergences {
		fmt.Fprintln(a.stdout, d)
	}
	fmt.Fprintf(a.stdout, "%d runs of %d seeds in %d processes: %d divergences\n", out.Runs, s.Last-s.First+1, s.Pool.Workers, len(out.Divergences))
	switch {
	case err != nil:
		fmt.Fprintf(a.stderr, "danm-chaos: bug in the simulator: %v\n", err)
		return exitWith(exitHarnessBug)
	case len(out.Divergences) > 0:
		return exitWith(exitHarnessBug)
	case out.Runs < int(s.Last-s.First+1)*s.Repeat:
		return exitWith(exitUnknown)
	}
	return nil
}
