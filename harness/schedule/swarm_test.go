package schedule

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func someShape(seed uint64) Shape {
	return Shape{
		Plan: Plan{
			Scenario: "node-shutdown", Seed: seed, Kinds: []string{"DanmNet", "TenantNetwork", "ClusterNetwork"},
			Families: []string{IPv4, IPv6, Dual}, Faults: Faults{NodeShutdown: &NodeShutdown{Target: NodeWithPods, Returns: Returns()}},
		},
		Pods: 5, Nodes: 3, Replicas: 2, Group: "danm.io", CNI: "danm-4.3",
	}
}

func draw(t *testing.T, s Shape) Simulation {
	t.Helper()
	sim, err := Draw(s)
	if err != nil {
		t.Fatal(err)
	}
	return sim
}

func TestEqualSeedsDrawEqualSimulations(t *testing.T) {
	for seed := range uint64(50) {
		if diff := cmp.Diff(draw(t, someShape(seed)), draw(t, someShape(seed))); diff != "" {
			t.Fatalf("seed %d:\n%s", seed, diff)
		}
	}
}

func TestSeedsTogetherDrawEverything(t *testing.T) {
	drawn, verbs, kinds := map[FaultKind]bool{}, map[Verb]bool{}, map[string]bool{}
	for seed := range uint64(400) {
		sim := draw(t, someShape(seed))
		for _, f := range sim.Faults {
			drawn[f.Do] = true
			if f.Nth < 1 {
				t.Errorf("seed %d: %s at place %d", seed, f.Do, f.Nth)
			}
		}
		for _, step := range sim.Steps {
			verbs[step.Do] = true
		}
		kinds[sim.World.Network.String()] = true
	}
	for _, kind := range SimFaultKinds() {
		if !drawn[kind] {
			t.Errorf("fault %s is never drawn", kind)
		}
	}
	if len(kinds) != 9 || !verbs[ReplaceNode] || !verbs[RestoreNode] || !verbs[Settle] {
		t.Errorf("drawn are only %d networks and %v", len(kinds), verbs)
	}
}

func TestACalmSimulationHasOnlyTheUsersFaults(t *testing.T) {
	s := someShape(1)
	s.Calm = true
	for seed := range uint64(50) {
		s.Seed = seed
		sim := draw(t, s)
		if len(sim.Faults) != 0 || !slices.ContainsFunc(sim.Steps, func(st Step) bool { return st.Do == FailNode && st.Fault }) {
			t.Errorf("seed %d: %+v", seed, sim)
		}
	}
}

func TestEveryFaultOfTheSimulatorIsDescribed(t *testing.T) {
	seen := map[string]FaultKind{}
	for _, kind := range SimFaultKinds() {
		text := kind.Describe()
		if other, isTaken := seen[text]; text == "" || isTaken {
			t.Errorf("%s is described as %q, like %q", kind, text, other)
		}
		seen[text] = kind
	}
	if len(seen) != len(descriptions) {
		t.Errorf("%d kinds are described, and %d exist", len(descriptions), len(seen))
	}
}
