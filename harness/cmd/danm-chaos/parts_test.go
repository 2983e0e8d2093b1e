package main

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/search"
)

func TestParseSeed(t *testing.T) {
	for s, want := range map[string]uint64{
		"0": 0, "42": 42, "18446744073709551615": math.MaxUint64,
		"1234567": 1234567, // digits alone are a number, though Git might abbreviate to them
		"a13dd15": 0xa13dd15,
		"A13DD15": 0xa13dd15,
		"157dd111bda5a1910cfed17e6045e3b9f277e375": 0x157dd111bda5a191,
	} {
		if got, err := parseSeed(s); got != want || err != nil {
			t.Errorf("%s: got %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"-1", "18446744073709551616x", "0x2a", "a13dd1", "157dd111bda5a1910cfed17e6045e3b9f277e37g", " 42"} {
		if got, err := parseSeed(s); err == nil {
			t.Errorf("%q: got %d, want an error", s, got)
		}
	}
}

func TestSplitWords(t *testing.T) {
	for s, want := range map[string][]string{
		"":                            nil,
		"  a\tb\n":                    {"a", "b"},
		`/x/c -flag {{kubeconfig}}`:   {"/x/c", "-flag", "{{kubeconfig}}"},
		`sh -c "echo 'hi'; exit 3"`:   {"sh", "-c", "echo 'hi'; exit 3"},
		`a 'b c'd "" e\ f`:            {"a", "b cd", "", "e f"},
		`"a \"b\" \n" 'c\d' "\\"`:     {`a "b" \n`, `c\d`, `\`},
		`--flag='a b' --other="c  d"`: {"--flag=a b", "--other=c  d"},
	} {
		got, err := splitWords(s)
		if err != nil {
			t.Errorf("%s: %v", s, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s, diff)
		}
	}
	for _, s := range []string{`'a`, `"a`, `a\`} {
		if got, err := splitWords(s); err == nil {
			t.Errorf("%s: got %q, want an error", s, got)
		}
	}
}

func FuzzCommandLineIsReadBack(f *testing.F) {
	for _, s := range []string{"", "a", "a b", "it's", `"\`, "$HOME `x`", "\n", "exec:/bin/sh -c 'x'"} {
		f.Add(s, "second")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		a, b = strings.ToValidUTF8(a, "?"), strings.ToValidUTF8(b, "?")
		got, err := splitWords(commandLine(a, b))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{a, b}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", commandLine(a, b), diff)
		}
	})
}

func TestReproduceLeavesOutWhatIsAsByDefault(t *testing.T) {
	p := plan{named: "node-shutdown", seed: 7, group: defaultGroup, variant: danmcni.Danm43, runFlags: runFlags{
		cluster: "controlplane", cleaner: "fixed", blame: "cleaner",
		releaseQuarantine: defaultReleaseQuarantine, orphanQuarantine: defaultOrphanQuarantine,
	}}
	if got, want := p.reproduce(), "danm-chaos run node-shutdown --cluster controlplane --cleaner fixed --seed 7"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	p.cleaner, p.iterations, p.lanes, p.blame, p.dryRun = "exec:/bin/sh -c 'exit 1'", 5, 2, "any", true
	p.group, p.variant, p.releaseQuarantine = danm.GroupDanmK8sIO, danmcni.Careful, 2*time.Second
	want := `danm-chaos run node-shutdown --cluster controlplane --cleaner 'exec:/bin/sh -c '\''exit 1'\''' --seed 7` +
		" --iterations 5 --lanes 2 --danm-api danm.k8s.io --cni careful --blame any --dry-run --release-quarantine 2s"
	if got := p.reproduce(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := p.refine("danm-chaos run x --iterations 2"), "danm-chaos run x --iterations 2 --release-quarantine 2s"; got != want {
		t.Errorf("refined: got %s, want %s", got, want)
	}
}

func TestCompleteNeverMakesAFailedRunValid(t *testing.T) {
	background := context.Background()
	interrupted, cancel := context.WithCancelCause(background)
	cancel(errInterrupted)
	blank := harness.Result{RunID: "r", Verdict: check.Unknown, Reproduce: "danm-chaos run x"}
	judged := func(v check.Verdict) harness.Result {
		return harness.Result{RunID: "r", Verdict: v, Reproduce: "danm-chaos run x"}
	}
	trouble := errors.New("starting the control plane: no port")
	tests := []struct {
		name        string
		ctx         context.Context
		result      harness.Result
		err         error
		want        check.Verdict
		wantReasons []string
		wantCode    int
	}{
		{"judged Valid", background, judged(check.Valid), nil, check.Valid, nil, exitValid},
		{"judged Invalid", background, judged(check.Invalid), nil, check.Invalid, nil, exitInvalid},
		{"the cluster did not start", background, harness.Result{}, trouble, check.Unknown, []string{trouble.Error()}, exitUnknown},
		{"Valid with an error", background, judged(check.Valid), trouble, check.Unknown, []string{trouble.Error()}, exitUnknown},
		{"Invalid with an error", background, judged(check.Invalid), trouble, check.Invalid, []string{trouble.Error()}, exitInvalid},
		{"interrupted before the harness", interrupted, harness.Result{}, errInterrupted, check.Unknown, nil, exitUnknown},
		{"interrupted, Valid so far", interrupted, judged(check.Valid), nil, check.Unknown, nil, exitUnknown},
		{"interrupted, Invalid already", interrupted, judged(check.Invalid), nil, check.Invalid, nil, exitInvalid},
		{"no verdict", background, judged(""), nil, check.Unknown, nil, exitUnknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := plan{}.complete(tt.ctx, blank, tt.result, tt.err)
			if got.Verdict != tt.want {
				t.Errorf("verdict %s, want %s", got.Verdict, tt.want)
			}
			if diff := cmp.Diff(tt.wantReasons, got.Unknowns); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
			if code := (outcome{result: got}).code(); code != tt.wantCode {
				t.Errorf("exit code %d, want %d", code, tt.wantCode)
			}
			if got.RunID == "" || got.Reproduce == "" {
				t.Errorf("run %q, reproduce %q", got.RunID, got.Reproduce)
			}
		})
	}
}

func TestExitCodesMerge(t *testing.T) {
	left := errors.New("left")
	for _, tt := range []struct {
		name string
		o    outcome
		want int
	}{
		{"Valid and clean", outcome{result: harness.Result{Verdict: check.Valid}}, exitValid},
		{"Valid and unclean", outcome{result: harness.Result{Verdict: check.Valid}, leftover: left}, exitUnclean},
		{"Unknown and unclean", outcome{result: harness.Result{Verdict: check.Unknown}, leftover: left}, exitUnknown},
		{"Invalid and unclean", outcome{result: harness.Result{Verdict: check.Invalid}, leftover: left}, exitInvalid},
	} {
		if got := tt.o.code(); got != tt.want {
			t.Errorf("%s: exit code %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestRunDirsOfOneSecondAreApartAndLatestFollows(t *testing.T) {
	out := t.TempDir()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, want := range []string{"20260102-030405-002a", "20260102-030405-002a.2", "20260102-030405-002a.3"} {
		d, err := newRunDir(out, at, 0x1002a)
		if err != nil {
			t.Fatal(err)
		}
		if d.id != want {
			t.Errorf("run %s, want %s", d.id, want)
		}
		if latest, err := os.Readlink(filepath.Join(out, latestLink)); latest != want || err != nil {
			t.Errorf("latest is %s (%v), want %s", latest, err, want)
		}
		if info, err := os.Stat(d.join(logsDir)); err != nil || !info.IsDir() {
			t.Errorf("no folder for logs: %v", err)
		}
	}
}

// interruptBound is how long a signal to ourselves may take.
const interruptBound = 10 * time.Second

func TestTheFirstInterruptCancelsAndTheSecondHurries(t *testing.T) {
	said := make(chan string, 2)
	ctx, signals := catchInterrupts(context.Background(), writerFunc(func(p []byte) (int, error) { said <- string(p); return len(p), nil }))
	defer signals.release()
	interrupt := func(done <-chan struct{}, want string) {
		t.Helper()
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
		case <-time.After(interruptBound):
			t.Fatalf("%s: nothing happened", want)
		}
		if got := <-said; !strings.Contains(got, want) {
			t.Errorf("said %q, want %q", got, want)
		}
	}
	interrupt(ctx.Done(), "writing a partial report")
	if context.Cause(ctx) != errInterrupted {
		t.Errorf("cause %v", context.Cause(ctx))
	}
	cleanup, cancel := signals.cleanup(ctx)
	defer cancel()
	if cleanup.Err() != nil {
		t.Error("cleaning up ends with the run")
	}
	interrupt(signals.again, "killing what is left")
}

func TestASearchThatWasInterruptedIsUnknown(t *testing.T) {
	totals := search.Totals{Seeds: 3, Verdicts: map[check.Verdict]int{check.Valid: 3}}
	s := search.Sweep{First: 1, Last: 100}
	if got := totals.Verdict(missing(t.Context(), s, totals)); got != check.Valid {
		t.Errorf("without an interrupt: %s", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	lacks := missing(ctx, s, totals)
	if got := totals.Verdict(lacks); got != check.Unknown || len(lacks) != 1 || lacks[0] != "interrupted after 3 of 100 seeds" {
		t.Errorf("interrupted: %s, %q", got, lacks)
	}
}
