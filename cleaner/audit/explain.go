package audit

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
)

// ErrNotFound is returned by the explanations of what is not there.
var ErrNotFound = errors.New("nothing found")

// Explanation says why addresses are held or would be released.
type Explanation struct {
	SchemaVersion int                   `json:"schemaVersion"`
	Complete      bool                  `json:"complete"`
	Unread        []Unread              `json:"unread,omitempty"`
	Frozen        string                `json:"frozen,omitempty"`
	Endpoints     []EndpointExplanation `json:"endpoints"`
	Addresses     []AddressExplanation  `json:"addresses"`
}

// EndpointExplanation is the evidence on one endpoint and what follows.
type EndpointExplanation struct {
	Endpoint        string          `json:"endpoint"`
	UID             types.UID       `json:"uid"`
	ResourceVersion string          `json:"resourceVersion"`
	Created         time.Time       `json:"created"`
	Interface       string          `json:"interface"`
	Network         danm.NetworkRef `json:"network"`
	Owner           string          `json:"owner"`
	OwnerUID        types.UID       `json:"ownerUID,omitempty"`
	PodFound        string          `json:"podFound"`
	Node            string          `json:"node"`
	Action          string          `json:"action"` // Keep, Wait or Release, once the quarantine is over
	Reason          string          `json:"reason"`
	// Quarantine is what a cleaner that sees the endpoint now for the first
	// time still waits; one that has run for longer waits less.
	Quarantine string `json:"quarantine,omitempty"`
	Conclusion string `json:"conclusion"`
}

// AddressExplanation is the state of one address and what follows.
type AddressExplanation struct {
	Address         string          `json:"address"`
	Network         danm.NetworkRef `json:"network"`
	ResourceVersion string          `json:"resourceVersion,omitempty"` // of the network
	Bit             string          `json:"bit"`
	ClaimedBy       []string        `json:"claimedBy,omitempty"`
	Conclusion      string          `json:"conclusion"`
}

// ExplainEndpoint explains one endpoint and its addresses.
func ExplainEndpoint(w World, p ownership.Policy, namespace, name string) (Explanation, error) {
	return explainEndpoints(w, p, fmt.Sprintf("no endpoint %s/%s", namespace, name), func(ep *danm.Endpoint) bool {
		return ep.Namespace == namespace && ep.Name == name
	})
}

// ExplainPod explains the endpoints of all pods that had the name.
func ExplainPod(w World, p ownership.Policy, namespace, name string) (Explanation, error) {
	return explainEndpoints(w, p, fmt.Sprintf("no endpoint of a pod %s/%s", namespace, name), func(ep *danm.Endpoint) bool {
		return ep.Namespace == namespace && ep.Spec.Pod == name
	})
}

func explainEndpoints(w World, p ownership.Policy, nothing string, match func(*danm.Endpoint) bool) (Explanation, error) {
	x := newIndex(w, p)
	e := x.newExplanation()
	for _, ep := range w.Endpoints {
		if !match(ep) {
			continue
		}
		e.Endpoints = append(e.Endpoints, x.explainEndpoint(ep))
		addrs, _ := ep.Addresses()
		for _, a := range addrs {
			e.Addresses = append(e.Addresses, x.explainAddress(claim{ep.Network(), a}))
		}
	}
	if len(e.Endpoints) == 0 {
		return e, fmt.Errorf("%w: %s", ErrNotFound, nothing)
	}
	return e, nil
}

