package schedule

import (
	"fmt"
	"slices"
	"strings"
)

// Faults is the part of a scenario from which iterations are drawn. Exactly
// one of its fields is set.
type Faults struct {
	NodeShutdown *NodeShutdown `json:"nodeShutdown,omitempty"`
	PodDeletion  *PodDeletion  `json:"podDeletion,omitempty"`
	Disturbance  *Disturbance  `json:"disturbance,omitempty"`
}

// NodeShutdown silences a node, force deletes its pods once they hang
// in Terminating, and brings the node back, or not.
type NodeShutdown struct {
	Target  Target   `json:"target"`  // node-with-pods or busiest-node
	Returns []Return `json:"returns"` // drawn from by seed
	// Outages are drawn from by seed as well; none means power loss.
	Outages []Outage `json:"outages,omitempty"`
	// OutOfService has the control plane delete the pods of the dead node,
	// because it is tainted so, instead of the user by force.
	OutOfService bool `json:"outOfService,omitempty"`
	// Meanwhile are acts of which one is drawn while addresses are released.
	Meanwhile []Act `json:"meanwhile,omitempty"`
}

// Return says when a failed node comes back.
type Return string

// When a failed node comes back. Never means that a fresh node takes its place.
const (
	WhileTerminating Return = "while-terminating" // before the pods are force deleted
	WhileRecreating  Return = "while-recreating"  // together with the new pods
	AfterRecreate    Return = "after-recreate"    // as soon as all replicas are Ready again
	AfterSettle      Return = "after-settle"      // when everything agrees already
	NextIteration    Return = "next-iteration"    // right before the next node fails
	Never            Return = "never"             // it is replaced
)

// Returns lists every way in which a node comes back.
func Returns() []Return {
	return []Return{WhileTerminating, WhileRecreating, AfterRecreate, AfterSettle, NextIteration, Never}
}

// PodDeletion force deletes pods in rounds while their nodes live.
type PodDeletion struct {
	RoundsMax    int `json:"roundsMax"`    // of one iteration, at least one
	PodsMax      int `json:"podsMax"`      // of one round, at least one
	AgainPercent int `json:"againPercent"` // how often the new pods are deleted at once again
}

// Check tells what is wrong with the template, naming the field.
func (f Faults) Check() error {
	given := 0
	for _, is := range []bool{f.NodeShutdown != nil, f.PodDeletion != nil, f.Disturbance != nil} {
		if is {
			given++
		}
	}
	switch {
	case given > 1:
		return fmt.Errorf("faults: nodeShutdown, podDeletion and disturbance exclude each other")
	case f.Disturbance != nil:
		return f.Disturbance.check()
	case f.NodeShutdown != nil:
		return f.NodeShutdown.check()
	case f.PodDeletion != nil:
		return f.PodDeletion.check()
	default:
		return fmt.Errorf("faults: nodeShutdown, podDeletion or disturbance is needed")
	}
}

func (n *NodeShutdown) check() error {
	if n.Target != NodeWithPods && n.Target != BusiestNode {
		return fmt.Errorf("faults.nodeShutdown.target: %q is not %s or %s", n.Target, NodeWithPods, BusiestNode)
	}
	if len(n.Returns) == 0 {
		return fmt.Errorf("faults.nodeShutdown.returns: at least one is needed")
	}
	for i, r := range n.Returns {
		if !slices.Contains(Returns(), r) {
			return fmt.Errorf("faults.nodeShutdown.returns[%d]: %q is not one of %s", i, r, joined(Returns()))
		}
	}
	if err := checkActs("faults.nodeShutdown.meanwhile", n.Meanwhile); err != nil {
		return err
	}
	return n.checkOutages()
}

func (p *PodDeletion) check() error {
	switch {
	case p.RoundsMax < 1:
		return fmt.Errorf("faults.podDeletion.roundsMax: %d is less than 1", p.RoundsMax)
	case p.PodsMax < 1:
		return fmt.Errorf("faults.podDeletion.podsMax: %d is less than 1", p.PodsMax)
	case p.AgainPercent < 0 || p.AgainPercent > 100:
		return fmt.Errorf("faults.podDeletion.againPercent: %d is not a percentage", p.AgainPercent)
	}
	return nil
}

func joined[T ~string](list []T) string {
	texts := make([]string, len(list))
	for i, s := range list {
		texts[i] = string(s)
	}
	return strings.Join(texts, ", ")
}
