package check

import (
	"maps"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"time"
)

// compareWithModel holds a snapshot against the replay. The live reads happened
// at some time since the lane's last step began, so any state of that time
// will do. A difference means that the watch missed something: the history
// cannot be trusted, whatever else was found.
//
// Snapshots must come in the order of time, because those that died before one
// are forgotten.
func (s *settlement) compareWithModel() {
	window := span{s.lanes.lastInvoke(s.lane.Name, s.time), s.time}
	s.count(HistoryComplete)
	s.compareEndpoints(window)
	s.compareBits(window)
	s.comparePods(window)
}

// span is the time in which the live reads happened.
type span struct{ from, until time.Time }

// mayBe tells whether something that began and ended with these writes may
// have existed in the span.
func (w span) mayBe(created, deleted *write) bool {
	return !created.earliest.After(w.until) && (deleted == nil || !deleted.latest.Before(w.from))
}

// outlives tells whether something that existed at the begin of the span
// existed all the time.
func (w span) outlives(deleted *write) bool { return deleted == nil || deleted.earliest.After(w.until) }

func (s *settlement) disagree(what, history string) {
	s.unknownf(HistoryComplete, "the history disagrees with the live read of %s in record %d: %s %s", s.lane.Name, s.record, what, history)
}

func (s *settlement) compareEndpoints(window span) {
	read := map[string]bool{}
	for _, e := range s.Endpoints {
		read[e.UID] = true
		known := s.model.endpoints[e.UID]
		switch {
		case known == nil || !window.mayBe(known.created, known.deleted):
			s.disagree("DanmEp "+e.Namespace+"/"+e.Name+" (uid "+e.UID+")", "was read but does not exist by then")
		case !sameAddresses(known.addresses, e.Addresses) || known.podUID != e.PodUID:
			s.disagree("DanmEp "+e.Namespace+"/"+e.Name+" (uid "+e.UID+")", "was read with another owner or address")
		}
	}
	for _, e := range s.model.population(s.lane.Namespace).endpoints.at(window.from) {
		if !read[e.uid] && window.outlives(e.deleted) {
			s.disagree(e.String()+" (uid "+e.uid+")", "was not read but exists")
		}
	}
}

func sameAddresses(known []netip.Addr, read []string) bool {
	bare := make([]netip.Addr, 0, len(read))
	for _, text := range read {
		host, _, _ := strings.Cut(text, "/")
		if a, err := netip.ParseAddr(host); err == nil {
			bare = append(bare, a.Unmap())
		}
	}
	if slices.Equal(known, bare) {
		return true
	}
	known = slices.Clone(known)
	slices.SortFunc(known, netip.Addr.Compare)
	slices.SortFunc(bare, netip.Addr.Compare)
	return slices.Equal(known, bare)
}

func (s *settlement) compareBits(window span) {
	n := s.model.networks[s.network]
	if n == nil || !n.seen {
		s.disagree(s.network.String(), "was never seen")
		return
	}
	for _, addr := range slices.SortedFunc(maps.Keys(s.bits), netip.Addr.Compare) {
		if !n.mayBe(addr, true, window) {
			s.disagree(addr.String(), "was read as allocated but is not")
		}
	}
	for _, addr := range slices.SortedFunc(maps.Keys(n.addresses), netip.Addr.Compare) {
		if s.bits[addr] || s.reserved[addr] || n.isReserved(addr) {
			continue
		}
		if !n.mayBe(addr, false, window) {
			s.disagree(addr.String(), "was not read as allocated but is")
		}
	}
}

// mayBe tells whether the bit may have had the value at some time of the span.
func (n *network) mayBe(addr netip.Addr, value bool, window span) bool {
	a := n.addresses[addr]
	if a == nil || len(a.changes) == 0 {
		return !value
	}
	first := sort.Search(len(a.changes), func(i int) bool { return !a.changes[i].latest.Before(window.from) })
	if first == 0 && !value {
		return true // clear until the first change, which may lie in the span
	}
	for i := max(first-1, 0); i < len(a.changes); i++ {
		c := a.changes[i]
		if c.earliest.After(window.until) {
			return false
		}
		if c.set == value {
			return true
		}
	}
	return false
}

func (n *network) isReserved(addr netip.Addr) bool {
	for _, p := range n.pools {
		if p == nil {
			continue
		}
		if i, ok := p.Index(addr); ok {
			_, reserved := p.Reserved(i)
			return reserved
		}
	}
	return false
}

func (s *settlement) comparePods(window span) {
	for i := range s.Pods {
		p := &s.Pods[i]
		known := s.model.pods[p.UID]
		if known == nil || !window.mayBe(known.created, known.deleted) {
			s.disagree("pod "+p.Namespace+"/"+p.Name+" (uid "+p.UID+")", "was read but does not exist by then")
		}
	}
	for _, p := range s.model.population(s.lane.Namespace).pods.at(window.from) {
		if s.pods[p.uid] == nil && window.outlives(p.deleted) {
			s.disagree("pod "+p.created.Namespace+"/"+p.created.Name+" (uid "+p.uid+")", "was not read but exists")
		}
	}
}
