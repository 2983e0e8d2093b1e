package reports

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
)

// Bounds of what a terminal should be asked to show; the files hold all.
const (
	violationsShown = 3
	findingsShown   = 5
	unknownsShown   = 10
)

// Summary writes the final text of a run. What matters most comes last: the
// violations, the verdict, and, unless the run is Valid, the command that
// reproduces it as the very last line.
func Summary(w io.Writer, r harness.Result) error {
	out := headLines(r)
	out = append(out, findingLines(r.Findings)...)
	out = append(out, tailLines(r)...)
	out = append(out, listLines("skipped, because the cluster cannot do it", r.Skipped)...)
	out = append(out, listLines("not judged", r.Unjudged)...)
	out = append(out, unknownLines(r)...)
	out = append(out, violationLines(r.Violations)...)
	out = append(out, "", verdictLine(r))
	if r.Verdict != check.Valid && r.Reproduce != "" {
		out = append(out, "reproduce: "+r.Reproduce)
	}
	for i := range out {
		out[i] = plain(out[i])
	}
	_, err := io.WriteString(w, strings.Join(out, "\n")+"\n")
	return err
}

func headLines(r harness.Result) []string {
	out := []string{
		"",
		fmt.Sprintf("%s on %s, cleaner %s, seed %d, run %s", r.Scenario, r.Cluster, r.Cleaner, r.Seed, r.RunID),
		fmt.Sprintf("  iterations  %s", iterationCounts(r)),
		fmt.Sprintf("  faults      %s", faultCounts(r.FaultsPlanned, r.FaultsFired)),
		fmt.Sprintf("  checked     %s", checkedCounts(r.Checked)),
	}
	if times := phaseTimes(r.Iterations); times != "" {
		out = append(out, fmt.Sprintf("  medians     %s", times))
	}
	if r.PeakBytes > 0 {
		out = append(out, fmt.Sprintf("  memory      %.2f GiB at most, all processes together", float64(r.PeakBytes)/(1<<30)))
	}
	return out
}

// listLines shows all of a short list.
func listLines(title string, list []string) []string {
	if len(list) == 0 {
		return nil
	}
	out := []string{"", title + ":"}
	for _, text := range list {
		out = append(out, "  "+text)
	}
	return out
}

func iterationCounts(r harness.Result) string {
	byVerdict := map[check.Verdict]int{}
	for _, it := range r.Iterations {
		byVerdict[it.Verdict]++
	}
	text := fmt.Sprintf("%d of %d in %s: %d ok", len(r.Iterations), r.Planned, rounded(secondsToDuration(r.DurationSeconds)), byVerdict[check.Valid])
	for _, v := range []check.Verdict{check.Invalid, check.Unknown} {
		if n := byVerdict[v]; n > 0 {
			text += fmt.Sprintf(", %d %s", n, v)
		}
	}
	return text
}

func secondsToDuration(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// rounded drops the digits that nobody reads.
func rounded(d time.Duration) time.Duration {
	switch {
	case d < time.Second:
		return d.Round(10 * time.Millisecond)
	case d < time.Minute:
		return d.Round(100 * time.Millisecond)
	default:
		return d.Round(time.Second)
	}
}

func faultCounts(planned, fired map[string]int) string {
	if len(planned) == 0 {
		return "none planned"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(planned)) {
		parts = append(parts, fmt.Sprintf("%s %d of %d fired", name, fired[name], planned[name]))
	}
	return strings.Join(parts, ", ")
}

func checkedCounts(checked map[check.Invariant]int) string {
	if len(checked) == 0 {
		return "nothing"
	}
	var parts []string
	for _, i := range slices.Sorted(maps.Keys(checked)) {
		parts = append(parts, fmt.Sprintf("%s %d", i, checked[i]))
	}
	return strings.Join(parts, ", ")
}

// phaseTimes tells where an iteration spends its time.
func phaseTimes(iterations []harness.Iteration) string {
	var parts []string
	for _, phase := range []struct {
		name string
		of   func(harness.Iteration) time.Duration
	}{
		{"fault to Terminating", func(it harness.Iteration) time.Duration { return it.Detected }},
		{"to recreated", func(it harness.Iteration) time.Duration { return it.Recreated }},
		{"to settled", func(it harness.Iteration) time.Duration { return it.Settled }},
		{"iteration", func(it harness.Iteration) time.Duration { return it.Took }},
	} {
		if m := median(iterations, phase.of); m > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", phase.name, rounded(m)))
		}
	}
	return strings.Join(parts, ", ")
}

