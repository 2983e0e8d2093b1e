package schedule

import (
	"slices"
	"strings"
	"testing"
)

func disturbing(d Disturbance) Plan {
	return Plan{Scenario: "s", Seed: 1, Lanes: 1, Iterations: 200, Kinds: []string{"DanmNet"}, Families: []string{IPv4}, Faults: Faults{Disturbance: &d}}
}

func verbsOf(s Schedule) map[Verb]int {
	found := map[Verb]int{}
	for _, it := range s.Iterations {
		for _, step := range it.Steps {
			found[step.Do]++
		}
	}
	return found
}

func TestEveryActIsDrawnAndUndone(t *testing.T) {
	s, err := Generate(disturbing(Disturbance{Acts: Acts(), RoundsMax: 3, PodsMax: 2}))
	if err != nil {
		t.Fatal(err)
	}
	verbs := verbsOf(s)
	for _, pair := range [][2]Verb{{Drain, Uncordon}, {MeshInject, MeshHeal}} {
		if verbs[pair[0]] == 0 || verbs[pair[0]] != verbs[pair[1]] {
			t.Errorf("%d of %s, but %d of %s", verbs[pair[0]], pair[0], verbs[pair[1]], pair[1])
		}
	}
	if verbs[Scale] == 0 || verbs[Scale]%2 != 0 || verbs[Evict] == 0 || verbs[KillCleaner] == 0 {
		t.Errorf("verbs are %v: want every act, and every scaling taken back", verbs)
	}
	acts := map[Act]bool{}
	for _, it := range s.Iterations {
		if last := it.Steps[len(it.Steps)-1]; last.Do != AwaitReady {
			t.Fatalf("iteration %d ends with %s, before all replicas are back", it.Number, last.Do)
		}
		for _, step := range it.Steps {
			if step.Do == MeshInject {
				acts[step.Act] = true
				if want := step.Act.IsOnCleaner(); want != (step.Target == CleanerPods) {
					t.Fatalf("%s hits %s", step.Act, step.Target)
				}
			}
		}
	}
	if len(acts) != len(MeshActs()) {
		t.Errorf("acts of Chaos Mesh are %v, want all", acts)
	}
}

func TestANodeShutdownMayBeDisturbedAndItsPodsLeftToTheControlPlane(t *testing.T) {
	plan := disturbing(Disturbance{})
	plan.Faults = Faults{NodeShutdown: &NodeShutdown{
		Target: NodeWithPods, Returns: []Return{AfterRecreate, NextIteration}, OutOfService: true, Meanwhile: []Act{ActKillCleaner}}}
	s, err := Generate(plan)
	if err != nil {
		t.Fatal(err)
	}
	want := []Verb{FailNode, AwaitTerminating, TaintNode, KillCleaner, AwaitReady, RestoreNode, UntaintNode, AwaitNodeReady}
	for _, it := range s.Iterations {
		var got []Verb
		for _, step := range it.Steps {
			got = append(got, step.Do)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("iteration %d is %v, want %v", it.Number, got, want)
		}
	}
}

func TestPodsGoOneAfterTheOtherWhenTheCleanerIsHitInTheirMidst(t *testing.T) {
	for act, want := range map[Act]bool{MeshCleanerKill: true, ActKillCleaner: true, ActScale: false} {
		plan := disturbing(Disturbance{})
		plan.Faults = Faults{NodeShutdown: &NodeShutdown{Target: NodeWithPods, Returns: []Return{AfterRecreate}, Meanwhile: []Act{act}}}
		s, err := Generate(plan)
		if err != nil {
			t.Fatal(err)
		}
		always := true
		for _, it := range s.Iterations {
			for _, step := range it.Steps {
				always = always && (step.Do != ForceDelete || step.Spread >= backlogSpread)
			}
		}
		if always != want {
			t.Errorf("%s: pods of every iteration go one after the other: %v, want %v", act, always, want)
		}
	}
}

func TestFaultsOfACleanerLastUntilItsLeaseHasRunOutOrIsRenewed(t *testing.T) {
	s, err := Generate(disturbing(Disturbance{Acts: MeshActs(), RoundsMax: 3, PodsMax: 2}))
	if err != nil {
		t.Fatal(err)
	}
	for _, it := range s.Iterations {
		for i, step := range it.Steps {
			if step.Do != MeshInject {
				continue
			}
			heal := it.Steps[i+1]
			isPartition, isOver := step.Act == MeshCleanerPartition, step.Act == MeshCleanerKill
			if heal.Do != MeshHeal || (heal.Delay >= partitionLastsMin) != isPartition || step.Act.IsOnCleaner() && !isOver && heal.Delay < cleanerLastsMin {
				t.Fatalf("%s is followed by %s after %s", step.Act, heal.Do, heal.Delay)
			}
		}
	}
}

func TestActsThatAClusterCannotDoAreLeftOut(t *testing.T) {
	d := Disturbance{Acts: []Act{ActEvict, MeshPodKill, ActDrain}, RoundsMax: 1, PodsMax: 1}
	rest := Faults{Disturbance: &d}.Without(Act.IsOfMesh)
	if !slices.Equal(rest.Acts(), []Act{ActEvict, ActDrain}) || len(d.Acts) != 3 {
		t.Errorf("left are %v of %v", rest.Acts(), d.Acts)
	}
	n := NodeShutdown{Meanwhile: []Act{MeshCleanerKill}}
	if rest := (Faults{NodeShutdown: &n}).Without(Act.IsOfMesh); len(rest.Acts()) != 0 || len(n.Meanwhile) != 1 {
		t.Errorf("left are %v of %v", rest.Acts(), n.Meanwhile)
	}
}

func TestADisturbanceThatIsNotWholeIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		d    Disturbance
		want string
	}{
		"no acts":       {Disturbance{RoundsMax: 1, PodsMax: 1}, "faults.disturbance.acts: at least one"},
		"no rounds":     {Disturbance{Acts: Acts(), PodsMax: 1}, "faults.disturbance.roundsMax"},
		"no pods":       {Disturbance{Acts: Acts(), RoundsMax: 1}, "faults.disturbance.podsMax"},
		"an odd act":    {Disturbance{Acts: []Act{"dance"}, RoundsMax: 1, PodsMax: 1}, `faults.disturbance.acts[0]: "dance" is not one of`},
		"two templates": {Disturbance{Acts: Acts(), RoundsMax: 1, PodsMax: 1}, "exclude each other"},
	} {
		t.Run(name, func(t *testing.T) {
			f := Faults{Disturbance: &c.d}
			if name == "two templates" {
				f.PodDeletion = &PodDeletion{}
			}
			if err := f.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
