package ownership

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Lookup is the outcome of looking for an object.
type Lookup int

// Unknown is the zero value: a read that failed, or was never made, proves
// nothing.
const (
	Unknown Lookup = iota
	NotFound
	Found
)

// Fencing says what a vanished pod object proves about its containers.
type Fencing string

// Contract trusts Kubernetes' contract: whoever force-deletes a pod vouches
// that its containers are gone. Strict does not: while the node may still run
// them, the endpoint is held.
const (
	Contract Fencing = "contract"
	Strict   Fencing = "strict"
)

// ParseFencing returns the fencing policy named s.
func ParseFencing(s string) (Fencing, error) {
	if f := Fencing(s); f == Contract || f == Strict {
		return f, nil
	}
	return "", fmt.Errorf("unknown fencing policy %q: use %s or %s", s, Contract, Strict)
}

// creationSlack covers the resolution of creationTimestamp, one second.
const creationSlack = time.Second

// Policy holds what an operator may choose.
type Policy struct {
	// Quarantine is how long an endpoint must stay a suspect before release.
	Quarantine time.Duration
	// CompletedAllowance is how long a Succeeded or Failed pod's node has for
	// its own CNI DEL before the endpoint becomes a suspect.
	CompletedAllowance time.Duration
	Fencing            Fencing
}

// Endpoint is what is known of the endpoint itself.
type Endpoint struct {
	OwnerUID types.UID // empty if an old DANM wrote it
	Created  time.Time
	// MirrorHash is the config.hash annotation that the owner had when it was
	// last seen; empty if the owner was no mirror pod or was never seen.
	MirrorHash string
}

// Pod is what a look by namespace and name found.
type Pod struct {
	Lookup     Lookup
	UID        types.UID
	Created    time.Time
	Completed  bool      // phase Succeeded or Failed
	Finished   time.Time // since when, if Completed; zero if it cannot be told
	MirrorHash string    // config.hash of a mirror pod, else empty
}

// Node is what is known of the node that ran the owner.
type Node struct {
	Lookup       Lookup // Unknown also when it cannot be told which node it was
	Ready        bool
	OutOfService bool // tainted node.kubernetes.io/out-of-service
}

// mayCleanUp tells whether the node may still perform its own CNI DEL now.
func (n Node) mayCleanUp() bool {
	return n.Lookup == Unknown || n.Lookup == Found && n.Ready
}

// canRun tells whether containers may still run there out of our sight.
func (n Node) canRun() bool {
	return n.Lookup == Unknown || n.Lookup == Found && !n.Ready && !n.OutOfService
}

// Evidence is everything a decision rests on.
type Evidence struct {
	Endpoint     Endpoint
	Pod          Pod
	Node         Node
	SuspectSince time.Time // zero if it was no suspect before
	// Awaited tells that the pod found is the owner's successor by name, cannot
	// start because it asks for this very static address, and that the address
	// has been allocated without a gap since the owner was seen alive.
	Awaited bool
}

// Action is what to do with an endpoint.
type Action int

// Keep: it has an owner. Wait: it is a suspect, or held; look again. Release:
// on cached evidence this only means that a live read is worth making.
const (
	Wait Action = iota
	Keep
	Release
)

// String returns the action's name.
func (a Action) String() string { return [...]string{"Wait", "Keep", "Release"}[a] }

// Reason explains a decision, for logs, events and metrics.
type Reason string

// The reasons for each action.
const (
	OwnerAlive         Reason = "OwnerAlive"         // Keep: same UID, not completed
	MirrorAlive        Reason = "MirrorAlive"        // Keep: the static pod still runs under another API UID
	LegacyOwnerAlive   Reason = "LegacyOwnerAlive"   // Keep: no PodUID, and the pod is old enough to be the owner
	PodUnknown         Reason = "PodUnknown"         // Wait: the pod could not be read
	NodeNotFenced      Reason = "NodeNotFenced"      // Wait: the node may still run the containers
	CompletedAllowance Reason = "CompletedAllowance" // Wait: CNI DEL may still come
	Quarantined        Reason = "Quarantined"        // Wait: suspect for too short a time
	PodGone            Reason = "PodGone"            // Release: no pod of that name
	PodReplaced        Reason = "PodReplaced"        // Release: another pod has the name now
	PodCompleted       Reason = "PodCompleted"       // Release: Succeeded or Failed, and its node did not clean up
)

