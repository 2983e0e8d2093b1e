package reports

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/reports/measure"
)

// IndexFile is the page over all runs of a folder.
const IndexFile = "index.html"

// Index is what an index was made from.
type Index struct {
	Runs     int
	Problems []string // runs that could not be read
}

// StoredRun is a result and the directory that holds it.
type StoredRun struct {
	harness.Result
	Dir string
}

// RunDirs lists the run directories directly in a folder, by name. Links are
// left out: "latest" is one.
func RunDirs(out string) ([]string, error) {
	entries, err := os.ReadDir(out)
	if err != nil {
		return nil, fmt.Errorf("listing runs: %w", err)
	}
	var dirs []string
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		dir := filepath.Join(out, e.Name())
		for _, name := range []string{RunFile, HistoryFile} {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				dirs = append(dirs, dir)
				break
			}
		}
	}
	return dirs, nil
}

// ReadRuns reads the results of all runs in a folder, oldest first, and says
// which cannot be read.
func ReadRuns(out string) ([]StoredRun, []string, error) {
	dirs, err := RunDirs(out)
	if err != nil {
		return nil, nil, err
	}
	var runs []StoredRun
	var problems []string
	for _, dir := range dirs {
		r, err := readMeasured(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			problems = append(problems, dir+" has no "+RunFile+": the run goes on or was killed")
		case err != nil:
			problems = append(problems, err.Error())
		default:
			runs = append(runs, StoredRun{r, dir})
		}
	}
	slices.SortStableFunc(runs, func(a, b StoredRun) int {
		return cmp.Or(a.Started.Compare(b.Started), strings.Compare(a.Dir, b.Dir))
	})
	return runs, problems, nil
}

// readMeasured reads a result. What its schema version did not have comes from
// its history, if that is there.
func readMeasured(dir string) (harness.Result, error) {
	r, err := Read(dir)
	if err != nil || r.Measured != nil {
		return r, err
	}
	run := Run{Result: r}
	run.readHistory(dir)
	return run.Result, nil
}

// WriteIndex writes index.html over all runs of a folder.
func WriteIndex(out string) (Index, error) {
	runs, problems, err := ReadRuns(out)
	if err != nil {
		return Index{}, err
	}
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, "index", newIndexView(out, runs, problems)); err != nil {
		return Index{}, fmt.Errorf("rendering %s: %w", IndexFile, err)
	}
	if err := replaceFile(filepath.Join(out, IndexFile), b.Bytes()); err != nil {
		return Index{}, fmt.Errorf("writing %s: %w", IndexFile, err)
	}
	return Index{len(runs), problems}, nil
}

// indexView is what the page over many runs shows.
type indexView struct {
	Head     head
	Script   template.JS
	Problems []string
	Groups   []indexGroup
	Runs     []indexRow // newest first
}

// indexGroup is the trend of the runs that can be compared with each other.
type indexGroup struct {
	Scenario, Cluster, Cleaner string
	Runs                       int
	Valid                      int
	Last                       check.Verdict
	Dots                       []verdictDot
	Trends                     []trend
}

type verdictDot struct {
	X       float64
	Verdict check.Verdict
	Text    string
	Link    string
}

// trend is one number over the runs of a group, oldest first.
type trend struct {
	Name, Last string
	Path       string
	Points     []string // the same, as dots
	Text       string   // for who cannot see the drawing
}

type indexRow struct {
	StoredRun
	Link                           string
	Duration                       time.Duration
	Iteration, Release             time.Duration // medians
	Iterations, Violations, Unsure int
}

func newIndexView(out string, runs []StoredRun, problems []string) indexView {
	v := indexView{Head: newHead("danm-chaos: "+countOf(len(runs), "run"), false), Script: pageScript(), Problems: problems}
	groups := map[string][]indexRow{}
	var order []string
	for _, r := range runs {
		row := newIndexRow(out, r)
		key := strings.Join([]string{r.Scenario, r.Cluster, r.Cleaner}, "\x00")
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], row)
		v.Runs = append(v.Runs, row)
	}
	slices.Sort(order)
	for _, key := range order {
		v.Groups = append(v.Groups, newIndexGroup(groups[key]))
	}
	slices.Reverse(v.Runs)
	return v
}

