package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
	"github.com/danm-chaos/danm-chaos/reports"
)

func (a *app) replayCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "replay FILE",
		Short: "Run a stored schedule again",
		Long: `Runs a stored schedule again: same scenario, seed, lanes and iterations. FILE is a
run directory or its schedule.json, or a simulation, which gives the same history
byte for byte. What the run directory says about cleaner,
API group and CNI holds, unless flags say otherwise.`,
		Args: takes(1, 1, "the schedule or run directory"),
		RunE: func(c *cobra.Command, args []string) error {
			if sim, ok, err := readSimulation(args[0]); err == nil && ok {
				given := ""
				if c.Flags().Changed("cleaner") {
					given = f.cleaner
				}
				return a.replaySimulation(c.Context(), sim, cleanerOf(sim, given))
			}
			s, err := readStored(args[0])
			if err != nil {
				return err
			}
			s.apply(&f, c.Flags())
			return a.replay(c.Context(), f, s)
		},
	}
	f.registerCleaner(c.Flags())
	f.register(c.Flags())
	for _, fromSchedule := range []string{"seed", "lanes", "iterations", "for"} {
		c.Flags().Lookup(fromSchedule).Hidden = true
	}
	return c
}

// stored is what a run directory tells about a run.
type stored struct {
	path     string // of the schedule
	raw      []byte
	schedule schedule.Schedule
	scenario harness.Scenario
	result   harness.Result // zero where the schedule lies alone
}

func readStored(path string) (stored, error) {
	s := stored{path: path}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		s.path = filepath.Join(path, scheduleFile)
	}
	var err error
	if s.raw, err = os.ReadFile(s.path); err != nil {
		return s, usagef("replay: %s: %w: name a run directory or its %s", s.path, pathReason(err), scheduleFile)
	}
	if err := json.Unmarshal(s.raw, &s.schedule); err != nil || s.schedule.SchemaVersion != schedule.SchemaVersion || len(s.schedule.Iterations) == 0 {
		return s, usagef("replay: %s: no schedule of version %d: name a run directory or its %s", s.path, schedule.SchemaVersion, scheduleFile)
	}
	beside := filepath.Dir(s.path)
	if s.result, err = reports.Read(beside); err != nil {
		s.result = harness.Result{}
	}
	file := filepath.Join(beside, scenarioFile)
	if _, err := os.Stat(file); err == nil {
		s.scenario, err = readScenario(file, nil)
		return s, err
	}
	s.scenario, err = namedScenario(s.schedule.Scenario)
	return s, err
}

// apply sets what the stored run had, where the command line is silent.
func (s stored) apply(f *runFlags, given *pflag.FlagSet) {
	f.seed, f.lanes, f.iterations = fmt.Sprint(s.schedule.Seed), len(s.schedule.Lanes), len(s.schedule.Iterations)
	for flag, field := range map[string]struct {
		to   *string
		from string
	}{
		"cluster": {&f.cluster, s.result.Cluster}, "cleaner": {&f.cleaner, s.result.Cleaner},
		"danm-api": {&f.group, s.result.Group}, "cni": {&f.cni, s.result.CNI},
	} {
		if field.from != "" && !given.Changed(flag) {
			*field.to = field.from
		}
	}
}

// replay runs the plan and tells if this version draws another schedule.
func (a *app) replay(ctx context.Context, f runFlags, s stored) error {
	p, err := f.check()
	if err != nil {
		return err
	}
	p.scenario, p.named = s.scenario, s.scenario.Name
	if s.scenario.Name != s.schedule.Scenario {
		return usagef("replay: %s is of scenario %s, but %s beside it is %s", s.path, s.schedule.Scenario, scenarioFile, s.scenario.Name)
	}
	ctx, signals := catchInterrupts(ctx, a.stderr)
	defer signals.release()
	o, err := a.runOne(ctx, signals, p)
	if err != nil {
		return err
	}
	again, err := os.ReadFile(o.dir.join(scheduleFile))
	if err == nil && !bytes.Equal(again, s.raw) {
		fmt.Fprintf(a.stderr, "danm-chaos: %s differs from %s: this version draws other steps from the seed\n", o.dir.join(scheduleFile), s.path)
	}
	if err := a.conclude(o); err != nil {
		return err
	}
	return exitWith(o.code())
}
