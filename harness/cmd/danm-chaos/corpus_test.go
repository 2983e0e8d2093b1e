package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/danm-chaos/danm-chaos/clusters/sim"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
	"github.com/danm-chaos/danm-chaos/harness/search"
)

// corpusVariable marks the process that plays: simulations need one to
// themselves.
const corpusVariable = "DANM_CHAOS_TEST_CORPUS"

// Every kept simulation gets the verdict that it is kept for, and the cleaner
// that ships is Valid in all of them.
func TestCorpus(t *testing.T) {
	if os.Getenv(corpusVariable) == "" {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCorpus$", "-test.v")
		c.Env = append(os.Environ(), corpusVariable+"=1")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	sim.Isolate()
	files, err := filepath.Glob("../../../scenarios/corpus/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			s, ok, err := readSimulation(file)
			if err != nil || !ok {
				t.Fatalf("not a simulation: %v", err)
			}
			expectVerdict(t, s, s.Cleaner, check.Verdict(s.Expect))
			expectVerdict(t, s, defaultCleaner, check.Valid)
		})
	}
}

func expectVerdict(t *testing.T, s schedule.Simulation, cleaner string, want check.Verdict) {
	t.Helper()
	p := player(t)(s, search.Job{Cleaner: cleaner})
	if p.Trouble != "" || p.Verdict != want {
		t.Errorf("%s: %s %s, want %s: %v %v", cleaner, p.Verdict, p.Trouble, want, p.Violations, p.Unknowns)
	}
}
