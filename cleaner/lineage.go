package cleaner

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
)

// bit names one allocation of a network.
type bit struct {
	family danm.Family
	index  int
}

// rise says since when a bit is known to be set without interruption.
type rise struct {
	// since is the local time at which the setting was seen, which is never
	// earlier than the setting itself. That makes it safe to compare with the
	// start of a later live read.
	since time.Time
	// watched tells that the change from 0 to 1 itself was seen; otherwise the
	// bit was already set when the watch began.
	watched bool
}

// lineage follows the bits of every network on the watch. It sits in front of
// the informer and sees each event exactly once and in order, which informer
// handlers cannot promise: a relist hides what happened in between.
type lineage struct {
	mu       sync.Mutex
	now      func() time.Time
	networks map[danm.NetworkRef]*bitHistory
	gaps     int // number of relists so far
}

type bitHistory struct {
	uid     types.UID
	version string // resourceVersion of the last event
	stale   bool   // a relist is under way: what follows may hide changes
	rises   map[bit]rise
}

func newLineage(now func() time.Time) *lineage {
	return &lineage{now: now, networks: map[danm.NetworkRef]*bitHistory{}}
}

// breakOff marks a gap in the watch of one kind of network: until the next
// event of each network nothing is proven, and after it only what comes then.
func (l *lineage) breakOff(kind danm.NetworkKind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gaps++
	for ref, h := range l.networks {
		if ref.Kind == kind {
			h.stale = true
		}
	}
}

// gapCount returns how often a watch was interrupted.
func (l *lineage) gapCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gaps
}

// observe takes the next state of a network.
func (l *lineage) observe(n *danm.Network) {
	set := allocatedBits(n)
	l.mu.Lock()
	defer l.mu.Unlock()
	ref := n.Ref()
	before, known := l.networks[ref]
	next := &bitHistory{uid: n.UID, version: n.ResourceVersion, rises: make(map[bit]rise, len(set))}
	continuous := known && !before.stale && before.uid == n.UID
	now := l.now()
	for _, b := range set {
		switch {
		case !continuous:
			next.rises[b] = rise{since: now}
		case before.rises[b].since.IsZero():
			next.rises[b] = rise{since: now, watched: true}
		default:
			next.rises[b] = before.rises[b]
		}
	}
	l.networks[ref] = next
}

// forget drops a deleted or unreadable network.
func (l *lineage) forget(ref danm.NetworkRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.networks, ref)
}

// forgetStale drops networks whose deletion a watch gap hid. A stale history
// proves nothing, so dropping one too many costs nothing.
func (l *lineage) forgetStale(exists func(danm.NetworkRef) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.networks, func(ref danm.NetworkRef, h *bitHistory) bool { return h.stale && !exists(ref) })
}

// at returns the rises of a network's set bits, if the watch has seen exactly
// this version of it and has no gap.
func (l *lineage) at(ref danm.NetworkRef, uid types.UID, version string) (map[bit]rise, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok := l.networks[ref]
	if !ok || h.stale || h.uid != uid || h.version != version {
		return nil, false
	}
	// A history is replaced, never changed, so handing it out is safe.
	return h.rises, true
}

// latest returns the rises as of the last event, for looking at, not for proof.
func (l *lineage) latest(ref danm.NetworkRef) (map[bit]rise, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok := l.networks[ref]
	if !ok || h.stale {
		return nil, false
	}
	return h.rises, true
}

// refs returns the networks on the watch, sorted by their text.
func (l *lineage) refs() []danm.NetworkRef {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Keys(l.networks), compareRefs)
}

func compareRefs(a, b danm.NetworkRef) int {
	switch x, y := a.String(), b.String(); {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// allocatedBits lists the set bits of a network that some pod may own. A
// family that cannot be parsed has none: nothing will be proven about it.
func allocatedBits(n *danm.Network) []bit {
	var bits []bit
	for _, spec := range n.Pools() {
		pool, err := ipam.Open(ipam.Spec(spec.Fields))
		if err != nil {
			continue
		}
		for _, i := range pool.Allocated() {
			bits = append(bits, bit{spec.Family, i})
		}
	}
	return bits
}
