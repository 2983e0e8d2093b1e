package harness

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// namedCluster is a cluster of which only the name is asked.
type namedCluster struct{ clusters.Cluster }

func (namedCluster) Name() string { return "controlplane" }

func TestReproduceIsACommandLineToPaste(t *testing.T) {
	base := func() Config {
		return Config{ScenarioArgs: "node-shutdown", Cluster: namedCluster{}, Group: danm.GroupDanmIO, Seed: 18446744073709551615, Lanes: 3, CleanerName: "fixed"}
	}
	tests := []struct {
		name string
		edit func(*Config)
		want string
	}{
		{"defaults are left out", func(*Config) {},
			"danm-chaos run node-shutdown --cluster controlplane --cleaner fixed --seed 18446744073709551615 --lanes 3 --iterations 7"},
		{"a cleaner with blanks and quotes stays one word", func(c *Config) { c.CleanerName = `exec:/bin/x -a 'b' {{kubeconfig}}` },
			`danm-chaos run node-shutdown --cluster controlplane --cleaner 'exec:/bin/x -a '\''b'\'' {{kubeconfig}}' --seed 18446744073709551615 --lanes 3 --iterations 7`},
		{"what is not the default is said", func(c *Config) { c.Group, c.CNI, c.BlameAny, c.DryRun = danm.GroupDanmK8sIO, "careful", true, true },
			"danm-chaos run node-shutdown --cluster controlplane --cleaner fixed --seed 18446744073709551615 --lanes 3 --iterations 7 --danm-api danm.k8s.io --cni careful --blame any --dry-run"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := base()
			tt.edit(&c)
			if got := reproduce(c, 7); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// finished is a run whose history was found Valid and that did all it planned.
func finished() *run {
	return &run{result: Result{
		Verdict: check.Valid, Planned: 2,
		Iterations: []Iteration{
			{Number: 2, Lane: "lane-1", Moved: 1, Verdict: check.Valid},
			{Number: 1, Lane: "lane-0", Moved: 2, Verdict: check.Valid},
		},
		FaultsPlanned: map[string]int{"fail-node": 2}, FaultsFired: map[string]int{"fail-node": 2},
		Checked: map[check.Invariant]int{check.ClearOnce: 1},
	}}
}

func TestARunThatDidNotDoAllItPlannedIsNotValid(t *testing.T) {
	tests := []struct {
		name  string
		edit  func(*run)
		cause error
		want  []string
		then  check.Verdict
	}{
		{"all was done", func(*run) {}, nil, nil, check.Valid},
		{"an iteration is missing", func(r *run) { r.result.Planned = 3 }, nil, []string{"2 of 3 planned iterations were done"}, check.Unknown},
		{"a fault did not fire", func(r *run) { r.result.FaultsFired = map[string]int{} }, nil, []string{"0 of 2 planned faults fail-node fired"}, check.Unknown},
		{"no pod moved", func(r *run) { r.result.Iterations[0].Moved = 0 }, nil, []string{"iteration 2 in lane-1 moved no pod, so nothing was tried"}, check.Unknown},
		{"the cleaner was never needed", func(r *run) { r.result.Checked = nil }, nil,
			[]string{"the cleaner under test released no address in the whole run, so this says nothing about it"}, check.Unknown},
		{"the workload did not come back", func(r *run) {
			r.result.Iterations[1].Verdict, r.result.Iterations[1].Note = check.Unknown, "3 of 5 pods are Ready"
		}, nil, []string{"iteration 1 in lane-0: 3 of 5 pods are Ready"}, check.Unknown},
		{"the cleaner ended by itself", func(*run) {}, fmt.Errorf("%w: exit status 3", errCleanerEnded), []string{"the cleaner ended by itself: exit status 3"}, check.Unknown},
		{"interrupted after a violation", func(r *run) { r.result.Verdict = check.Invalid }, errInterrupted, []string{"the run was interrupted"}, check.Invalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := finished()
			tt.edit(r)
			r.addConditions(tt.cause)
			if diff := cmp.Diff(tt.want, r.result.Unknowns); diff != "" {
				t.Errorf("unknowns (-want +got):\n%s", diff)
			}
			if r.result.Verdict != tt.then {
				t.Errorf("verdict %s, want %s", r.result.Verdict, tt.then)
			}
		})
	}
}

// TestATimeLimitPlansWhatWasBegun: what there was no time for is not missing.
func TestATimeLimitPlansWhatWasBegun(t *testing.T) {
	r := finished()
	r.config = Config{ScenarioArgs: "s", Cluster: namedCluster{}, Group: danm.GroupDanmIO, For: time.Minute, Lanes: 2}
	r.result.Planned = 120
	fault := schedule.Step{Do: schedule.FailNode, Fault: true}
	r.begun = []schedule.Iteration{{Number: 2, Steps: []schedule.Step{fault}}, {Number: 1, Steps: []schedule.Step{fault}}}
	r.planned()
	r.addConditions(nil)
	if r.result.Verdict != check.Valid || r.result.Planned != 2 {
		t.Errorf("%s, planned %d: %v", r.result.Verdict, r.result.Planned, r.result.Unknowns)
	}
	if !strings.HasSuffix(r.result.Reproduce, "--iterations 2") {
		t.Errorf("reproduce: %s", r.result.Reproduce)
	}
}

func TestAWriteThatBrokeSomethingMarksItsIteration(t *testing.T) {
	r := finished()
	r.result.Violations = []check.Violation{{Lane: "lane-0", Iteration: 1, Message: "m"}}
	r.spreadVerdicts()
	if it := r.result.Iterations[1]; it.Verdict != check.Invalid || it.Note != "m" {
		t.Errorf("iteration 1 is %s with note %q", it.Verdict, it.Note)
	}
	if it := r.result.Iterations[0]; it.Verdict != check.Valid {
		t.Errorf("iteration 2 is %s", it.Verdict)
	}
	if got := r.firstInvalid(); got != 1 {
		t.Errorf("first invalid iteration is %d", got)
	}
}

func TestAllLanesTakePartInReproducing(t *testing.T) {
	c := Config{Lanes: 4, Iterations: 10}
	for n, want := range map[int]int{1: 4, 4: 4, 5: 8, 9: 10} {
		if got := wholeRounds(n, c); got != want {
			t.Errorf("iteration %d: %d iterations, want %d", n, got, want)
		}
	}
}

func TestTheTailKeepsTheLastLines(t *testing.T) {
	var log tail
	for i := range 100 {
		// Lines come in pieces.
		fmt.Fprintf(&log, "line ")
		fmt.Fprintf(&log, "%d\nrest", i)
		fmt.Fprintf(&log, " of %d\n", i)
	}
	fmt.Fprint(&log, "panic")
	got := log.lines()
	if len(got) != logTailLines+1 || got[0] != "line 90" || got[logTailLines-1] != "rest of 99" || got[logTailLines] != "panic" {
		t.Errorf("got %q", got)
	}
}

func TestAConfigThatCannotWorkIsRefused(t *testing.T) {
	s, err := DecodeScenario("s", []byte(scenarioText))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Run(t.Context(), Config{Scenario: s})
	if err == nil {
		t.Error("a run without history was accepted")
	}
}
