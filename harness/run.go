package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/harness/nemesis"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
	"github.com/danm-chaos/danm-chaos/harness/workload"
)

// ScheduleFile is the name of the schedule in the folder of a run.
const ScheduleFile = "schedule.json"

// run is one run under way.
type run struct {
	config   Config
	schedule schedule.Schedule
	core     kubernetes.Interface
	danm     *danm.Client
	access   workload.Access
	nemesis  *nemesis.Nemesis
	view     *view
	began    time.Time

	stopping  atomic.Bool // begin no further iteration
	observing sync.Mutex  // one call of the observer at a time

	mu     sync.Mutex
	result Result
	begun  []schedule.Iteration
	fired  map[string]int
	peak   int64
}

// Run runs a scenario once: expand the seed, start the cleaner, build lanes,
// break and heal them side by side, and judge the history. The error says that
// the harness could not do its work; what the cleaner did is in the verdict.
// The result is filled as far as the run got, also with an error.
//
// When ctx ends, nothing more is broken or healed, and what was recorded so
// far is judged; such a run is never Valid.
func Run(ctx context.Context, c Config) (Result, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return Result{}, err
	}
	r, err := newRun(c)
	if err != nil {
		return Result{}, err
	}
	if err := r.writeSchedule(); err != nil {
		return r.result, err
	}
	r.openHistory()
	err = r.play(ctx)
	return r.result, err
}

func newRun(c Config) (*run, error) {
	s, err := schedule.Generate(c.Scenario.plan(c.Seed, c.Lanes, c.Iterations))
	if err != nil {
		return nil, fmt.Errorf("expanding scenario %s: %w", c.Scenario.Name, err)
	}
	rest, err := c.Cluster.RESTConfig(clusters.UserHarness)
	if err != nil {
		return nil, fmt.Errorf("reaching cluster %s: %w", c.Cluster.Name(), err)
	}
	rest.QPS = -1 // the harness limits itself by how often it polls
	core, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return nil, fmt.Errorf("reaching cluster %s: %w", c.Cluster.Name(), err)
	}
	dyn, err := dynamic.NewForConfig(rest)
	if err != nil {
		return nil, fmt.Errorf("reaching cluster %s: %w", c.Cluster.Name(), err)
	}
	r := &run{
		config: c, schedule: s, core: core, danm: danm.NewClient(dyn, c.Group),
		view: newView(), nemesis: nemesis.New(c.Cluster, core), fired: map[string]int{}, began: time.Now(),
	}
	r.access = workload.Access{Core: core, Danm: r.danm, Nodes: c.Cluster.(clusters.NodeAdder), View: r.view, RunID: c.RunID, Expires: c.Expires, Image: c.Image}
	r.result = r.newResult()
	return r, nil
}

func (r *run) newResult() Result {
	c := r.config
	return Result{
		SchemaVersion: ResultSchemaVersion, RunID: c.RunID, Scenario: c.Scenario.Name, Cluster: c.Cluster.Name(),
		Cleaner: c.CleanerName, Group: string(c.Group), CNI: c.CNI, Seed: c.Seed, Commit: c.Commit, Versions: c.Versions,
		Started: r.began, Planned: c.Iterations, Iterations: []Iteration{}, Verdict: check.Unknown,
		Violations: []check.Violation{}, Findings: []check.Violation{}, Unknowns: []string{},
		Checked: map[check.Invariant]int{}, FaultsPlanned: r.schedule.Faults(c.Iterations), FaultsFired: map[string]int{},
		Reproduce: reproduce(c, c.Iterations),
	}
}

func (r *run) writeSchedule() error {
	data, err := r.schedule.Encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.config.Out, ScheduleFile), data, 0o644); err != nil {
		return fmt.Errorf("writing schedule: %w", err)
	}
	return nil
}

func (r *run) openHistory() {
	c := r.config
	header := &history.Run{
		SchemaVersion: history.SchemaVersion, RunID: c.RunID, Scenario: c.Scenario.Name, Cluster: c.Cluster.Name(),
		Seed: c.Seed, Group: string(c.Group), CleanerUser: c.Cleaner.User(), CNIUserPrefix: clusters.UserNodePrefix, DryRun: c.DryRun,
	}
	if observed, ok := c.Cluster.(clusters.Observed); ok {
		header.Observed = &history.Observed{CleanerManagers: observed.CleanerManagers()}
	}
	r.config.History.Record(history.Record{Run: header})
}

