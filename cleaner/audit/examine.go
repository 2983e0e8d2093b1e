package audit

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
)

// examplesMax is how many addresses or endpoints a summary names.
const examplesMax = 5

// Examine compares pods, endpoints and bits. The policy is the controller's:
// what it would release is a leak, what it would keep back is held.
func Examine(w World, p ownership.Policy) Report {
	x := newIndex(w, p)
	r := Report{
		SchemaVersion: SchemaVersion, Time: w.Time, Group: w.Group, Unread: w.Unread, Frozen: w.Migration, Migration: w.Migration,
		Pods: len(w.Pods), Endpoints: len(w.Endpoints), Networks: []Row{}, Findings: []Finding{},
	}
	x.examineNetworks(&r)
	x.examineEndpoints(&r)
	r.Findings = append(r.Findings, x.duplicates()...)
	r.Findings = append(r.Findings, x.doubleInterfaces()...)
	for _, m := range w.Malformed {
		r.Findings = append(r.Findings, newFinding(MalformedObject, Finding{
			Detail: fmt.Sprintf("%s %s: %s", m.Resource, objectName(m.Namespace, m.Name), m.Cause)}))
	}
	r.conclude()
	return r
}

func newFinding(k Kind, f Finding) Finding {
	f.Kind, f.Severity, f.Count = k, k.Severity(), max(f.Count, 1)
	return f
}

func objectName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

func compareRefs(a, b danm.NetworkRef) int { return cmp.Compare(a.String(), b.String()) }

// sortedNetworks returns the networks by their text.
func (x *index) sortedNetworks() []*danm.Network {
	return slices.SortedFunc(maps.Values(x.networks), func(a, b *danm.Network) int { return compareRefs(a.Ref(), b.Ref()) })
}

func (x *index) examineNetworks(r *Report) {
	for _, n := range x.sortedNetworks() {
		for _, spec := range n.Pools() {
			pool, err := ipam.Open(ipam.Spec(spec.Fields))
			if err != nil {
				ref := n.Ref()
				r.Findings = append(r.Findings, newFinding(MalformedObject, Finding{
					Network: &ref, NetworkUID: n.UID, Family: spec.Family, Detail: err.Error()}))
				continue
			}
			row, findings := x.examinePool(n, spec.Family, pool)
			r.Networks = append(r.Networks, row)
			r.Findings = append(r.Findings, findings...)
		}
	}
}

// examinePool counts the bits of one family and says which have no endpoint.
func (x *index) examinePool(n *danm.Network, family danm.Family, pool *ipam.Pool) (Row, []Finding) {
	ref := n.Ref()
	row := Row{Network: ref, Family: family, CIDR: pool.Prefix().String()}
	for i := range pool.Size() {
		_, reserved := pool.Reserved(i)
		switch {
		case reserved:
			continue
		case pool.IsSet(i):
			row.InUse++
		case pool.IsDynamic(i):
			row.FreeDynamic++
		}
		row.Size++
	}
	row.Free = row.Size - row.InUse
	finding := func(k Kind, f Finding) Finding {
		f.Network, f.NetworkUID, f.Family = &ref, n.UID, family
		return newFinding(k, f)
	}
	var findings []Finding
	var static, unjudged []string
	why := x.whyUnjudged(ref)
	for _, i := range pool.Allocated() {
		key := claim{ref, pool.Addr(i)}
		switch {
		case len(x.claims[key]) > 0:
		case why != "":
			unjudged = append(unjudged, key.address.String())
		case x.isReservedIP(key):
			row.ReservedIPs++
		case !pool.IsDynamic(i):
			static = append(static, key.address.String())
		case n.IsPaused():
			findings = append(findings, finding(Held, Finding{Address: key.address.String(), Reason: reasonPaused,
				Detail: "allocated, and no endpoint has it, but the network is paused"}))
		default:
			findings = append(findings, finding(OrphanBit, Finding{
				Address: key.address.String(), Detail: "allocated, and no endpoint has it"}))
		}
	}
	if len(unjudged) > 0 {
		findings = append(findings, finding(Held, Finding{Count: len(unjudged), Address: examples(unjudged), Reason: reasonUnjudged,
			Detail: "allocated without a known endpoint, but " + why}))
	}
	if len(static) > 0 {
		findings = append(findings, finding(StaticBit, Finding{Count: len(static), Address: examples(static),
			Detail: "allocated outside the dynamic pool without endpoint: an administrator's reservation, for all that anybody knows"}))
	}
	return row, findings
}

