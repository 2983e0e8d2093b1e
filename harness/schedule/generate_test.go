package schedule

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func shutdownPlan(seed uint64) Plan {
	return Plan{
		Scenario: "s", Seed: seed, Lanes: 3, Iterations: 90, LaneIterations: 4,
		Kinds: []string{"DanmNet", "TenantNetwork", "ClusterNetwork"}, Families: []string{IPv4, IPv6, Dual},
		Faults: Faults{NodeShutdown: &NodeShutdown{Target: NodeWithPods, Returns: Returns()}},
	}
}

func deletionPlan(seed uint64) Plan {
	p := shutdownPlan(seed)
	p.Faults = Faults{PodDeletion: &PodDeletion{RoundsMax: 4, PodsMax: 3, AgainPercent: 40}}
	return p
}

func generate(t *testing.T, p Plan) Schedule {
	t.Helper()
	s, err := Generate(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func encode(t *testing.T, s Schedule) []byte {
	t.Helper()
	data, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestTheSameSeedGivesTheSameBytes(t *testing.T) {
	for _, plan := range []func(uint64) Plan{shutdownPlan, deletionPlan} {
		first := encode(t, generate(t, plan(42)))
		if !bytes.Equal(first, encode(t, generate(t, plan(42)))) {
			t.Error("two schedules of one seed differ")
		}
		if bytes.Equal(first, encode(t, generate(t, plan(43)))) {
			t.Error("two seeds give one schedule")
		}
	}
}

func TestAStoredScheduleIsTheSameWhenRead(t *testing.T) {
	want := generate(t, shutdownPlan(1))
	var got Schedule
	if err := json.Unmarshal(encode(t, want), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
}

// TestFewerIterationsAreAPrefix is what a command to reproduce relies on. It
// holds also when there are fewer iterations than lanes, and then fewer lanes.
func TestFewerIterationsAreAPrefix(t *testing.T) {
	for _, plan := range []func(uint64) Plan{shutdownPlan, deletionPlan} {
		full := generate(t, plan(7))
		for n := 1; n < len(full.Iterations); n++ {
			p := plan(7)
			p.Iterations, p.Lanes = n, min(p.Lanes, n)
			short := generate(t, p)
			if diff := cmp.Diff(full.Iterations[:n], short.Iterations); diff != "" {
				t.Fatalf("%d iterations (-full +short):\n%s", n, diff)
			}
			for l := range short.Lanes {
				networks := short.Lanes[l].Networks
				if diff := cmp.Diff(full.Lanes[l].Networks[:len(networks)], networks); diff != "" {
					t.Fatalf("%d iterations, lane %d (-full +short):\n%s", n, l, diff)
				}
			}
		}
	}
}

func TestEveryCombinationComesOnceBeforeAnyComesAgain(t *testing.T) {
	for seed := range uint64(20) {
		d := newDeck(shutdownPlan(seed))
		for round := range 3 {
			seen := map[string]bool{}
			for i := range 9 {
				seen[d.network(round*9+i).String()] = true
			}
			if len(seen) != 9 {
				t.Errorf("seed %d, round %d: only %d of 9 combinations", seed, round, len(seen))
			}
		}
	}
}

func TestTheFirstNetworkIsTheReportedOne(t *testing.T) {
	for seed := range uint64(20) {
		if got, want := generate(t, shutdownPlan(seed)).Lanes[0].Networks[0], (Network{Kind: "DanmNet", Family: IPv4}); got != want {
			t.Errorf("seed %d: got %+v, want %+v", seed, got, want)
		}
	}
}

// TestEveryNodeComesBackAtMostOnce follows the power of each lane's nodes
// through a schedule.
func TestEveryNodeComesBackAtMostOnce(t *testing.T) {
	p := shutdownPlan(5)
	s := generate(t, p)
	for l := range s.Lanes {
		down, generation := 0, 0
		for _, it := range s.OfLane(l) {
			if it.Generation != generation {
				down, generation = 0, it.Generation // fresh nodes
			}
			for _, step := range it.Steps {
				switch step.Do {
				case FailNode:
					down++
				case RestoreNode, ReplaceNode:
					down--
				}
				if down < 0 || down > 1 {
					t.Fatalf("iteration %d: %d nodes are down after %s", it.Number, down, step.Do)
				}
			}
		}
	}
}

func TestEveryReturnIsDrawn(t *testing.T) {
	shapes := map[string]bool{}
	p := shutdownPlan(5)
	p.Iterations = 900
	for _, it := range generate(t, p).Iterations {
		text := ""
		for _, step := range it.Steps {
			text += fmt.Sprint(step.Do, " ")
		}
		shapes[text] = true
	}
	// Each of the six with and without a node to restore first.
	if want := 2 * len(Returns()); len(shapes) != want {
		t.Errorf("%d sequences of steps in %d iterations, want %d", len(shapes), p.Iterations, want)
	}
}

func TestEveryLaneBeginsWithANodeThatStaysAway(t *testing.T) {
	for seed := range uint64(50) {
		p := shutdownPlan(seed)
		for _, it := range generate(t, p).Iterations[:p.Lanes] {
			for i, step := range it.Steps {
				settled := i > 0 && it.Steps[i-1].Do == Settle
				if step.Do == RestoreNode && !settled {
					t.Errorf("seed %d, iteration %d: the node is back before anything had to be released: %v", seed, it.Number, it.Steps)
				}
			}
		}
	}
}

func TestGenerationsChangeTogetherWithTheIterationsOfALane(t *testing.T) {
	s := generate(t, shutdownPlan(1))
	for l := range s.Lanes {
		for i, it := range s.OfLane(l) {
			if it.Generation != i/4 {
				t.Errorf("lane %d, its iteration %d: generation %d", l, i, it.Generation)
			}
			if it.Generation >= len(s.Lanes[l].Networks) {
				t.Fatalf("lane %d has no network for generation %d", l, it.Generation)
			}
		}
	}
}

func TestPlannedFaultsAreCounted(t *testing.T) {
	s := Schedule{Iterations: []Iteration{
		{Steps: []Step{{Do: FailNode, Fault: true}, {Do: AwaitTerminating}, {Do: ForceDelete, Fault: true}}},
		{Steps: []Step{{Do: FailNode, Fault: true}, {Do: RestoreNode}, {Do: ForceDelete}}},
		{Steps: []Step{{Do: FailNode, Fault: true}}},
	}}
	if diff := cmp.Diff(map[string]int{"fail-node": 2, "force-delete": 1}, s.Faults(2)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAWrongPlanIsRefusedByField(t *testing.T) {
	tests := []struct {
		name string
		edit func(*Plan)
		want string
	}{
		{"no lanes", func(p *Plan) { p.Lanes = 0 }, "0 lanes: at least one is needed"},
		{"no iterations", func(p *Plan) { p.Iterations = 0 }, "0 iterations: at least one is needed"},
		{"no families", func(p *Plan) { p.Families = nil }, "at least one network kind and one family are needed"},
		{"no faults", func(p *Plan) { p.Faults = Faults{} }, "faults: nodeShutdown, podDeletion or disturbance is needed"},
		{"both faults", func(p *Plan) { p.Faults.PodDeletion = &PodDeletion{} }, "faults: nodeShutdown, podDeletion and disturbance exclude each other"},
		{"unknown target", func(p *Plan) { p.Faults.NodeShutdown.Target = "x" }, `faults.nodeShutdown.target: "x" is not node-with-pods or busiest-node`},
		{"unknown return", func(p *Plan) { p.Faults.NodeShutdown.Returns = []Return{Never, "x"} },
			`faults.nodeShutdown.returns[1]: "x" is not one of while-terminating, while-recreating, after-recreate, after-settle, next-iteration, never`},
		{"no rounds", func(p *Plan) { p.Faults = Faults{PodDeletion: &PodDeletion{PodsMax: 1}} }, "faults.podDeletion.roundsMax: 0 is less than 1"},
		{"more than always", func(p *Plan) {
			p.Faults = Faults{PodDeletion: &PodDeletion{RoundsMax: 1, PodsMax: 1, AgainPercent: 101}}
		},
			"faults.podDeletion.againPercent: 101 is not a percentage"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := shutdownPlan(1)
			tt.edit(&p)
			_, err := Generate(p)
			if err == nil || err.Error() != tt.want {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestOutagesAreDrawnAndLeaveTheRestOfTheScheduleAlone(t *testing.T) {
	plan := Plan{Scenario: "s", Seed: 7, Lanes: 1, Iterations: 40, Kinds: []string{"DanmNet"}, Families: []string{IPv4},
		Faults: Faults{NodeShutdown: &NodeShutdown{Target: NodeWithPods, Returns: []Return{AfterSettle}}}}
	without, err := Generate(plan)
	if err != nil {
		t.Fatal(err)
	}
	plan.Faults.NodeShutdown.Outages = []Outage{Hang, CutOff}
	with, err := Generate(plan)
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[Outage]int{}
	for _, it := range with.Iterations {
		for i := range it.Steps {
			if it.Steps[i].Do == FailNode {
				drawn[it.Steps[i].Outage]++
			}
			it.Steps[i].Outage = ""
		}
	}
	if drawn[Hang] == 0 || drawn[CutOff] == 0 || len(drawn) != 2 {
		t.Errorf("drawn: %v", drawn)
	}
	if diff := cmp.Diff(without, with); diff != "" {
		t.Errorf("(-without +with):\n%s", diff)
	}
}

func TestANodeThatIsNotOffIsNotReplaced(t *testing.T) {
	for _, tt := range []struct {
		name string
		give NodeShutdown
		want string // nothing: accepted
	}{
		{"power loss and replaced", NodeShutdown{Target: NodeWithPods, Returns: []Return{Never}, Outages: []Outage{PowerLoss}}, ""},
		{"hanging and replaced", NodeShutdown{Target: NodeWithPods, Returns: []Return{Never}, Outages: []Outage{Hang}}, "cannot be replaced"},
		{"an unknown outage", NodeShutdown{Target: NodeWithPods, Returns: []Return{AfterSettle}, Outages: []Outage{"nap"}}, `outages[0]: "nap" is not one of`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Faults{NodeShutdown: &tt.give}.Check()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
