package harness

import (
	"errors"
	"fmt"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/harness/nemesis"
)

// Config says what to run, on what, and where the outcome goes.
type Config struct {
	Scenario     Scenario
	ScenarioArgs string           // how the command line names it, for Reproduce; empty means its name
	Cluster      clusters.Cluster // must be a NodeAdder and a CleanerRunner
	Group        danm.Group       // empty means danm.io
	Seed         uint64
	Iterations   int           // over all lanes; 0 means the scenario's
	Lanes        int           // 0 means the scenario's, or as many as a cluster with fixed workers has nodes for
	For          time.Duration // begin no iteration after that long; then Iterations, if 0, is as many as could fit

	RunID string
	Out   string // folder of the run; schedule.json is written there
	// History is open at HistoryPath. The caller made it, because the cluster
	// records there as well, and closes it.
	History     *history.File
	HistoryPath string

	Cleaner     clusters.CleanerSpec
	CleanerName string             // as given on the command line
	DryRun      bool               // the cleaner was told to write nothing
	BlameAny    bool               // what DANM's own CNI breaks makes the run Invalid too
	KeepGoing   bool               // go on after an Invalid iteration
	Teardown    bool               // remove the lanes at the end, for a cluster that outlives the run
	Expires     time.Time          // from when what such a run left may be removed by anybody; zero means never
	Shared      *danm.NetworkRef   // a network that is there and stays; nil has lanes make their own
	Kinds       []danm.NetworkKind // that the API serves; empty means all
	Image       string             // of the workload; empty means the one that clusters of our own have

	CNI      string            // for run.json
	Commit   string            // for run.json
	Versions map[string]string // for run.json
	Observer Observer          // nil means nobody listens
}

// Observer hears how a run goes. Calls never overlap. They come from inside
// the run and should return soon.
type Observer interface {
	// LanePhase tells what a lane is doing: a verb of the schedule, "building",
	// "settling", "done".
	LanePhase(lane, phase string)
	// IterationDone brings an iteration; done counts those so far.
	IterationDone(it Iteration, done, planned int)
	// RunPhase tells what the run as a whole is doing, in a few words.
	RunPhase(phase string)
}

// withDefaults fills in what the scenario or the design decides.
func (c Config) withDefaults() Config {
	if c.Group == "" {
		c.Group = danm.GroupDanmIO
	}
	if lister, ok := c.Cluster.(clusters.WorkerLister); ok {
		c = c.fitTo(len(lister.Workers()))
	}
	if c.Lanes == 0 {
		c.Lanes = c.Scenario.Lanes
	}
	if c.Iterations == 0 {
		c.Iterations = c.Scenario.Iterations
		if c.For > 0 {
			c.Iterations = c.Lanes * int(c.For/iterationMin+1)
		}
	}
	c.Lanes = min(c.Lanes, c.Iterations)
	if len(c.Kinds) == 0 {
		c.Kinds = danm.NetworkKinds()
	}
	if c.ScenarioArgs == "" {
		c.ScenarioArgs = c.Scenario.Name
	}
	if c.Observer == nil {
		c.Observer = silent{}
	}
	return c
}

// fitTo makes do with the workers that there are: with fewer lanes than the
// scenario has, and if need be with a lane that takes them all.
func (c Config) fitTo(workers int) Config {
	c.Scenario.NodesPerLane = min(c.Scenario.NodesPerLane, workers)
	c.Scenario.SpareNodes = min(c.Scenario.SpareNodes, max(0, workers-1))
	if c.Lanes == 0 && c.Scenario.NodesPerLane > 0 {
		c.Lanes = min(c.Scenario.Lanes, workers/c.Scenario.NodesPerLane)
	}
	return c
}

// workersOf returns the nodes of a lane, or nothing where lanes make their own.
func (c Config) workersOf(lane int) []string {
	lister, ok := c.Cluster.(clusters.WorkerLister)
	if !ok {
		return nil
	}
	n := c.Scenario.NodesPerLane
	return lister.Workers()[lane*n : (lane+1)*n]
}

// iterationMin is less than any iteration takes.
const iterationMin = time.Second

func (c Config) check() error {
	if err := c.Scenario.Check(); err != nil {
		return fmt.Errorf("scenario %s: %w", c.Scenario.Name, err)
	}
	switch {
	case c.Lanes < 1 || c.Iterations < 1:
		return fmt.Errorf("%d lanes and %d iterations: at least one of each is needed", c.Lanes, c.Iterations)
	case c.History == nil || c.HistoryPath == "" || c.Out == "":
		return errors.New("no folder or no history to write to")
	case c.Cluster == nil:
		return errors.New("no cluster")
	}
	if _, ok := c.Cluster.(clusters.NodeAdder); !ok {
		return fmt.Errorf("cluster %s cannot add nodes, and every lane needs nodes of its own", c.Cluster.Name())
	}
	if _, ok := c.Cluster.(clusters.CleanerRunner); !ok {
		return fmt.Errorf("cluster %s cannot run a cleaner", c.Cluster.Name())
	}
	return errors.Join(c.checkWorkers(), c.checkOutages())
}

// checkOutages refuses a run whose faults would all be skipped.
func (c Config) checkOutages() error {
	shutdown := c.Scenario.Faults.NodeShutdown
	if shutdown == nil {
		return nil
	}
	for _, o := range shutdown.Outages {
		if why := nemesis.CannotDo(c.Cluster, o); why != "" {
			return fmt.Errorf("scenario %s: %s", c.Scenario.Name, why)
		}
	}
	return nil
}

func (c Config) checkWorkers() error {
	lister, ok := c.Cluster.(clusters.WorkerLister)
	if !ok {
		return nil
	}
	if has := len(lister.Workers()); has < c.Lanes*c.Scenario.NodesPerLane {
		return fmt.Errorf("cluster %s has %d workers: %d lanes of %d need more", c.Cluster.Name(), has, c.Lanes, c.Scenario.NodesPerLane)
	}
	return nil
}

// silent is the observer of a run that nobody watches.
type silent struct{}

func (silent) LanePhase(string, string)          {}
func (silent) IterationDone(Iteration, int, int) {}
func (silent) RunPhase(string)                   {}