// Reasons to hold that no decision about an owner gives.
const (
	reasonUnjudged = "Unjudged"
	reasonPaused   = "NetworkPaused"
)

// examples names the first few and says how many more there are.
func examples(all []string) string {
	if len(all) <= examplesMax {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:examplesMax], ", "), len(all)-examplesMax)
}

// summary collects what is only told in figures.
type summary struct {
	foreign, outside map[danm.NetworkRef][]string
	legacy           []string
}

func (x *index) examineEndpoints(r *Report) {
	s := summary{foreign: map[danm.NetworkRef][]string{}, outside: map[danm.NetworkRef][]string{}}
	for _, ep := range x.Endpoints {
		r.Findings = append(r.Findings, x.examineEndpoint(ep)...)
		x.summarize(ep, &s)
	}
	r.Findings = append(r.Findings, addressNotes(ForeignAddress, s.foreign, "no bitmap of DANM's covers it: another IPAM gave it and must take it back")...)
	r.Findings = append(r.Findings, addressNotes(OutsidePool, s.outside, "static, outside allocation_pool_v6: has no bit, so DANM itself never notices a duplicate")...)
	if len(s.legacy) > 0 {
		r.Findings = append(r.Findings, newFinding(LegacyEndpoint, Finding{Count: len(s.legacy), Endpoint: examples(s.legacy),
			Detail: "carries no PodUID: the pod of that name is the owner unless it is younger than the endpoint"}))
	}
}

func addressNotes(k Kind, by map[danm.NetworkRef][]string, detail string) []Finding {
	var notes []Finding
	for _, ref := range slices.SortedFunc(maps.Keys(by), compareRefs) {
		notes = append(notes, newFinding(k, Finding{Network: &ref, Count: len(by[ref]), Address: examples(by[ref]), Detail: detail}))
	}
	return notes
}

func (x *index) summarize(ep *danm.Endpoint, s *summary) {
	if ep.Spec.PodUID == "" {
		s.legacy = append(s.legacy, objectName(ep.Namespace, ep.Name))
	}
	ref := ep.Network()
	n := x.networks[ref]
	if n == nil {
		return // without the network nobody knows what covers the address
	}
	addrs, _ := ep.Addresses()
	for _, a := range addrs {
		switch _, _, ok := x.find(ref, a); {
		case ok:
		case isInNet6(n, a):
			s.outside[ref] = append(s.outside[ref], a.String())
		default:
			s.foreign[ref] = append(s.foreign[ref], a.String())
		}
	}
}

// isInNet6 tells whether DANM gives the address out, though only on request.
func isInNet6(n *danm.Network, a netip.Addr) bool {
	prefix, err := netip.ParsePrefix(n.Spec.Options.Net6)
	return err == nil && a.Is6() && prefix.Contains(a)
}

// newEndpointFinding fills in what is known of the endpoint.
func newEndpointFinding(k Kind, ep *danm.Endpoint, reason ownership.Reason, detail string) Finding {
	ref := ep.Network()
	f := Finding{
		Network: &ref, Address: addressText(ep), Endpoint: objectName(ep.Namespace, ep.Name), EndpointUID: ep.UID,
		Pod: objectName(ep.Namespace, ep.Spec.Pod), PodUID: ep.Spec.PodUID, Host: ep.Spec.Host, Reason: string(reason), Detail: detail,
	}
	if addrs, _ := ep.Addresses(); len(addrs) == 1 {
		f.Family = danm.FamilyOf(addrs[0])
	}
	return newFinding(k, f)
}

