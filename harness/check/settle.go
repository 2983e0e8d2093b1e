package check

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// snapshotViolationsMax bounds how many new violations of one snapshot are
// told. The rest is counted.
const snapshotViolationsMax = 20

// settlement judges one snapshot.
type settlement struct {
	*judge
	*history.Snapshot
	lane    *history.Lane
	network danm.NetworkRef
	record  uint64
	time    time.Time

	pods     map[string]*history.SnapshotPod // by UID
	bits     map[netip.Addr]bool
	reserved map[netip.Addr]bool
	holders  map[netip.Addr][]*history.SnapshotEndpoint
	owned    map[string]int // endpoints by pod UID

	found   []keyed
	pending []string // what was not back, which is not the cleaner's doing
}

type keyed struct {
	key string
	v   Violation
}

// checkConvergence judges every snapshot. What is still wrong in the next one
// is told once, with the number of snapshots that show it.
func (j *judge) checkConvergence(records []history.Record) {
	told := map[string]*Violation{}
	repeats := map[string]int{}
	var order []*Violation
	for i := range records {
		r := &records[i]
		if r.Snapshot == nil {
			continue
		}
		s := j.newSettlement(r)
		if s == nil {
			continue
		}
		s.judgeAll()
		s.compareWithModel()
		order = append(order, s.tellNew(told, repeats)...)
	}
	for key, v := range told {
		if n := repeats[key]; n > 0 {
			v.Evidence = append(v.Evidence, fmt.Sprintf("still so in %d later snapshots", n))
		}
	}
	for _, v := range order {
		j.accuse(*v)
	}
}

func (j *judge) newSettlement(r *history.Record) *settlement {
	snap := r.Snapshot
	lane := j.lanes.byGeneration[generation{snap.Lane, snap.Generation}]
	if lane == nil {
		j.unknownf(HistoryComplete, "record %d is a snapshot of %s generation %d, which was never announced", r.N, snap.Lane, snap.Generation)
		return nil
	}
	s := &settlement{
		judge: j, Snapshot: snap, lane: lane, network: networkOf(lane), record: r.N, time: r.Time,
		pods: map[string]*history.SnapshotPod{}, bits: map[netip.Addr]bool{}, reserved: map[netip.Addr]bool{},
		holders: map[netip.Addr][]*history.SnapshotEndpoint{}, owned: map[string]int{},
	}
	s.index()
	return s
}

func (s *settlement) index() {
	for i := range s.Pods {
		s.pods[s.Pods[i].UID] = &s.Pods[i]
	}
	for _, b := range s.Bits {
		if addr, ok := s.parse(b.Address); ok {
			s.bits[addr] = true
		}
	}
	for _, text := range s.Reserved {
		if addr, ok := s.parse(text); ok {
			s.reserved[addr] = true
		}
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		s.owned[e.OwnerUID()]++
		for _, text := range e.Addresses {
			if addr, ok := s.parse(text); ok {
				s.holders[addr] = append(s.holders[addr], e)
			}
		}
	}
}

// parse reads an address of the snapshot. One that cannot be read takes part
// in no set, so the sets cannot be trusted.
func (s *settlement) parse(text string) (netip.Addr, bool) {
	addr, ok, err := danm.ParseAddress(text)
	if err != nil || !ok {
		s.unknownf(HistoryComplete, "the snapshot in record %d holds %q, which is no address", s.record, text)
		return netip.Addr{}, false
	}
	return addr, true
}

func (s *settlement) judgeAll() {
	s.count(Convergence)
	if got, want := len(s.Pods), s.lane.Replicas; got != want {
		s.pending = append(s.pending, fmt.Sprintf("%d pods where StatefulSet %s asks for %d", got, s.lane.StatefulSet, want))
	}
	s.judgePods()
	s.judgeEndpoints()
	s.judgeBits()
	s.judgeRuntime()
	s.judgeUnsettled()
}

