package kind

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKindsWordsAreWrittenDownUpToTheLevelOfDetail(t *testing.T) {
	var out strings.Builder
	l := &logger{out: &out}
	l.Warnf("low on %s", "disk")
	l.Errorf("no %s", "disk")
	l.V(0).Info("creating")
	l.V(detailMax).Infof("config %d", 1)
	l.V(detailMax + 1).Info("noise")
	if l.V(detailMax + 1).Enabled() {
		t.Error("kind is told to go on about details")
	}
	want := "warning: low on disk\nerror: no disk\ninfo: creating\ninfo: config 1\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestAVariableIsGivenItsValueBack(t *testing.T) {
	const name = "DANM_CHAOS_TEST_VARIABLE"
	t.Setenv(name, "before")
	restore, err := setVariable(name, "during")
	if err != nil {
		t.Fatal(err)
	}
	restore()
	if got := os.Getenv(name); got != "before" {
		t.Errorf("got %q", got)
	}
}