func addressText(ep *danm.Endpoint) string {
	addrs, _ := ep.Addresses()
	texts := make([]string, len(addrs))
	for i, a := range addrs {
		texts[i] = a.String()
	}
	return strings.Join(texts, ", ")
}

// examineEndpoint says what is wrong with one endpoint.
func (x *index) examineEndpoint(ep *danm.Endpoint) []Finding {
	var findings []Finding
	if _, err := ep.Addresses(); err != nil {
		findings = append(findings, newEndpointFinding(MalformedObject, ep, "", err.Error()))
	}
	_, last := x.decide(ep)
	switch {
	case last.Action == ownership.Release && x.isPaused(ep.Network()):
		findings = append(findings, newEndpointFinding(Held, ep, reasonPaused, x.ownerText(ep, last)+", but the network is paused"))
	case last.Action == ownership.Release:
		findings = append(findings, newEndpointFinding(LeakedEndpoint, ep, last.Reason, x.ownerText(ep, last)))
	case last.Action == ownership.Wait:
		findings = append(findings, newEndpointFinding(Held, ep, last.Reason, x.ownerText(ep, last)))
	case !x.isUsed(ep, last):
		// Its pod is terminating; CNI DEL clears the bit before the endpoint goes.
	case x.lacksNetwork(ep.Network()):
		findings = append(findings, newEndpointFinding(NoNetwork, ep, "", fmt.Sprintf("%s does not exist, and a living pod is on it", ep.Network())))
	default:
		findings = append(findings, x.missingBits(ep)...)
	}
	return findings
}

func (x *index) isPaused(ref danm.NetworkRef) bool {
	n := x.networks[ref]
	return n != nil && n.IsPaused()
}

// lacksNetwork tells whether the network surely does not exist.
func (x *index) lacksNetwork(ref danm.NetworkRef) bool {
	if x.networks[ref] != nil || x.unread[ref.Kind.Resource()] {
		return false
	}
	return !slices.ContainsFunc(x.Malformed, func(m Malformed) bool {
		return m.Resource == ref.Kind.Resource() && m.Namespace == ref.Namespace && m.Name == ref.Name
	})
}

func (x *index) missingBits(ep *danm.Endpoint) []Finding {
	var findings []Finding
	addrs, _ := ep.Addresses()
	for _, a := range addrs {
		if pool, i, ok := x.find(ep.Network(), a); ok && !pool.IsSet(i) {
			f := newEndpointFinding(MissingBit, ep, "", "a living pod has it, and the network marks it free")
			f.Address, f.Family = a.String(), danm.FamilyOf(a)
			findings = append(findings, f)
		}
	}
	return findings
}

// ownerText says in words what a decision to release or to wait rests on.
func (x *index) ownerText(ep *danm.Endpoint, d ownership.Decision) string {
	pod := objectName(ep.Namespace, ep.Spec.Pod)
	found := x.pods[ep.Namespace+"/"+ep.Spec.Pod]
	switch d.Reason {
	case ownership.PodGone:
		return fmt.Sprintf("pod %s does not exist", pod)
	case ownership.PodReplaced:
		return fmt.Sprintf("pod %s is another one now, %s", pod, found.Evidence.UID)
	case ownership.PodCompleted:
		return fmt.Sprintf("pod %s has completed, and its node has not cleaned up", pod)
	case ownership.CompletedAllowance:
		return fmt.Sprintf("pod %s has completed; its node has %s more for its own CNI DEL", pod, d.After.Round(1e9))
	case ownership.NodeNotFenced:
		return fmt.Sprintf("pod %s has ended, but %s", pod, x.nodeText(ep))
	case ownership.PodUnknown:
		if ep.Spec.Pod == "" {
			return "the endpoint names no pod"
		}
		return fmt.Sprintf("pod %s could not be read", pod)
	}
	return string(d.Reason)
}

