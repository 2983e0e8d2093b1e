package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Feature is something that most simulated worlds do without.
type Feature string

// Features of simulated worlds.
const (
	// LegacyEndpoints: the first endpoints carry no UID of a pod, as DANM wrote
	// them before 4.2; then the CNI plugins are upgraded.
	LegacyEndpoints Feature = "legacy-endpoints"
	// HiddenPods: the API server shows the cleaner no pods for a while.
	HiddenPods Feature = "hidden-pods"
	// HalfMigrated: the endpoints lie in the other API group for a while, and a
	// cleaner of this one sees none.
	HalfMigrated Feature = "half-migrated"
	// LateAdds: an ADD of a pod that is gone finds its namesake, and writes an
	// endpoint in that one's name.
	LateAdds Feature = "late-adds"
	// StaticPods: a node runs a static pod, and its mirror is deleted and made
	// anew with another UID.
	StaticPods Feature = "static-pods"
	// ReservedAddresses: a ReservedIP sets an address aside that no endpoint has,
	// and is changed to another.
	ReservedAddresses Feature = "reserved-addresses"
)

// NoFeature leaves no feature to the seed.
const NoFeature Feature = "none"

// Features lists all of them.
func Features() []Feature {
	return []Feature{LegacyEndpoints, HiddenPods, HalfMigrated, LateAdds, StaticPods, ReservedAddresses}
}

// ParseFeature returns the feature named s, which may be empty, or an error that
// lists the known ones.
func ParseFeature(s string) (Feature, error) {
	known := append(Features(), NoFeature)
	if s == "" || slices.Contains(known, Feature(s)) {
		return Feature(s), nil
	}
	return "", fmt.Errorf("unknown feature %q: use one of %v", s, known)
}

// streamFeatures is the stream of a seed that features are drawn from. It is one
// of its own, so that a simulation without any is drawn as if there were none.
const streamFeatures = 3

// featureOneIn is how rarely a simulation has a feature that nobody asked for.
const featureOneIn = 8

// addFeature adds the feature that is wanted, or draws whether there is one.
func (s *Simulation) addFeature(wanted Feature) {
	d := drawer{rand.New(rand.NewPCG(s.Seed, streamFeatures))}
	isOn, all := d.IntN(featureOneIn) == 0, Features()
	drawn := all[d.IntN(len(all))]
	switch {
	case wanted == NoFeature:
	case wanted != "":
		s.add(wanted, d)
	case isOn:
		s.add(drawn, d)
	}
}

func (s *Simulation) add(f Feature, d drawer) {
	if f == StaticPods {
		s.World.StaticPods = 1
	}
	switch f {
	case LegacyEndpoints:
		s.World.LegacyEndpoints = true
		// Of an endpoint without UID nobody knows that it belongs to an earlier
		// pod if that came within the same second.
		s.Steps = slices.Insert(s.Steps, 1, Step{Do: AwaitReady, Delay: 3 * time.Second})
	case LateAdds:
		s.World.DryRun, s.World.Interfaces = false, 0 // addresses would run out
		s.Steps, s.Faults = d.lateAdds(s.World)
	default:
		s.Faults = nil
		for _, h := range featurePlots()[f] {
			s.Faults = append(s.Faults, d.lasting(h, s.World))
		}
		s.Steps = d.outlast(s.Steps, s.Faults)
	}
}

// featurePlots are the faults that features consist of. They last for longer than
// the quarantines.
func featurePlots() map[Feature][]habitat {
	second := time.Second
	deleting := habitat{DeletePod, nil, 300, 0, 2, ""}
	return map[Feature][]habitat{
		HiddenPods: {{HidePods, nil, 60, 60 * second, 1, ""}, deleting},
		ReservedAddresses: {
			{ReserveAddress, nil, 80, 0, 1, ""}, {ReserveAddress, nil, 250, 0, 2, ""}, {WatchStall, []string{"reservedips"}, 2, 100 * second, 1, ""},
			{StaleRestart, nil, 200, 30 * second, 1, ""}, deleting,
		},
		StaticPods: {
			{RenewMirror, nil, 150, 0, 3, ""}, {RenewMirror, nil, 300, 0, 3, ""}, {WatchExpired, []string{"pods"}, 20, 0, 1, ""},
			{StaleRestart, nil, 200, 30 * second, 1, ""}, deleting,
		},
		HalfMigrated: {{MoveEndpoints, nil, 60, 120 * second, 1, ""}, deleting, {DeletePod, []string{"cleaner patch NETWORK"}, 1, 0, 4, ""}},
	}
}

// featureFaults are the kinds of faults that only features have.
func featureFaults() []FaultKind {
	return []FaultKind{HidePods, MoveEndpoints, RenewMirror, ReserveAddress}
}

// lasting draws a fault that lasts for at least half of its time.
func (d drawer) lasting(h habitat, w World) SimFault {
	f := d.fault(h, w)
	if h.forMax > 0 {
		f.For = h.forMax/2 + d.upTo(h.forMax/2)
	}
	return f
}

// outlast gives the cleaner time for both quarantines while the longest of the
// faults lasts, as all are healed when the user is done.
func (d drawer) outlast(steps []Step, faults []SimFault) []Step {
	longest := slices.MaxFunc(faults, func(a, b SimFault) int { return int(a.For - b.For) }).For
	return append(steps, Step{Do: AwaitReady, Delay: longest + groupCheckMax + d.upTo(SimReleaseQuarantine)})
}

// groupCheckMax is more than a cleaner takes to look at both API groups.
const groupCheckMax = 80 * time.Second

// lateAdds draws a pod that is deleted at once after it was made anew. The ADD
// of the one in between is held up in front of its first read, until that finds
// its successor, and then between bit and endpoint, or its successor's is. What
// it made nobody deletes.
func (d drawer) lateAdds(w World) ([]Step, []SimFault) {
	again := w.Pods + 1 // ADDs until the first pod that is made anew
	steps := []Step{
		{Do: AwaitReady}, {Do: ForceDelete, Target: AnyPods, Pick: d.pick(), Count: 1, Fault: true},
		{Do: ForceDelete, Target: SamePods, Pick: d.pick(), Delay: d.upTo(time.Second), Fault: true}, {Do: AwaitReady},
		{Do: AwaitReady, Delay: 3*SimReleaseQuarantine + d.upTo(SimReleaseQuarantine)},
	}
	return steps, []SimFault{
		{Do: SlowCall, On: "cni get pods", Nth: again, For: 25 * time.Second, Until: "cni get pods"},
		{Do: AddStalled, Nth: again + d.IntN(2), For: d.upTo(25 * time.Second)},
		{Do: DelLost, Nth: 1, Count: 3},
	}
}
