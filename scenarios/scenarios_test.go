package scenarios

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEveryShippedScenarioIsReadable(t *testing.T) {
	want := []string{"cleaner-failover", "disturbance", "force-delete-loop", "node-shutdown", "node-shutdown-backlog", "node-silent"}
	if diff := cmp.Diff(want, Names()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, name := range want {
		if s, err := Get(name); err != nil || s.Name != name || s.Description == "" {
			t.Errorf("%s: got %q, %v", name, s.Name, err)
		}
	}
}

func TestAnUnknownScenarioIsAnsweredWithTheKnownOnes(t *testing.T) {
	_, err := Get("no-such")
	if err == nil || !strings.Contains(err.Error(), `"no-such"`) || !strings.Contains(err.Error(), "node-shutdown-backlog") {
		t.Errorf("got %v", err)
	}
}
