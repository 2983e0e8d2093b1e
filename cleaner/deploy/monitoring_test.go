package deploy

import (
	"os"
	"os/exec"
	"testing"
)

// promtoolVariable names promtool for the tests; make rules builds it and sets
// the variable.
const promtoolVariable = "PROMTOOL"

func TestAlertRulesPassPromtool(t *testing.T) {
	promtool := os.Getenv(promtoolVariable)
	if promtool == "" {
		t.Skip("skipped: " + promtoolVariable + " is not set; make rules builds promtool and runs this")
	}
	for _, args := range [][]string{{"check", "rules", "--lint-fatal", "rules.yaml"}, {"test", "rules", "rules.test.yaml"}} {
		command := exec.Command(promtool, args...)
		command.Dir = "monitoring"
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, output)
		}
	}
}
