package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
	"github.com/danm-chaos/danm-chaos/scenarios"
)

// Defaults of the harness. The quarantines are those of a cluster whose CNI ADD
// takes a second at most, not those of a real one.
const (
	defaultCluster           = "controlplane"
	defaultCleaner           = "fixed"
	defaultGroup             = danm.GroupDanmIO
	defaultOut               = "out"
	defaultReleaseQuarantine = time.Second
	defaultOrphanQuarantine  = 4 * time.Second
)

// runFlags are the flags of a run as they were given.
type runFlags struct {
	kindFlags
	existingFlags
	reportFlags
	cluster           string
	file              string
	iterations        int
	duration          time.Duration
	seed              string
	seeds             string
	systematic        int
	pods              int
	feature           string
	sieve             bool
	lanes             int
	cleaner           string
	group             string
	cni               string
	out               string
	blame             string
	keepGoing         bool
	releaseQuarantine time.Duration
	orphanQuarantine  time.Duration
	dryRun            bool
}

// register adds the flags that every command that runs something has.
func (f *runFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.cluster, "cluster", defaultCluster, "kind of cluster to run on: "+strings.Join(clusterNames(), ", "))
	fs.IntVar(&f.iterations, "iterations", 0, "how many iterations, over all lanes; 0 leaves it to the scenario")
	fs.DurationVar(&f.duration, "for", 0, "begin no iteration after that long; 0 lets the iterations end the run")
	fs.StringVar(&f.seed, "seed", "", "number below 2^64 or commit hash that decides victims, delays and order; empty draws one and prints it")
	fs.StringVar(&f.seeds, "seeds", "", "range of seeds A-B for the simulator; empty means "+defaultSeeds)
	fs.IntVar(&f.lanes, "lanes", 0, "StatefulSets side by side, each with nodes and a network of its own; 0 leaves it to the scenario")
	fs.StringVar(&f.group, "danm-api", string(defaultGroup), "API group of DANM's objects: "+joined(danm.Groups()))
	fs.StringVar(&f.cni, "cni", string(danmcni.Danm43), "whose CNI the nodes have: "+joined(danmcni.Variants()))
	fs.StringVar(&f.out, "out", defaultOut, "folder for run directories")
	fs.StringVar(&f.blame, "blame", string(check.BlameCleaner), "whose violations make the run Invalid: cleaner, or any")
	fs.BoolVar(&f.keepGoing, "keep-going", false, "go on after an Invalid iteration, and with the next scenario")
	fs.DurationVar(&f.releaseQuarantine, "release-quarantine", defaultReleaseQuarantine, "the fixed cleaner's")
	fs.DurationVar(&f.orphanQuarantine, "orphan-quarantine", defaultOrphanQuarantine, "the fixed cleaner's")
	f.kindFlags.register(fs)
	f.existingFlags.register(fs)
	f.reportFlags.register(fs)
}

// registerPods adds the flag that makes simulations small.
func (f *runFlags) registerPods(fs *pflag.FlagSet) {
	fs.IntVar(&f.pods, "pods", 0, "on the simulator: pods, on as many nodes but at least 2, instead of the scenario's; few make a fast run")
	fs.StringVar(&f.feature, "feature", "", "on the simulator: feature that every world has, instead of one in some: none, "+joined(schedule.Features()))
}

// registerCleaner adds the flags that say what is tested.
func (f *runFlags) registerCleaner(fs *pflag.FlagSet) {
	fs.StringVar(&f.cleaner, "cleaner", defaultCleaner, "cleaner under test: fixed, canary:NAME, or 'exec:/path/to/program -flag "+kubeconfigPlace+"'")
	fs.BoolVar(&f.dryRun, "dry-run", false, "run the fixed cleaner with --dry-run and check that it writes nothing")
}

func joined[T ~string](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return strings.Join(texts, ", ")
}

// plan is a checked command line for one scenario.
type plan struct {
	runFlags
	scenario harness.Scenario
	named    string // how the command line names the scenario
	seed     uint64
	group    danm.Group
	variant  danmcni.Variant
	argv     []string           // of the cleaner
	kinds    []danm.NetworkKind // that the cluster serves; empty means all
	shared   *danm.Network      // that lanes use instead of their own; nil means none
	skipped  []string           // what the cluster cannot do of the scenario, and why
}

