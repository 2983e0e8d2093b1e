package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/reports"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// execute runs a command line in this process.
func execute(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(context.Background(), args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// besideUs is where the fixed cleaner would have to be.
func besideUs(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(filepath.Dir(self), cleanerProgram)
}

func TestAWrongCommandLineIsOneLineAndExit64(t *testing.T) {
	empty := t.TempDir()
	noProgram := filepath.Join(empty, "plain")
	if err := os.WriteFile(noProgram, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	const sh = "exec:/bin/sh"
	tests := []struct {
		name  string
		args  []string
		stdin string
		want  string
	}{
		{name: "unknown command", args: []string{"rum"}, want: `unknown command "rum" for "danm-chaos"`},
		{name: "unknown flag", args: []string{"run", "--bogus"}, want: "unknown flag: --bogus (see danm-chaos run --help)"},
		{name: "flag of the wrong type", args: []string{"run", "node-shutdown", "--iterations", "many"},
			want: `invalid argument "many" for "--iterations" flag: strconv.ParseInt: parsing "many": invalid syntax (see danm-chaos run --help)`},
		{name: "unknown scenario", args: []string{"run", "node-shutdwon", "--cleaner", sh},
			want: `unknown scenario "node-shutdwon": use cleaner-failover, disturbance, force-delete-loop, node-shutdown, node-shutdown-backlog, node-silent, or -f FILE`},
		{name: "no scenario", args: []string{"run", "--cleaner", sh},
			want: "run: give scenario names or -f FILE, one of both: scenarios are cleaner-failover, disturbance, force-delete-loop, node-shutdown, node-shutdown-backlog, node-silent"},
		{name: "scenario and file", args: []string{"run", "node-shutdown", "-f", "x.yaml", "--cleaner", sh},
			want: "run: give scenario names or -f FILE, one of both: scenarios are cleaner-failover, disturbance, force-delete-loop, node-shutdown, node-shutdown-backlog, node-silent"},
		{name: "file missing", args: []string{"run", "-f", "/nowhere.yaml", "--cleaner", sh},
			want: "-f /nowhere.yaml: no such file or directory: name a scenario file"},
		{name: "existing cluster without kubeconfig", args: []string{"run", "node-shutdown", "--cluster", "existing"},
			want: "--kubeconfig is missing: name the file, nothing is looked for by itself"},
		{name: "existing cluster without context", args: []string{"run", "node-shutdown", "--cluster", "existing", "--kubeconfig", "/nowhere"},
			want: "--context is missing: name it, the current one may be any cluster"},
		{name: "kubeconfig for a cluster that is made", args: []string{"run", "node-shutdown", "--kubeconfig", "/nowhere"},
			want: "--kubeconfig, --context, --node-down and the others of an existing cluster are for --cluster existing"},
		{name: "deployed cleaner in a cluster that is made", args: []string{"run", "node-shutdown", "--cleaner", "deployed"},
			want: "--cleaner deployed: only --cluster existing has one"},
		{name: "another cleaner in an existing cluster", args: []string{"run", "node-shutdown", "--cluster", "existing", "--cleaner", sh},
			want: "--cleaner exec:/bin/sh: an existing cluster tests the cleaner that is deployed in it: use --cleaner deployed"},
		{name: "dry-run of a deployed cleaner", args: []string{"run", "node-shutdown", "--cluster", "existing", "--dry-run"},
			want: "--dry-run: a deployed cleaner has its own arguments"},
		{name: "hook with an open quote", args: []string{"run", "node-shutdown", "--cluster", "existing", "--node-down", "'x"},
			want: `--node-down "'x": a quote or backslash is not closed: quote it as for a shell`},
		{name: "production pattern that is none", args: []string{"run", "node-shutdown", "--cluster", "existing", "--production-pattern", "("},
			want: "--production-pattern \"(\": error parsing regexp: missing closing ): `(`"},
		{name: "unknown cluster", args: []string{"run", "node-shutdown", "--cluster", "moon"},
			want: `--cluster "moon": unknown kind of cluster: use --cluster controlplane, kind or existing`},
		{name: "workers of a cluster that makes its own", args: []string{"run", "node-shutdown", "--nodes", "4"},
			want: "--nodes, --node-image, --default-detection and --keep are for --cluster kind"},
		{name: "faults that the simulator lacks", args: []string{"run", "disturbance", "--cluster", "sim"},
			want: "scenario disturbance: it evicts, drains, scales, taints or kills the cleaner's pods, which the simulator does not play from a scenario: use another --cluster"},
		{name: "faults that only real nodes have", args: []string{"run", "node-silent", "--cleaner", sh},
			want: "scenario node-silent: its nodes hang, are cut off or lose their kubelet, which only real ones do: use --cluster kind"},
		{name: "no workers", args: []string{"run", "node-shutdown", "--cluster", "kind", "--nodes", "0"},
			want: "--nodes 0: give at least 1, and 2 if nodes are shut down"},
		{name: "bad seed", args: []string{"run", "node-shutdown", "--seed", "lucky"},
			want: `--seed "lucky": neither a number below 2^64 nor a commit hash: give, for example, --seed 42`},
		{name: "negative seed", args: []string{"run", "node-shutdown", "--seed=-1"},
			want: `--seed "-1": neither a number below 2^64 nor a commit hash: give, for example, --seed 42`},
		{name: "negative iterations", args: []string{"run", "node-shutdown", "--iterations=-1"},
			want: "--iterations -1: negative: give at least 1, or 0 for the scenario's own"},
		{name: "unknown API group", args: []string{"run", "node-shutdown", "--danm-api", "danm.org"},
			want: `--danm-api: unknown DANM API group "danm.org": use danm.io or danm.k8s.io`},
		{name: "unknown blame", args: []string{"run", "node-shutdown", "--blame", "me"},
			want: `--blame "me": use cleaner or any`},
		{name: "quarantine of nothing", args: []string{"run", "node-shutdown", "--release-quarantine", "0s"},
			want: "--release-quarantine and --orphan-quarantine must be greater than zero: give, for example, 1s and 4s"},
		{name: "fixed cleaner not built", args: []string{"run", "node-shutdown"},
			want: "--cleaner fixed: " + besideUs(t) + ": no such file or directory: run `make build`"},
		{name: "unknown kind of cleaner", args: []string{"run", "node-shutdown", "--cleaner", "/bin/sh"},
			want: `--cleaner "/bin/sh": unknown kind of cleaner: use fixed, canary:NAME or 'exec:/path/to/program -flag {{kubeconfig}}'`},
		{name: "unknown canary", args: []string{"run", "node-shutdown", "--cleaner", "canary:parrot"},
			want: `--cleaner canary:parrot: unknown canary "parrot": use one that danm-chaos list names`},
		{name: "program missing", args: []string{"run", "node-shutdown", "--cleaner", "exec:/nowhere/cleaner {{kubeconfig}}"},
			want: "--cleaner 'exec:/nowhere/cleaner {{kubeconfig}}': /nowhere/cleaner: no such file or directory: give the path of an executable file"},
		{name: "program not executable", args: []string{"run", "node-shutdown", "--cleaner", "exec:" + noProgram},
			want: "--cleaner 'exec:" + noProgram + "': " + noProgram + ": permission denied: give the path of an executable file"},
		{name: "program not named", args: []string{"run", "node-shutdown", "--cleaner", "exec:"},
			want: "--cleaner exec: names no program: use 'exec:/path/to/program -flag {{kubeconfig}}'"},
		{name: "open quote", args: []string{"run", "node-shutdown", "--cleaner", "exec:sh -c 'x"},
			want: "--cleaner 'exec:sh -c 'x': a quote or backslash is not closed: quote it as for a shell"},
		{name: "image", args: []string{"run", "node-shutdown", "--cleaner", "image:cleaner"},
			want: "--cleaner image:cleaner: this release runs no images: build the program and use exec:"},
		{name: "dry-run of a canary", args: []string{"run", "node-shutdown", "--dry-run", "--cleaner", "canary:by-name"},
			want: "--dry-run: a canary has no such mode: use it with --cleaner fixed"},
		{name: "replay of nothing", args: []string{"replay"}, want: "replay: the schedule or run directory is missing (see danm-chaos replay --help)"},
		{name: "replay of a folder without schedule", args: []string{"replay", empty},
			want: "replay: " + filepath.Join(empty, "schedule.json") + ": no such file or directory: name a run directory or its schedule.json"},
		{name: "replay of something else", args: []string{"replay", noProgram},
			want: "replay: " + noProgram + ": no schedule of version 1: name a run directory or its schedule.json"},
		{name: "report of no run directory", args: []string{"report", empty},
			want: "report: " + empty + ": no such file or directory: name a run directory"},
		{name: "two run directories", args: []string{"report", "a", "b"}, want: `report: unexpected argument "b" (see danm-chaos report --help)`},
		{name: "doctor for an unknown cluster", args: []string{"doctor", "--cluster", "moon"},
			want: `--cluster "moon": unknown kind of cluster: use --cluster controlplane, kind or existing`},
		{name: "fleet without seeds", args: []string{"fleet"}, want: "--seeds is missing: give a range of seeds, for example --seeds 1-10000"},
		{name: "fleet of no shards", args: []string{"fleet", "--seeds", "1-9", "--shards", "0"}, want: "--shards 0: give at least 1"},
		{name: "fleet that never tries", args: []string{"fleet", "--seeds", "1-9", "--attempts", "0"}, want: "--attempts 0: give at least 1"},
		{name: "fleet without image", args: []string{"fleet", "--seeds", "1-9"},
			want: "--image is missing: name an image of danm-chaos that the cluster's nodes have or can pull (make image)"},
		{name: "fleet without kubeconfig", args: []string{"fleet", "--seeds", "1-9", "--image", "i"},
			want: "--kubeconfig is missing: name the file, nothing is looked for by itself"},
		{name: "fleet without context", args: []string{"fleet", "--seeds", "1-9", "--image", "i", "--kubeconfig", "/nowhere"},
			want: "--context is missing: name it, the current one may be any cluster"},
		{name: "fleet with a cleaner that is not simulated", args: []string{"fleet", "--seeds", "1-9", "--cleaner", sh},
			want: `--cleaner: cleaner "exec:/bin/sh" does not run in the simulator: use fixed or canary:NAME`},
		{name: "fleet of more pods than a Job should have", args: []string{"fleet", "--seeds", "1-9999", "--image", "i", "--shards", "1001"}, want: "--shards: 1001 are more than 1000"},
		{name: "resumed fleet with other seeds", args: []string{"fleet", "--resume", "x", "--seeds", "1-9"},
			want: "--resume x: what it plays is settled: leave out scenarios, --seeds, --shards, --cleaner, --danm-api, --cni, --blame, --keep-going, --pods"},
		{name: "resumed fleet that is none", args: []string{"fleet", "--resume", empty}, want: "--resume " + empty + ": no such file or directory: name the run directory of a fleet"},
		{name: "shard that is no pod's", args: []string{"shard", "--shards", "1-9"},
			want: `shard: JOB_COMPLETION_INDEX is "", want an index below 1: this program is for the pods of a fleet`},
		{name: "report in an unknown format", args: []string{"report", empty, "--format", "pdf"},
			want: `--format: unknown format "pdf": use all, or some of json, html, junit, markdown, prometheus`},
		{name: "run in an unknown format", args: []string{"run", "node-shutdown", "--format", "pdf"},
			want: `--format: unknown format "pdf": use all, or some of json, html, junit, markdown, prometheus`},
		{name: "serve without port", args: []string{"run", "node-shutdown", "--serve", "localhost"},
			want: "--serve localhost: address localhost: missing port in address: give, for example, :8080"},
		{name: "push to no URL", args: []string{"run", "node-shutdown", "--push", "localhost:9091"},
			want: "--push localhost:9091: no URL: give, for example, http://localhost:9091"},
		{name: "compare with one side", args: []string{"compare", "a"}, want: "compare: BASE or NEW is missing (see danm-chaos compare --help)"},
		{name: "compare with nothing", args: []string{"compare", empty, empty},
			want: "compare: " + empty + ": it holds no run: name a run.json, a run directory or a folder of them"},
		{name: "compare with a folder that is not there", args: []string{"compare", "/nowhere", empty},
			want: "compare: /nowhere: no such file or directory: name a run.json, a run directory or a folder of them"},
		{name: "compare in two formats", args: []string{"compare", "--format", "json,html", "a", "b"}, want: `--format "json,html": use markdown, json, junit or html`},
		{name: "compare by no probability", args: []string{"compare", "--alpha", "1", "a", "b"}, want: "--alpha 1: give a probability, for example 0.01"},
		{name: "compare by a ratio that everything has", args: []string{"compare", "--slower", "1", "a", "b"},
			want: "--slower and --gross must be greater than 1: give, for example, 1.5 and 2"},
		{name: "canaries on an unknown cluster", args: []string{"canaries", "--cluster", "moon"},
			want: `--cluster "moon": unknown kind of cluster: use --cluster controlplane, kind or existing`},
		{name: "canary without kubeconfig", args: []string{"canary", "by-name"}, want: "--kubeconfig is missing: name a kubeconfig"},
		{name: "canary with a kubeconfig that is none", args: []string{"canary", "by-name", "--kubeconfig", "/nowhere"},
			want: "--kubeconfig /nowhere: no such file or directory: name a kubeconfig"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := execute(t, tt.stdin, tt.args...)
			if code != exitUsage {
				t.Errorf("exit code %d, want %d", code, exitUsage)
			}
			if diff := cmp.Diff("danm-chaos: "+tt.want+"\n", stderr); diff != "" {
				t.Errorf("stderr (-want +got):\n%s", diff)
			}
			if stdout != "" {
				t.Errorf("stdout: %s", stdout)
			}
		})
	}
}

func TestAScenarioFileIsCheckedFieldByField(t *testing.T) {
	code, _, stderr := execute(t, "apiVersion: chaos.danm/v1alpha1\nkind: Scenario\nname: x\n", "run", "-f", "-", "--cleaner", "exec:/bin/sh")
	if code != exitUsage || !strings.Contains(stderr, "replicas: 0 is less than 1") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

func TestAnUnwritableOutIsAUsageError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := execute(t, "", "run", "node-shutdown", "--cleaner", "exec:/bin/sh", "--out", file)
	if want := "danm-chaos: --out " + file + ": not a directory: name a directory that can be written\n"; code != exitUsage || stderr != want {
		t.Errorf("exit code %d, stderr %q, want %q", code, stderr, want)
	}
}

func TestWithoutAContainerEngineNothingIsMade(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	out := filepath.Join(t.TempDir(), "out")
	code, stdout, stderr := execute(t, "", "run", "node-shutdown", "--cluster", "kind", "--cleaner", "exec:/bin/sh", "--out", out)
	want := "danm-chaos: --cluster kind: there is no docker command in PATH; install an engine (apt-get install docker.io)\n"
	if code != exitUsage || stdout != "" || stderr != want {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if _, err := os.Stat(out); err == nil {
		t.Errorf("%s was made", out)
	}
}

func TestList(t *testing.T) {
	for golden, args := range map[string][]string{"list.txt": {"list"}, "list.json": {"list", "--json"}} {
		t.Run(golden, func(t *testing.T) {
			code, stdout, stderr := execute(t, "", args...)
			if code != exitValid || stderr != "" {
				t.Fatalf("exit code %d, stderr %q", code, stderr)
			}
			path := filepath.Join("testdata", golden)
			if *update {
				if err := os.WriteFile(path, []byte(stdout), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), stdout); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestVersionNamesWhatItWasBuiltFrom(t *testing.T) {
	code, stdout, _ := execute(t, "", "version")
	var got struct {
		Commit   string
		Versions map[string]string
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != exitValid {
		t.Fatalf("exit code %d, %v: %s", code, err, stdout)
	}
	if got.Commit == "" || got.Versions["go"] == "" {
		t.Errorf("got %+v", got)
	}
}

func TestABugInTheHarnessIsExit70(t *testing.T) {
	var errs bytes.Buffer
	code := run(context.Background(), []string{"version"}, nil, writerFunc(func([]byte) (int, error) { panic("broken") }), &errs)
	if code != exitHarnessBug || !strings.HasPrefix(errs.String(), "danm-chaos: bug in the harness: broken\n") {
		t.Errorf("exit code %d, stderr %q", code, errs.String())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// storedRun writes a run directory whose history says nothing at all.
func storedRun(t *testing.T, r harness.Result) string {
	t.Helper()
	dir := t.TempDir()
	h, err := history.Create(filepath.Join(dir, historyFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	r.SchemaVersion = harness.ResultSchemaVersion
	if err := reports.Write(dir, r); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestReportJudgesTheHistoryAndNotTheOldVerdict(t *testing.T) {
	dir := storedRun(t, harness.Result{Scenario: "node-shutdown", Verdict: check.Valid, Reproduce: "again",
		Unknowns: []string{"HistoryComplete: an old reason", "the cleaner ended by itself"}})
	code, stdout, stderr := execute(t, "", "report", dir)
	if code != exitUnknown {
		t.Errorf("exit code %d, want %d; stderr %q", code, exitUnknown, stderr)
	}
	if !strings.HasSuffix(stdout, "verdict: Unknown\nreproduce: again\n") {
		t.Errorf("stdout ends wrongly:\n%s", stdout)
	}
	if strings.Contains(stdout, "an old reason") || !strings.Contains(stdout, "the cleaner ended by itself") {
		t.Errorf("reasons of the checkers must go, those of the harness stay:\n%s", stdout)
	}
	back, err := reports.Read(dir)
	if err != nil || back.Verdict != check.Unknown {
		t.Errorf("run.json: %v, %v", back.Verdict, err)
	}
}

func TestReplayTakesOverWhatTheCommandLineDoesNotSay(t *testing.T) {
	dir := storedRun(t, harness.Result{Cluster: "controlplane", Cleaner: "canary:by-name", Group: "danm.k8s.io", CNI: "careful"})
	schedule := `{"schemaVersion":1,"scenario":"node-shutdown","seed":7,"lanes":[{"name":"lane-0"},{"name":"lane-1"}],"iterations":[{"number":1},{"number":2},{"number":3}]}`
	if err := os.WriteFile(filepath.Join(dir, scheduleFile), []byte(schedule), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := readStored(dir)
	if err != nil {
		t.Fatal(err)
	}
	var f runFlags
	c := (&app{}).replayCommand()
	if err := c.Flags().Parse([]string{"--cni", "danm-4.3"}); err != nil {
		t.Fatal(err)
	}
	f.cni = "danm-4.3"
	s.apply(&f, c.Flags())
	want := runFlags{cluster: "controlplane", cleaner: "canary:by-name", group: "danm.k8s.io", cni: "danm-4.3", seed: "7", lanes: 2, iterations: 3}
	if diff := cmp.Diff(want, f, cmp.AllowUnexported(runFlags{}, kindFlags{}, existingFlags{}, reportFlags{})); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
	if s.scenario.Name != "node-shutdown" {
		t.Errorf("scenario %q", s.scenario.Name)
	}
}

// The simulator's own choice of scenarios must be one that it can play.
func TestTheSimulatorPlaysEveryScenarioThatItChooses(t *testing.T) {
	names, err := simulated(nil)
	if err != nil || len(names) == 0 {
		t.Fatalf("scenarios %q, error %v", names, err)
	}
	for _, name := range names {
		s, err := namedScenario(name)
		if err != nil {
			t.Fatal(err)
		}
		if s.NeedsRealNodes() || s.Disturbs() {
			t.Errorf("%s is played by the simulator, which lacks its faults", name)
		}
	}
}