// Decision is the outcome. After says when to look again, for Wait; zero means
// when the evidence changes. Suspect tells whether the quarantine runs.
type Decision struct {
	Action  Action
	Reason  Reason
	Suspect bool
	After   time.Duration
}

// Decide applies the release rules R1, R2 and R8 to the evidence. It is used
// twice for each release, on cached and then on live evidence.
func Decide(e Evidence, p Policy, now time.Time) Decision {
	if e.Pod.Lookup == Unknown {
		return Decision{Action: Wait, Reason: PodUnknown}
	}
	if reason, ok := livingOwner(e); ok {
		return Decision{Action: Keep, Reason: reason}
	}
	reason := whyGone(e)
	if reason == PodCompleted {
		if left, ok := allowanceLeft(e.Pod, p, now); ok {
			return Decision{Action: Wait, Reason: CompletedAllowance, After: left}
		}
	}
	if (reason == PodCompleted || p.Fencing == Strict) && e.Node.canRun() {
		return Decision{Action: Wait, Reason: NodeNotFenced}
	}
	if reason == PodReplaced && e.Awaited && !e.Node.mayCleanUp() {
		// The quarantine is there for views that are behind and for a CNI DEL on
		// its way. A successor's UID cannot be an old view of its predecessor, and
		// the node is silent; waiting would only keep the successor down.
		return Decision{Action: Release, Reason: reason, Suspect: true}
	}
	return afterQuarantine(e, p, now, reason)
}

// livingOwner returns why the pod found is the living owner, or false.
func livingOwner(e Evidence) (Reason, bool) {
	pod := e.Pod
	switch {
	case pod.Lookup != Found:
		return "", false
	case pod.MirrorHash != "" && isSameMirror(e):
		// The API object of a static pod is replaced, with another UID, while
		// its containers run on. Only another config.hash means a new pod.
		return MirrorAlive, true
	case pod.Completed:
		return "", false
	case e.Endpoint.OwnerUID == "" && !isYounger(e):
		return LegacyOwnerAlive, true
	case e.Endpoint.OwnerUID != "" && pod.UID == e.Endpoint.OwnerUID:
		// Pending included: a rebooted node sends Running pods back to Pending.
		return OwnerAlive, true
	}
	return "", false
}

// isSameMirror assumes the best when the owner's hash was never seen: holding
// an address too long is harmless.
func isSameMirror(e Evidence) bool {
	return !e.Pod.Completed && (e.Endpoint.MirrorHash == "" || e.Endpoint.MirrorHash == e.Pod.MirrorHash)
}

// isYounger tells whether the pod was surely created after the endpoint, so
// that it cannot be the owner of an endpoint that carries no UID.
func isYounger(e Evidence) bool {
	return e.Pod.Created.After(e.Endpoint.Created.Add(creationSlack))
}

func whyGone(e Evidence) Reason {
	switch {
	case e.Pod.Lookup == NotFound:
		return PodGone
	case e.Endpoint.OwnerUID == "" && isYounger(e), e.Endpoint.OwnerUID != "" && e.Pod.UID != e.Endpoint.OwnerUID:
		return PodReplaced
	default:
		return PodCompleted
	}
}

// allowanceLeft returns how long the node of a completed pod may still take.
// An unknown end counts as just now.
func allowanceLeft(pod Pod, p Policy, now time.Time) (time.Duration, bool) {
	finished := pod.Finished
	if finished.IsZero() {
		finished = now
	}
	left := finished.Add(p.CompletedAllowance).Sub(now)
	return left, left > 0
}

func afterQuarantine(e Evidence, p Policy, now time.Time, reason Reason) Decision {
	if e.SuspectSince.IsZero() {
		return Decision{Action: Wait, Reason: Quarantined, Suspect: true, After: p.Quarantine}
	}
	if left := e.SuspectSince.Add(p.Quarantine).Sub(now); left > 0 {
		return Decision{Action: Wait, Reason: Quarantined, Suspect: true, After: left}
	}
	return Decision{Action: Release, Reason: reason, Suspect: true}
}
