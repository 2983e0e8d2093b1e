package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/spf13/pflag"

	"github.com/danm-chaos/danm-chaos/clusters/existing/fleet"
	"github.com/danm-chaos/danm-chaos/harness/search"
)

// fleetFile is what resuming a fleet needs, in its run directory. Beside it are
// the results that were gathered.
const (
	fleetFile    = "fleet.json"
	gatheredDir  = "shards"
	gatheredKind = ".json.gz"
)

// defaultShards is how many pods a fleet has if nobody says.
const defaultShards = 4

// fleetFlags are the flags of a fleet as they were given.
type fleetFlags struct {
	runFlags
	shards, attempts int
	resume           string
	shrink           time.Duration
}

func (f *fleetFlags) register(fs *pflag.FlagSet) {
	f.registerSearch(fs)
	fs.StringVar(&f.seeds, "seeds", "", "range of seeds A-B")
	fs.IntVar(&f.shards, "shards", defaultShards, "pods, each with one core, that share the seeds")
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig; nothing is looked for by itself")
	fs.StringVar(&f.context, "context", "", "context; the current one is never taken")
	fs.StringVar(&f.production, "production-pattern", defaultProduction, "refuse clusters whose context, name or server match; empty refuses none")
	fs.BoolVar(&f.yes, "yes", false, "begin without asking")
	fs.StringVar(&f.image, "image", "", "image of danm-chaos (make image) that the cluster's nodes have or can pull")
	fs.IntVar(&f.attempts, "attempts", fleet.AttemptsDefault, "how often a shard is tried before it counts as lost")
	fs.DurationVar(&f.lifetime, "lifetime", fleet.LifetimeDefault, "end the pods by then; later anybody may remove what is left")
	fs.DurationVar(&f.shrink, "shrink", shrinkMax, "how long a pod may shrink each failure; 0 leaves them as they are")
	fs.StringVar(&f.resume, "resume", "", "run directory, or its name, of a fleet to go on with: what was gathered is not played again")
	fs.StringVar(&f.out, "out", defaultOut, "folder for run directories")
}

// fleetPlan says what a fleet plays. It is data, because another program may
// have to go on.
type fleetPlan struct {
	Version   int            `json:"version"`
	RunID     string         `json:"runId"`
	Started   time.Time      `json:"started"`
	Scenarios []string       `json:"scenarios"`
	Seeds     search.Shard   `json:"seeds"`
	Shards    []search.Shard `json:"shards"`
	Cleaner   string         `json:"cleaner"`
	Group     string         `json:"danmApi"`
	CNI       string         `json:"cni"`
	Blame     string         `json:"blame"`
	KeepGoing bool           `json:"keepGoing"`
	Pods      int            `json:"pods"`
	Image     string         `json:"image"`
}

const fleetPlanVersion = 1

// newFleetPlan plans what the command line asks for.
func newFleetPlan(f fleetFlags, s search.Sweep) (fleetPlan, error) {
	if f.shards < 1 {
		return fleetPlan{}, usagef("--shards %d: give at least 1", f.shards)
	}
	seeds := search.Shard{First: s.First, Last: s.Last}
	return fleetPlan{
		Version: fleetPlanVersion, Scenarios: namesOf(s), Seeds: seeds, Shards: seeds.Split(f.shards),
		Cleaner: f.cleaner, Group: f.group, CNI: f.cni, Blame: f.blame, KeepGoing: f.keepGoing, Pods: f.pods, Image: f.image,
	}, nil
}

// flags are those of a command line that asks for the plan.
func (p fleetPlan) flags(f fleetFlags) fleetFlags {
	f.seeds, f.cleaner, f.group, f.cni, f.blame, f.keepGoing, f.pods = p.Seeds.String(), p.Cleaner, p.Group, p.CNI, p.Blame, p.KeepGoing, p.Pods
	if f.image == "" {
		f.image = p.Image
	}
	return f
}

