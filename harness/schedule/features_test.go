package schedule

import (
	"slices"
	"testing"
)

// drawnFrom draws a simulation with a feature, and one of the same seed without.
func drawnFrom(t *testing.T, seed uint64, f Feature) (with, without Simulation) {
	t.Helper()
	s := someShape(seed)
	s.Feature = f
	with = draw(t, s)
	s.Calm, s.Feature = true, ""
	return with, draw(t, s)
}

func TestAFeatureIsWhatItSays(t *testing.T) {
	has := func(s Simulation, kind FaultKind) bool {
		return slices.ContainsFunc(s.Faults, func(f SimFault) bool { return f.Do == kind })
	}
	is := map[Feature]func(Simulation) bool{
		LegacyEndpoints:   func(s Simulation) bool { return s.World.LegacyEndpoints },
		HiddenPods:        func(s Simulation) bool { return has(s, HidePods) },
		HalfMigrated:      func(s Simulation) bool { return has(s, MoveEndpoints) },
		StaticPods:        func(s Simulation) bool { return s.World.StaticPods == 1 && has(s, RenewMirror) },
		ReservedAddresses: func(s Simulation) bool { return has(s, ReserveAddress) },
		LateAdds:          func(s Simulation) bool { return has(s, SlowCall) && has(s, AddStalled) && has(s, DelLost) },
	}
	for _, f := range Features() {
		for seed := range uint64(40) {
			with, without := drawnFrom(t, seed, f)
			if !is[f](with) {
				t.Errorf("%s, seed %d: it is not there: %+v", f, seed, with.Faults)
			}
			if f != LateAdds && is[f](without) {
				t.Errorf("%s, seed %d: a calm simulation has it", f, seed)
			}
		}
	}
}

func TestMostSeedsHaveNoFeatureAndFewHaveEach(t *testing.T) {
	const seeds = 2000
	changed := 0
	for seed := range uint64(seeds) {
		if isFeatured(draw(t, someShape(seed))) {
			changed++
		}
	}
	if share := float64(changed) / seeds; share < 0.09 || share > 0.16 {
		t.Errorf("%d of %d seeds have a feature, want about one in %d", changed, seeds, featureOneIn)
	}
}

// isFeatured tells whether a simulation surely has a feature.
func isFeatured(s Simulation) bool {
	return s.World.LegacyEndpoints || s.World.StaticPods > 0 || len(s.Faults) == 3 && s.Faults[0].Until == "cni get pods" ||
		slices.ContainsFunc(s.Faults, func(f SimFault) bool { return slices.Contains(featureFaults(), f.Do) })
}

func TestNoFeatureIsDrawnWhereNoneIsToBe(t *testing.T) {
	for seed := range uint64(400) {
		s := someShape(seed)
		s.Feature = NoFeature
		if sim := draw(t, s); isFeatured(sim) {
			t.Errorf("seed %d: %+v", seed, sim)
		}
	}
}

func TestAFeatureIsReadFromItsName(t *testing.T) {
	for _, f := range append(Features(), "", NoFeature) {
		if got, err := ParseFeature(string(f)); err != nil || got != f {
			t.Errorf("%q: got %q, %v", f, got, err)
		}
	}
	if got, err := ParseFeature("mirrors"); err == nil {
		t.Errorf("got %q", got)
	}
}
