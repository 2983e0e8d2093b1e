package reports

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/reports/compare"
)

// Names of the files that WriteComparison makes.
const (
	CompareJSON     = "compare.json"
	ComparePage     = "compare.html"
	CompareJUnit    = "compare.xml"
	CompareMarkdown = "compare.md"
)

// ReadSide reads one side of a comparison: a result file, a run directory, or a
// folder of them. It says which of the runs cannot be read.
func ReadSide(path string) ([]harness.Result, []string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, fmt.Errorf("reading runs: %w", err)
	}
	if !info.IsDir() {
		r, err := ReadResult(path)
		return []harness.Result{r}, nil, err
	}
	r, err := readMeasured(path)
	if err == nil {
		return []harness.Result{r}, nil, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	stored, problems, err := ReadRuns(path)
	if err != nil {
		return nil, nil, err
	}
	if len(stored) == 0 && len(problems) == 0 {
		return nil, nil, errors.New("it holds no run")
	}
	var runs []harness.Result
	for _, s := range stored {
		runs = append(runs, s.Result)
	}
	return runs, problems, nil
}

// RenderComparison renders a comparison as it is printed. Prometheus has no
// form for it.
func RenderComparison(c compare.Comparison, f Format) ([]byte, error) {
	switch f {
	case JSON:
		return indented(c)
	case HTML:
		return comparisonPage(c)
	case JUnit:
		return comparisonJUnit(c)
	case Markdown:
		return comparisonMarkdown(c), nil
	default:
		return nil, fmt.Errorf("a comparison has no format %s: use json, html, junit or markdown", f)
	}
}

// WriteComparison writes a comparison in all its formats into a folder.
func WriteComparison(dir string, c compare.Comparison) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the folder of a comparison: %w", err)
	}
	for _, f := range []struct {
		name   string
		format Format
	}{{CompareJSON, JSON}, {ComparePage, HTML}, {CompareJUnit, JUnit}, {CompareMarkdown, Markdown}} {
		data, err := RenderComparison(c, f.format)
		if err != nil {
			return fmt.Errorf("rendering %s: %w", f.name, err)
		}
		if err := replaceFile(filepath.Join(dir, f.name), data); err != nil {
			return fmt.Errorf("writing %s: %w", f.name, err)
		}
	}
	return nil
}

// comparisonMarkdown is the text for a pull request.
func comparisonMarkdown(c compare.Comparison) []byte {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("## danm-chaos compare: %s\n", c.Outcome)
	line("BASE: %s. NEW: %s.", sideText(c.Base), sideText(c.New))
	for _, p := range c.Problems {
		line("\n> not read: %s", md(p))
	}
	for _, p := range c.Pairs {
		line("\n### %s: %s, then %s\n", md(pairName(p)), verdictText(p.Base), verdictText(p.New))
		markdownChanges(line, p)
		markdownMeasures(line, p)
	}
	line("\nA time is worse if its median is at least %s times that of BASE and %s more, and chance would do that in less than %s %% of comparisons.",
		number(c.Options.Slower), c.Options.Floor, number(c.Options.Alpha*100))
	return []byte(b.String())
}

func sideText(s compare.Side) string {
	text := countOf(s.Runs, "run")
	if s.Path != "" {
		text += " in " + mdCode(s.Path)
	}
	if len(s.Commits) > 0 {
		text += " of " + md(strings.Join(s.Commits, ", "))
	}
	return text
}

func pairName(p compare.Pair) string {
	name := fmt.Sprintf("%s on %s", p.Scenario, p.Cluster)
	if p.Cleaner != "" {
		name += ", cleaner " + p.Cleaner
	}
	return name
}

func verdictText(s compare.PairSide) string {
	if s.Runs == 0 {
		return "no run"
	}
	return fmt.Sprintf("%s in %s", s.Verdict, countOf(s.Iterations, "iteration"))
}

func markdownChanges(line func(string, ...any), p compare.Pair) {
	if len(p.Changes) == 0 {
		line("No verdict changed.")
	}
	for _, change := range p.Changes {
		line("- **%s**: %s, %s", change.Kind, md(change.What), md(change.Detail))
	}
	if p.New.Reproduce != "" {
		line("\nReproduce:\n\n%s", fenced(p.New.Reproduce))
	}
}

func markdownMeasures(line func(string, ...any), p compare.Pair) {
	if len(p.Measures) == 0 {
		return
	}
	line("\n| | BASE | NEW | ratio | chance | |\n|---|--:|--:|--:|--:|---|")
	for _, m := range p.Measures {
		if m.Base.N+m.New.N == 0 {
			continue
		}
		line("| %s | %s | %s | %s | %s | %s |", m.Name, summaryText(m.Base, m.Unit), summaryText(m.New, m.Unit), ratioText(m), chanceText(m), directionText(m))
	}
}

// summaryText is a median with its interval and the number of values.
func summaryText(s compare.Summary, unit string) string {
	if s.N == 0 {
		return "not measured"
	}
	return fmt.Sprintf("%s (%s to %s, n=%d)", valueText(s.Median, unit), valueText(s.Low, unit), valueText(s.High, unit), s.N)
}

func valueText(v float64, unit string) string {
	switch unit {
	case "s":
		return rounded(secondsToDuration(v)).String()
	case "bytes":
		return fmt.Sprintf("%.2f GiB", v/(1<<30))
	default:
		return number(v)
	}
}

