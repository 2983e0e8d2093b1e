package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
	"github.com/danm-chaos/danm-chaos/clusters/sim"
	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
	"github.com/danm-chaos/danm-chaos/harness/search"
	"github.com/danm-chaos/danm-chaos/reports"
)

const simCluster = "sim"

// defaultSeeds are run where the command line names none.
const defaultSeeds = "1-1000"

// A worker collects garbage when its heap is so many percent larger than what
// lives, which is little. A limit on memory alone would be worse: the runtime
// then returns pages that it needs again at once.
const (
	workerGC     = "2000"
	workerMemory = "1GiB" // whatever happens
)

// workers returns a pool of worker processes, one for each core.
func workers() search.Pool {
	return search.Pool{Workers: runtime.NumCPU(), Command: func(ctx context.Context) *exec.Cmd {
		c := exec.CommandContext(ctx, self(), workerCommand)
		c.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC="+workerGC, "GOMEMLIMIT="+workerMemory)
		return c
	}}
}

// self is the path of this program.
func self() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// parseSeeds reads "A-B" or a single seed.
func parseSeeds(text string) (search.Shard, error) {
	seeds, err := search.ParseShard(text)
	if err != nil {
		return seeds, usagef("--seeds %q: not a range of numbers: give, for example, --seeds %s", text, defaultSeeds)
	}
	return seeds, nil
}

// sweepOf checks a command line for the simulator.
func (a *app) sweepOf(f runFlags, names []string) (search.Sweep, error) {
	s := search.Sweep{Pool: workers(), Cleaner: f.cleaner, For: f.duration, KeepGoing: f.keepGoing, BlameAny: f.blame == blameAny, Now: time.Now}
	p, err := f.checkScalars()
	if err != nil {
		return s, err
	}
	if _, err := starterOf(f.cleaner); err != nil {
		return s, usagef("--cleaner: %w", err)
	}
	seeds := f.seeds
	if seeds == "" && f.seed != "" {
		seeds = fmt.Sprint(p.seed)
	}
	if seeds == "" {
		seeds = defaultSeeds
	}
	whole, err := parseSeeds(seeds)
	if err != nil {
		return s, err
	}
	s.First, s.Last = whole.First, whole.Last
	if f.duration > 0 && f.seeds == "" {
		s.Last = ^uint64(0) >> 1
	}
	feature, err := schedule.ParseFeature(f.feature)
	if err != nil {
		return s, usagef("--feature: %w", err)
	}
	if names, err = simulated(names); err != nil {
		return s, err
	}
	for _, name := range names {
		scenario, err := namedScenario(name)
		if err != nil {
			return s, err
		}
		shape := scenario.Shape(p.group, string(p.variant))
		if f.pods > 0 {
			shape.Pods, shape.Nodes = f.pods, min(shape.Nodes, max(2, f.pods))
		}
		shape.DryRunPercent, shape.Feature = dryRunPercent(f), feature
		s.Shapes = append(s.Shapes, shape)
	}
	return s, nil
}

// sometimesDry is how often, in percent, a cleaner that has such a mode is to
// write nothing.
const sometimesDry = 2

func dryRunPercent(f runFlags) int {
	switch {
	case f.dryRun:
		return 100
	case f.cleaner == defaultCleaner:
		return sometimesDry
	}
	return 0
}

// runSim searches with the simulator and reports like every other run.
func (a *app) runSim(ctx context.Context, f runFlags, names []string) error {
	s, err := a.sweepOf(f, names)
	if err != nil {
		return err
	}
	ctx, signals := catchInterrupts(ctx, a.stderr)
	defer signals.release()
	return a.sweep(ctx, f, s)
}

// sweep runs a search and reports it.
func (a *app) sweep(ctx context.Context, f runFlags, s search.Sweep) error {
	started := time.Now()
	dir, err := newRunDir(f.out, started, s.First)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "%s on %s, cleaner %s, from seed %d, %d workers, run %s\n",
		scenarioList(s), simCluster, s.Cleaner, s.First, s.Pool.Workers, dir.id)
	s.Progress = func(t search.Totals) {
		fmt.Fprintf(a.stdout, "%6d seeds, %.0f/s, %.0f steps/s\n", t.Seeds, rate(t.Seeds+t.Again, t.Took), rate(int(t.Granted), t.Took))
	}
	totals := s.Run(ctx)
	code, err := a.concludeSearch(searched{sweep: s, flags: f, totals: totals, missing: missing(ctx, s, totals), dir: dir, started: started})
	if err != nil {
		return err
	}
	return exitWith(code)
}

// searched is a search that is over, wherever its seeds were played.
type searched struct {
	sweep   search.Sweep
	flags   runFlags
	totals  search.Totals
	missing []string // that keeps it from being Valid
	dir     runDir
	started time.Time
	commit  string // of the program that played; empty if it was this one
	resume  string // command line that plays what is left; empty if nothing is
}

