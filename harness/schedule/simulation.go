package schedule

import (
	"encoding/json"
	"fmt"
	"time"
)

// The type of a simulation file.
const (
	SimulationAPIVersion = "chaos.danm/v1alpha1"
	SimulationKind       = "Simulation"
)

// Simulation is one run of the simulator, complete: the world, what its user
// does, what goes wrong, and every choice among what could happen next. Equal
// simulations give equal histories, byte for byte.
type Simulation struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Name       string   `json:"name"`
	Story      []string `json:"story,omitempty"` // what happens in it, for people; nobody reads it back
	// Cleaner is the one under test, as on the command line.
	Cleaner string `json:"cleaner,omitempty"`
	// Expect is the verdict that the cleaner under test must get now.
	Expect string `json:"expect,omitempty"`
	// Seed draws the choices that are not stored.
	Seed   uint64     `json:"seed"`
	World  World      `json:"world"`
	Steps  []Step     `json:"steps"` // of the user, one after the other
	Faults []SimFault `json:"faults,omitempty"`
	Search Search     `json:"search"`
	// Choices are indices into the sorted list of what could happen next, one
	// for each time that there was more than one thing. After the last the
	// first of the list is taken, unless Search draws.
	Choices []int `json:"choices,omitempty"`
}

// World is the shape of a simulated cluster.
type World struct {
	Pods     int `json:"pods"`
	Nodes    int `json:"nodes"`
	Replicas int `json:"replicas"` // of the cleaner
	// Interfaces of each pod, all in one network; 0 is one.
	Interfaces int     `json:"interfaces,omitempty"`
	Network    Network `json:"network"`
	Group      string  `json:"danmApi"`
	CNI        string  `json:"cni"`
	WatchList  bool    `json:"watchList,omitempty"` // the API server streams lists
	// LeaderElect makes the replicas take turns; without it all are active.
	LeaderElect bool `json:"leaderElect"`
	SlowLease   bool `json:"slowLease,omitempty"` // 60/40/10 s instead of 15/10/2 s
	// DryRun makes the cleaner write nothing, StrictFencing not trust whoever
	// force deletes the pods of a silent node.
	DryRun        bool `json:"dryRun,omitempty"`
	StrictFencing bool `json:"strictFencing,omitempty"`
	// LegacyEndpoints makes the endpoints of the first pods carry no UID.
	LegacyEndpoints bool `json:"legacyEndpoints,omitempty"`
	// StaticPods is how many nodes, the first, run a static pod.
	StaticPods        int           `json:"staticPods,omitempty"`
	ReleaseQuarantine time.Duration `json:"releaseQuarantineNs"`
	OrphanQuarantine  time.Duration `json:"orphanQuarantineNs"`
}

// Search says how choices are drawn from the seed.
type Search struct {
	// Draw is false for a replay: choices beyond the stored ones are 0.
	Draw bool `json:"draw,omitempty"`
	// TimePercent is how often time passes although something could happen.
	TimePercent int `json:"timePercent,omitempty"`
	// StarvePercent is how often somebody is left waiting for a while.
	StarvePercent int `json:"starvePercent,omitempty"`
	// Priorities gives every actor a rank, and the first in rank goes on as long
	// as it can, but for a few changes. Otherwise all have the same chance.
	Priorities bool `json:"priorities,omitempty"`
}

// FaultKind names one way in which something goes wrong.
type FaultKind string

// Faults of a call to the API, of the cleaner's or of a CNI plugin's.
const (
	ReplyLost     FaultKind = "reply-lost"     // committed, but the caller gets a broken connection
	TimeoutBefore FaultKind = "timeout-before" // not committed; the caller gets a timeout
	Conflict      FaultKind = "conflict"       // 409, Count times in a row
	TooMany       FaultKind = "too-many"       // 429
	ServerError   FaultKind = "server-error"   // 500
	CrashAfter    FaultKind = "crash-after"    // committed, and the caller dies before it knows
	SlowCall      FaultKind = "slow-call"      // it waits in front of the API server, and others overtake it
	LateCall      FaultKind = "late-call"      // committed long after it was made, whether or not the caller still waits
)

