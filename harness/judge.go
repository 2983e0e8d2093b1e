package harness

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// judge reads the history back from disk, checks it, and fills the result.
func (r *run) judge(cause error) error {
	r.result.DurationSeconds = time.Since(r.began).Seconds()
	r.result.FaultsFired = r.fired
	r.result.Interrupted = errors.Is(cause, errInterrupted)
	r.planned()
	if err := r.config.History.Sync(); err != nil {
		return fmt.Errorf("writing the history: %w", err)
	}
	records, err := history.Read(r.config.HistoryPath)
	if err != nil {
		return err
	}
	r.take(check.Check(records, check.Options{BlameAny: r.config.BlameAny}))
	if user, ok := r.config.Cluster.(clusters.ResourceUser); ok {
		r.noteMemory(user) // the whole history was in memory just now
	}
	r.result.PeakBytes = r.peak
	r.addConditions(cause)
	r.spreadVerdicts()
	if first := r.firstInvalid(); first > 0 {
		r.result.Reproduce = reproduce(r.config, wholeRounds(first, r.config))
	}
	return nil
}

// planned restricts the plan of a run with a time limit to what it began.
func (r *run) planned() {
	if r.config.For == 0 {
		return
	}
	r.result.Planned = len(r.begun)
	begun := schedule.Schedule{Iterations: r.begun}
	r.result.FaultsPlanned = begun.Faults(len(r.begun))
	r.result.Reproduce = reproduce(r.config, max(1, r.lastBegun()))
}

func (r *run) lastBegun() int {
	last := 0
	for _, it := range r.begun {
		last = max(last, it.Number)
	}
	return last
}

// take copies what the checkers found.
func (r *run) take(report check.Report) {
	r.result.Verdict = report.Verdict
	r.result.Violations = append(r.result.Violations, report.Violations...)
	r.result.Findings = append(r.result.Findings, report.Findings...)
	r.result.Unknowns = append(r.result.Unknowns, report.Unknowns...)
	r.result.Unjudged = report.Unjudged
	r.result.Checked = report.Checked
}

// addConditions adds what is known about the run itself: a run that did not do
// what was planned is not Valid, whatever its history shows.
func (r *run) addConditions(cause error) {
	if cause != nil {
		r.unknown("%v", cause)
	}
	if done := len(r.result.Iterations); done < r.result.Planned {
		r.unknown("%d of %d planned iterations were done", done, r.result.Planned)
	}
	for _, verb := range slices.Sorted(maps.Keys(r.result.FaultsPlanned)) {
		if planned, fired := r.result.FaultsPlanned[verb], r.result.FaultsFired[verb]; fired < planned {
			r.unknown("%d of %d planned faults %s fired", fired, planned, verb)
		}
	}
	for _, it := range r.result.Iterations {
		switch {
		case it.Verdict == check.Unknown:
			r.unknown("iteration %d in %s: %s", it.Number, it.Lane, it.Note)
		case it.Verdict == check.Valid && it.Moved == 0:
			r.unknown("iteration %d in %s moved no pod, so nothing was tried", it.Number, it.Lane)
		}
	}
	if !r.config.DryRun && r.result.Checked[check.ClearOnce] == 0 {
		r.unknown("the cleaner under test released no address in the whole run, so this says nothing about it")
	}
	if len(r.result.Unknowns) > 0 {
		r.result.Verdict = check.Merge(r.result.Verdict, check.Unknown)
	}
}

// unknown notes why the run cannot be Valid.
func (r *run) unknown(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Unknowns = append(r.result.Unknowns, fmt.Sprintf(format, args...))
}

// spreadVerdicts marks iterations whose snapshot was fine but in which a write
// broke something.
func (r *run) spreadVerdicts() {
	for i := range r.result.Iterations {
		it := &r.result.Iterations[i]
		for _, v := range r.result.Violations {
			if v.Iteration != it.Number || v.Lane != it.Lane {
				continue
			}
			it.Verdict = check.Invalid
			if it.Note == "" {
				it.Note = v.Message
			}
		}
	}
}

// wholeRounds returns how many iterations show iteration n again. All lanes
// take part up to it, because what they ask of the cleaner meanwhile belongs
// to what happened.
func wholeRounds(n int, c Config) int {
	return min((n+c.Lanes-1)/c.Lanes*c.Lanes, c.Iterations)
}

// reproduce returns the command line that does the same again, with as few
// iterations as show it.
func reproduce(c Config, iterations int) string {
	args := []string{
		"danm-chaos", "run", c.ScenarioArgs, "--cluster", c.Cluster.Name(), "--cleaner", quote(c.CleanerName),
		"--seed", strconv.FormatUint(c.Seed, 10), "--lanes", strconv.Itoa(c.Lanes), "--iterations", strconv.Itoa(iterations),
	}
	if c.Group != danm.GroupDanmIO {
		args = append(args, "--danm-api", string(c.Group))
	}
	if c.CNI != "" && c.CNI != DefaultCNI {
		args = append(args, "--cni", c.CNI)
	}
	if c.BlameAny {
		args = append(args, "--blame", "any")
	}
	if c.DryRun {
		args = append(args, "--dry-run")
	}
	return strings.Join(args, " ")
}

// DefaultCNI is the CNI that a run uses unless told otherwise.
const DefaultCNI = "danm-4.3"

// quote makes a text one word of a shell.
func quote(s string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_./:=@%+,", c)
	}
	if s != "" && strings.IndexFunc(s, func(c rune) bool { return !plain(c) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
