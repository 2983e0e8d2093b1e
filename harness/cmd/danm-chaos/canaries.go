package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
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
	f := runFlags{}
	c := &cobra.Command{
		Use:   "canaries",
		Short: "Run every canary; each must be found",
		Args:  takes(0, 0, ""),
		RunE: func(c *cobra.Command, _ []string) error {
			if f.cluster == simCluster {
				f.cleaner = defaultCleaner
				return a.huntCanaries(c.Context(), f)
			}
			if f.iterations == 0 {
				f.iterations = canaryIterations
			}
			return a.runCanaries(c.Context(), f)
		},
	}
	f.register(c.Flags())
	return c
}

// found is a row of the table.
type found struct {
	canary, scenario string
	verdict          check.Verdict
	by               string
	took             time.Duration
}

func (a *app) runCanaries(ctx context.Context, f runFlags) error {
	var plans []plan
	for _, name := range canary.NamesOnReal() {
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
		if o.result.Verdict != check.Invalid {
			code = worse(code, canaryCode(o.result.Interrupted))
			if err := a.conclude(o); err != nil {
				return err
			}
		}
		rows = append(rows, found{canary.NamesOnReal()[i], p.scenario.Name, o.result.Verdict, firstInvariant(o.result.Violations),
			time.Duration(o.result.DurationSeconds * float64(time.Second))})
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

func firstInvariant(violations []check.Violation) string {
	if len(violations) == 0 {
		return "-"
	}
	return string(violations[0].Invariant)
}

func (a *app) printFound(rows []found) error {
	fmt.Fprintln(a.stdout)
	out := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "canary\tscenario\tverdict\tfirst broken\ttime\t")
	for _, r := range rows {
		remark := "found"
		if r.verdict != check.Invalid {
			remark = "NOT FOUND"
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\n", r.canary, r.scenario, r.verdict, r.by, r.took.Round(time.Second), remark)
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