// judgeUnsettled decides on a lane that was not ready for judgement. If the
// sets differ, it is the cleaner that did not bring them together. If they
// agree and only pods are missing, it is not known what would have come.
func (s *settlement) judgeUnsettled() {
	switch {
	case s.Settled && len(s.pending) == 0:
	case len(s.found) > 0 && !s.Settled:
		s.add(fmt.Sprintf("unsettled %d", s.Iteration), Violation{
			Blame:   s.blameOfAll(),
			Message: fmt.Sprintf("%s did not settle after iteration %d: %s", s.lane.Name, s.Iteration, orUnstated(s.Pending)),
		})
	case len(s.found) == 0:
		reasons := slices.Concat(s.pending, []string{orUnstated(s.Pending)})
		s.unknownf(Convergence, "%s did not settle after iteration %d (record %d): %s", s.lane.Name, s.Iteration, s.record, strings.Join(reasons, "; "))
	}
}

// blameOfAll is the cleaner's as soon as anything is.
func (s *settlement) blameOfAll() Blame {
	for _, f := range s.found {
		if f.v.Blame == BlameCleaner {
			return BlameCleaner
		}
	}
	return s.found[0].v.Blame
}

func orUnstated(reason string) string {
	if reason == "" {
		return "no reason is stated"
	}
	return reason
}

func (s *settlement) judgePods() {
	names := map[string]bool{}
	for i := range s.Pods {
		p := &s.Pods[i]
		s.count(Convergence)
		v := Violation{Pod: p.Namespace + "/" + p.Name, PodUID: p.UID}
		if names[v.Pod] {
			s.unknownf(HistoryComplete, "the snapshot in record %d lists pod %s twice", s.record, v.Pod)
		}
		names[v.Pod] = true
		if state := unreadiness(p); state != "" {
			s.pending = append(s.pending, fmt.Sprintf("pod %s (uid %s) is %s", p.Name, p.UID, state))
		}
		if got := s.owned[p.UID]; got != p.Interfaces && !s.isUnattached(p, got) {
			s.add(fmt.Sprintf("owned %s %d", p.UID, got), s.wrongNumber(v, p, got))
		}
	}
}

// isUnattached tells whether a pod lacks endpoints because it never got so far.
// That it does not run is noted anyway.
func (s *settlement) isUnattached(p *history.SnapshotPod, got int) bool {
	return got < p.Interfaces && unreadiness(p) != "" && s.model.lastDeletedOf(p.UID) == nil
}

// unreadiness says why a pod does not count as running, or nothing.
func unreadiness(p *history.SnapshotPod) string {
	switch {
	case p.Terminating:
		return "still terminating"
	case p.Phase != "Running":
		return "in phase " + p.Phase
	case !p.Ready:
		return "not ready"
	default:
		return ""
	}
}

func (s *settlement) wrongNumber(v Violation, p *history.SnapshotPod, got int) Violation {
	v.Message = fmt.Sprintf("pod %s (uid %s) has %d endpoints where its %d interfaces need one each", p.Name, p.UID, got, p.Interfaces)
	if got > p.Interfaces {
		return s.surplus(v, p)
	}
	e := s.model.lastDeletedOf(p.UID)
	if e == nil {
		return v
	}
	v.Message += fmt.Sprintf("; %s deleted %s (rv %d)", userOf(e.deleted), e, e.deleted.RV)
	v.Endpoint, v.Network = e.namespace+"/"+e.name, e.network.String()
	if len(e.addresses) > 0 {
		v.Address = e.addresses[0].String()
	}
	v.Evidence = tell(endpointScenes(e))
	v.Writer, v.RV, v.Record = e.deleted.user(), e.deleted.RV, e.deleted.record
	// A cleaner can heal everything else, but it cannot attach a pod again.
	v.Blame = s.blame(v.Writer)
	return v
}

// surplus blames whoever wrote the last endpoint of a living pod that has too
// many. A cleaner must keep them all: each carries the UID of a living owner, and
// which of them its present sandbox uses, only the CNI knows.
func (s *settlement) surplus(v Violation, p *history.SnapshotPod) Violation {
	e := s.model.lastCreatedOf(p.UID)
	if e == nil {
		return v
	}
	v.Message += fmt.Sprintf("; the last, %s, is by %s (rv %d)", e, userOf(e.created), e.created.RV)
	v.Endpoint, v.Network = e.namespace+"/"+e.name, e.network.String()
	v.Evidence = tell(endpointScenes(e))
	v.Writer, v.RV, v.Record = e.created.user(), e.created.RV, e.created.record
	v.Blame = s.blame(v.Writer)
	return v
}