// ExplainAddress explains an address in every network that covers it, and the
// endpoints that have it.
func ExplainAddress(w World, p ownership.Policy, a netip.Addr) (Explanation, error) {
	x := newIndex(w, p)
	e := x.newExplanation()
	a = a.Unmap().WithZone("")
	keys := map[claim]bool{}
	for ref := range x.networks {
		if _, _, ok := x.find(ref, a); ok {
			keys[claim{ref, a}] = true
		}
	}
	for key := range x.claims {
		if key.address == a {
			keys[key] = true
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(keys), func(a, b claim) int { return compareRefs(a.network, b.network) }) {
		for _, ep := range x.claims[key] {
			e.Endpoints = append(e.Endpoints, x.explainEndpoint(ep))
		}
		e.Addresses = append(e.Addresses, x.explainAddress(key))
	}
	if len(keys) == 0 {
		return e, fmt.Errorf("%w: no network covers %s and no endpoint has it", ErrNotFound, a)
	}
	return e, nil
}

func (x *index) newExplanation() Explanation {
	return Explanation{
		SchemaVersion: SchemaVersion, Complete: len(x.Unread) == 0, Unread: x.Unread, Frozen: x.Migration,
		Endpoints: []EndpointExplanation{}, Addresses: []AddressExplanation{},
	}
}

func (x *index) explainEndpoint(ep *danm.Endpoint) EndpointExplanation {
	first, last := x.decide(ep)
	e := EndpointExplanation{
		Endpoint: objectName(ep.Namespace, ep.Name), UID: ep.UID, ResourceVersion: ep.ResourceVersion,
		Created: ep.CreationTimestamp.UTC(), Interface: ep.Spec.Interface.Name, Network: ep.Network(),
		Owner: objectName(ep.Namespace, ep.Spec.Pod), OwnerUID: ep.Spec.PodUID,
		PodFound: x.podText(ep), Node: x.nodeStateText(ep), Action: last.Action.String(), Reason: string(last.Reason),
	}
	switch {
	case last.Action == ownership.Keep:
		e.Conclusion = "kept: its owner is alive"
	case last.Action == ownership.Wait:
		e.Conclusion = "held: " + x.ownerText(ep, last)
	case x.isPaused(ep.Network()):
		e.Conclusion = "held: " + x.ownerText(ep, last) + ", but the network is paused"
	default:
		e.Quarantine = fmt.Sprintf("%s, of which %s is left to a cleaner that sees it now for the first time", x.policy.Quarantine, first.After)
		e.Conclusion = "would be released when the quarantine is over: " + x.ownerText(ep, last)
	}
	return e
}

// podText says which pod has the owner's name now.
func (x *index) podText(ep *danm.Endpoint) string {
	pod := x.pods[ep.Namespace+"/"+ep.Spec.Pod]
	switch {
	case pod == nil && x.unread[PodResource]:
		return "unknown, pods could not be listed"
	case pod == nil:
		return "none of that name"
	}
	state := pod.Phase
	if pod.Terminating {
		state += ", terminating"
	}
	return fmt.Sprintf("UID %s, %s, created %s, node %q, resourceVersion %s", pod.Evidence.UID, state,
		pod.Evidence.Created.UTC().Format(time.RFC3339), pod.NodeName, pod.ResourceVersion)
}

func (x *index) nodeStateText(ep *danm.Endpoint) string {
	text := x.nodeText(ep)
	if _, node := x.node(ep); node != nil {
		text += ", resourceVersion " + node.ResourceVersion
	}
	return text
}

func (x *index) explainAddress(key claim) AddressExplanation {
	e := AddressExplanation{Address: key.address.String(), Network: key.network}
	for _, ep := range x.claims[key] {
		e.ClaimedBy = append(e.ClaimedBy, objectName(ep.Namespace, ep.Name))
	}
	if n := x.networks[key.network]; n != nil {
		e.ResourceVersion = n.ResourceVersion
	}
	pool, i, ok := x.find(key.network, key.address)
	if !ok {
		e.Bit = "none"
		e.Conclusion = "no readable bitmap covers it: the endpoint may go, no bit is touched"
		return e
	}
	state := map[bool]string{true: "set", false: "clear"}[pool.IsSet(i)]
	e.Bit = fmt.Sprintf("%d of %s, %s", i, pool.Prefix(), state)
	reserved, isReserved := pool.Reserved(i)
	why := x.whyUnjudged(key.network)
	switch {
	case isReserved:
		e.Conclusion = "never released: " + reserved
	case len(e.ClaimedBy) > 0 && pool.IsSet(i):
		e.Conclusion = "stays allocated as long as an endpoint has it"
	case len(e.ClaimedBy) > 0:
		e.Conclusion = "marked free although an endpoint has it; set again if the owner is alive"
	case !pool.IsSet(i):
		e.Conclusion = "free"
	case why != "":
		e.Conclusion = "held: " + why
	case x.isReservedIP(key):
		e.Conclusion = "held: a ReservedIP sets it aside"
	case !pool.IsDynamic(i):
		e.Conclusion = "held: outside the dynamic pool, an administrator's reservation for all that anybody knows"
	case x.isPaused(key.network):
		e.Conclusion = "held: the network is paused"
	default:
		e.Conclusion = "would be released once no endpoint has had it for the whole orphan quarantine"
	}
	return e
}
