package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/danm-chaos/danm-chaos/reports"
	"github.com/danm-chaos/danm-chaos/reports/compare"
)

// compareFlags are the flags of compare as they were given.
type compareFlags struct {
	format  string
	out     string
	options compare.Options
}

func (a *app) compareCommand() *cobra.Command {
	f := compareFlags{options: compare.DefaultOptions()}
	c := &cobra.Command{
		Use:   "compare BASE NEW",
		Short: "Compare runs with a baseline; each side is a run.json, a run directory or a folder of them",
		Long: `Compare runs with a baseline. Each side is a run.json, a run directory or a
folder of them; runs of the same scenario, cluster, DANM API and CNI are held
against each other, whatever cleaner they had.

Exit codes: 0 no regression; 1 regression: an invariant is newly violated, or a
time or cost is worse; 2 inconclusive: NEW did not try all that BASE did, or
could not be judged or read.`,
		Args: takes(2, 2, "BASE or NEW"),
		RunE: func(_ *cobra.Command, args []string) error { return a.compare(f, args[0], args[1]) },
	}
	c.Flags().StringVar(&f.format, "format", string(reports.Markdown), "what to print: markdown, json, junit or html")
	c.Flags().StringVar(&f.out, "out", "", "folder for compare.md, compare.json, compare.xml and compare.html; empty writes none")
	c.Flags().Float64Var(&f.options.Alpha, "alpha", f.options.Alpha, "how probable a difference by chance may be, over the whole comparison")
	c.Flags().Float64Var(&f.options.Slower, "slower", f.options.Slower, "least ratio of medians that counts")
	c.Flags().DurationVar(&f.options.Floor, "floor", f.options.Floor, "least difference of two times that counts")
	c.Flags().Float64Var(&f.options.Gross, "gross", f.options.Gross, "ratio of memory that counts")
	return c
}

func (f compareFlags) check() (reports.Format, error) {
	formats, err := reports.ParseFormats(f.format)
	switch {
	case err != nil || len(formats) != 1 || formats[0] == reports.Prometheus:
		return "", usagef("--format %q: use markdown, json, junit or html", f.format)
	case f.options.Alpha <= 0 || f.options.Alpha >= 1:
		return "", usagef("--alpha %g: give a probability, for example 0.01", f.options.Alpha)
	case f.options.Slower <= 1 || f.options.Gross <= 1:
		return "", usagef("--slower and --gross must be greater than 1: give, for example, 1.5 and 2")
	}
	return formats[0], nil
}

func (a *app) compare(f compareFlags, base, new string) error {
	format, err := f.check()
	if err != nil {
		return err
	}
	before, problems, err := reports.ReadSide(base)
	if err != nil {
		return usagef("compare: %s: %w: name a run.json, a run directory or a folder of them", base, pathReason(err))
	}
	after, moreProblems, err := reports.ReadSide(new)
	if err != nil {
		return usagef("compare: %s: %w: name a run.json, a run directory or a folder of them", new, pathReason(err))
	}
	c := compare.Compare(before, after, f.options)
	c.Base.Path, c.New.Path = base, new
	c.AddProblems(append(problems, moreProblems...))
	if f.out != "" {
		if err := reports.WriteComparison(f.out, c); err != nil {
			return err
		}
	}
	text, err := reports.RenderComparison(c, format)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(a.stdout, strings.TrimRight(string(text), "\n")); err != nil {
		return fmt.Errorf("printing the comparison: %w", err)
	}
	return exitWith(comparisonCode(c.Outcome))
}

func comparisonCode(o compare.Outcome) int {
	switch o {
	case compare.NoRegression:
		return exitValid
	case compare.Regression:
		return exitInvalid
	default:
		return exitUnknown
	}
}