// plans checks everything that can be checked before anything is started.
func (a *app) plans(f runFlags, names []string) ([]plan, error) {
	base, err := f.check()
	if err != nil {
		return nil, err
	}
	if (f.file == "") == (len(names) == 0) {
		return nil, usagef("run: give scenario names or -f FILE, one of both: scenarios are %s", scenarioNames())
	}
	if f.file != "" {
		base.named = commandLine("-f", f.file)
		if base.scenario, err = readScenario(f.file, a.stdin); err != nil {
			return nil, err
		}
		return []plan{base}, checkNodes(base.scenario, f.cluster)
	}
	var all []plan
	for _, name := range names {
		p := base
		p.named = name
		if p.scenario, err = namedScenario(name); err != nil {
			return nil, err
		}
		if err := checkNodes(p.scenario, f.cluster); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// check checks the flags, which do not depend on the scenario.
func (f runFlags) check() (plan, error) {
	if err := checkCluster(f.cluster); err != nil {
		return plan{}, err
	}
	if err := f.kindFlags.check(f.cluster); err != nil {
		return plan{}, err
	}
	f, err := f.checkExisting()
	if err != nil {
		return plan{}, err
	}
	p, err := f.checkScalars()
	if err != nil {
		return p, err
	}
	if f.cleaner == deployedCleaner {
		return p, nil
	}
	p.argv, err = cleanerArgv(f.cleaner, cleanerFlags{group: p.group, dryRun: f.dryRun, isDeployed: p.deploysCleaner(),
		releaseQuarantine: f.releaseQuarantine, orphanQuarantine: f.orphanQuarantine})
	return p, err
}

// checkScalars checks the flags that every kind of cluster has.
func (f runFlags) checkScalars() (plan, error) {
	p := plan{runFlags: f}
	var err error
	if err = f.reportFlags.check(); err != nil {
		return p, err
	}
	if p.seed, err = parseSeed(f.seed); err != nil {
		return p, err
	}
	if p.group, err = danm.ParseGroup(f.group); err != nil {
		return p, usagef("--danm-api: %w", err)
	}
	if p.variant, err = danmcni.ParseVariant(f.cni); err != nil {
		return p, usagef("--cni: %w", err)
	}
	return p, f.checkNumbers()
}

func (f runFlags) checkNumbers() error {
	switch {
	case f.iterations < 0:
		return usagef("--iterations %d: negative: give at least 1, or 0 for the scenario's own", f.iterations)
	case f.lanes < 0:
		return usagef("--lanes %d: negative: give at least 1, or 0 for the scenario's own", f.lanes)
	case f.duration < 0:
		return usagef("--for %s: negative: give, for example, --for 60s", f.duration)
	case f.releaseQuarantine <= 0 || f.orphanQuarantine <= 0:
		return usagef("--release-quarantine and --orphan-quarantine must be greater than zero: give, for example, 1s and 4s")
	case f.blame != string(check.BlameCleaner) && f.blame != blameAny:
		return usagef("--blame %q: use %s or %s", f.blame, check.BlameCleaner, blameAny)
	}
	return nil
}

const blameAny = "any"

func namedScenario(name string) (harness.Scenario, error) {
	s, err := scenarios.Get(name)
	if err != nil {
		return s, usagef("unknown scenario %q: use %s, or -f FILE", name, scenarioNames())
	}
	return s, nil
}

func scenarioNames() string {
	var names []string
	for _, s := range scenarios.All() {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}

// readScenario reads a scenario file; "-" is the standard input.
func readScenario(path string, stdin io.Reader) (harness.Scenario, error) {
	data, err := readInput(path, stdin)
	if err != nil {
		return harness.Scenario{}, usagef("-f %s: %w: name a scenario file", path, pathReason(err))
	}
	s, err := harness.DecodeScenario(path, data)
	if err != nil {
		return s, usagef("-f: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return s, nil
}

func readInput(path string, stdin io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(path)
}

// reproduce is the command that does the same again: everything that was drawn
// is written out, everything that is as by default is left out.
func (p plan) reproduce() string {
	line := commandLine(programName(), "run") + " " + p.named + " " +
		commandLine("--cluster", p.cluster, "--cleaner", p.cleaner, "--seed", fmt.Sprint(p.seed))
	return line + changed([]setting{
		{"--iterations", fmt.Sprint(p.iterations), "0"},
		{"--for", p.duration.String(), "0s"},
		{"--lanes", fmt.Sprint(p.lanes), "0"},
		{"--danm-api", string(p.group), string(defaultGroup)},
		{"--cni", string(p.variant), string(danmcni.Danm43)},
		{"--blame", p.blame, string(check.BlameCleaner)},
		{"--dry-run", fmt.Sprint(p.dryRun), "false"},
	}) + p.harnessMisses()
}

// refine turns the harness's own command, which knows how few iterations are
// enough, into one that can be pasted.
func (p plan) refine(command string) string {
	rest, ok := strings.CutPrefix(command, "danm-chaos ")
	if !ok {
		return command
	}
	return commandLine(programName()) + " " + rest + p.harnessMisses()
}

// harnessMisses are the flags that the harness does not know of.
func (p plan) harnessMisses() string {
	return changed([]setting{
		{"--release-quarantine", p.releaseQuarantine.String(), defaultReleaseQuarantine.String()},
		{"--orphan-quarantine", p.orphanQuarantine.String(), defaultOrphanQuarantine.String()},
	}) + p.kindMisses() + p.existingMisses()
}

// setting is a flag with its value and its default.
type setting struct{ flag, value, unless string }

// changed writes out the settings that are not as by default.
func changed(settings []setting) string {
	line := ""
	for _, s := range settings {
		switch s.value {
		case s.unless:
		case "true":
			line += " " + s.flag
		default:
			line += " " + commandLine(s.flag, s.value)
		}
	}
	return line
}

// programName is how we were called, so that the command can be pasted. A test
// program is not us.
func programName() string {
	if filepath.Base(os.Args[0]) == "danm-chaos" {
		return os.Args[0]
	}
	return "danm-chaos"
}

// clusterNames lists the kinds of cluster.
func clusterNames() []string {
	return []string{defaultCluster, simCluster, kindCluster, existingCluster}
}

// checkCluster accepts what plays scenarios, which the simulator does by itself.
func checkCluster(name string) error {
	const use = "use --cluster " + defaultCluster + ", " + kindCluster + " or " + existingCluster
	switch {
	case name == simCluster:
		return usagef("--cluster %s: it plays scenarios by their names and files of simulations only: %s", name, use)
	case slices.Contains(clusterNames(), name):
		return nil
	default:
		return usagef("--cluster %q: unknown kind of cluster: %s", name, use)
	}
}
