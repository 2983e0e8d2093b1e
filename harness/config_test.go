package harness

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/danm-chaos/danm-chaos/clusters"
)

// workers is a cluster with fixed workers and nothing else.
type workers struct {
	clusters.Cluster
	names []string
}

func (w workers) Name() string                                 { return "few" }
func (w workers) Workers() []string                            { return w.names }
func (w workers) AddNode(context.Context, clusters.Node) error { return nil }
func (w workers) RemoveNode(context.Context, string) error     { return nil }

func TestLanesFitTheWorkersThatThereAre(t *testing.T) {
	tests := []struct {
		name                    string
		workers                 []string
		lanes                   int // asked for
		wantLanes, nodesPerLane int
		last                    []string // workers of the last lane
	}{
		{"as many lanes as there are nodes for", []string{"a", "b", "c", "d", "e", "f", "g"}, 0, 2, 3, []string{"d", "e", "f"}},
		{"one lane takes what there is", []string{"a", "b"}, 0, 1, 2, []string{"a", "b"}},
		{"what is asked for is not corrected", []string{"a", "b", "c", "d", "e", "f"}, 1, 1, 3, []string{"a", "b", "c"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := Config{Cluster: workers{names: tt.workers}, Lanes: tt.lanes, Scenario: Scenario{NodesPerLane: 3, SpareNodes: 2, Lanes: 10, Iterations: 30}}.withDefaults()
			if c.Lanes != tt.wantLanes || c.Scenario.NodesPerLane != tt.nodesPerLane || c.Scenario.SpareNodes >= c.Scenario.NodesPerLane {
				t.Errorf("%d lanes of %d nodes, %d of them spare", c.Lanes, c.Scenario.NodesPerLane, c.Scenario.SpareNodes)
			}
			if got := c.workersOf(c.Lanes - 1); !slices.Equal(got, tt.last) {
				t.Errorf("the last lane has %v", got)
			}
		})
	}
}

func TestMoreLanesThanWorkersAreRefused(t *testing.T) {
	c := Config{Cluster: workers{names: []string{"a", "b", "c"}}, Lanes: 2, Scenario: Scenario{NodesPerLane: 3, Iterations: 4}}.withDefaults()
	if err := c.checkWorkers(); err == nil || !strings.Contains(err.Error(), "has 3 workers: 2 lanes of 3 need more") {
		t.Errorf("error %v", err)
	}
}
