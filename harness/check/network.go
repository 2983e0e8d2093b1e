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
	pools     map[danm.Family]*pool
	prefixes  []netip.Prefix // that a bitmap ever covered
	addresses map[netip.Addr]*address
}

// pool is one family's bitmap after a write.
type pool struct {
	*ipam.Pool
	bits ipam.Bitmap
}

// edit is a write of the cleaner to a network.
type edit struct {
	*write
	network       danm.NetworkRef
	before, after json.RawMessage
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
	after, err := openPools(kind, w)
	if err != nil && j.blame(w.user()) != BlameCleaner {
		j.unknownf(HistoryComplete, "at rv %d: %v", w.RV, err)
	}
	e := edit{write: w, network: n.ref, before: n.object, after: w.Object, malformed: err}
	for _, f := range []danm.Family{danm.IPv4, danm.IPv6} {
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

// openPools reads the bitmaps that exist after the write. One that cannot be
// read counts as absent, so all its addresses count as cleared.
func openPools(kind danm.NetworkKind, w *write) (map[danm.Family]*pool, error) {
	pools := map[danm.Family]*pool{}
	if w.Type == history.Deleted {
		return pools, nil
	}
	var object danm.Network
	if err := json.Unmarshal(w.Object, &object); err != nil {
		return pools, fmt.Errorf("%s: %w", w.key(), err)
	}
	object.Kind, object.Namespace, object.Name = string(kind), w.Namespace, w.Name
	var firstErr error
	for _, spec := range object.Pools() {
		opened, err := ipam.Open(ipam.Spec(spec.Fields))
		if err != nil {
			firstErr = err
			continue
		}
		bits, err := ipam.Decode(spec.Fields.Alloc)
		if err != nil {
			firstErr = err
			continue
		}
		pools[spec.Family] = &pool{Pool: opened, bits: bits}
	}
	return pools, firstErr
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
		delete(j.model.aside, w.key())
		return
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(w.Object, &u.Object); err != nil {
		j.unknownf(HistoryComplete, "%s at rv %d cannot be read: %v", w.key(), w.RV, err)
		return
	}
	u.SetNamespace(w.Namespace)
	j.model.aside[w.key()] = u
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
