package harness

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const scenarioText = `apiVersion: chaos.danm/v1alpha1
kind: Scenario
name: s
replicas: 5
nodesPerLane: 3
interfaces: 1
terminationGracePeriodSeconds: 10
kinds: [DanmNet]
families: [v4, dual]
faults:
  nodeShutdown: {target: node-with-pods, returns: [never]}
budgets: {terminating: 30s, recreate: 30s, settle: 1m}
lanes: 2
iterations: 4
`

func TestAScenarioSurvivesItsFile(t *testing.T) {
	want, err := DecodeScenario("a.yaml", []byte(scenarioText))
	if err != nil {
		t.Fatal(err)
	}
	text, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeScenario("b.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-first +second reading):\n%s", diff)
	}
}

func TestAWrongScenarioNamesFileAndField(t *testing.T) {
	tests := []struct{ name, old, new, want string }{
		{"an unknown field", "replicas: 5", "replica: 5", `unknown field "replica"`},
		{"an unknown field far down", "returns: [never]", "returns: [never], often: 1", `unknown field "often"`},
		{"a field twice", "lanes: 2", "lanes: 2\nlanes: 3", `key "lanes" already set`},
		{"a text for a number", "lanes: 2", "lanes: two", "Scenario.lanes of type int"},
		{"another version", "v1alpha1", "v1", `apiVersion: "chaos.danm/v1" is not chaos.danm/v1alpha1`},
		{"no name", "name: s", "name: ''", "name: missing"},
		{"an unknown kind", "[DanmNet]", "[DanmNet, Net]", `kinds[1]: "Net" is not one of`},
		{"an unknown family", "[v4, dual]", "[v4, v5]", `families[1]: "v5" is not one of`},
		{"too few nodes to lose one", "nodesPerLane: 3", "nodesPerLane: 1", "nodesPerLane: a node shutdown needs at least 2"},
		{"more pods than addresses", "replicas: 5", "replicas: 200", "replicas: 200 with 1 interfaces need more than"},
		{"no budget", "settle: 1m", "settle: 0s", "budgets.settle: 0s is not positive"},
		{"only spare nodes", "interfaces: 1", "interfaces: 1\nspareNodes: 3", "spareNodes: 3 is not from 0 to nodesPerLane-1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(scenarioText, tt.old, tt.new, 1)
			_, err := DecodeScenario("dir/file.yaml", []byte(text))
			if err == nil || !strings.Contains(err.Error(), "dir/file.yaml") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want the file and %q", err, tt.want)
			}
		})
	}
}