func ratioText(m compare.Measure) string {
	if m.Ratio == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", m.Ratio)
}

func chanceText(m compare.Measure) string {
	switch {
	case m.Direction == compare.TooFew:
		return ""
	case m.P < 0.0001:
		return "<0.0001"
	default:
		return fmt.Sprintf("%.4f", m.P)
	}
}

func directionText(m compare.Measure) string {
	if m.Direction == compare.Worse {
		return "**worse**"
	}
	return string(m.Direction)
}

// comparisonJUnit has a suite for each pair and a case for each thing that was
// compared. A regression is a failure; what was no longer tried is an error.
func comparisonJUnit(c compare.Comparison) ([]byte, error) {
	all := junitSuites{Name: "danm-chaos compare", Time: seconds(0)}
	whole := junitCase{Class: "compare", Name: "both sides could be read", Time: seconds(0)}
	if len(c.Problems) > 0 || c.Base.Runs == 0 || c.New.Runs == 0 {
		whole.Error = &junitMessage{Message: fmt.Sprintf("%d runs of BASE and %d of NEW could be read", c.Base.Runs, c.New.Runs), Type: string(compare.Inconclusive), Text: lines(c.Problems)}
	}
	suites := []junitSuite{{Name: "compare", Timestamp: noTime, Time: seconds(0), Cases: []junitCase{whole}}}
	for _, p := range c.Pairs {
		suites = append(suites, pairSuite(p))
	}
	for _, s := range suites {
		s.count()
		all.Tests, all.Failures, all.Errors, all.Skipped = all.Tests+s.Tests, all.Failures+s.Failures, all.Errors+s.Errors, all.Skipped+s.Skipped
		all.Suites = append(all.Suites, s)
	}
	body, err := xml.MarshalIndent(all, "", "  ")
	if err != nil {
		return nil, err
	}
	return append([]byte(xml.Header), append(body, '\n')...), nil
}

// noTime is the timestamp of a comparison, which is the same whenever it is
// made.
const noTime = "1970-01-01T00:00:00"

func pairSuite(p compare.Pair) junitSuite {
	s := junitSuite{Name: pairName(p), Timestamp: noTime, Time: seconds(0), Properties: []junitProperty{
		{"baseVerdict", verdictText(p.Base)}, {"newVerdict", verdictText(p.New)}, {"reproduce", p.New.Reproduce},
	}}
	verdict := junitCase{Class: pairName(p), Name: "verdict", Time: seconds(0)}
	s.Cases = append(s.Cases, verdict)
	for _, change := range p.Changes {
		c := junitCase{Class: pairName(p) + ".changes", Name: fmt.Sprintf("%s: %s", change.What, change.Kind), Time: seconds(0)}
		message := &junitMessage{Message: plain(change.Detail), Type: string(change.Kind)}
		switch change.Kind {
		case compare.New:
			c.Failure = message
		case compare.NoLonger, compare.Undecided:
			c.Error = message
		case compare.StillFailing:
			c.Skipped = message // it is not this change that broke it
		}
		s.Cases = append(s.Cases, c)
	}
	for _, m := range p.Measures {
		s.Cases = append(s.Cases, measureCase(p, m))
	}
	return s
}

func measureCase(p compare.Pair, m compare.Measure) junitCase {
	c := junitCase{Class: pairName(p) + ".measures", Name: m.Name, Time: seconds(0)}
	text := fmt.Sprintf("BASE %s, NEW %s", summaryText(m.Base, m.Unit), summaryText(m.New, m.Unit))
	switch m.Direction {
	case compare.Worse:
		c.Failure = &junitMessage{Message: fmt.Sprintf("%s is %s times that of BASE", m.Name, ratioText(m)), Type: string(compare.Worse), Text: lines([]string{text})}
	case compare.TooFew:
		c.Skipped = &junitMessage{Message: "too few values to test: " + text}
	}
	return c
}

// comparisonView is what the page of a comparison shows.
type comparisonView struct {
	Head   head
	Script template.JS
	C      compare.Comparison
	Badge  string
	Pairs  []pairView
}

type pairView struct {
	compare.Pair
	Name, Was, Is string
	Rows          []measureView
}

type measureView struct {
	Name, Base, New, Ratio, Chance, Direction, Class string
}

func comparisonPage(c compare.Comparison) ([]byte, error) {
	v := comparisonView{Head: newHead("compare: "+string(c.Outcome), false), Script: pageScript(), C: c,
		Badge: map[compare.Outcome]string{compare.NoRegression: "Valid", compare.Regression: "Invalid"}[c.Outcome]}
	for _, p := range c.Pairs {
		view := pairView{Pair: p, Name: pairName(p), Was: verdictText(p.Base), Is: verdictText(p.New)}
		for _, m := range p.Measures {
			class := map[compare.Direction]string{compare.Worse: "worse", compare.Better: "better"}[m.Direction]
			view.Rows = append(view.Rows, measureView{m.Name, summaryText(m.Base, m.Unit), summaryText(m.New, m.Unit), ratioText(m), chanceText(m), string(m.Direction), class})
		}
		v.Pairs = append(v.Pairs, view)
	}
	var b bytes.Buffer
	err := pages.ExecuteTemplate(&b, "compare", v)
	return b.Bytes(), err
}