// concludeSearch writes and prints what was found and returns the exit code. A
// simulator that is wrong comes first, and hides nothing.
func (a *app) concludeSearch(s searched) (int, error) {
	for _, t := range s.totals.Troubles {
		fmt.Fprintf(a.stderr, "danm-chaos: bug in the simulator: %s\n", t)
		if err := storeJSON(s.troublePath(t), t); err != nil {
			return exitHarnessBug, err
		}
	}
	result, err := s.result()
	if err != nil {
		return exitUnknown, err
	}
	a.printTotals(s.totals, s.missing)
	fmt.Fprintf(a.stdout, "\nrun directory: %s\n", s.dir.path)
	if err := reports.Write(s.dir.path, result); err != nil {
		return exitUnknown, err
	}
	a.printVerdict(result, s.totals)
	if len(s.totals.Troubles) > 0 {
		return exitHarnessBug, nil
	}
	return codeOf(result.Verdict), nil
}

func rate(n int, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return float64(n) / took.Seconds()
}

func scenarioList(s search.Sweep) string {
	var names []string
	for _, shape := range s.Shapes {
		names = append(names, shape.Scenario)
	}
	return strings.Join(names, ", ")
}

// coverageSeeds is how many seeds it takes until everything should have
// happened once.
const coverageSeeds = 2000

// missing is what a search of that size should have reached and did not. What
// was broken off answers another question than the one that was asked.
func missing(ctx context.Context, s search.Sweep, t search.Totals) []string {
	var lacks []string
	for _, trouble := range t.Troubles {
		lacks = append(lacks, "bug in the simulator: "+trouble.String())
	}
	if ctx.Err() != nil {
		lacks = append(lacks, interruptedAfter(s, t))
	}
	if t.Seeds >= coverageSeeds {
		lacks = append(lacks, t.Missing(schedule.SimFaultKinds(), sim.Sometimes())...)
	}
	return lacks
}

func interruptedAfter(s search.Sweep, t search.Totals) string {
	if s.For > 0 {
		return fmt.Sprintf("interrupted after %s of %s", t.Took.Round(time.Second), s.For)
	}
	return fmt.Sprintf("interrupted after %d of %d seeds", t.Seeds, s.Last-s.First+1)
}

// result stores what failed and sums the search up.
func (s searched) result() (harness.Result, error) {
	commit, versions := buildVersions()
	t, sweep := s.totals, s.sweep
	result := harness.Result{
		SchemaVersion: harness.ResultSchemaVersion, RunID: s.dir.id, Scenario: scenarioList(sweep), Cluster: simCluster, Cleaner: sweep.Cleaner,
		Group: sweep.Shapes[0].Group, CNI: sweep.Shapes[0].CNI, Seed: sweep.First, Commit: cmp.Or(s.commit, commit), Versions: versions, Started: s.started,
		DurationSeconds: t.Took.Seconds(), Verdict: t.Verdict(s.missing), Unknowns: s.missing,
		FaultsPlanned: countsOf(t.Planned), FaultsFired: countsOf(t.Fired), Checked: map[check.Invariant]int{},
		Digest: t.Digest.String(), Reproduce: s.reproduce(),
	}
	for _, failure := range t.Failures {
		result.Violations = append(result.Violations, failure.Violations...)
		result.Unknowns = append(result.Unknowns, failure.Unknowns...)
		if failure.Simulation == nil {
			continue
		}
		if err := storeSimulation(s.failurePath(failure.Seed, ""), *failure.Simulation); err != nil {
			return result, err
		}
	}
	return result, nil
}

// failurePath is where the simulation of a seed that failed is stored.
func (s searched) failurePath(seed uint64, kind string) string {
	return s.dir.join(fmt.Sprintf("failure-%d%s.json", seed, kind))
}

// troublePath is where somebody finds what is to be known of a trouble.
func (s searched) troublePath(t search.Trouble) string {
	return s.dir.join(fmt.Sprintf("%s-%d.json", t.Kind, t.Seed))
}

// reproduce is the command that shows the worst of what was found again, or
// goes on where the search did not come to its end.
func (s searched) reproduce() string {
	t := s.totals
	switch {
	case len(t.Troubles) > 0:
		return s.again(t.Troubles[0])
	case len(t.Failures) > 0:
		return commandLine(programName(), "replay", s.failurePath(t.Failures[0].Seed, ""))
	case s.resume != "":
		return s.resume
	}
	played := search.Shard{First: s.sweep.First, Last: s.sweep.First + uint64(max(0, t.Seeds-1))}
	return s.commandLine("run", namesOf(s.sweep), played)
}

// againRepeat is how often a seed is played that differed once: it may take many
// runs until it does so again.
const againRepeat = 200

