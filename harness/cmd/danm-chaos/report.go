package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/reports"
)

func (a *app) reportCommand() *cobra.Command {
	var blame, format string
	c := &cobra.Command{
		Use:   "report RUNDIR | OUT",
		Short: "Check a stored history again and render the report again; of a folder of runs, render the index",
		Long: `Check a stored history again and render the report of a run directory again.
Of a folder that holds run directories, write index.html, which compares them
over time.

Exit codes: as of the run; 2 if the directory is not whole, after a report of
what could be read.`,
		Args: takes(1, 1, "the run directory"),
		RunE: func(_ *cobra.Command, args []string) error {
			if blame != string(check.BlameCleaner) && blame != blameAny {
				return usagef("--blame %q: use %s or %s", blame, check.BlameCleaner, blameAny)
			}
			formats, err := reports.ParseFormats(format)
			if err != nil {
				return usagef("--format: %w", err)
			}
			if isFolderOfRuns(args[0]) {
				return a.reportIndex(args[0])
			}
			return a.report(args[0], formats, check.Options{BlameAny: blame == blameAny})
		},
	}
	c.Flags().StringVar(&blame, "blame", string(check.BlameCleaner), "whose violations make the run Invalid: cleaner, or any")
	c.Flags().StringVar(&format, "format", "all", "what to write into the run directory: all, or some of json,html,junit,markdown,prometheus")
	return c
}

// isFolderOfRuns tells whether a directory holds run directories and is none
// itself.
func isFolderOfRuns(dir string) bool {
	for _, name := range []string{reports.RunFile, historyFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	runs, err := reports.RunDirs(dir)
	return err == nil && len(runs) > 0
}

func (a *app) report(dir string, formats []reports.Format, o check.Options) error {
	run, err := reports.Open(dir)
	if err != nil {
		return usagef("report: %s: %w: name a run directory", dir, pathReason(err))
	}
	run.Result = rejudged(run.Result, check.Check(run.Records, o))
	// A report of an earlier time may have stored the same problems.
	isProblem := func(reason string) bool { return slices.Contains(run.Problems, reason) }
	run.Unknowns = append(slices.Clone(run.Problems), slices.DeleteFunc(run.Unknowns, isProblem)...)
	if len(run.Problems) > 0 {
		run.Verdict = check.Merge(run.Verdict, check.Unknown)
	}
	if err := run.Write(dir, formats); err != nil {
		return err
	}
	if err := reports.Summary(a.stdout, run.Result); err != nil {
		return fmt.Errorf("printing the summary: %w", err)
	}
	if len(run.Problems) > 0 {
		fmt.Fprintf(a.stderr, "danm-chaos: %s is not whole, and this is a report of what could be read: %s\n", dir, strings.Join(run.Problems, "; "))
		return exitError(exitUnknown)
	}
	return exitWith(outcome{result: run.Result}.code())
}

// reportIndex writes the index of a folder of runs.
func (a *app) reportIndex(out string) error {
	index, err := reports.WriteIndex(out)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "%s: %d runs\n", filepath.Join(out, reports.IndexFile), index.Runs)
	if len(index.Problems) > 0 {
		fmt.Fprintf(a.stderr, "danm-chaos: not every run could be read: %s\n", strings.Join(index.Problems, "; "))
		return exitError(exitUnknown)
	}
	return nil
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