// play does everything between the opened history and the judged result.
func (r *run) play(ctx context.Context) error {
	// Collectors outlive an interrupted run: the history has to be complete
	// up to the point where it stops.
	collecting, stopCollecting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCollecting()
	var followers errgroup.Group
	var sampling errgroup.Group
	sampling.Go(func() error { r.sampleMemory(collecting); return nil })
	laneCtx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	collectors, err := r.collect(collecting, &followers, abort)
	if err != nil {
		return err
	}
	cause, err := r.runLanes(laneCtx)
	r.runPhase("completing the history")
	if err == nil {
		r.complete(context.WithoutCancel(ctx), collectors)
	}
	stopCollecting()
	if followed := errors.Join(followers.Wait(), sampling.Wait()); followed != nil {
		cause, err = nil, followed // lanes that were stopped for it were not interrupted
	}
	if cluster, ok := r.config.Cluster.(clusters.FailureReporter); ok {
		err = errors.Join(err, cluster.Failure())
	}
	r.runPhase("checking")
	if judged := r.judge(cause); err == nil {
		err = judged
	}
	return err
}

// collect starts a collector for each resource. One that cannot go on ends the
// run: nothing could be judged without it.
func (r *run) collect(ctx context.Context, followers *errgroup.Group, abort context.CancelCauseFunc) ([]*collector, error) {
	var collectors []*collector
	for _, s := range r.sources() {
		c := newCollector(s, r.config.History, r.view)
		version, err := c.start(ctx)
		if err != nil {
			return nil, err
		}
		collectors = append(collectors, c)
		followers.Go(func() error {
			err := c.follow(ctx, version)
			if err != nil {
				abort(err)
			}
			return err
		})
	}
	return collectors, nil
}

// Why lanes were stopped before their schedule was through.
var (
	errInterrupted  = errors.New("the run was interrupted")
	errCleanerEnded = errors.New("the cleaner ended by itself")
)

// runLanes starts the cleaner and runs all lanes. The cause says why they did
// not get through, if neither the harness nor the schedule was the reason.
func (r *run) runLanes(ctx context.Context) (cause, err error) {
	parent := ctx
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	cleaner, err := r.startCleaner(ctx, stop)
	if err != nil {
		return nil, err
	}
	group, laneCtx := errgroup.WithContext(ctx)
	for i := range r.schedule.Lanes {
		group.Go(func() error { return r.runLane(laneCtx, i) })
	}
	err = group.Wait()
	ended := context.Cause(ctx)
	// The cleaner goes before the history is completed: nothing that it writes
	// may come after the last look.
	cleaner.stop(context.WithoutCancel(ctx))
	switch {
	case parent.Err() != nil:
		return errInterrupted, nil
	case errors.Is(ended, errCleanerEnded):
		return ended, nil
	}
	return nil, err
}

// complete makes the history whole up to now.
func (r *run) complete(ctx context.Context, collectors []*collector) {
	for _, c := range collectors {
		c.awaitComplete(ctx)
	}
	if _, ok := r.config.Cluster.(clusters.Observed); ok {
		return // the checkers know that there is no audit log
	}
	reason := "the cluster has no audit log"
	if auditor, ok := r.config.Cluster.(clusters.Auditor); ok {
		ctx, cancel := context.WithTimeout(ctx, completeTimeout)
		defer cancel()
		err := auditor.DrainAudit(ctx)
		if err == nil {
			return
		}
		reason = err.Error()
	}
	r.config.History.Record(history.Record{Gap: &history.Gap{Source: "audit", Reason: reason}})
}

// The observer's calls never overlap.

func (r *run) lanePhase(lane, phase string) {
	r.observing.Lock()
	defer r.observing.Unlock()
	r.config.Observer.LanePhase(lane, phase)
}

func (r *run) runPhase(phase string) {
	r.observing.Lock()
	defer r.observing.Unlock()
	r.config.Observer.RunPhase(phase)
}

// finish takes the outcome of an iteration and decides whether to go on.
func (r *run) finish(it Iteration) {
	r.mu.Lock()
	r.result.Iterations = append(r.result.Iterations, it)
	done := len(r.result.Iterations)
	r.mu.Unlock()
	if it.Verdict == check.Invalid && !r.config.KeepGoing {
		r.stopping.Store(true)
	}
	r.observing.Lock()
	defer r.observing.Unlock()
	r.config.Observer.IterationDone(it, done, r.config.Iterations)
}

// mayBegin tells whether a further iteration is wanted, and notes it.
func (r *run) mayBegin(it schedule.Iteration) bool {
	if r.stopping.Load() || r.config.For > 0 && time.Since(r.began) >= r.config.For {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun = append(r.begun, it)
	return true
}

func (r *run) noteFired(verb schedule.Verb) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fired[string(verb)]++
}

// firstInvalid returns the number of the first iteration in the schedule whose
// snapshot or whose writes broke something, or 0.
func (r *run) firstInvalid() int {
	var numbers []int
	for _, it := range r.result.Iterations {
		if it.Verdict == check.Invalid {
			numbers = append(numbers, it.Number)
		}
	}
	for _, v := range r.result.Violations {
		if v.Iteration > 0 {
			numbers = append(numbers, v.Iteration)
		}
	}
	if len(numbers) == 0 {
		return 0
	}
	return slices.Min(numbers)
}
