package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
	"github.com/danm-chaos/danm-chaos/harness/search"
	"github.com/danm-chaos/danm-chaos/harness/shrink"
)

// readSimulation reads a simulation file; ok tells whether it is one.
func readSimulation(path string) (s schedule.Simulation, ok bool, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return s, false, err
	}
	var head struct {
		Kind string `json:"kind"`
	}
	if json.Unmarshal(data, &head) != nil || head.Kind != schedule.SimulationKind {
		return s, false, nil
	}
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		return s, false, usagef("%s: %w", path, err)
	}
	if s.APIVersion != schedule.SimulationAPIVersion {
		return s, false, usagef("%s: apiVersion %q is not %s", path, s.APIVersion, schedule.SimulationAPIVersion)
	}
	return s, true, nil
}

// cleanerOf is the cleaner that the command line asks for, or else the file.
func cleanerOf(s schedule.Simulation, given string) string {
	switch {
	case given != "":
		return given
	case s.Cleaner != "":
		return s.Cleaner
	}
	return defaultCleaner
}

// replaySimulation plays a stored simulation twice and tells its story.
func (a *app) replaySimulation(ctx context.Context, s schedule.Simulation, cleaner string) error {
	ctx, signals := catchInterrupts(ctx, a.stderr)
	defer signals.release()
	pool := workers()
	pool.Workers = 1
	session, err := pool.Open(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	var plays []search.Played
	job := search.Job{Simulation: &s, Cleaner: cleaner, Whole: true}
	_, _, _, err = session.First(ctx, []search.Job{job, job}, func(p search.Played) bool { plays = append(plays, p); return false })
	switch {
	case err != nil:
		return err
	case plays[0].Trouble != "":
		fmt.Fprintf(a.stderr, "danm-chaos: bug in the simulator: %s\n", plays[0].Trouble)
		return exitWith(exitHarnessBug)
	case plays[0].Digest != plays[1].Digest:
		fmt.Fprintln(a.stderr, "danm-chaos: bug in the simulator: the same simulation gave two histories")
		return exitWith(exitHarnessBug)
	}
	a.tellPlayed(plays[0], cleaner)
	return exitWith(codeOf(plays[0].Verdict))
}

func (a *app) tellPlayed(p search.Played, cleaner string) {
	for _, line := range p.Story {
		fmt.Fprintln(a.stdout, line)
	}
	fmt.Fprintf(a.stdout, "\n%s, %d steps, cleaner %s, history %016x\n", p.Counts, p.Steps, cleaner, p.Digest)
	for _, v := range p.Violations {
		fmt.Fprintf(a.stdout, "%s: %s\n", v.Invariant, v.Message)
	}
	for _, v := range p.Told {
		fmt.Fprintf(a.stdout, "not the cleaner's doing: %s: %s\n", v.Invariant, v.Message)
	}
	for _, u := range p.Unknowns {
		fmt.Fprintf(a.stdout, "Unknown: %s\n", u)
	}
	fmt.Fprintln(a.stdout, p.Verdict)
}

// shrinkMax bounds a shrink unless --for says otherwise.
const shrinkMax = 30 * time.Second

func (a *app) shrinkCommand() *cobra.Command {
	var cleaner, out string
	var limit time.Duration
	c := &cobra.Command{
		Use:   "shrink FILE",
		Short: "Reduce a failing simulation to a small one that fails the same way",
		Args:  takes(1, 1, "the simulation"),
		RunE: func(c *cobra.Command, args []string) error {
			s, ok, err := readSimulation(args[0])
			if err != nil || !ok {
				return usagef("shrink: %s: not a simulation: name a failure-SEED.json of a run with --cluster %s", args[0], simCluster)
			}
			if out == "" {
				out = strings.TrimSuffix(args[0], ".json") + ".small.json"
			}
			return a.shrink(c.Context(), s, cleanerOf(s, cleaner), out, limit)
		},
	}
	c.Flags().StringVar(&cleaner, "cleaner", "", "cleaner under test; empty is that of the file")
	c.Flags().StringVar(&out, "out", "", "file for the result; empty is FILE with .small.json")
	c.Flags().DurationVar(&limit, "for", shrinkMax, "how long to look for smaller ones")
	return c
}

func (a *app) shrink(ctx context.Context, s schedule.Simulation, cleaner, out string, limit time.Duration) error {
	ctx, signals := catchInterrupts(ctx, a.stderr)
	defer signals.release()
	began := time.Now()
	session, err := workers().Open(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	original, err := playOne(ctx, session, s, cleaner)
	if err != nil {
		return err
	}
	if original.Verdict != check.Invalid {
		fmt.Fprintf(a.stderr, "danm-chaos: %s with cleaner %s: nothing to shrink\n", original.Verdict, cleaner)
		return exitWith(exitUnknown)
	}
	small, tried, err := shrunk(ctx, session, original, cleaner, limit)
	if err != nil {
		return err
	}
	return a.tellShrunk(ctx, small, cleaner, out, fmt.Sprintf("%d candidates in %s", tried, time.Since(began).Round(time.Millisecond)))
}

// shrunk makes a simulation smaller that breaks an invariant, and returns how
// many candidates that took.
func shrunk(ctx context.Context, session *search.Session, failing search.Played, cleaner string, limit time.Duration) (schedule.Simulation, int, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tried, same := 0, failing.Violations[0].Invariant
	small, err := shrink.Shrink(ctx, *failing.Simulation, func(ctx context.Context, candidates []schedule.Simulation) (schedule.Simulation, bool, error) {
		tried += len(candidates)
		return firstFailing(ctx, session, candidates, cleaner, same)
	})
	return small, tried, err
}

// tellShrunk stores the result and tells its story.
func (a *app) tellShrunk(ctx context.Context, small schedule.Simulation, cleaner, out, how string) error {
	small, p, err := settled(ctx, small, cleaner)
	if err != nil {
		return err
	}
	if err := storeSimulation(out, small); err != nil {
		return err
	}
	a.tellPlayed(p, cleaner)
	fmt.Fprintf(a.stdout, "%d pods, %d nodes, %d replicas; %d steps, faults and choices that matter; %s\n",
		small.World.Pods, small.World.Nodes, small.World.Replicas, shrink.Events(small), how)
	fmt.Fprintf(a.stdout, "reproduce: %s\n", commandLine(programName(), "replay", out))
	return nil
}

// settled plays a shrunk simulation once more, in a worker of its own, as those
// of the search may have been stopped in the middle, and adds what is to come
// out of it.
func settled(ctx context.Context, small schedule.Simulation, cleaner string) (schedule.Simulation, search.Played, error) {
	pool := workers()
	pool.Workers = 1
	session, err := pool.Open(ctx)
	if err != nil {
		return small, search.Played{}, err
	}
	defer session.Close()
	p, err := playOne(ctx, session, small, cleaner)
	small.Cleaner, small.Expect, small.Story = cleaner, string(p.Verdict), p.Story
	return small, p, err
}

func playOne(ctx context.Context, session *search.Session, s schedule.Simulation, cleaner string) (search.Played, error) {
	job := search.Job{Simulation: &s, Cleaner: cleaner, Whole: true}
	p, _, _, err := session.First(ctx, []search.Job{job}, func(search.Played) bool { return true })
	if err == nil && p.Trouble != "" {
		err = fmt.Errorf("bug in the simulator: %s", p.Trouble)
	}
	return p, err
}

// firstFailing plays candidates until one breaks the same invariant.
func firstFailing(ctx context.Context, session *search.Session, candidates []schedule.Simulation, cleaner string, same check.Invariant) (schedule.Simulation, bool, error) {
	jobs := make([]search.Job, len(candidates))
	for i := range candidates {
		jobs[i] = search.Job{Number: i, Simulation: &candidates[i], Cleaner: cleaner}
	}
	p, _, ok, err := session.First(ctx, jobs, func(p search.Played) bool {
		return p.Verdict == check.Invalid && slices.ContainsFunc(p.Violations, func(v check.Violation) bool { return v.Invariant == same })
	})
	if err != nil || !ok {
		return schedule.Simulation{}, false, err
	}
	return *p.Simulation, true, nil
}