// Faults of a cleaner's watch.
const (
	WatchCut     FaultKind = "watch-cut"     // the stream ends
	WatchExpired FaultKind = "watch-expired" // it ends, and what was not delivered is compacted away
	WatchStall   FaultKind = "watch-stall"   // nothing is delivered for a while
	Coalesce     FaultKind = "coalesce"      // stalled, and then expired: the relist shows only the sum
)

// Faults of a cleaner's process.
const (
	StaleRestart FaultKind = "stale-restart" // it starts again and its caches show the past for a while
	PauseCleaner FaultKind = "pause-cleaner" // none of its calls gets through for a while; writes under way are committed after it
	ClockJump    FaultKind = "clock-jump"    // its clock is set forward
	PartialList  FaultKind = "partial-list"  // a list of pods for its cache lacks half of them
	HidePods     FaultKind = "hide-pods"     // nothing that it reads shows any pod for a while
)

// Faults of nodes and of CNI plugins.
const (
	RebootNode      FaultKind = "reboot-node"      // down and up again with the same pods
	PartitionNode   FaultKind = "partition-node"   // its calls do not get through for a while; its pods run on
	RemoveNode      FaultKind = "delete-node"      // a node is removed for good, and a fresh one comes
	OutOfService    FaultKind = "out-of-service"   // a dead node is declared out of service, so its pods go
	DelLost         FaultKind = "del-lost"         // a CNI DEL does not happen
	DelTwice        FaultKind = "del-twice"        // it happens a second time, later
	DelLate         FaultKind = "del-late"         // it waits for a while
	DelStalled      FaultKind = "del-stalled"      // it waits between reading and writing
	AddCrashed      FaultKind = "add-crashed"      // ADD dies between bit and endpoint
	AddStalled      FaultKind = "add-stalled"      // ADD waits between bit and endpoint
	EvictPod        FaultKind = "evict-pod"        // a pod fails and its object stays
	DeletePod       FaultKind = "delete-pod"       // a living pod is force deleted
	ScaleDown       FaultKind = "scale-down"       // one replica less, and later one more again
	ReserveAddress  FaultKind = "reserve-address"  // a ReservedIP sets an address aside, and the next time another one
	RenewMirror     FaultKind = "renew-mirror"     // the mirror of a static pod is deleted and made anew, while that runs on
	DeleteNamespace FaultKind = "delete-namespace" // with all pods, endpoints and networks in it; then it is made anew
	EditNetwork     FaultKind = "edit-network"     // an admin writes a field that nobody else does
	RenewNetwork    FaultKind = "renew-network"    // an admin deletes the network and makes it anew with its bits
	BothGroups      FaultKind = "both-groups"      // the other API group holds an endpoint for a while
	MoveEndpoints   FaultKind = "move-endpoints"   // all endpoints are copied into the other API group, and then a cleaner of this one sees none for a while
)

// SimFault is a fault of a simulation. It is injected at the Nth opportunity,
// counted from 1, and healed after For, or once a call of the words of Until
// was answered.
type SimFault struct {
	Do    FaultKind     `json:"do"`
	On    string        `json:"on,omitempty"` // opportunity: words of a call, or a resource of a watch; empty is any
	Nth   int           `json:"nth"`
	Count int           `json:"count,omitempty"` // of repetitions; 0 is one
	For   time.Duration `json:"forNs,omitempty"`
	Until string        `json:"until,omitempty"`
	Pick  uint64        `json:"pick,omitempty"` // draws whom it hits
}

// Encode returns the simulation as it is stored: indented JSON.
func (s Simulation) Encode() ([]byte, error) {
	data, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encoding simulation: %w", err)
	}
	return append(data, '\n'), nil
}
