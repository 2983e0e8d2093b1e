package harness

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// The type of a scenario file.
const (
	ScenarioAPIVersion = "chaos.danm/v1alpha1"
	ScenarioKind       = "Scenario"
)

// Scenario is a named composition of workload, faults and budgets. It is data:
// a shipped scenario, a bug report and a shrunk failure are the same kind of
// thing.
type Scenario struct {
	APIVersion  string `json:"apiVersion"`
	Kind        string `json:"kind"`
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`

	Replicas     int `json:"replicas"`             // of each lane's StatefulSet
	NodesPerLane int `json:"nodesPerLane"`         // workers that only this lane uses
	SpareNodes   int `json:"spareNodes,omitempty"` // of them, that come once all replicas run, so that the others are crowded
	Interfaces   int `json:"interfaces"`           // of each pod
	// TerminationGracePeriodSeconds is the pods' own.
	TerminationGracePeriodSeconds int64 `json:"terminationGracePeriodSeconds"`

	// Kinds and Families of the network are drawn by seed, every combination
	// once before any comes again; the first of each comes first.
	Kinds    []string `json:"kinds"`
	Families []string `json:"families"`

	Faults schedule.Faults `json:"faults"`

	// LaneIterations is after how many iterations a lane is rebuilt with a
	// newly drawn network; 0 means never.
	LaneIterations int     `json:"laneIterations,omitempty"`
	Budgets        Budgets `json:"budgets"`
	Lanes          int     `json:"lanes"`      // side by side, unless the run says otherwise
	Iterations     int     `json:"iterations"` // over all lanes, unless the run says otherwise
}

// Budgets bound every wait of an iteration.
type Budgets struct {
	Terminating metav1.Duration `json:"terminating"` // from a node's failure until its pods are marked for deletion
	Recreate    metav1.Duration `json:"recreate"`    // until all replicas, or all nodes, are Ready
	Settle      metav1.Duration `json:"settle"`      // until pods, endpoints and bits agree
}

// DecodeScenario reads a scenario file, YAML or JSON. Unknown fields are
// errors; every error names the file and the field.
func DecodeScenario(file string, data []byte) (Scenario, error) {
	var s Scenario
	if err := yaml.UnmarshalStrict(data, &s); err != nil {
		return Scenario{}, fmt.Errorf("reading scenario %s: %w", file, err)
	}
	if err := s.Check(); err != nil {
		return Scenario{}, fmt.Errorf("reading scenario %s: %w", file, err)
	}
	return s, nil
}

// Encode returns the scenario as a file, YAML.
func (s Scenario) Encode() ([]byte, error) {
	data, err := yaml.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encoding scenario %s: %w", s.Name, err)
	}
	return data, nil
}

// Check tells everything that is wrong with the scenario, naming the fields.
func (s Scenario) Check() error {
	var errs []error
	fault := func(isWrong bool, format string, args ...any) {
		if isWrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	fault(s.APIVersion != ScenarioAPIVersion, "apiVersion: %q is not %s", s.APIVersion, ScenarioAPIVersion)
	fault(s.Kind != ScenarioKind, "kind: %q is not %s", s.Kind, ScenarioKind)
	fault(s.Name == "", "name: missing")
	fault(s.NodesPerLane < 1, "nodesPerLane: %d is less than 1", s.NodesPerLane)
	fault(s.SpareNodes < 0 || s.SpareNodes >= max(1, s.NodesPerLane), "spareNodes: %d is not from 0 to nodesPerLane-1", s.SpareNodes)
	fault(s.Faults.NodeShutdown != nil && s.NodesPerLane < 2, "nodesPerLane: a node shutdown needs at least 2")
	fault(s.Interfaces < 1, "interfaces: %d is less than 1", s.Interfaces)
	fault(s.Replicas < 1, "replicas: %d is less than 1", s.Replicas)
	fault(s.Replicas*s.Interfaces > poolSize, "replicas: %d with %d interfaces need more than the %d addresses of a pool", s.Replicas, s.Interfaces, poolSize)
	fault(s.TerminationGracePeriodSeconds < 0, "terminationGracePeriodSeconds: %d is negative", s.TerminationGracePeriodSeconds)
	fault(s.LaneIterations < 0, "laneIterations: %d is negative", s.LaneIterations)
	fault(s.Lanes < 1, "lanes: %d is less than 1", s.Lanes)
	fault(s.Iterations < 1, "iterations: %d is less than 1", s.Iterations)
	errs = append(errs, s.checkNetworks(), s.Faults.Check(), s.Budgets.check())
	return errors.Join(errs...)
}

// NeedsRealNodes tells whether nodes have to fail in ways that only machines do,
// on which pods go on while the API hears nothing of them.
func (s Scenario) NeedsRealNodes() bool {
	n := s.Faults.NodeShutdown
	return n != nil && slices.ContainsFunc(n.Outages, func(o schedule.Outage) bool { return o != schedule.PowerLoss })
}

// Disturbs tells whether something happens beside nodes and pods that die: pods
// are evicted, nodes drained or tainted, the cleaner's own pods killed.
func (s Scenario) Disturbs() bool {
	n := s.Faults.NodeShutdown
	return s.Faults.Disturbance != nil || n != nil && (n.OutOfService || len(n.Meanwhile) > 0)
}

// poolSize is a little less than the dynamic pool of a lane, because pods that
// wait for the cleaner still hold addresses.
const poolSize = 90

func (s Scenario) checkNetworks() error {
	var errs []error
	for _, f := range []struct {
		field         string
		values, known []string
	}{
		{"kinds", s.Kinds, kindNames()},
		{"families", s.Families, []string{schedule.IPv4, schedule.IPv6, schedule.Dual}},
	} {
		if len(f.values) == 0 {
			errs = append(errs, fmt.Errorf("%s: at least one of %v is needed", f.field, f.known))
		}
		for i, v := range f.values {
			if !slices.Contains(f.known, v) {
				errs = append(errs, fmt.Errorf("%s[%d]: %q is not one of %v", f.field, i, v, f.known))
			}
		}
	}
	return errors.Join(errs...)
}

func kindNames() []string {
	var names []string
	for _, k := range danm.NetworkKinds() {
		names = append(names, string(k))
	}
	return names
}

func (b Budgets) check() error {
	var errs []error
	for _, f := range []struct {
		field string
		value metav1.Duration
	}{{"terminating", b.Terminating}, {"recreate", b.Recreate}, {"settle", b.Settle}} {
		if f.value.Duration <= 0 {
			errs = append(errs, fmt.Errorf("budgets.%s: %s is not positive", f.field, f.value.Duration))
		}
	}
	return errors.Join(errs...)
}

// plan is what the schedule of a run is drawn from.
func (s Scenario) plan(seed uint64, lanes, iterations int) schedule.Plan {
	return schedule.Plan{
		Scenario: s.Name, Seed: seed, Lanes: lanes, Iterations: iterations, LaneIterations: s.LaneIterations,
		Kinds: s.Kinds, Families: s.Families, Faults: s.Faults,
	}
}

// Shape is what simulations of the scenario are drawn for: one lane, one
// iteration, two replicas of the cleaner. The seed is the caller's.
func (s Scenario) Shape(group danm.Group, cni string) schedule.Shape {
	return schedule.Shape{
		Plan: s.plan(0, 1, 1), Pods: s.Replicas, Nodes: s.NodesPerLane, Replicas: simReplicas, Group: string(group), CNI: cni,
	}
}

// simReplicas is how many replicas of the cleaner a simulation has.
const simReplicas = 2
