package check

import (
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// life is an attachment from ADD's success to its end.
type life struct {
	*history.Attachment
	record     uint64
	start, end time.Time // end is the earliest time at which it may have ended
	endedBy    string
	object     *pod // the pod's API object, nil if it was never seen
	// from and to bound it by revision where it was derived from the pod's
	// object: from the write that made it Ready to the one that ended that.
	from, to *write
}

// isDerived tells whether no node reported this attachment.
func (l *life) isDerived() bool { return l.from != nil }

func (l *life) name() string { return l.Namespace + "/" + l.Pod }

func (l *life) who() string { return fmt.Sprintf("%s (uid %s)", l.Pod, l.PodUID) }

// sureEnd is the time until which the attachment is live without doubt. A pod
// object that is gone fences its attachment, whatever the node still runs.
func (l *life) sureEnd() time.Time {
	if l.isDerived() || l.object == nil || l.object.deleted == nil {
		return l.end
	}
	return earlier(l.end, l.object.deleted.earliest)
}

// isSurelyLive tells whether there is a moment at which it was live without
// doubt.
func (l *life) isSurelyLive() bool { return l.start.Before(l.sureEnd()) }

// suffers tells whether the outage surely overlaps the life. The border cases
// are not sure: the clear that may be DEL's own, the write that may have been
// ordered before the pod's deletion only by the clock, the set that may have
// come before ADD returned.
func (l *life) suffers(o outage) bool {
	if o.from != nil && !o.from.latest.Before(l.end) {
		return false
	}
	if o.from != nil && l.to != nil && o.from.place >= l.to.place {
		return false
	}
	if o.from != nil && l.object != nil && l.object.deleted != nil && o.from.place >= l.object.deleted.place {
		return false
	}
	return l.isReachedBy(o)
}

// isReachedBy tells whether the outage surely lasts beyond the begin of the
// life. Revisions tell that exactly.
func (l *life) isReachedBy(o outage) bool {
	if l.isDerived() {
		return o.until == nil || o.until.place > l.from.place
	}
	return o.endsAfter(l.start)
}

// isOverBefore tells whether the life may have ended before the next began.
func (l *life) isOverBefore(next *life) bool {
	if l.to != nil && next.isDerived() && l.to.place <= next.from.place {
		return true
	}
	return !l.sureEnd().After(next.start)
}

// endsAfter tells whether the outage surely lasts beyond t.
func (o outage) endsAfter(t time.Time) bool { return o.until == nil || o.until.earliest.After(t) }

// readLives joins the attachment records and finds the end of each.
func (j *judge) readLives(records []history.Record) {
	open := map[string]*life{} // by container ID
	for i := range records {
		r := &records[i]
		if r.Attachment == nil {
			continue
		}
		a := r.Attachment
		l := open[a.ID]
		if a.Event == history.Attached {
			if l != nil && l.endedBy == "" {
				j.unknownf(HistoryComplete, "sandbox %s of %s is attached twice without an end", a.ID, l.name())
			}
			open[a.ID] = j.newLife(r)
			continue
		}
		if l != nil {
			j.endLife(l, a.Event, r.Time)
		}
	}
}

func (j *judge) newLife(r *history.Record) *life {
	l := &life{
		Attachment: r.Attachment, record: r.N, start: r.Time, end: forever,
		object: j.model.pods[r.Attachment.PodUID],
	}
	if l.object == nil {
		j.unknownf(HistoryComplete, "%s is attached, but no watch showed pod uid %s", l.name(), l.PodUID)
	}
	if l.Static {
		l.object = nil // the end of a mirror fences nothing
	}
	j.lives = append(j.lives, l)
	return l
}

// endLife notes an end. A node that was failed on purpose may have died any
// time since the fault was invoked.
func (j *judge) endLife(l *life, event history.AttachmentEvent, t time.Time) {
	if event == history.Lost {
		t = j.lanes.faultBefore(l.Node, l.start, t)
	}
	if t.Before(l.end) {
		l.end, l.endedBy = t, string(event)
	}
}

// checkLiveAttachments looks for a time at which a live attachment missed its
// endpoint or a bit.
func (j *judge) checkLiveAttachments() {
	for _, l := range j.lives {
		if !l.isSurelyLive() {
			continue
		}
		for i := range l.Interfaces {
			j.checkInterface(l, &l.Interfaces[i])
		}
	}
}

func (j *judge) checkInterface(l *life, face *history.AttachedInterface) {
	e := j.model.endpoints[face.EndpointUID]
	if e == nil {
		j.unknownf(HistoryComplete, "%s is attached to DanmEp %s/%s (uid %s), which no watch showed", l.who(), l.Namespace, face.Endpoint, face.EndpointUID)
		return
	}
	j.count(LiveAttachment)
	if !sameAddresses(e.addresses, face.Addresses) {
		j.unknownf(HistoryComplete, "%s is attached with %v, but %s has %v", l.who(), face.Addresses, e, e.addresses)
	}
	j.accuseOnce(l, e.outages(), func(o outage) Violation { return j.endpointMissing(l, face, e, o) })
	network := j.networkOf(l, face)
	if network == nil {
		j.unknownf(HistoryComplete, "%s is attached to %s %s, which no watch showed", l.who(), face.NetworkKind, face.Network)
		return
	}
	for _, text := range face.Addresses {
		addr, ok, err := danm.ParseAddress(text)
		switch {
		case err != nil || !ok:
			j.unknownf(HistoryComplete, "%s is attached with address %q, which is none", l.who(), text)
		case !network.covers(addr):
			j.unknownf(HistoryComplete, "%s is attached with %s, for which %s has no bit", l.who(), addr, network.ref)
		default:
			j.count(LiveAttachment)
			j.accuseOnce(l, network.address(addr).outages(), func(o outage) Violation {
				return j.bitMissing(l, e, network, addr, o)
			})
		}
	}
}

func (j *judge) networkOf(l *life, face *history.AttachedInterface) *network {
	n := j.model.networks[refOf(l, face)]
	if n == nil || !n.seen {
		return nil
	}
	return n
}

func refOf(l *life, face *history.AttachedInterface) danm.NetworkRef {
	ref := danm.NetworkRef{Kind: danm.NetworkKind(face.NetworkKind), Namespace: l.Namespace, Name: face.Network}
	if !ref.Kind.IsNamespaced() {
		ref.Namespace = ""
	}
	return ref
}

// accuseOnce reports the first outage that the life suffers, for each that can
// be to blame: what a CNI broke before must not hide what the cleaner breaks.
// Outages are in order, so those that the life suffers follow each other.
func (j *judge) accuseOnce(l *life, outages []outage, accusation func(outage) Violation) {
	var blamed []Blame
	first := sort.Search(len(outages), func(i int) bool { return l.isReachedBy(outages[i]) })
	for _, o := range outages[first:] {
		if !l.suffers(o) {
			break
		}
		v := accusation(o)
		if !slices.Contains(blamed, v.Blame) {
			blamed = append(blamed, v.Blame)
			j.accuse(v)
		}
	}
}

func (j *judge) violation(i Invariant, l *life, e *endpoint) Violation {
	return Violation{
		Invariant: i, Pod: l.name(), PodUID: l.PodUID,
		Endpoint: e.namespace + "/" + e.name, Network: e.network.String(),
	}
}

func (j *judge) endpointMissing(l *life, face *history.AttachedInterface, e *endpoint, o outage) Violation {
	v := j.violation(LiveAttachment, l, e)
	if len(face.Addresses) > 0 {
		v.Address = face.Addresses[0]
	}
	v.Evidence = j.story(l, e, e.addresses)
	if o.from == nil {
		v.Blame = BlameCNI
		v.Message = fmt.Sprintf("CNI ADD succeeded for %s before %s was created (rv %d)", l.who(), e, e.created.RV)
		return j.at(v, l.start)
	}
	v.Blame = j.blame(o.from.user())
	v.Message = fmt.Sprintf("%s deleted %s (rv %d) %s", userOf(o.from), e, o.from.RV, l.state(o.from))
	return j.by(v, o.from)
}

func (j *judge) bitMissing(l *life, e *endpoint, n *network, addr netip.Addr, o outage) Violation {
	v := j.violation(LiveAttachment, l, e)
	v.Address, v.Network = addr.String(), n.ref.String()
	v.Evidence = j.story(l, e, []netip.Addr{addr})
	if o.from == nil || j.isOlder(o, e) {
		v.Blame = BlameCNI
		v.Message = fmt.Sprintf("CNI ADD gave %s of %s to %s without allocating it", addr, n.ref, l.who())
		return j.at(v, l.start)
	}
	v.Blame = j.blame(o.from.user())
	if e.deleted != nil && e.deleted.place < o.from.place {
		// Nothing claimed the address any more, so whoever took the endpoint
		// from the pod is to blame.
		v.Blame = j.blame(e.deleted.user())
	}
	v.Message = fmt.Sprintf("%s cleared %s of %s (rv %d) %s", userOf(o.from), addr, n.ref, o.from.RV, l.state(o.from))
	return j.by(v, o.from)
}

// state ends a sentence about a write that broke the attachment.
func (l *life) state(w *write) string {
	if w.latest.Before(l.start) {
		return fmt.Sprintf("while CNI ADD was bringing %s to life on it", l.who())
	}
	return fmt.Sprintf("while %s was live on it", l.who())
}

// isOlder tells whether the outage began before the endpoint existed and with
// the release of another endpoint. Then the address was never allocated to
// this one, and whoever cleared it did nothing wrong.
func (j *judge) isOlder(o outage, e *endpoint) bool {
	return o.from.place < e.created.place && o.claimant != "" && o.claimant != e.uid
}
