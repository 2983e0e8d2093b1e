package workload

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// fewNodes is a cluster with fixed workers that notes what it is asked for.
type fewNodes struct{ calls []string }

func (f *fewNodes) AddNode(_ context.Context, n clusters.Node) error {
	f.calls = append(f.calls, "add "+n.Name+" for "+n.Labels[clusters.LaneLabel])
	return nil
}

func (f *fewNodes) RemoveNode(_ context.Context, name string) error {
	f.calls = append(f.calls, "remove "+name)
	return nil
}

func TestALaneTakesTheWorkersThatThereAre(t *testing.T) {
	nodes := &fewNodes{}
	l := laneOf(schedule.Network{Kind: "DanmNet", Family: "v4"}, nil)
	l.access.Nodes, l.Spec.Workers = nodes, []string{"w1", "w2"}
	if diff := cmp.Diff([]string{"w1", "w2"}, l.Announcement().Nodes); diff != "" {
		t.Errorf("announced (-want +got):\n%s", diff)
	}
	for _, step := range []func() error{
		func() error { return l.AddNode(t.Context()) },
		func() error { return l.AddNode(t.Context()) },
		func() error { return l.RemoveNode(t.Context(), "w1") },
		func() error { return l.AddNode(t.Context()) }, // it is replaced by itself
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"add w1 for lane-3-g2", "add w2 for lane-3-g2", "remove w1", "add w1 for lane-3-g2"}
	if diff := cmp.Diff(want, nodes.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if err := l.AddNode(t.Context()); err == nil {
		t.Error("it took a worker that is not there")
	}
}
