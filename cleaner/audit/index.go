package audit

import (
	"fmt"
	"net/netip"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
)

// claim is an address of a network.
type claim struct {
	network danm.NetworkRef
	address netip.Addr
}

// index answers the questions that the rules ask of a world.
type index struct {
	World
	policy   ownership.Policy
	unread   map[string]bool
	pods     map[string]*Pod // by namespace/name
	nodes    map[string]*Node
	hosts    map[string]*Node
	networks map[danm.NetworkRef]*danm.Network
	pools    map[danm.NetworkRef]map[danm.Family]*ipam.Pool
	claims   map[claim][]*danm.Endpoint
	// blind says, by network, which endpoint's claim could not be read;
	// blindNamespace the same for endpoints that could not be read at all.
	// The empty namespace stands for any.
	blind          map[danm.NetworkRef]string
	blindNamespace map[string]string
}

func newIndex(w World, p ownership.Policy) *index {
	x := &index{
		World: w, policy: p, unread: map[string]bool{}, pods: map[string]*Pod{}, nodes: map[string]*Node{}, hosts: map[string]*Node{},
		networks: map[danm.NetworkRef]*danm.Network{}, pools: map[danm.NetworkRef]map[danm.Family]*ipam.Pool{},
		claims: map[claim][]*danm.Endpoint{}, blind: map[danm.NetworkRef]string{}, blindNamespace: map[string]string{},
	}
	for _, u := range w.Unread {
		x.unread[u.Resource] = true
	}
	for i := range w.Pods {
		x.pods[w.Pods[i].Namespace+"/"+w.Pods[i].Name] = &w.Pods[i]
	}
	for i := range w.Nodes {
		x.nodes[w.Nodes[i].Name] = &w.Nodes[i]
		x.hosts[w.Nodes[i].Host] = &w.Nodes[i]
	}
	delete(x.hosts, "") // no hostname label
	for _, n := range w.Networks {
		x.networks[n.Ref()] = n
		x.pools[n.Ref()] = openPools(n)
	}
	x.indexClaims()
	return x
}

// openPools parses what can be parsed; rows reports the rest.
func openPools(n *danm.Network) map[danm.Family]*ipam.Pool {
	pools := map[danm.Family]*ipam.Pool{}
	for _, spec := range n.Pools() {
		if pool, err := ipam.Open(ipam.Spec(spec.Fields)); err == nil {
			pools[spec.Family] = pool
		}
	}
	return pools
}

func (x *index) indexClaims() {
	for _, ep := range x.Endpoints {
		addrs, err := ep.Addresses()
		if err != nil {
			x.blind[ep.Network()] = err.Error()
		}
		for _, a := range addrs {
			key := claim{ep.Network(), a}
			x.claims[key] = append(x.claims[key], ep)
		}
	}
	for _, m := range x.Malformed {
		if m.Resource == danm.EndpointResource {
			why := fmt.Sprintf("endpoint %s/%s cannot be read", m.Namespace, m.Name)
			x.blindNamespace[m.Namespace], x.blindNamespace[""] = why, why
		}
	}
}

// find returns the bit of an address, or false if no bitmap covers it.
func (x *index) find(ref danm.NetworkRef, a netip.Addr) (*ipam.Pool, int, bool) {
	pool := x.pools[ref][danm.FamilyOf(a)]
	if pool == nil {
		return nil, 0, false
	}
	i, ok := pool.Index(a)
	return pool, i, ok
}

// whyUnjudged says why no bit of the network can be called an orphan, or "".
// One claim that nobody can read could be for any bit.
func (x *index) whyUnjudged(ref danm.NetworkRef) string {
	switch {
	case x.unread[danm.EndpointResource]:
		return "endpoints could not be listed"
	case x.unread[danm.ReservedIPResource]:
		return "ReservedIPs could not be listed"
	case x.blind[ref] != "":
		return x.blind[ref]
	}
	return x.blindNamespace[ref.Namespace]
}

// isReservedIP tells whether a ReservedIP object sets the address aside.
func (x *index) isReservedIP(c claim) bool {
	for _, u := range x.ReservedIPs {
		if danm.ReservesAddress(u, c.network, c.address) {
			return true
		}
	}
	return false
}

// isShareable tells whether a ReservedIP object lets several pods hold the
// address.
func (x *index) isShareable(c claim) bool {
	for _, u := range x.ReservedIPs {
		if danm.SharesAddress(u, c.network, c.address) {
			return true
		}
	}
	return false
}

// node returns the node that ran the owner, by the rules of the controller: a
// host that matches no node is no evidence of a deleted node. The name is empty
// if it cannot be told.
func (x *index) node(ep *danm.Endpoint) (name string, found *Node) {
	pod := x.pods[ep.Namespace+"/"+ep.Spec.Pod]
	if pod != nil && pod.Evidence.UID == ep.Spec.PodUID && pod.NodeName != "" {
		return pod.NodeName, x.nodes[pod.NodeName]
	}
	if n := x.nodes[ep.Spec.Host]; n != nil {
		return n.Name, n
	}
	if n := x.hosts[ep.Spec.Host]; n != nil {
		return n.Name, n
	}
	return "", nil
}

// evidence is what the controller would decide on, had it started just now.
func (x *index) evidence(ep *danm.Endpoint) ownership.Evidence {
	e := ownership.Evidence{Endpoint: ownership.Endpoint{OwnerUID: ep.Spec.PodUID, Created: ep.CreationTimestamp.Time}}
	if pod := x.pods[ep.Namespace+"/"+ep.Spec.Pod]; pod != nil {
		e.Pod = pod.Evidence
	} else if ep.Spec.Pod != "" && !x.unread[PodResource] {
		e.Pod.Lookup = ownership.NotFound
	}
	name, node := x.node(ep)
	switch {
	case node != nil:
		e.Node = node.Evidence
	case name != "" && !x.unread[NodeResource]:
		e.Node.Lookup = ownership.NotFound
	}
	return e
}

// decide returns what the controller does about the endpoint now, and what it
// does when nothing changes until the quarantine is over.
func (x *index) decide(ep *danm.Endpoint) (first, last ownership.Decision) {
	e := x.evidence(ep)
	first = ownership.Decide(e, x.policy, x.Time)
	e.SuspectSince = x.Time.Add(-x.policy.Quarantine)
	return first, ownership.Decide(e, x.policy, x.Time)
}

// isUsed tells whether a living pod that nobody has begun to end has the
// endpoint.
func (x *index) isUsed(ep *danm.Endpoint, last ownership.Decision) bool {
	pod := x.pods[ep.Namespace+"/"+ep.Spec.Pod]
	return last.Action == ownership.Keep && pod != nil && pod.isVouching()
}

// isUnclaimed tells whether the address is allocated although no endpoint has
// it, it can belong to a pod, and no ReservedIP sets it aside.
func (x *index) isUnclaimed(c claim) bool {
	pool, i, ok := x.find(c.network, c.address)
	if !ok || !pool.IsSet(i) || len(x.claims[c]) > 0 {
		return false
	}
	_, reserved := pool.Reserved(i)
	return !reserved && !x.isReservedIP(c)
}
