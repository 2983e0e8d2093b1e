package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/reports"
)

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run SCENARIO... | -f FILE",
		Short: "Run scenarios and judge the cleaner",
		RunE: func(c *cobra.Command, names []string) error {
			if f.cluster == simCluster && f.file == "" {
				return a.search(c.Context(), f, names)
			}
			if sim, ok, err := readSimulation(f.file); err == nil && ok && len(names) == 0 {
				given := ""
				if c.Flags().Changed("cleaner") {
					given = f.cleaner
				}
				return a.replaySimulation(c.Context(), sim, cleanerOf(sim, given))
			}
			plans, err := a.plans(f, names)
			if err != nil {
				return err
			}
			return a.runAll(c.Context(), plans)
		},
	}
	c.Flags().StringVarP(&f.file, "file", "f", "", "scenario file, YAML or JSON; - reads the standard input")
	c.Flags().IntVar(&f.systematic, "systematic", 0, "on the simulator: play all interleavings of the smallest world with at most so many preemptions; 2 takes minutes")
	f.registerPods(c.Flags())
	c.Flags().BoolVar(&f.sieve, "sieve", false, "on the simulator: play one fault after the other at every place where it can strike")
	f.registerCleaner(c.Flags())
	f.register(c.Flags())
	return c
}

// search runs the simulator in the mode that is asked for.
func (a *app) search(ctx context.Context, f runFlags, names []string) error {
	switch {
	case f.systematic > 0:
		return a.enumerate(ctx, f)
	case f.sieve:
		return a.sieveAll(ctx, f, names)
	}
	return a.runSim(ctx, f, names)
}

// runAll runs one scenario after the other. Without --keep-going the first that
// is not Valid is the last.
func (a *app) runAll(ctx context.Context, plans []plan) error {
	ctx, signals := catchInterrupts(ctx, a.stderr)
	defer signals.release()
	code := exitValid
	var failed []harness.Result
	for _, p := range plans {
		o, err := a.runOne(ctx, signals, p)
		if err != nil {
			return err
		}
		if err := a.conclude(o); err != nil {
			return err
		}
		code = worse(code, o.code())
		if o.code() != exitValid {
			failed = append(failed, o.result)
		}
		if ctx.Err() != nil || len(failed) > 0 && !p.keepGoing {
			break
		}
	}
	if len(plans) > 1 && len(failed) > 0 {
		// The last of several may have been Valid, and the last line is what
		// people copy.
		fmt.Fprintf(a.stdout, "\n%d of %d scenarios not Valid, the first: %s\nreproduce: %s\n",
			len(failed), len(plans), failed[0].Scenario, failed[0].Reproduce)
	}
	return exitWith(code)
}

// outcome is a run that is over.
type outcome struct {
	result   harness.Result
	dir      runDir
	leftover error // what cleaning up could not remove
}

func (o outcome) code() int {
	code := codeOf(o.result.Verdict)
	if o.result.Interrupted {
		code = worse(code, exitUnknown)
	}
	if o.leftover != nil {
		code = worse(code, exitUnclean)
	}
	return code
}

// conclude prints the summary. The result's own last line stays the last.
func (a *app) conclude(o outcome) error {
	if o.leftover != nil {
		fmt.Fprintf(a.stderr, "danm-chaos: cleanup incomplete: %v: run `%s`\n", o.leftover, commandLine(programName(), "clean", o.dir.id))
	}
	fmt.Fprintf(a.stdout, "\nrun directory: %s\n", o.dir.path)
	if err := reports.Summary(a.stdout, o.result); err != nil {
		return fmt.Errorf("printing the summary: %w", err)
	}
	return nil
}

// runOne runs a plan in a run directory of its own. It returns an error only
// when there is no place to report to; all other trouble is in the result.
func (a *app) runOne(ctx context.Context, signals *interrupts, p plan) (o outcome, err error) {
	if p, err = p.patient().onOwnCluster(); err != nil {
		return o, err
	}
	if err := p.prepareMachine(ctx, a.stdout); err != nil {
		return o, err
	}
	if p, err = a.onExisting(ctx, p); err != nil {
		return o, err
	}
	o.result = p.blankResult(time.Now())
	ctx, cancel := p.expiring(ctx, o.result.Started)
	defer cancel()
	if o.dir, err = newRunDir(p.out, o.result.Started, p.seed); err != nil {
		return o, err
	}
	o.result.RunID = o.dir.id
	fmt.Fprintf(a.stdout, "%s on %s, cleaner %s, seed %d, run %s\n", p.scenario.Name, p.cluster, p.cleaner, p.seed, o.dir.id)
	logs, err := openLogs(o.dir)
	if err != nil {
		return o, err
	}
	result, leftover, runErr := a.execute(ctx, signals, p, o, logs)
	o.leftover = leftover
	o.result = p.complete(ctx, o.result, result, runErr)
	o.result, err = a.render(p, o)
	a.pushMetrics(ctx, p.reportFlags, o.result)
	return o, errors.Join(err, logs.close())
}

// render writes the run directory's reports. The result comes back with what
// the history tells besides.
func (a *app) render(p plan, o outcome) (harness.Result, error) {
	run := reports.Load(o.dir.path, o.result)
	return run.Result, run.Write(o.dir.path, p.formats())
}