func countOf(n int, word string) string { return fmt.Sprintf("%d %s", n, plural(n, word)) }

func newIndexRow(out string, r StoredRun) indexRow {
	row := indexRow{
		StoredRun: r, Duration: secondsToDuration(r.DurationSeconds), Iterations: len(r.Result.Iterations),
		Violations: len(r.Result.Violations), Unsure: len(r.Unknowns), Link: linkTo(out, r.Dir),
	}
	for _, m := range measure.Latencies(r.Result) {
		middle := measure.Quantile(measure.Sorted(m.Values), 0.5)
		switch m.Name {
		case measure.Iteration:
			row.Iteration = middle
		case measure.Release:
			row.Release = middle
		}
	}
	return row
}

// linkTo returns the relative address of the page of a run, or of its result
// if it was never rendered.
func linkTo(out, dir string) string {
	file := PageFile
	if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
		file = RunFile
	}
	path, err := filepath.Rel(out, filepath.Join(dir, file))
	if err != nil {
		return ""
	}
	return filepath.ToSlash(path)
}

// Size of a trend in its own coordinates.
const trendWidth, trendHeight = 240.0, 36.0

// trendX spreads the runs of a group over the width.
func trendX(i, n int) float64 {
	const margin = 6
	if n == 1 {
		return trendWidth / 2
	}
	return toDecimal(margin + float64(i)*(trendWidth-2*margin)/float64(n-1))
}

func newIndexGroup(rows []indexRow) indexGroup {
	last := rows[len(rows)-1]
	g := indexGroup{Scenario: last.Scenario, Cluster: last.Cluster, Cleaner: last.Cleaner, Runs: len(rows), Last: verdictOf(last.Result)}
	for i, r := range rows {
		if verdictOf(r.Result) == check.Valid {
			g.Valid++
		}
		g.Dots = append(g.Dots, verdictDot{trendX(i, len(rows)), verdictOf(r.Result), fmt.Sprintf("%s: %s", r.RunID, verdictOf(r.Result)), r.Link})
	}
	duration := func(get func(indexRow) time.Duration) (func(indexRow) float64, func(float64) string) {
		return func(r indexRow) float64 { return get(r).Seconds() },
			func(s float64) string {
				if s == 0 {
					return "not measured"
				}
				return rounded(secondsToDuration(s)).String()
			}
	}
	count := func(f float64) string { return number(f) }
	iteration, text := duration(func(r indexRow) time.Duration { return r.Iteration })
	g.Trends = append(g.Trends, newTrend("iteration, median", rows, iteration, text))
	release, text := duration(func(r indexRow) time.Duration { return r.Release })
	g.Trends = append(g.Trends, newTrend("release, median", rows, release, text))
	g.Trends = append(g.Trends, newTrend("violations", rows, func(r indexRow) float64 { return float64(r.Violations) }, count))
	return g
}

func newTrend(name string, rows []indexRow, value func(indexRow) float64, text func(float64) string) trend {
	most := 0.0
	for _, r := range rows {
		most = max(most, value(r))
	}
	t := trend{Name: name, Last: text(value(rows[len(rows)-1]))}
	var texts []string
	for i, r := range rows {
		const margin = 4
		y := trendHeight - margin
		if most > 0 {
			y -= (trendHeight - 2*margin) * value(r) / most
		}
		point := number(trendX(i, len(rows))) + " " + number(y)
		t.Path += map[bool]string{true: "M", false: "L"}[i == 0] + point
		t.Points = append(t.Points, "M"+point+"h0")
		texts = append(texts, text(value(r)))
	}
	t.Text = fmt.Sprintf("%s over %s: %s", name, countOf(len(rows), "run"), strings.Join(texts, ", "))
	return t
}