func (s *settlement) judgeEndpoints() {
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		s.count(Convergence)
		if s.pods[e.OwnerUID()] == nil {
			s.add("left "+e.UID, s.leftOver(e))
		}
		s.judgeFamilies(e)
	}
}

func (s *settlement) leftOver(e *history.SnapshotEndpoint) Violation {
	v := s.of(e)
	v.Message = fmt.Sprintf("DanmEp %s/%s of %s (uid %s) is left over although that pod is gone: nobody released it", e.Namespace, e.Name, e.Pod, e.OwnerUID())
	if known := s.model.endpoints[e.UID]; known != nil {
		v.Evidence = tell(endpointScenes(known))
	}
	if p := s.model.pods[e.OwnerUID()]; p != nil {
		v.Evidence = append(v.Evidence, tell([]scene{written(p.deleted, "its pod was deleted")})...)
	}
	return v
}

func (s *settlement) of(e *history.SnapshotEndpoint) Violation {
	v := Violation{
		Pod: e.Namespace + "/" + e.Pod, PodUID: e.OwnerUID(),
		Endpoint: e.Namespace + "/" + e.Name, Network: s.network.String(),
	}
	if len(e.Addresses) > 0 {
		v.Address = e.Addresses[0]
	}
	return v
}

// judgeFamilies holds an endpoint's addresses against the lane's families and
// the bits.
func (s *settlement) judgeFamilies(e *history.SnapshotEndpoint) {
	families := map[danm.Family]bool{}
	for _, text := range e.Addresses {
		addr, ok, err := danm.ParseAddress(text)
		if err != nil || !ok {
			continue // index reports it
		}
		families[danm.FamilyOf(addr)] = true
		s.count(Convergence)
		if !s.bits[addr] && !s.reserved[addr] {
			s.add("bit "+addr.String()+" "+e.UID, s.notAllocated(e, addr))
		}
	}
	if families[danm.IPv4] != s.lane.IPv4 || families[danm.IPv6] != s.lane.IPv6 {
		v := s.of(e)
		v.Message = fmt.Sprintf("DanmEp %s/%s of %s has addresses %v, which are not of the families of %s", e.Namespace, e.Name, e.Pod, e.Addresses, s.lane.Name)
		s.add("families "+e.UID, v)
	}
}

func (s *settlement) notAllocated(e *history.SnapshotEndpoint, addr netip.Addr) Violation {
	v := s.of(e)
	v.Address = addr.String()
	v.Message = fmt.Sprintf("%s of %s is not allocated although DanmEp %s/%s of %s (uid %s) has it", addr, s.network, e.Namespace, e.Name, e.Pod, e.OwnerUID())
	if known := s.model.endpoints[e.UID]; known != nil {
		v.Evidence = tell(append(endpointScenes(known), s.bitScenes(known, addr)...))
	}
	clear := s.changeUntil(addr, false)
	if clear == nil {
		return v
	}
	v.Message += fmt.Sprintf("; %s cleared it (rv %d)", userOf(clear), clear.RV)
	v.Writer, v.RV, v.Record = clear.user(), clear.RV, clear.record
	return v
}

// changeUntil returns the last transition of a bit that may lie before the
// snapshot.
func (s *settlement) changeUntil(addr netip.Addr, set bool) *write {
	changes := s.model.network(s.network).address(addr).changes
	for _, c := range slices.Backward(changes) {
		if c.set == set && !c.earliest.After(s.time) {
			return c.write
		}
	}
	return nil
}