func median(iterations []harness.Iteration, of func(harness.Iteration) time.Duration) time.Duration {
	var all []time.Duration
	for _, it := range iterations {
		if d := of(it); d > 0 {
			all = append(all, d)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func findingLines(findings []check.Violation) []string {
	if len(findings) == 0 {
		return nil
	}
	out := []string{"", fmt.Sprintf("findings, not held against the cleaner: %d", len(findings))}
	for _, v := range findings[:min(len(findings), findingsShown)] {
		out = append(out, fmt.Sprintf("  %s by %s: %s", v.Invariant, v.Blame, v.Message))
	}
	return append(out, more(len(findings), findingsShown)...)
}

func more(all, shown int) []string {
	if all <= shown {
		return nil
	}
	return []string{fmt.Sprintf("  and %d more in %s", all-shown, VerdictsFile)}
}

// tailLines shows what the cleaner said last. The harness keeps that only when
// the cleaner ended by itself.
func tailLines(r harness.Result) []string {
	if len(r.CleanerLogTail) == 0 {
		return nil
	}
	out := []string{"", "last lines of the cleaner:"}
	for _, l := range r.CleanerLogTail {
		out = append(out, "  | "+l)
	}
	return out
}

func violationLines(violations []check.Violation) []string {
	if len(violations) == 0 {
		return nil
	}
	out := []string{"", fmt.Sprintf("violations: %d (%s)", len(violations), perInvariant(violations))}
	for _, v := range gravestFirst(violations)[:min(len(violations), violationsShown)] {
		out = append(out, block(v)...)
	}
	return append(out, more(len(violations), violationsShown)...)
}

// gravestFirst puts what happened to living pods before what was left over, so
// that a screen of leaks does not hide an outage. Within that the order is that
// of the history.
func gravestFirst(violations []check.Violation) []check.Violation {
	isLeftOver := func(v check.Violation) int {
		if v.Invariant == check.Convergence {
			return 1
		}
		return 0
	}
	sorted := slices.Clone(violations)
	slices.SortStableFunc(sorted, func(a, b check.Violation) int { return cmp.Compare(isLeftOver(a), isLeftOver(b)) })
	return sorted
}

func perInvariant(violations []check.Violation) string {
	counts := map[check.Invariant]int{}
	for _, v := range violations {
		counts[v.Invariant]++
	}
	return checkedCounts(counts)
}

// block renders one violation: the sentence, then every name that is known.
func block(v check.Violation) []string {
	out := []string{fmt.Sprintf("%s: %s", v.Invariant, v.Message)}
	line := func(name, value string) {
		if value != "" {
			out = append(out, fmt.Sprintf("  %-9s %s", name, value))
		}
	}
	line("pod", withDetail(v.Pod, "UID", v.PodUID))
	line("endpoint", v.Endpoint)
	line("network", v.Network)
	line("address", v.Address)
	line("writer", withDetail(v.Writer, "at revision", positive(v.RV)))
	line("step", withDetail(v.Step, "in", place(v)))
	for _, e := range v.Evidence {
		line("evidence", e)
	}
	line("history", withDetail("", "record", positive(v.Record)))
	return out
}

// place leaves out the iteration where the step names it already.
func place(v check.Violation) string {
	if v.Iteration == 0 || strings.HasPrefix(v.Step, "iteration ") {
		return v.Lane
	}
	return strings.TrimSpace(fmt.Sprintf("%s iteration %d", v.Lane, v.Iteration))
}

func withDetail(value, label, detail string) string {
	if detail == "" {
		return value
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", value, label, detail))
}

func positive(n uint64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func unknownLines(r harness.Result) []string {
	if len(r.Unknowns) == 0 {
		return nil
	}
	out := []string{"", fmt.Sprintf("could not be decided: %d", len(r.Unknowns))}
	for _, reason := range r.Unknowns[:min(len(r.Unknowns), unknownsShown)] {
		out = append(out, "  "+reason)
	}
	return append(out, more(len(r.Unknowns), unknownsShown)...)
}

func verdictLine(r harness.Result) string {
	verdict := r.Verdict
	if verdict == "" {
		verdict = check.Unknown
	}
	if r.Interrupted {
		return fmt.Sprintf("verdict: %s (interrupted)", verdict)
	}
	return fmt.Sprintf("verdict: %s", verdict)
}