// podArgs are the arguments of the program in the pods.
func (p fleetPlan) podArgs(shrink time.Duration) []string {
	args := append([]string{shardCommand}, p.Scenarios...)
	args = append(args, "--cleaner", p.Cleaner, "--danm-api", p.Group, "--cni", p.CNI, "--blame", p.Blame,
		"--pods", fmt.Sprint(p.Pods), "--shrink", shrink.String())
	if p.KeepGoing {
		args = append(args, "--keep-going")
	}
	return args
}

// fleetOptions say what the cluster is to do: the shards that are left.
func (f fleetFlags) fleetOptions(p fleetPlan, left []search.Shard) (fleet.Options, error) {
	o := fleet.Options{
		RunID: p.RunID, Kubeconfig: f.kubeconfig, Context: f.context, Image: f.image, Args: p.podArgs(f.shrink),
		Attempts: f.attempts, Lifetime: f.lifetime, Resume: f.resume != "",
	}
	for _, shard := range left {
		o.Shards = append(o.Shards, shard.String())
	}
	if f.production != "" {
		pattern, err := regexp.Compile(f.production)
		if err != nil {
			return o, usagef("--production-pattern %q: %w", f.production, err)
		}
		o.Production = pattern
	}
	if f.attempts < 1 {
		return o, usagef("--attempts %d: give at least 1", f.attempts)
	}
	return o, nil
}

// fleetFolder is the run directory of a fleet with what it gathered.
type fleetFolder struct{ runDir }

// create stores the plan of a new fleet.
func (d fleetFolder) create(p fleetPlan) error {
	if err := os.Mkdir(d.join(gatheredDir), 0o755); err != nil {
		return fmt.Errorf("making the run directory: %w", err)
	}
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fmt.Errorf("storing the fleet: %w", err)
	}
	if err := os.WriteFile(d.join(fleetFile), append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("storing the fleet: %w", err)
	}
	return nil
}

// openFleetFolder finds the fleet that is to be resumed, by its directory or by
// the directory's name in the folder of runs.
func openFleetFolder(f fleetFlags) (fleetFolder, fleetPlan, error) {
	var p fleetPlan
	dir := f.resume
	if _, err := os.Stat(filepath.Join(dir, fleetFile)); errors.Is(err, fs.ErrNotExist) {
		dir = filepath.Join(f.out, f.resume)
	}
	data, err := os.ReadFile(filepath.Join(dir, fleetFile))
	if err != nil {
		return fleetFolder{}, p, usagef("--resume %s: %w: name the run directory of a fleet", f.resume, pathReason(err))
	}
	if err := json.Unmarshal(data, &p); err != nil || p.Version != fleetPlanVersion {
		return fleetFolder{}, p, usagef("--resume %s: %s is of another release: begin a new fleet", f.resume, fleetFile)
	}
	return fleetFolder{runDir{id: p.RunID, path: dir}}, p, nil
}

// keep stores what a shard found before anybody may remove it from the cluster.
func (d fleetFolder) keep(shard search.Shard, data []byte) error {
	path := d.join(gatheredDir, shard.String()+gatheredKind)
	if err := os.WriteFile(path+".next", data, 0o644); err != nil {
		return fmt.Errorf("storing shard %s: %w", shard, err)
	}
	if err := os.Rename(path+".next", path); err != nil {
		return fmt.Errorf("storing shard %s: %w", shard, err)
	}
	return nil
}

// kept returns what was gathered before. What cannot be read was not gathered.
func (d fleetFolder) kept(p fleetPlan) (map[search.Shard]search.ShardResult, error) {
	gathered := map[search.Shard]search.ShardResult{}
	for _, shard := range p.Shards {
		data, err := os.ReadFile(d.join(gatheredDir, shard.String()+gatheredKind))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading shard %s: %w", shard, err)
		}
		if r, err := search.DecodeShard(data, shard); err == nil {
			gathered[shard] = r
		}
	}
	return gathered, nil
}