func (s *settlement) judgeBits() {
	for _, b := range s.Bits {
		addr, ok, err := danm.ParseAddress(b.Address)
		if err != nil || !ok {
			continue // index reports it
		}
		s.count(Convergence)
		switch holders := s.holders[addr]; {
		case len(holders) == 0 && !s.reserved[addr]:
			s.add("leak "+addr.String(), s.leaked(addr))
		case len(holders) > 1:
			s.add("twice "+addr.String(), s.doublyHeld(addr, holders))
		}
	}
	for _, e := range s.Endpoints { // an address without a bit may be held twice too
		for _, text := range e.Addresses {
			addr, ok, err := danm.ParseAddress(text)
			if err == nil && ok && !s.bits[addr] && len(s.holders[addr]) > 1 {
				s.add("twice "+addr.String(), s.doublyHeld(addr, s.holders[addr]))
			}
		}
	}
}

func (s *settlement) leaked(addr netip.Addr) Violation {
	v := Violation{
		Network: s.network.String(), Address: addr.String(),
		Message: fmt.Sprintf("%s of %s is allocated although no endpoint has it: nobody released it", addr, s.network),
	}
	a := s.model.network(s.network).address(addr)
	var scenes []scene
	if len(a.claims) > 0 {
		last := a.claims[len(a.claims)-1]
		v.Pod, v.PodUID, v.Endpoint = last.namespace+"/"+last.pod, last.podUID, last.namespace+"/"+last.name
		scenes = endpointScenes(last)
	}
	set := s.changeUntil(addr, true)
	scenes = append(scenes, written(set, addr.String()+" was set last"))
	v.Evidence = tell(scenes)
	return v
}

func (s *settlement) doublyHeld(addr netip.Addr, holders []*history.SnapshotEndpoint) Violation {
	v := s.of(holders[0])
	v.Address = addr.String()
	v.Message = fmt.Sprintf("%s of %s is held by %d endpoints, of %s (uid %s) and %s (uid %s)", addr, s.network, len(holders),
		holders[0].Pod, holders[0].OwnerUID(), holders[1].Pod, holders[1].OwnerUID())
	living := slices.DeleteFunc(slices.Clone(holders), func(e *history.SnapshotEndpoint) bool { return s.pods[e.OwnerUID()] == nil })
	if len(living) > 1 {
		v.Blame = s.blameForSharing(addr, s.model.endpoints[living[0].UID], s.model.endpoints[living[1].UID])
	}
	return v
}

// blameForSharing finds who let two living pods have one address. A cleaner has
// to report that and must not heal it, because it cannot know which is right.
func (s *settlement) blameForSharing(addr netip.Addr, first, second *endpoint) Blame {
	if first == nil || second == nil {
		return BlameOther // the model lacks what was read, which is reported
	}
	if second.created.place < first.created.place {
		first, second = second, first
	}
	if clear := s.enablingClear(holding{s.network, addr}, first, second); clear != nil {
		return s.blame(clear.user())
	}
	return BlameCNI
}

// add keeps a violation of this snapshot. Whoever broke it, the cleaner had to
// heal it, unless nobody but a CNI could or it was told to write nothing.
func (s *settlement) add(key string, v Violation) {
	v.Invariant, v.Lane = Convergence, s.lane.Name
	switch {
	case s.run.DryRun:
		v.Blame = BlameOther
	case v.Blame == "":
		v.Blame = BlameCleaner
	}
	if v.Network == "" {
		v.Network = s.network.String()
	}
	if v.Record == 0 {
		v.Record = s.record
	}
	v = s.at(v, s.time)
	v.Iteration = s.Iteration
	s.found = append(s.found, keyed{fmt.Sprintf("%s %d %s", s.lane.Name, s.lane.Generation, key), v})
}

// tellNew returns the violations that no earlier snapshot showed.
func (s *settlement) tellNew(told map[string]*Violation, repeats map[string]int) []*Violation {
	var fresh []*Violation
	silent := 0
	for _, f := range s.found {
		switch {
		case told[f.key] != nil:
			repeats[f.key]++
		case len(fresh) == snapshotViolationsMax:
			silent++
		default:
			v := f.v
			told[f.key] = &v
			fresh = append(fresh, &v)
		}
	}
	if silent > 0 {
		v := fresh[len(fresh)-1]
		v.Evidence = append(v.Evidence, fmt.Sprintf("and %d more in this snapshot", silent))
	}
	return fresh
}
