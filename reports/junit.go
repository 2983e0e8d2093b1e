package reports

import (
	"encoding/xml"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
)

// The parts of the JUnit format that CI systems agree on. A failure is
// misbehaviour of the cleaner, an error is trouble of the harness, skipped is
// what this run could not look at.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Skipped  int          `xml:"skipped,attr"`
		Time     string       `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string          `xml:"name,attr"`
		Timestamp  string          `xml:"timestamp,attr"`
		Tests      int             `xml:"tests,attr"`
		Failures   int             `xml:"failures,attr"`
		Errors     int             `xml:"errors,attr"`
		Skipped    int             `xml:"skipped,attr"`
		Time       string          `xml:"time,attr"`
		Properties []junitProperty `xml:"properties>property"`
		Cases      []junitCase     `xml:"testcase"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Time    string        `xml:"time,attr"`
		Failure *junitMessage `xml:"failure"`
		Error   *junitMessage `xml:"error"`
		Skipped *junitMessage `xml:"skipped"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

func junit(r harness.Result) ([]byte, error) {
	suite := junitSuite{
		Name:      r.Scenario + "/" + r.Cluster,
		Timestamp: r.Started.UTC().Format(junitTime),
		Time:      seconds(r.DurationSeconds),
		Properties: []junitProperty{
			{"runId", r.RunID}, {"cleaner", r.Cleaner}, {"danmApi", r.Group}, {"cni", r.CNI},
			{"seed", fmt.Sprint(r.Seed)}, {"commit", r.Commit}, {"verdict", string(r.Verdict)}, {"reproduce", r.Reproduce},
		},
	}
	suite.Cases = append(suite.Cases, judgedCase(r))
	for _, reason := range skippedOf(r) {
		suite.Cases = append(suite.Cases, skippedCase(r.Scenario, reason))
	}
	for _, it := range r.Iterations {
		suite.Cases = append(suite.Cases, iterationCase(r.Scenario, it))
	}
	for _, invariant := range invariantsOf(r) {
		suite.Cases = append(suite.Cases, invariantCase(r, invariant))
	}
	suite.count()
	all := junitSuites{Name: "danm-chaos", Tests: suite.Tests, Failures: suite.Failures, Errors: suite.Errors,
		Skipped: suite.Skipped, Time: suite.Time, Suites: []junitSuite{suite}}
	body, err := xml.MarshalIndent(all, "", "  ")
	if err != nil {
		return nil, err
	}
	return append([]byte(xml.Header), append(body, '\n')...), nil
}

// junitTime has no zone, because readers of the older schema refuse one.
const junitTime = "2006-01-02T15:04:05"

func seconds(s float64) string { return fmt.Sprintf("%.3f", s) }

func (s *junitSuite) count() {
	s.Tests = len(s.Cases)
	for _, c := range s.Cases {
		switch {
		case c.Failure != nil:
			s.Failures++
		case c.Error != nil:
			s.Errors++
		case c.Skipped != nil:
			s.Skipped++
		}
	}
}

// judgedCase is an error when the run as a whole is less than decided, so that
// a CI system which looks at failures and errors alone never shows it green.
func judgedCase(r harness.Result) junitCase {
	c := junitCase{Class: r.Scenario, Name: "run could be judged", Time: seconds(0)}
	reasons := r.Unknowns
	if r.Interrupted {
		reasons = append([]string{"the run was interrupted"}, reasons...)
	}
	switch {
	case len(reasons) > 0:
		c.Error = &junitMessage{Message: reasons[0], Type: string(check.Unknown), Text: lines(reasons)}
	case r.Verdict != check.Valid && r.Verdict != check.Invalid:
		c.Error = &junitMessage{Message: fmt.Sprintf("verdict %q without a reason", r.Verdict), Type: string(check.Unknown)}
	}
	return c
}

// skippedCase is something that the cluster could not do.
func skippedCase(scenario, reason string) junitCase {
	what, why, _ := strings.Cut(reason, ": ")
	return junitCase{Class: scenario + ".faults", Name: what, Time: seconds(0), Skipped: &junitMessage{Message: why}}
}

func iterationCase(scenario string, it harness.Iteration) junitCase {
	c := junitCase{
		Class: scenario + ".iterations",
		Name:  fmt.Sprintf("iteration %d %s %s", it.Number, it.Lane, it.Network),
		Time:  seconds(it.Took.Seconds()),
	}
	message := &junitMessage{Message: Line(it), Type: string(it.Verdict)}
	switch it.Verdict {
	case check.Valid:
	case check.Invalid:
		c.Failure = message
	default:
		c.Error = message
	}
	return c
}

// invariantsOf lists every invariant that was or should have been evaluated.
func invariantsOf(r harness.Result) []check.Invariant {
	found := map[check.Invariant]bool{}
	for _, i := range []check.Invariant{
		check.LiveAttachment, check.SingleHolder, check.Convergence, check.ClearOnce,
		check.ReservedBits, check.OnlyAllocations, check.DryRunSilent,
	} {
		found[i] = true
	}
	for i := range r.Checked {
		found[i] = true
	}
	for _, v := range r.Violations {
		found[v.Invariant] = true
	}
	return slices.Sorted(maps.Keys(found))
}

func invariantCase(r harness.Result, invariant check.Invariant) junitCase {
	c := junitCase{Class: r.Scenario + ".invariants", Name: string(invariant), Time: seconds(0)}
	var text []string
	for _, v := range r.Violations {
		if v.Invariant == invariant {
			text = append(text, block(v)...)
			if c.Failure == nil {
				c.Failure = &junitMessage{Message: v.Message, Type: string(check.Invalid)}
			}
		}
	}
	switch {
	case c.Failure != nil:
		c.Failure.Text = lines(append(text, "reproduce: "+r.Reproduce))
	case r.Checked[invariant] == 0:
		c.Skipped = &junitMessage{Message: "not evaluated in this run"}
	}
	return c
}

func lines(l []string) string { return "\n" + strings.Join(l, "\n") + "\n" }
