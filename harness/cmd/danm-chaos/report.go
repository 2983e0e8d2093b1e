package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/reports"
)

func (a *app) reportCommand() *cobra.Command {
	var blame string
	c := &cobra.Command{
		Use:   "report RUNDIR",
		Short: "Check a stored history again and render the report again",
		Args:  takes(1, 1, "the run directory"),
		RunE: func(_ *cobra.Command, args []string) error {
			if blame != string(check.BlameCleaner) && blame != blameAny {
				return usagef("--blame %q: use %s or %s", blame, check.BlameCleaner, blameAny)
			}
			return a.report(args[0], check.Options{BlameAny: blame == blameAny})
		},
	}
	c.Flags().StringVar(&blame, "blame", string(check.BlameCleaner), "whose violations make the run Invalid: cleaner, or any")
	return c
}

func (a *app) report(dir string, o check.Options) error {
	result, err := reports.Read(dir)
	if err != nil {
		return usagef("report: %s: %w: name a run directory", dir, pathReason(err))
	}
	records, err := history.Read(filepath.Join(dir, historyFile))
	if err != nil {
		return usagef("report: %s: %w: name a run directory", dir, pathReason(err))
	}
	result = rejudged(result, check.Check(records, o))
	if err := reports.Write(dir, result); err != nil {
		return err
	}
	if err := reports.Summary(a.stdout, result); err != nil {
		return fmt.Errorf("printing the summary: %w", err)
	}
	return exitWith(outcome{result: result}.code())
}

// rejudged replaces what the checkers said then by what they say now. What the
// harness itself knew about the run stays: it is not in the history.
func rejudged(r harness.Result, now check.Report) harness.Result {
	var kept []string
	for _, reason := range r.Unknowns {
		if !isCheckers(reason) {
			kept = append(kept, reason)
		}
	}
	r.Verdict, r.Violations, r.Findings, r.Checked = now.Verdict, now.Violations, now.Findings, now.Checked
	r.Unjudged = now.Unjudged
	r.Unknowns = append(kept, now.Unknowns...)
	if len(r.Unknowns) > 0 || r.Interrupted {
		r.Verdict = check.Merge(r.Verdict, check.Unknown)
	}
	return r
}

// isCheckers tells whether a checker gave the reason: those begin with their
// invariant.
func isCheckers(reason string) bool {
	for _, i := range []check.Invariant{
		check.LiveAttachment, check.SingleHolder, check.Convergence, check.ClearOnce, check.ReservedBits,
		check.OnlyAllocations, check.DryRunSilent, check.FaultsFired, check.HistoryComplete,
	} {
		if strings.HasPrefix(reason, string(i)+": ") {
			return true
		}
	}
	return false
}