// blankResult is what is known before the run.
func (p plan) blankResult(started time.Time) harness.Result {
	commit, versions := buildVersions()
	return harness.Result{
		SchemaVersion: harness.ResultSchemaVersion, Scenario: p.scenario.Name, Cluster: p.cluster, Cleaner: p.cleaner,
		Group: string(p.group), CNI: string(p.variant), Seed: p.seed, Commit: commit, Versions: versions,
		Started: started, Planned: p.iterations, Verdict: check.Unknown, Reproduce: p.reproduce(),
	}
}

// complete merges what the harness found into what was known before. A run
// that failed is Unknown at best, and says why.
func (p plan) complete(ctx context.Context, blank, result harness.Result, runErr error) harness.Result {
	if result.RunID == "" { // the harness did not get far enough to fill it in
		result = blank
		result.DurationSeconds = time.Since(blank.Started).Seconds()
	} else {
		result.Reproduce = p.refine(result.Reproduce)
	}
	result.Skipped = p.skipped
	if context.Cause(ctx) == errInterrupted {
		result.Interrupted = true
	}
	if runErr != nil && !(result.Interrupted && errors.Is(runErr, context.Canceled)) && !errors.Is(runErr, errInterrupted) {
		result.Unknowns = append(result.Unknowns, runErr.Error())
	}
	if runErr != nil || result.Interrupted || result.Verdict == "" {
		result.Verdict = check.Merge(result.Verdict, check.Unknown)
	}
	return result
}

// execute starts the cluster, runs the harness and cleans up, whatever happens.
func (a *app) execute(ctx context.Context, signals *interrupts, p plan, o outcome, logs *runLogs) (result harness.Result, leftover, err error) {
	if err := storeScenario(o.dir, p.scenario); err != nil {
		return result, nil, err
	}
	records, err := history.Create(o.dir.join(historyFile))
	if err != nil {
		return result, nil, err
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	watching, err := a.lookOn(p, o, records)
	if err != nil {
		return result, nil, err
	}
	defer a.endLookingOn(ctx, watching)
	cluster, err := startCluster(ctx, p, o.dir, records, a.stdout)
	if err != nil {
		return result, nil, err
	}
	defer func() {
		cleanup, cancel := signals.cleanup(ctx)
		defer cancel()
		leftover = p.end(cleanup, cluster, o.dir.id, a.stdout)
	}()
	watching.display(a.stdout, p.duration)
	defer watching.progress.Close()
	result, err = harness.Run(ctx, harness.Config{
		Scenario: p.scenario, ScenarioArgs: p.named, Cluster: cluster, Group: p.group, Seed: p.seed,
		Iterations: p.iterations, Lanes: p.lanes, For: p.duration,
		RunID: o.dir.id, Out: o.dir.path, History: records, HistoryPath: o.dir.join(historyFile),
		Cleaner: clusters.CleanerSpec{Argv: p.argv, IsDeployed: p.deploysCleaner(), Logs: logs.cleaner}, CleanerName: p.cleaner, DryRun: p.dryRun,
		BlameAny: p.blame == blameAny, KeepGoing: p.keepGoing,
		CNI: string(p.variant), Commit: o.result.Commit, Versions: o.result.Versions, Observer: watching,
		Teardown: p.cluster == existingCluster, Expires: expiryOf(cluster), Image: p.workloadImage(), Kinds: p.kinds, Shared: p.sharedNetwork(),
	})
	return result, nil, err
}

// storeScenario keeps the scenario beside its schedule, so that the run can be
// repeated when the shipped scenario has changed or the file is gone.
func storeScenario(d runDir, s harness.Scenario) error {
	data, err := s.Encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(d.join(scenarioFile), data, 0o644); err != nil {
		return fmt.Errorf("storing the scenario: %w", err)
	}
	return nil
}

// runLogs are the logs of one run.
type runLogs struct {
	cleaner, harness *os.File
}

// openLogs also sends what client-go says to a file: on the terminal it would
// spoil the status line.
func openLogs(d runDir) (*runLogs, error) {
	var l runLogs
	var err error
	if l.cleaner, err = os.Create(d.join(logsDir, "cleaner.log")); err != nil {
		return nil, fmt.Errorf("opening a log: %w", err)
	}
	if l.harness, err = os.Create(d.join(logsDir, "harness.log")); err != nil {
		return nil, errors.Join(fmt.Errorf("opening a log: %w", err), l.cleaner.Close())
	}
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(l.harness))))
	return &l, nil
}

func (l *runLogs) close() error {
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(io.Discard))))
	return errors.Join(l.cleaner.Close(), l.harness.Close())
}

// display finds out what the output can do.
func display(out io.Writer, budget time.Duration) reports.Display {
	d := reports.Display{Budget: budget}
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return d
	}
	d.Terminal = true
	d.Color = os.Getenv("NO_COLOR") == ""
	d.Size = func() (int, int) {
		columns, rows, err := term.GetSize(int(file.Fd()))
		if err != nil || columns <= 0 || rows <= 0 {
			return 80, 24
		}
		return columns, rows
	}
	return d
}
