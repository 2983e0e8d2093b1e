package schedule

import (
	"encoding/json"
	"fmt"
	"time"
)

// SchemaVersion is the version of schedule.json.
const SchemaVersion = 1

// Schedule is everything that a run has decided before it starts.
type Schedule struct {
	SchemaVersion int         `json:"schemaVersion"`
	Scenario      string      `json:"scenario"`
	Seed          uint64      `json:"seed"`
	Lanes         []Lane      `json:"lanes"`
	Iterations    []Iteration `json:"iterations"` // in the order of Number
}

// Lane is one independent StatefulSet and the networks that it gets, one for
// each generation.
type Lane struct {
	Name     string    `json:"name"`
	Networks []Network `json:"networks"`
}

// Network is the shape of a lane's network.
type Network struct {
	Kind    string `json:"kind"`              // DanmNet, TenantNetwork, ClusterNetwork
	Family  string `json:"family"`            // v4, v6, dual
	Gateway bool   `json:"gateway,omitempty"` // a gateway inside the dynamic pool, which is a reserved bit
}

// HasIPv4 tells whether the network hands out IPv4 addresses.
func (n Network) HasIPv4() bool { return n.Family == IPv4 || n.Family == Dual }

// HasIPv6 tells whether the network hands out IPv6 addresses.
func (n Network) HasIPv6() bool { return n.Family == IPv6 || n.Family == Dual }

// String returns the shape as people read it: "DanmNet v4+v6".
func (n Network) String() string {
	if n.Family == Dual {
		return n.Kind + " v4+v6"
	}
	return n.Kind + " " + n.Family
}

// The families that a network may have.
const (
	IPv4 = "v4"
	IPv6 = "v6"
	Dual = "dual"
)

// Iteration is one pass of the scenario in one lane.
type Iteration struct {
	Number     int    `json:"number"`     // from 1, over all lanes
	Lane       int    `json:"lane"`       // index in Lanes
	Generation int    `json:"generation"` // index in the lane's Networks; the lane is rebuilt when it changes
	Steps      []Step `json:"steps"`
}

// Verb says what a step does.
type Verb string

// The verbs. Those that wait do so within a budget of the scenario.
const (
	FailNode         Verb = "fail-node"         // silence a node
	RestoreNode      Verb = "restore-node"      // undo that
	ReplaceNode      Verb = "replace-node"      // remove it for good and add a fresh one
	AwaitNodeReady   Verb = "await-node-ready"  // all running nodes of the lane are Ready
	AwaitTerminating Verb = "await-terminating" // all pods of the failed node are marked for deletion
	ForceDelete      Verb = "force-delete"      // delete pods with grace period 0
	AwaitReady       Verb = "await-ready"       // all replicas are Ready
	Settle           Verb = "settle"            // pods, endpoints and bits agree
	Evict            Verb = "evict"             // ask for pods to be evicted, as a drain does
	Drain            Verb = "drain"             // cordon a node and evict the lane's pods on it
	Uncordon         Verb = "uncordon"          // let the drained node take pods again
	Scale            Verb = "scale"             // take Count replicas away, or give all back with 0
	KillCleaner      Verb = "kill-cleaner"      // delete a pod of the cleaner, the leading one if it is known
	TaintNode        Verb = "taint-node"        // mark the failed node out-of-service
	UntaintNode      Verb = "untaint-node"      // take the mark back
	MeshInject       Verb = "mesh-inject"       // have Chaos Mesh do Act
	MeshHeal         Verb = "mesh-heal"         // have it undone
)

// Target is a rule that picks an object when the step runs, because names
// depend on where the scheduler put the pods.
type Target string

// The rules. Candidates are taken in name order, so Pick means the same in
// every run in which the candidates are the same.
const (
	NodeWithPods Target = "node-with-pods" // the Pick-th of the lane's running nodes that have pods
	BusiestNode  Target = "busiest-node"   // the one with most pods; Pick decides between equals
	FailedNode   Target = "failed-node"    // the node that was failed last, and its pods
	AnyPods      Target = "any-pods"       // Count of the lane's pods, by Pick
	CleanerPods  Target = "cleaner-pods"   // a pod of the cleaner, the leading one if it is known
	SamePods     Target = "same-pods"      // the pods of those names that the last force-delete hit, once they are back
)

// Step is one thing to do.
type Step struct {
	Do     Verb          `json:"do"`
	Target Target        `json:"target,omitempty"`
	Outage Outage        `json:"outage,omitempty"`   // of fail-node; nothing means power loss
	Pick   uint64        `json:"pick,omitempty"`     // draws the target and the order of deletion
	Count  int           `json:"count,omitempty"`    // of pods; 0 means all
	Delay  time.Duration `json:"delayNs,omitempty"`  // before the step
	Spread time.Duration `json:"spreadNs,omitempty"` // between single deletions; 0 means all at once
	Fault  bool          `json:"fault,omitempty"`    // must have fired for the run to count
	Act    Act           `json:"act,omitempty"`      // of mesh-inject
}

// Encode returns the schedule as it is stored: indented JSON.
func (s Schedule) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encoding schedule: %w", err)
	}
	return append(data, '\n'), nil
}

// OfLane returns the iterations of one lane in order.
func (s Schedule) OfLane(lane int) []Iteration {
	var out []Iteration
	for _, it := range s.Iterations {
		if it.Lane == lane {
			out = append(out, it)
		}
	}
	return out
}

// Faults counts the planned faults of the first n iterations by verb.
func (s Schedule) Faults(n int) map[string]int {
	out := map[string]int{}
	for _, it := range s.Iterations[:min(n, len(s.Iterations))] {
		for _, step := range it.Steps {
			if step.Fault {
				out[string(step.Do)]++
			}
		}
	}
	return out
}
