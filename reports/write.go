package reports

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
)

// Names of the files in a run directory that this package writes or reads.
const (
	RunFile      = "run.json"
	VerdictsFile = "verdicts.json"
	JUnitFile    = "junit.xml"
	PageFile     = "report.html"
	MarkdownFile = "report.md"
	MetricsFile  = "metrics.prom"
	HistoryFile  = "history.jsonl"
)

// Format is a way to render a run.
type Format string

// The formats of a run.
const (
	JSON       Format = "json" // run.json and verdicts.json
	HTML       Format = "html"
	JUnit      Format = "junit"
	Markdown   Format = "markdown"
	Prometheus Format = "prometheus"
)

// Formats lists every format.
func Formats() []Format { return []Format{JSON, HTML, JUnit, Markdown, Prometheus} }

// ParseFormats reads a list with commas. "all" means every format, and so does
// nothing.
func ParseFormats(list string) ([]Format, error) {
	if list == "all" || list == "" {
		return Formats(), nil
	}
	var out []Format
	for _, name := range strings.Split(list, ",") {
		f := Format(strings.TrimSpace(name))
		if !slices.Contains(Formats(), f) {
			return nil, fmt.Errorf("unknown format %q: use all, or some of %s", name, joinFormats(Formats()))
		}
		out = append(out, f)
	}
	return out, nil
}

func joinFormats(formats []Format) string {
	var names []string
	for _, f := range formats {
		names = append(names, string(f))
	}
	return strings.Join(names, ", ")
}

// Write renders the result into the run directory, with what the history there
// tells besides.
func Write(dir string, r harness.Result) error { return Load(dir, r).Write(dir, Formats()) }

// Write renders the run into a directory. Each file appears whole or not at
// all, and run.json last: who sees it, sees the others too. What is in the place
// of a result that could not be read stays there.
func (r Run) Write(dir string, formats []Format) error {
	r.Result = withLists(r.Result)
	r.SchemaVersion = harness.ResultSchemaVersion
	verdicts := check.Report{Verdict: r.Verdict, Violations: r.Violations, Findings: r.Findings, Unknowns: r.Unknowns, Checked: r.Checked}
	for _, f := range []struct {
		name   string
		format Format
		render func() ([]byte, error)
	}{
		{VerdictsFile, JSON, func() ([]byte, error) { return indented(verdicts) }},
		{JUnitFile, JUnit, func() ([]byte, error) { return junit(r.Result) }},
		{MarkdownFile, Markdown, func() ([]byte, error) { return markdown(r.Result), nil }},
		{MetricsFile, Prometheus, func() ([]byte, error) { return exposition(r.Result) }},
		{PageFile, HTML, func() ([]byte, error) { return runPage(r) }},
		{RunFile, JSON, func() ([]byte, error) { return indented(r.Result) }},
	} {
		if !slices.Contains(formats, f.format) || f.name == RunFile && r.Rebuilt {
			continue
		}
		data, err := f.render()
		if err != nil {
			return fmt.Errorf("rendering %s: %w", f.name, err)
		}
		if err := replaceFile(filepath.Join(dir, f.name), data); err != nil {
			return fmt.Errorf("writing %s: %w", f.name, err)
		}
	}
	return nil
}

// withLists makes absent lists empty, so that a reader of the JSON never meets
// null where a list is documented.
func withLists(r harness.Result) harness.Result {
	r.Iterations = append([]harness.Iteration{}, r.Iterations...)
	for i := range r.Iterations {
		if r.Iterations[i].Faults == nil {
			r.Iterations[i].Faults = []string{}
		}
	}
	r.Violations = append([]check.Violation{}, r.Violations...)
	r.Findings = append([]check.Violation{}, r.Findings...)
	r.Unknowns = append([]string{}, r.Unknowns...)
	for _, counts := range []*map[string]int{&r.FaultsPlanned, &r.FaultsFired} {
		if *counts == nil {
			*counts = map[string]int{}
		}
	}
	if r.Checked == nil {
		r.Checked = map[check.Invariant]int{}
	}
	if r.Versions == nil {
		r.Versions = map[string]string{}
	}
	return r
}

func indented(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // command lines are to be read and pasted
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}

// replaceFile writes beside the file and renames, so that a crash leaves the
// old content or the new, never half of it.
func replaceFile(path string, data []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) // fails after the rename, which is what we want
	_, err = temp.Write(data)
	if err == nil {
		err = temp.Chmod(0o644)
	}
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}
