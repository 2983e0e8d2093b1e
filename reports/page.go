package reports

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/reports/timeline"
)

// Bounds of a page, so that a run in which everything went wrong can be opened.
const (
	violationRowsMax = 500
	storiesMax       = 40
	findingStories   = 10
)

//go:embed assets
var assets embed.FS

var pages = template.Must(template.New("pages").Funcs(template.FuncMap{
	"rounded": rounded,
	"verbs":   verbs,
	"count":   countOf,
	"join":    func(words []string) string { return strings.Join(words, ", ") },
	"moment":  func(t time.Time) string { return t.UTC().Format("15:04:05.000") },
	"durations": func(it harness.Iteration) []time.Duration {
		return []time.Duration{it.Detected, it.Recreated, it.Settled, it.Took}
	},
}).ParseFS(assets, "assets/*.html"))

// asset returns a file that is part of every page.
func asset(name string) string {
	data, err := assets.ReadFile("assets/" + name)
	if err != nil {
		panic(err) // it is compiled in
	}
	return string(data)
}

// head is the part of a page that forbids it everything it does not need.
type head struct {
	Title  string
	Policy string
	Style  template.CSS
}

// newHead returns the head of a page. Only our own style and script may be
// used, known by their hashes; isLive allows asking the server it came from.
func newHead(title string, isLive bool) head {
	policy := []string{
		"default-src 'none'", "style-src '" + hashOf(asset("page.css")) + "'", "script-src '" + hashOf(asset("page.js")) + "'",
		"img-src data:", "base-uri 'none'", "form-action 'none'",
	}
	if isLive {
		policy = append(policy, "connect-src 'self'")
	}
	return head{Title: title, Policy: strings.Join(policy, "; "), Style: template.CSS(asset("page.css"))}
}

func hashOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// pageScript is the same for every page.
func pageScript() template.JS { return template.JS(asset("page.js")) }

// runView is what the page of a run shows.
type runView struct {
	Head             head
	Script           template.JS
	Run              Run
	Live             string // state of a run that goes on
	Verdict          check.Verdict
	Sentence         string
	Releases         int
	Duration         time.Duration
	Exercised        []string
	NotExercised     []string
	Charts           []chart
	Data             chartData
	Violations       []violationView
	ViolationsHidden int
	Stories          []storyView
	Latencies        []latencyView
	Faults           []faultView
	Invariants       []invariantView
	Environment      []fact
}

type fact struct{ Name, Value string }

type faultView struct {
	Name           string
	Planned, Fired int
}

type invariantView struct {
	Name, Meaning       string
	Evaluated, Violated int
}

// runPage renders report.html.
func runPage(r Run) ([]byte, error) {
	return render("report", newRunView(r))
}

// render makes a page. What would turn the direction of writing or cannot be
// seen at all is shown by its number; our own style and script have nothing of
// that kind, so their hashes hold.
func render(name string, view any) ([]byte, error) {
	var b bytes.Buffer
	err := pages.ExecuteTemplate(&b, name, view)
	lines := bytes.Split(b.Bytes(), []byte("\n"))
	for i := range lines {
		lines[i] = []byte(plain(string(lines[i])))
	}
	return bytes.Join(lines, []byte("\n")), err
}

// LivePage renders the page of a run that goes on. State is what its server
// answers when the page asks whether there is anything new.
func LivePage(r Run, state string) ([]byte, error) {
	v := newRunView(r)
	v.Live = state
	v.Head = newHead(v.Head.Title, true)
	return render("report", v)
}

func newRunView(r Run) runView {
	v := runView{
		Head:   newHead(fmt.Sprintf("%s: %s on %s", verdictOf(r.Result), r.Scenario, r.Cluster), false),
		Script: pageScript(), Run: r, Verdict: verdictOf(r.Result), Sentence: sentence(r), Duration: secondsToDuration(r.DurationSeconds),
		Latencies: latencyViews(r.Result), Faults: faultViews(r.Result), Invariants: invariantViews(r.Result), Environment: environment(r.Result),
	}
	v.addViolations()
	t := &timeline.Timeline{}
	if r.builder != nil {
		t = r.builder.Build()
		v.addStories()
		v.addCharts(t)
	}
	v.Releases = len(t.Releases)
	v.Exercised, v.NotExercised = exercised(r, t)
	return v
}

// sentence says in words what the verdict means for this run.
func sentence(r Run) string {
	switch {
	case r.Live:
		return fmt.Sprintf("%d of %d iterations are through.", len(r.Iterations), r.Planned)
	case r.Interrupted && r.Verdict != check.Invalid:
		return "The run was interrupted, so nothing can be said about the cleaner."
	case r.Verdict == check.Valid && r.IsSweep():
		return "No invariant was violated in any schedule that the simulator played."
	case r.Verdict == check.Valid:
		return fmt.Sprintf("Every planned fault fired, and no invariant was violated in %d iterations.", len(r.Iterations))
	case r.Verdict == check.Invalid && len(r.Violations) == 0:
		return "Invariants were violated, and there was no room to keep how."
	case r.Verdict == check.Invalid:
		return fmt.Sprintf("%d %s: %s. The first that matters: %s.", len(r.Violations), plural(len(r.Violations), "violation"),
			perInvariant(r.Violations), strings.TrimSuffix(gravestFirst(r.Violations)[0].Message, "."))
	default:
		return "It could not be decided whether the cleaner is right. That is no pass."
	}
}

// violationView is a row of the table of violations.
type violationView struct {
	Number  int
	V       check.Violation
	Finding bool
	Story   bool
}

