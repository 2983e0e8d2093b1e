package check

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// network is a network with the history of its addresses. An object that is
// deleted and made again under the same name continues it.
type network struct {
	ref       danm.NetworkRef
	seen      bool            // at least one write of it is in the history
	object    json.RawMessage // as of the last write; nil while it does not exist
	document  document        // the same, read
	pools     pools
	prefixes  []netip.Prefix // that a bitmap ever covered
	addresses map[netip.Addr]*address
}

// pools are the bitmaps of the families, IPv4 first; nil where there is none.
type pools [2]*pool

// pool is one family's bitmap after a write. Its bits are those of that write; of
// the rest, which the network seldom states anew, an older write may be the origin.
type pool struct {
	*ipam.Pool
	stated danm.PoolFields
	bits   ipam.Bitmap
}

// IsSet hides that of the older write.
func (p *pool) IsSet(i int) bool { return p.bits.IsSet(i) }

// edit is a write of the cleaner to a network.
type edit struct {
	*write
	network       danm.NetworkRef
	before, after json.RawMessage
	isAllocation  bool            // it changed nothing but what allocations change
	malformed     error           // it left the network unreadable
	cleared       []clearedBit    // that a pod may own
	reserved      []reservedClear // that nobody may clear
}

type clearedBit struct {
	address  netip.Addr
	claimant string // endpoint UID that it belonged to, if any
}

type reservedClear struct {
	bit    string
	reason string
}

func (n *network) address(a netip.Addr) *address {
	found := n.addresses[a]
	if found == nil {
		found = &address{}
		n.addresses[a] = found
	}
	return found
}

