package reports

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/reports/measure"
)

// markdownViolationsMax bounds what a CI summary shows; the page has the rest.
const markdownViolationsMax = 5

// markdown is the summary that CI systems show beside a job.
func markdown(r harness.Result) []byte {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("## %s: %s on %s", verdictOf(r), md(r.Scenario), md(r.Cluster))
	line("")
	line("| | |\n|---|---|")
	for _, row := range markdownRows(r) {
		line("| %s | %s |", row[0], row[1])
	}
	markdownLatencies(line, r)
	markdownViolations(line, r)
	if len(r.Unknowns) > 0 {
		line("\n### Could not be decided: %d\n", len(r.Unknowns))
		for _, reason := range r.Unknowns[:min(len(r.Unknowns), unknownsShown)] {
			line("- %s", md(reason))
		}
	}
	line("\nReproduce:\n\n%s", fenced(r.Reproduce))
	return []byte(b.String())
}

// verdictOf is the verdict of a run; one that nobody judged is Unknown.
func verdictOf(r harness.Result) check.Verdict { return cmp.Or(r.Verdict, check.Unknown) }

func markdownRows(r harness.Result) [][2]string {
	rows := [][2]string{
		{"cleaner", mdCode(r.Cleaner)},
		{"seed", fmt.Sprint(r.Seed)},
		{"iterations", md(iterationCounts(r))},
		{"faults", md(faultCounts(r.FaultsPlanned, r.FaultsFired))},
		{"checked", md(checkedCounts(r.Checked))},
		{"violations", fmt.Sprint(len(r.Violations))},
		{"findings, not held against the cleaner", fmt.Sprint(len(r.Findings))},
		{"run", mdCode(r.RunID)},
		{"commit", mdCode(r.Commit)},
	}
	for _, s := range skippedOf(r) {
		rows = append(rows, [2]string{"skipped", md(s)})
	}
	return rows
}

func skippedOf(r harness.Result) []string {
	if r.Measured == nil {
		return nil
	}
	return r.Measured.Skipped
}

func markdownLatencies(line func(string, ...any), r harness.Result) {
	line("\n| latency | n | median | p90 | max |\n|---|--:|--:|--:|--:|")
	for _, m := range measure.Latencies(r) {
		if len(m.Values) == 0 {
			continue
		}
		sorted := measure.Sorted(m.Values)
		line("| %s, %s | %d | %s | %s | %s |", m.Name, m.Meaning, len(sorted), rounded(measure.Quantile(sorted, 0.5)),
			rounded(measure.Quantile(sorted, 0.9)), rounded(sorted[len(sorted)-1]))
	}
}

func markdownViolations(line func(string, ...any), r harness.Result) {
	if len(r.Violations) == 0 {
		return
	}
	line("\n### Violations: %d (%s)\n", len(r.Violations), md(perInvariant(r.Violations)))
	for _, v := range gravestFirst(r.Violations)[:min(len(r.Violations), markdownViolationsMax)] {
		line("**%s**: %s", md(string(v.Invariant)), md(v.Message))
		line("\n<details><summary>evidence</summary>\n\n%s\n\n</details>\n", fenced(strings.Join(block(v)[1:], "\n")))
	}
	for _, l := range more(len(r.Violations), markdownViolationsMax) {
		line("\n%s", strings.TrimSpace(l))
	}
}

// md makes a text one line of markdown that is shown as it is.
func md(s string) string {
	var b strings.Builder
	for _, c := range plain(s) {
		switch {
		case strings.ContainsRune("\\`*_[]{}|~#!", c):
			b.WriteString(`\` + string(c))
		case c == '<':
			b.WriteString("&lt;")
		case c == '>':
			b.WriteString("&gt;")
		case c == '&':
			b.WriteString("&amp;")
		case c == '@': // would call somebody
			b.WriteString("&#64;")
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// mdCode is a text in the type of a program's name.
func mdCode(s string) string { return "<code>" + md(s) + "</code>" }

// fenced is a block of text as it is. Its fence is longer than any in it.
func fenced(s string) string {
	longest := 2
	for _, run := range strings.FieldsFunc(s, func(c rune) bool { return c != '`' }) {
		longest = max(longest, len(run))
	}
	fence := strings.Repeat("`", longest+1)
	var safe []string
	for _, l := range strings.Split(s, "\n") {
		safe = append(safe, plain(l))
	}
	return fence + "\n" + strings.Join(safe, "\n") + "\n" + fence
}

// sortedCounts lists a map of counts in the order of its keys.
func sortedCounts[K ~string](counts map[K]int) []named {
	var out []named
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, named{string(k), counts[k]})
	}
	return out
}

type named struct {
	Name  string
	Count int
}
