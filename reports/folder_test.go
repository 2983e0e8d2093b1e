package reports

import (
	"testing"

	"github.com/danm-chaos/danm-chaos/harness/check"
)

func TestTheFixtureIsAnIncident(t *testing.T) {
	_, r := incidentDir(t, "ss-0")
	if r.Verdict != check.Invalid || len(r.Violations) < 2 {
		t.Fatalf("%s with %d violations: %v", r.Verdict, len(r.Violations), r.Unknowns)
	}
	for _, v := range r.Violations {
		t.Log(v.Invariant, v.Message)
	}
	t.Log(r.Unknowns)
}
