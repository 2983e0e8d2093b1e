package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/danm-chaos/danm-chaos/cleaner"
	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
	"github.com/danm-chaos/danm-chaos/clusters/sim"
	"github.com/danm-chaos/danm-chaos/harness/canary"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
	"github.com/danm-chaos/danm-chaos/harness/search"
)

const workerCommand = "simulate"

// simulateCommand is a worker: it plays the simulations that the standard input
// asks for. It is hidden, because searches start it by themselves.
func (a *app) simulateCommand() *cobra.Command {
	return &cobra.Command{
		Use:    workerCommand,
		Short:  "Play simulations for another danm-chaos",
		Hidden: true,
		Args:   takes(0, 0, ""),
		RunE:   func(*cobra.Command, []string) error { return a.simulate() },
	}
}

// simulate never returns: a bubble needs a test, and a test program ends the
// process. What the testing package prints at the end nobody reads.
func (a *app) simulate() error {
	sim.Isolate()
	os.Args = os.Args[:1]
	testing.Main(regexp.MatchString, []testing.InternalTest{{Name: workerCommand, F: func(t *testing.T) {
		if err := search.Work(bufio.NewReader(a.stdin), a.stdout, player(t)); err != nil {
			t.Error(err)
		}
	}}}, nil, nil)
	return nil
}

// lastStepsMax bounds what is told of a simulation that could not be played to
// its end.
const lastStepsMax = 500

// player plays and judges in this process.
func player(t *testing.T) search.Player {
	return func(plan schedule.Simulation, j search.Job) search.Played {
		plan.Cleaner = j.Cleaner
		start, err := starterOf(j.Cleaner)
		if err != nil {
			return search.Played{Trouble: err.Error()}
		}
		out := sim.Play(t, plan, sim.Options{Start: start, Story: j.Whole})
		p := search.Played{
			Digest: out.Digest, Steps: out.Steps.Total(), Virtual: out.Virtual, Reached: out.Reached, Counts: out.Counts,
		}
		if out.Err != nil {
			p.Trouble, p.Trace = out.Err.Error(), out.Trace[max(0, len(out.Trace)-lastStepsMax):]
			return p
		}
		report := check.Check(out.Records, check.Options{BlameAny: j.BlameAny})
		p.Verdict, p.Violations, p.Unknowns, p.Findings = report.Verdict, report.Violations, report.Unknowns, len(report.Findings)
		for i, f := range plan.Faults {
			p.Planned = append(p.Planned, f.Do)
			if out.Fired[i] {
				p.Fired = append(p.Fired, f.Do)
			}
		}
		if j.Widths {
			p.Widths = out.Widths
		}
		isWhole := j.Whole || report.Verdict != check.Valid
		if j.Trace || isWhole {
			plan.Choices, plan.Search = out.Choices, schedule.Search{}
			p.Simulation, p.Trace = &plan, out.Trace
		}
		if isWhole {
			p.Widths, p.Story, p.Told = out.Widths, out.Story, report.Findings
		}
		return p
	}
}

// starterOf resolves --cleaner to what runs inside a simulation.
func starterOf(name string) (sim.Start, error) {
	kind, rest, _ := strings.Cut(name, ":")
	switch kind {
	case "fixed":
		return startFixed, nil
	case "none":
		return func(ctx context.Context, _ sim.CleanerEnv) error { <-ctx.Done(); return nil }, nil
	case "canary":
		if err := canary.Validate(rest); err != nil {
			return nil, err
		}
		if _, isChange := canary.ChangeOf(rest, ""); isChange {
			return startChanged(rest), nil
		}
		return func(ctx context.Context, env sim.CleanerEnv) error {
			return canary.Run(ctx, rest, canary.Config{REST: env.REST, Group: danm.Group(env.World.Group), Logger: logr.Discard()})
		}, nil
	}
	return nil, fmt.Errorf("cleaner %q does not run in the simulator: use fixed or canary:NAME", name)
}

// startFixed runs the cleaner that ships, by its own Run.
func startFixed(ctx context.Context, env sim.CleanerEnv) error {
	cfg := shippedConfig(env)
	cfg.Encoding = env.Encoding
	return cleaner.Run(ctx, cfg)
}

// startChanged runs the cleaner that ships with what the canary changes, which may
// be the bytes of requests and answers.
func startChanged(name string) sim.Start {
	return func(ctx context.Context, env sim.CleanerEnv) error {
		change, _ := canary.ChangeOf(name, danm.Group(env.World.Group))
		cfg := shippedConfig(env)
		if change.Wrap == nil {
			cfg.Encoding = env.Encoding // nobody reads the bytes
		}
		return cleaner.Run(ctx, spoil(cfg, change))
	}
}

func shippedConfig(env sim.CleanerEnv) cleaner.Config {
	c := cleaner.Config{
		REST: env.REST, Group: danm.Group(env.World.Group), LeaderElect: env.World.LeaderElect, Identity: env.Identity,
		ReleaseQuarantine: env.World.ReleaseQuarantine, OrphanQuarantine: env.World.OrphanQuarantine,
		Workers: env.Workers(), Clock: env.Clock, Logger: logr.Discard(),
	}
	c.DryRun = env.World.DryRun
	if env.World.StrictFencing {
		c.Fencing = ownership.Strict
	}
	if env.World.SlowLease {
		c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = 60*time.Second, 40*time.Second, 10*time.Second
	}
	return c
}