// addViolations numbers violations gravest first, then findings. Those that get
// a story come first in each of both.
func (v *runView) addViolations() {
	add := func(list []check.Violation, isFinding bool, stories int) {
		for i, violation := range list {
			v.Violations = append(v.Violations, violationView{len(v.Violations) + 1, violation, isFinding, i < stories})
		}
	}
	add(gravestFirst(v.Run.Violations), false, storiesMax)
	if v.Run.Verdict == check.Invalid && len(v.Run.Violations) == 0 {
		v.Run.Problems = append(v.Run.Problems, "the verdict is Invalid, but no violation is stored")
	}
	add(v.Run.Findings, true, findingStories)
	if more := len(v.Violations) - violationRowsMax; more > 0 {
		v.Violations, v.ViolationsHidden = v.Violations[:violationRowsMax], more
	}
	for i := range v.Violations {
		v.Violations[i].Story = v.Violations[i].Story && v.Run.builder != nil
	}
}

// exercised says what the run did and what it did not, because a run is
// evidence only for what it tried.
func exercised(r Run, t *timeline.Timeline) (did, didNot []string) {
	for _, f := range faultViews(r.Result) {
		if f.Fired > 0 {
			did = append(did, fmt.Sprintf("fault %s, %s", f.Name, countOf(f.Fired, "time")))
		}
		if f.Fired < f.Planned {
			didNot = append(didNot, fmt.Sprintf("fault %s fired %d of %d times", f.Name, f.Fired, f.Planned))
		}
	}
	if r.IsSweep() { // it keeps no count of anything else
		return did, didNot
	}
	seen := map[string]int{}
	for _, it := range r.Iterations {
		seen[it.Network]++
	}
	for _, n := range sortedCounts(seen) {
		did = append(did, fmt.Sprintf("network %s, in %d %s", n.Name, n.Count, plural(n.Count, "iteration")))
	}
	if n := len(t.Releases); n > 0 {
		did = append(did, fmt.Sprintf("the cleaner released %d %s", n, pluralOf(n, "address", "addresses")))
	} else {
		didNot = append(didNot, "the cleaner released no address")
	}
	for _, i := range invariantViews(r.Result) {
		if i.Evaluated == 0 {
			didNot = append(didNot, fmt.Sprintf("invariant %s was never evaluated", i.Name))
		}
	}
	for _, shape := range shapes() {
		if seen[shape] == 0 {
			didNot = append(didNot, "network "+shape)
		}
	}
	for _, s := range skippedOf(r.Result) {
		didNot = append(didNot, "skipped, "+s)
	}
	for _, s := range r.Unjudged {
		didNot = append(didNot, "not judged, "+s)
	}
	for _, g := range t.Gaps {
		didNot = append(didNot, "the history has a gap, "+g)
	}
	return did, didNot
}

func pluralOf(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// shapes lists every shape that a network may have.
func shapes() []string {
	var out []string
	for _, kind := range []string{"ClusterNetwork", "DanmNet", "TenantNetwork"} {
		for _, family := range []string{"v4", "v4+v6", "v6"} {
			out = append(out, kind+" "+family)
		}
	}
	return out
}

func faultViews(r harness.Result) []faultView {
	names := map[string]bool{}
	for _, counts := range []map[string]int{r.FaultsPlanned, r.FaultsFired} {
		for name := range counts {
			names[name] = true
		}
	}
	var out []faultView
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, faultView{name, r.FaultsPlanned[name], r.FaultsFired[name]})
	}
	return out
}

func invariantViews(r harness.Result) []invariantView {
	violated := map[check.Invariant]int{}
	for _, v := range r.Violations {
		violated[v.Invariant]++
	}
	var out []invariantView
	for _, i := range invariantsOf(r) {
		out = append(out, invariantView{string(i), meaningOf(i), r.Checked[i], violated[i]})
	}
	return out
}

// meaningOf says what an invariant holds, for somebody who does not know its
// number.
func meaningOf(i check.Invariant) string {
	return map[check.Invariant]string{
		check.LiveAttachment:  "a live pod has its DanmEp and its bit, after every write",
		check.SingleHolder:    "no address is held by two live pods, after every write",
		check.Convergence:     "pods, DanmEps and bits agree as sets once the faults are healed",
		check.ClearOnce:       "the cleaner clears a bit at most once for each DanmEp",
		check.ReservedBits:    "reserved bits are never cleared",
		check.OnlyAllocations: "the cleaner changes nothing but DanmEps and bitmaps",
		check.DryRunSilent:    "dry-run writes nothing",
		check.FaultsFired:     "every planned fault fired",
		check.HistoryComplete: "nothing is missing from the history",
	}[i]
}

func environment(r harness.Result) []fact {
	out := []fact{
		{"cluster", r.Cluster}, {"DANM API", r.Group}, {"CNI", r.CNI}, {"cleaner", r.Cleaner}, {"commit", r.Commit},
		{"started", r.Started.UTC().Format(time.RFC3339)}, {"schema version", fmt.Sprint(r.SchemaVersion)},
	}
	if r.PeakBytes > 0 {
		out = append(out, fact{"memory", fmt.Sprintf("%.2f GiB at most, all processes together", float64(r.PeakBytes)/(1<<30))})
	}
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		out = append(out, fact{name, r.Versions[name]})
	}
	if r.Measured != nil {
		for _, q := range sortedCounts(r.Measured.Requests) {
			out = append(out, fact{"requests of the cleaner, " + q.Name, fmt.Sprint(q.Count)})
		}
	}
	return slices.DeleteFunc(out, func(f fact) bool { return cmp.Or(f.Value, "") == "" })
}