// nodeText says what is known of the node that ran the owner.
func (x *index) nodeText(ep *danm.Endpoint) string {
	name, node := x.node(ep)
	switch {
	case name == "":
		return fmt.Sprintf("no node is known by its host name %q", ep.Spec.Host)
	case node == nil && x.unread[NodeResource]:
		return fmt.Sprintf("node %s could not be read", name)
	case node == nil:
		return fmt.Sprintf("node %s is deleted", name)
	case node.Evidence.OutOfService:
		return fmt.Sprintf("node %s is tainted out-of-service", name)
	case node.Evidence.Ready:
		return fmt.Sprintf("node %s is Ready", name)
	}
	return fmt.Sprintf("node %s is silent, and neither deleted nor tainted out-of-service", name)
}

// sortedClaims returns the claims by network and address.
func (x *index) sortedClaims() []claim {
	return slices.SortedFunc(maps.Keys(x.claims), func(a, b claim) int {
		return cmp.Or(compareRefs(a.network, b.network), a.address.Compare(b.address))
	})
}

// duplicates finds the addresses that several living pods hold. Which of them
// is right cannot be known from here.
func (x *index) duplicates() []Finding {
	var findings []Finding
	for _, key := range x.sortedClaims() {
		if len(x.claims[key]) < 2 {
			continue
		}
		holders := x.holders(key)
		if len(holders) < 2 {
			continue
		}
		ref := key.network
		f := Finding{Network: &ref, Family: danm.FamilyOf(key.address), Address: key.address.String()}
		list := strings.Join(holders, ", ")
		if x.isShareable(key) {
			f.Detail, f.Count = fmt.Sprintf("shared by a ReservedIP between %d pods: %s", len(holders), list), len(holders)
			findings = append(findings, newFinding(SharedAddress, f))
			continue
		}
		f.Detail = fmt.Sprintf("held by %d living pods: %s", len(holders), list)
		findings = append(findings, newFinding(DuplicateAddress, f))
	}
	return findings
}

// holders returns the living pods that hold an address, sorted.
func (x *index) holders(key claim) []string {
	pods := map[string]bool{}
	for _, ep := range x.claims[key] {
		if _, last := x.decide(ep); x.isUsed(ep, last) {
			pods[ep.Namespace+"/"+ep.Spec.Pod] = true
		}
	}
	return slices.Sorted(maps.Keys(pods))
}

// doubleInterfaces finds pods with two endpoints for one interface: one of
// them belongs to a sandbox that is no more, and nobody can tell which.
func (x *index) doubleInterfaces() []Finding {
	type attachment struct{ pod, uid, name string }
	by := map[attachment][]*danm.Endpoint{}
	for _, ep := range x.Endpoints {
		if _, last := x.decide(ep); ep.Spec.PodUID != "" && x.isUsed(ep, last) {
			key := attachment{ep.Namespace + "/" + ep.Spec.Pod, string(ep.Spec.PodUID), ep.Spec.Interface.Name}
			by[key] = append(by[key], ep)
		}
	}
	var findings []Finding
	for key, eps := range by {
		if len(eps) < 2 {
			continue
		}
		var names, addresses []string
		for _, ep := range eps {
			names, addresses = append(names, objectName(ep.Namespace, ep.Name)), append(addresses, addressText(ep))
		}
		findings = append(findings, newFinding(DoubleInterface, Finding{Address: strings.Join(addresses, ", "), Endpoint: strings.Join(names, ", "),
			Pod: key.pod, PodUID: eps[0].Spec.PodUID, Detail: fmt.Sprintf("%d endpoints for interface %s of pod %s", len(eps), key.name, key.pod)}))
	}
	slices.SortFunc(findings, func(a, b Finding) int { return cmp.Compare(a.Endpoint, b.Endpoint) })
	return findings
}
