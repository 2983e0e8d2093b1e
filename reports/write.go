package reports

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
)

// Names of the files that Write makes in a run directory.
const (
	RunFile      = "run.json"
	VerdictsFile = "verdicts.json"
	JUnitFile    = "junit.xml"
)

// Write renders the result into the run directory. Each file appears whole or
// not at all.
func Write(dir string, r harness.Result) error {
	r = withLists(r)
	verdicts := check.Report{Verdict: r.Verdict, Violations: r.Violations, Findings: r.Findings, Unknowns: r.Unknowns, Checked: r.Checked}
	for _, f := range []struct {
		name   string
		render func() ([]byte, error)
	}{
		{VerdictsFile, func() ([]byte, error) { return indented(verdicts) }},
		{JUnitFile, func() ([]byte, error) { return junit(r) }},
		{RunFile, func() ([]byte, error) { return indented(r) }}, // last: who sees it, sees the others too
	} {
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

// Read returns the result that Write stored in the run directory.
func Read(dir string) (harness.Result, error) {
	var r harness.Result
	data, err := os.ReadFile(filepath.Join(dir, RunFile))
	if err != nil {
		return r, fmt.Errorf("reading the result: %w", err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("reading the result: %s: %w", filepath.Join(dir, RunFile), err)
	}
	if r.SchemaVersion != harness.ResultSchemaVersion {
		return r, fmt.Errorf("reading the result: %s has schemaVersion %d, this program reads %d",
			filepath.Join(dir, RunFile), r.SchemaVersion, harness.ResultSchemaVersion)
	}
	return r, nil
}

// withLists makes absent lists empty, so that a reader of the JSON never meets
// null where a list is documented.
func withLists(r harness.Result) harness.Result {
	if r.Iterations == nil {
		r.Iterations = []harness.Iteration{}
	}
	if r.Violations == nil {
		r.Violations = []check.Violation{}
	}
	if r.Findings == nil {
		r.Findings = []check.Violation{}
	}
	if r.Unknowns == nil {
		r.Unknowns = []string{}
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