// again is the command that may show a trouble again.
func (s searched) again(t search.Trouble) string {
	names, seeds := namesOf(s.sweep), search.Shard{First: t.Seed, Last: t.Seed}
	if t.Scenario != "" {
		names = []string{t.Scenario}
	}
	if t.Kind == search.Diverged {
		return s.commandLine("stress", names, seeds) + " " + commandLine("--repeat", fmt.Sprint(againRepeat))
	}
	return s.commandLine("run", names, seeds)
}

// commandLine is the line that plays seeds as this search did.
func (s searched) commandLine(command string, names []string, seeds search.Shard) string {
	line := slices.Concat([]string{programName(), command}, names, []string{"--cluster", simCluster, "--cleaner", s.sweep.Cleaner, "--seeds", seeds.String()})
	return commandLine(line...) + changed([]setting{
		{"--danm-api", s.flags.group, string(defaultGroup)},
		{"--cni", s.flags.cni, string(danmcni.Danm43)},
		{"--pods", fmt.Sprint(s.flags.pods), "0"},
		{"--feature", s.flags.feature, ""},
		{"--blame", s.flags.blame, string(check.BlameCleaner)},
		{"--dry-run", fmt.Sprint(s.flags.dryRun), "false"},
	})
}

func namesOf(s search.Sweep) []string {
	var names []string
	for _, shape := range s.Shapes {
		names = append(names, shape.Scenario)
	}
	return names
}

// storeJSON stores something that people read.
func storeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("storing %s: %w", filepath.Base(path), err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("storing %s: %w", filepath.Base(path), err)
	}
	return nil
}

func storeSimulation(path string, s schedule.Simulation) error {
	data, err := s.Encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("storing a failure: %w", err)
	}
	return nil
}

func countsOf(counts map[schedule.FaultKind]int) map[string]int {
	out := map[string]int{}
	for kind, n := range counts {
		out[string(kind)] = n
	}
	return out
}

// printTotals prints speed and coverage.
func (a *app) printTotals(t search.Totals, missing []string) {
	fmt.Fprintf(a.stdout, "\n%d seeds and %d of them twice in %s: %.0f seeds/s, %.0f steps/s, %d steps a run, %s of virtual time\n",
		t.Seeds, t.Again, t.Took.Round(time.Millisecond), rate(t.Seeds+t.Again, t.Took), rate(int(t.Granted), t.Took),
		int(t.Steps)/max(1, t.Seeds), t.Virtual.Round(time.Minute))
	fmt.Fprintf(a.stdout, "verdicts: %d Valid, %d Invalid, %d Unknown; %d findings not held against the cleaner\n",
		t.Verdicts[check.Valid], t.Verdicts[check.Invalid], t.Verdicts[check.Unknown], t.Findings)
	fmt.Fprintf(a.stdout, "digest of all histories: %s\n\n", t.Digest)
	out := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "fault\tplanned\tfired\t")
	kinds := schedule.SimFaultKinds()
	slices.Sort(kinds)
	for _, kind := range kinds {
		fmt.Fprintf(out, "%s\t%d\t%d\t\n", kind, t.Planned[kind], t.Fired[kind])
	}
	fmt.Fprintln(out, "\t\t\t")
	fmt.Fprintln(out, "sometimes\t\ttimes\t")
	for _, what := range sim.Sometimes() {
		fmt.Fprintf(out, "%s\t\t%d\t\n", what, t.Reached[what])
	}
	out.Flush()
	for _, what := range missing {
		fmt.Fprintln(a.stdout, what)
	}
}

// printVerdict prints the verdict and, last, the line that reproduces it.
func (a *app) printVerdict(result harness.Result, t search.Totals) {
	fmt.Fprintf(a.stdout, "\n%s\n", result.Verdict)
	for i, failure := range t.Failures {
		if i == violationsShown {
			fmt.Fprintf(a.stdout, "and %d more\n", len(t.Failures)-i)
			break
		}
		fmt.Fprintf(a.stdout, "seed %d: ", failure.Seed)
		printFirst(a, failure)
	}
	fmt.Fprintf(a.stdout, "reproduce: %s\n", result.Reproduce)
}

// violationsShown bounds how many failures are told.
const violationsShown = 5

// printFirst tells what is wrong with a run, in a line.
func printFirst(a *app, p search.Played) {
	switch {
	case len(p.Violations) > 0:
		fmt.Fprintf(a.stdout, "%s: %s\n", p.Violations[0].Invariant, p.Violations[0].Message)
	case len(p.Unknowns) > 0:
		fmt.Fprintf(a.stdout, "Unknown: %s\n", p.Unknowns[0])
	default:
		fmt.Fprintf(a.stdout, "%s\n", p.Verdict)
	}
}