// covers tells whether a bitmap ever had a bit for the address.
func (n *network) covers(a netip.Addr) bool {
	for _, p := range n.prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func (j *judge) applyNetwork(w *write) {
	kind, _ := danm.NetworkKindOf(w.Resource)
	n := j.model.network(danm.NetworkRef{Kind: kind, Namespace: w.Namespace, Name: w.Name})
	n.seen = true
	after, isAllocation, err := n.open(w)
	if err != nil && j.blame(w.user()) != BlameCleaner {
		j.unknownf(HistoryComplete, "at rv %d: %v", w.RV, err)
	}
	e := edit{write: w, network: n.ref, before: n.object, after: w.Object, isAllocation: isAllocation, malformed: err}
	for f := range after {
		j.applyBits(n, w, n.pools[f], after[f], &e)
	}
	n.pools, n.object = after, w.Object
	if w.Type == history.Deleted {
		n.object = nil
	}
	if !w.Initial && j.blame(w.user()) == BlameCleaner {
		j.model.edits = append(j.model.edits, e)
	}
}

// open reads the bitmaps that exist after the write. One that cannot be read
// counts as absent, so all its addresses count as cleared. isAllocation says
// that the write changed nothing but what allocations change; it may be false
// although it did not.
func (n *network) open(w *write) (after pools, isAllocation bool, err error) {
	if w.Type == history.Deleted {
		n.document = document{}
		return pools{}, false, nil
	}
	isAllocation, err = n.document.update(n.ref, w.Object)
	if err != nil {
		return pools{}, false, fmt.Errorf("%s: %w", w.key(), err)
	}
	for _, spec := range n.document.stated {
		i := 0
		if spec.Family == danm.IPv6 {
			i = 1
		}
		var failed error
		if after[i], failed = n.pools[i].reopen(spec.Fields); failed != nil {
			err = failed
		}
	}
	return after, isAllocation, err
}

// reopen opens a pool of which another version is open already, or none.
func (p *pool) reopen(stated danm.PoolFields) (*pool, error) {
	bits, err := ipam.Decode(stated.Alloc)
	if p != nil && err == nil && len(bits) == len(p.bits) && p.states(stated) {
		return &pool{p.Pool, stated, bits}, nil
	}
	opened, err := ipam.Open(ipam.Spec(stated))
	if err != nil {
		return nil, err
	}
	return &pool{opened, stated, bits}, nil
}

// states tells whether all but the bits is the same.
func (p *pool) states(f danm.PoolFields) bool {
	return p.stated.CIDR == f.CIDR && p.stated.Start == f.Start && p.stated.End == f.End &&
		p.stated.IPv6 == f.IPv6 && slices.Equal(p.stated.Gateways, f.Gateways)
}

// applyBits notes every bit of a family that the write changed.
func (j *judge) applyBits(n *network, w *write, before, after *pool, e *edit) {
	if after != nil && (before == nil || before.Prefix() != after.Prefix()) {
		n.prefixes = append(n.prefixes, after.Prefix())
	}
	if before != nil {
		before.each(after, func(i int) {
			e.note(n, before, i, j.model.setAside)
			if i < before.Size() {
				n.flip(w, before.Addr(i), false)
			}
		})
	}
	if after == nil {
		return
	}
	after.each(before, func(i int) {
		if i >= after.Size() {
			return
		}
		a := n.flip(w, after.Addr(i), true)
		// A CNI sets a bit for an endpoint that it has yet to write. Anybody
		// else who sets one puts it back for the endpoint that has it.
		if j.setsForNewEndpoint(w) {
			a.claimant = ""
		}
	})
}

// each calls f for every bit that is set in p and, by address, not in other.
func (p *pool) each(other *pool, f func(i int)) {
	same := other != nil && other.Prefix() == p.Prefix()
	for at, b := range p.bits {
		if same && at < len(other.bits) {
			b &^= other.bits[at]
		}
		for i := at * 8; b != 0; i, b = i+1, b<<1 {
			if b&0x80 != 0 && (same || !other.holds(p, i)) {
				f(i)
			}
		}
	}
}

// holds tells whether the address of bit i of q is set in p, another prefix.
func (p *pool) holds(q *pool, i int) bool {
	if p == nil || i >= q.Size() {
		return false
	}
	at, ok := p.Index(q.Addr(i))
	return ok && p.IsSet(at)
}

func (n *network) flip(w *write, addr netip.Addr, set bool) *address {
	a := n.address(addr)
	if a.isSet() != set {
		a.changes = append(a.changes, change{write: w, set: set, claimant: a.claimant})
	}
	return a
}

// applyReservedIP notes which addresses somebody set aside.
func (j *judge) applyReservedIP(w *write) {
	if w.Type == history.Deleted {
		delete(j.model.aside, w.key().String())
		return
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(w.Object, &u.Object); err != nil {
		j.unknownf(HistoryComplete, "%s at rv %d cannot be read: %v", w.key(), w.RV, err)
		return
	}
	u.SetNamespace(w.Namespace)
	j.model.aside[w.key().String()] = u
}

// setAside names the ReservedIP that keeps the address now, or nothing.
func (m *model) setAside(ref danm.NetworkRef, a netip.Addr) string {
	for _, key := range slices.Sorted(maps.Keys(m.aside)) {
		if danm.ReservesAddress(m.aside[key], ref, a) {
			return key
		}
	}
	return ""
}

// note keeps a cleared bit. It must run before the flip, which is when the
// claimant is still the one that held it.
func (e *edit) note(n *network, p *pool, i int, setAside func(danm.NetworkRef, netip.Addr) string) {
	if reason, ok := p.Reserved(i); ok {
		bit := fmt.Sprintf("bit %d", i)
		if i < p.Size() {
			bit = p.Addr(i).String()
		}
		e.reserved = append(e.reserved, reservedClear{bit, reason})
		return
	}
	a := p.Addr(i)
	if by := setAside(n.ref, a); by != "" {
		e.reserved = append(e.reserved, reservedClear{a.String(), "set aside by " + by})
		return
	}
	e.cleared = append(e.cleared, clearedBit{a, n.address(a).claimant})
}
