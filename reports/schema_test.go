package reports

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/reports/compare"
	"github.com/danm-chaos/danm-chaos/reports/schema"
)

// violationsOf returns how a document breaks a schema, or nil.
func violationsOf(t *testing.T, schemaText, document []byte) error {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemaText))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", parsed); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	return compiled.Validate(value)
}

// everyResult are results that between them have every field.
func everyResult(t *testing.T) map[string]harness.Result {
	_, incident := incidentDir(t, "ss-0")
	incident.Skipped, incident.Unjudged = []string{"mesh-inject: Chaos Mesh is not installed"}, []string{"I1: there is no audit log"}
	incident.Digest = "0123456789abcdef"
	return map[string]harness.Result{
		"valid": validResult(), "invalid": invalidResult(), "unknown": unknownResult(), "incident": incident, "nothing": {},
	}
}

func TestWhatIsWrittenMatchesItsSchema(t *testing.T) {
	for name, r := range everyResult(t) {
		t.Run(name, func(t *testing.T) {
			dir := written(t) // brings a history
			if err := Write(dir, r); err != nil {
				t.Fatal(err)
			}
			for file, text := range map[string][]byte{RunFile: schema.Run, VerdictsFile: schema.Verdicts} {
				data, err := os.ReadFile(filepath.Join(dir, file))
				if err != nil {
					t.Fatal(err)
				}
				if r.Verdict == "" { // a result that nobody judged has none
					data = bytes.ReplaceAll(data, []byte(`"verdict": ""`), []byte(`"verdict": "Unknown"`))
				}
				if err := violationsOf(t, text, data); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			}
		})
	}
}

func TestAComparisonMatchesItsSchema(t *testing.T) {
	for name, sides := range comparisons() {
		c := compare.Compare(sides[0], sides[1], compare.DefaultOptions())
		data, err := RenderComparison(c, JSON)
		if err != nil {
			t.Fatal(err)
		}
		if err := violationsOf(t, schema.Compare, data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTheSchemasRefuse: a schema that takes everything says nothing.
func TestTheSchemasRefuse(t *testing.T) {
	dir := written(t)
	data, err := os.ReadFile(filepath.Join(dir, RunFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(map[string]any){
		"a field that it does not know":  func(m map[string]any) { m["colour"] = "red" },
		"a verdict that there is not":    func(m map[string]any) { m["verdict"] = "Passed" },
		"a missing list":                 func(m map[string]any) { delete(m, "violations") },
		"null for a list":                func(m map[string]any) { m["unknowns"] = nil },
		"another version":                func(m map[string]any) { m["schemaVersion"] = 1 },
		"a violation without a sentence": func(m map[string]any) { delete(m["violations"].([]any)[0].(map[string]any), "message") },
	} {
		var document map[string]any
		if err := json.Unmarshal(data, &document); err != nil {
			t.Fatal(err)
		}
		change(document)
		changed, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		if violationsOf(t, schema.Run, changed) == nil {
			t.Errorf("it takes %s", name)
		}
	}
}

// comparisons are the cases that the golden files show.
func comparisons() map[string][2][]harness.Result {
	slow := validResult()
	slow.Measured = &harness.Measured{}
	fast := validResult()
	fast.Measured = &harness.Measured{}
	for i := range 12 {
		release := 1100*time.Millisecond + time.Duration(i)*10*time.Millisecond
		fast.Measured.Releases = append(fast.Measured.Releases, release)
		slow.Measured.Releases = append(slow.Measured.Releases, 2*release)
		fast.Measured.RequestsPerIteration = append(fast.Measured.RequestsPerIteration, 3)
		slow.Measured.RequestsPerIteration = append(slow.Measured.RequestsPerIteration, 3)
	}
	hostile := invalidResult()
	hostile.Violations[0].Message = "pod " + hostileName + " lost its address"
	return map[string][2][]harness.Result{
		"same":    {{validResult()}, {validResult()}},
		"broken":  {{validResult()}, {invalidResult()}},
		"slower":  {{fast}, {slow}},
		"hostile": {{validResult()}, {hostile}},
		"nothing": {{validResult()}, nil},
	}
}
