package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/canary"
	"github.com/danm-chaos/danm-chaos/harness/check"
)

// canaryIterations are enough for every canary to show its defect.
const canaryIterations = 6

func (a *app) canariesCommand() *cobra.Command {
	f, tries := runFlags{}, 0
	c := &cobra.Command{
		Use:   "canaries [NAME...]",
		Short: "Run every canary, or those named; each must be found",
		Args:  takes(0, -1, ""),
		RunE: func(c *cobra.Command, names []string) error {
			for _, name := range names {
				if err := canary.Validate(name); err != nil {
					return usageError{err}
				}
			}
			if f.cluster == simCluster {
				f.cleaner = defaultCleaner
				return a.huntCanaries(c.Context(), f, orAll(names, canary.Names()), max(1, tries))
			}
			if f.iterations == 0 {
				f.iterations = canaryIterations
			}
			return a.runCanaries(c.Context(), f, orAll(names, canary.NamesOnReal()))
		},
	}
	f.register(c.Flags())
	c.Flags().IntVar(&tries, "tries", canaryTries, "on the simulator: how often to look for each, among other seeds each time")
	return c
}

func orAll(names, all []string) []string {
	if len(names) > 0 {
		return names
	}
	return all
}

// found is a row of the table.
type found struct {
	canary, scenario string
	verdict          check.Verdict
	violations       []check.Violation
	took             time.Duration
}

func (r found) isFound() bool {
	isBroken, isExpected := judgeCanary(r.canary, r.violations)
	return isBroken && isExpected
}

func (r found) remark() string {
	switch _, isExpected := judgeCanary(r.canary, r.violations); {
	case r.isFound():
		return "found"
	case !isExpected:
		return "UNEXPECTED"
	}
	return "NOT FOUND"
}

func (a *app) runCanaries(ctx context.Context, f runFlags, names []string) error {
	var plans []plan
	for _, name := range names {
		f.cleaner = "canary:" + name
		these, err := a.plans(f, []string{canary.Scenario(name)})
		if err != nil {
			return err
		}
		plans = append(plans, these...)
	}
	ctx, signals := catchInterrupts(ctx, a.stderr)
	defer signals.release()
	code := exitValid
	var rows []found
	for i, p := range plans {
		o, err := a.runOne(ctx, signals, p)
		if err != nil {
			return err
		}
		if o.leftover != nil {
			code = worse(code, exitUnclean)
		}
		row := found{names[i], p.scenario.Name, o.result.Verdict, o.result.Violations,
			time.Duration(o.result.DurationSeconds * float64(time.Second))}
		if !row.isFound() {
			code = worse(code, canaryCode(o.result.Interrupted))
			if err := a.conclude(o); err != nil {
				return err
			}
		}
		rows = append(rows, row)
		if ctx.Err() != nil {
			break
		}
	}
	if err := a.printFound(rows); err != nil {
		return err
	}
	return exitWith(code)
}

// canaryCode is for a canary that was not found: that is a violation by the
// harness, unless it was not given the time.
func canaryCode(interrupted bool) int {
	if interrupted {
		return exitUnknown
	}
	return exitInvalid
}

func (a *app) printFound(rows []found) error {
	fmt.Fprintln(a.stdout)
	out := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "canary\tscenario\tverdict\tbroken\ttime\t")
	for _, r := range rows {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\n", r.canary, r.scenario, r.verdict, strings.Join(numbersOf(r.violations), " "),
			r.took.Round(time.Second), r.remark())
	}
	return out.Flush()
}

// canaryCommand runs a canary in this process. It is hidden, because a run
// starts it by itself as the cleaner under test.
func (a *app) canaryCommand() *cobra.Command {
	var kubeconfig, group string
	c := &cobra.Command{
		Use:    "canary NAME --kubeconfig FILE",
		Short:  "Run a cleaner that is known to be wrong",
		Hidden: true,
		Args:   takes(1, 1, "the name of the canary"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := canary.Validate(args[0]); err != nil {
				return usageError{err}
			}
			g, err := danm.ParseGroup(group)
			if err != nil {
				return usagef("--danm-api: %w", err)
			}
			if kubeconfig == "" {
				return usagef("--kubeconfig is missing: name a kubeconfig")
			}
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return usagef("--kubeconfig %s: %w: name a kubeconfig", kubeconfig, pathReason(err))
			}
			log := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(a.stderr)))
			klog.SetLogger(log)
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return runCanary(ctx, args[0], canary.Config{REST: config, Group: g, Logger: log})
		},
	}
	c.Flags().StringVar(&kubeconfig, "kubeconfig", "", "path of a kubeconfig")
	c.Flags().StringVar(&group, "danm-api", string(defaultGroup), "API group of DANM's objects")
	return c
}
