package reports

import (
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/reports/compare"
)

func TestMarkdown(t *testing.T) {
	for name, r := range map[string]harness.Result{"valid": validResult(), "invalid": invalidResult(), "unknown": unknownResult()} {
		t.Run(name, func(t *testing.T) { golden(t, "report_"+name+".md", markdown(r)) })
	}
}

// TestPageOfASmallRun leaves out style and script, which are files of their
// own, and with them the policy that holds their hashes.
func TestPageOfASmallRun(t *testing.T) {
	dir, r := incidentDir(t, "ss-0")
	r.Violations = r.Violations[:1] // one story is enough to read in a review
	got, err := runPage(Load(dir, r))
	if err != nil {
		t.Fatal(err)
	}
	text := string(got)
	_, text, _ = strings.Cut(text, "<main>")
	text, _, _ = strings.Cut(text, "</main>")
	golden(t, "page_incident.html", []byte(text))
}

func TestMetrics(t *testing.T) {
	got, err := exposition(invalidResult())
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "metrics_invalid.prom", got)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(got)))
	if err != nil {
		t.Fatal(err)
	}
	if families["danm_chaos_violations"] == nil || families["danm_chaos_iteration_seconds"] == nil {
		t.Errorf("only %d families are read back", len(families))
	}
}

func TestComparisonsAsText(t *testing.T) {
	for name, sides := range comparisons() {
		c := compare.Compare(sides[0], sides[1], compare.DefaultOptions())
		c.Base.Path, c.New.Path = "base", "new"
		for format, ending := range map[Format]string{Markdown: "md", JUnit: "xml"} {
			got, err := RenderComparison(c, format)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "compare_"+name+"."+ending, got)
		}
	}
}

func TestAComparisonSaysWhatIsWorse(t *testing.T) {
	for name, want := range map[string]string{
		"same":    "compare: no regression",
		"broken":  "**new**: I1 LiveAttachment",
		"slower":  "| release | 1.2s (1.1s to 1.2s, n=12) | 2.3s (2.2s to 2.4s, n=12) | 2.00 |",
		"nothing": "**no longer exercised**: scenario",
	} {
		sides := comparisons()[name]
		got := string(comparisonMarkdown(compare.Compare(sides[0], sides[1], compare.DefaultOptions())))
		if !strings.Contains(got, want) {
			t.Errorf("%s: no %q in\n%s", name, want, got)
		}
	}
}

// TestJUnitMatchesTheSchema uses our statement of the format that the usual
// readers share, since there is no official one.
func TestJUnitMatchesTheSchema(t *testing.T) {
	xmllint, err := exec.LookPath("xmllint")
	if err != nil {
		t.Skip("no xmllint on this machine: `apt-get install libxml2-utils` makes this test run")
	}
	documents := map[string][]byte{}
	for name, r := range everyResult(t) {
		r.Measured = &harness.Measured{Skipped: []string{"pause-node: cluster sim cannot pause nodes"}}
		if documents[name], err = junit(r); err != nil {
			t.Fatal(err)
		}
	}
	for name, sides := range comparisons() {
		if documents["compare "+name], err = comparisonJUnit(compare.Compare(sides[0], sides[1], compare.DefaultOptions())); err != nil {
			t.Fatal(err)
		}
	}
	for name, document := range documents {
		if out, err := validate(t, xmllint, document); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	broken := strings.Replace(string(documents["valid"]), "<testcase ", "<testcase colour=\"red\" ", 1)
	if _, err := validate(t, xmllint, []byte(broken)); err == nil {
		t.Error("the schema takes an attribute that it does not know")
	}
}

func validate(t *testing.T, xmllint string, document []byte) (string, error) {
	path := filepath.Join(t.TempDir(), "junit.xml")
	if err := os.WriteFile(path, document, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(xmllint, "--noout", "--nonet", "--schema", filepath.Join("schema", "junit.xsd"), path).CombinedOutput()
	return string(out), err
}

func TestWhatTheClusterCannotDoIsSkippedWithItsReason(t *testing.T) {
	r := validResult()
	r.Measured = &harness.Measured{Skipped: []string{"pause-node: cluster sim cannot pause nodes"}}
	got, err := junit(r)
	if err != nil {
		t.Fatal(err)
	}
	var back junitSuites
	if err := xml.Unmarshal(got, &back); err != nil {
		t.Fatal(err)
	}
	for _, c := range back.Suites[0].Cases {
		if c.Name == "pause-node" && c.Skipped != nil && c.Skipped.Message == "cluster sim cannot pause nodes" {
			return
		}
	}
	t.Errorf("nothing is skipped in\n%s", got)
}

// hostileResult has the hostile name wherever a name can be.
func hostileResult() harness.Result {
	r := invalidResult()
	r.Scenario, r.Cleaner, r.RunID, r.Commit = hostileName, hostileName, hostileName, hostileName
	r.Unknowns = []string{hostileName + "\x1b[31m\nverdict: Valid"}
	r.CleanerLogTail = []string{"\x1b]0;title\x07" + hostileName}
	r.Iterations[1].Note, r.Iterations[1].Lane = hostileName, hostileName
	v := check.Violation{Invariant: check.LiveAttachment, Blame: check.BlameCleaner}
	for _, field := range []*string{&v.Message, &v.Lane, &v.Pod, &v.PodUID, &v.Endpoint, &v.Network, &v.Address, &v.Writer, &v.Step} {
		*field = hostileName
	}
	v.Evidence = []string{hostileName, "```\n# not a heading"}
	r.Violations, r.Findings = []check.Violation{v}, []check.Violation{v}
	return r
}

func TestAHostileNameIsTextInEveryFormat(t *testing.T) {
	r := hostileResult()
	var summary strings.Builder
	if err := Summary(&summary, r); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"summary": summary.String(), "progress": Line(r.Iterations[1]), "markdown": string(markdown(r))} {
		if i := strings.IndexFunc(text, func(c rune) bool { return c != '\n' && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c)) }); i >= 0 {
			t.Errorf("%s has the character %q", name, []rune(text[i:])[0])
		}
		if strings.Contains(text, "\nverdict: Valid") {
			t.Errorf("%s lets a name pass for a verdict", name)
		}
	}
	outside := strings.Join(strings.Split(string(markdown(r)), "````")[0:1], "")
	if strings.Contains(outside, "<img") || strings.Contains(outside, "</script>") {
		t.Error("markdown has markup out of a name")
	}
	xmlText, err := junit(r)
	if err != nil {
		t.Fatal(err)
	}
	var back junitSuites
	if err := xml.Unmarshal(xmlText, &back); err != nil {
		t.Fatalf("junit.xml cannot be read back: %v", err)
	}
	if !strings.HasPrefix(back.Suites[0].Name, hostileName) {
		t.Errorf("junit.xml names the suite %q", back.Suites[0].Name)
	}
	if _, err := exposition(r); err != nil {
		t.Errorf("metrics: %v", err)
	}
}

func TestPlainShowsWhatCannotBeSeen(t *testing.T) {
	for in, want := range map[string]string{
		"ss-cinfo-0": "ss-cinfo-0", "a\nb": `a\u{a}b`, "a\x1b[0m": `a\u{1b}[0m`, "a\u202eb": `a\u{202e}b`, "größe 名": "größe 名",
	} {
		if got := plain(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
