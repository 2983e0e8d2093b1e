package check

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// holder is an attachment's claim on one address.
type holder struct {
	*life
	face *history.AttachedInterface
	from *endpoint
}

type holding struct {
	network danm.NetworkRef
	addr    netip.Addr
}

// checkSingleHolders looks for two attachments that were live on one address
// of one network at the same time.
func (j *judge) checkSingleHolders() {
	holders := map[holding][]holder{}
	var order []holding
	for _, l := range j.lives {
		if !l.isSurelyLive() {
			continue
		}
		for i := range l.Interfaces {
			face := &l.Interfaces[i]
			for _, text := range face.Addresses {
				addr, ok, err := danm.ParseAddress(text)
				if err != nil || !ok {
					continue // checkInterface reports it
				}
				key := holding{refOf(l, face), addr}
				if holders[key] == nil {
					order = append(order, key)
				}
				holders[key] = append(holders[key], holder{l, face, j.model.endpoints[face.EndpointUID]})
			}
		}
	}
	for _, key := range order {
		j.checkHolders(key, holders[key])
	}
}

// checkHolders passes the holders of one address in the order in which they
// became live. Those that ended before the next one are left behind, so this
// is linear unless the address really has many holders.
func (j *judge) checkHolders(key holding, holders []holder) {
	slices.SortStableFunc(holders, func(a, b holder) int { return a.start.Compare(b.start) })
	var active []holder
	for _, next := range holders {
		j.count(SingleHolder)
		active = slices.DeleteFunc(active, func(h holder) bool { return h.isOverBefore(next.life) })
		for _, first := range active {
			if first.face == next.face {
				continue // an interface that lists an address twice
			}
			j.accuse(j.heldTwice(key, first, next))
		}
		active = append(active, next)
	}
}

// heldTwice blames the clear that made the second allocation possible, whoever
// took the endpoint from the first before that, or the second ADD if there was
// neither.
func (j *judge) heldTwice(key holding, first, second holder) Violation {
	if first.from != nil && second.from != nil && second.from.created.place < first.from.created.place {
		first, second = second, first
	}
	v := Violation{
		Invariant: SingleHolder, Blame: BlameCNI, Pod: first.name(), PodUID: first.PodUID,
		Network: key.network.String(), Address: key.addr.String(),
		Message: fmt.Sprintf("CNI ADD gave %s of %s to %s while %s was live on it", key.addr, key.network, second.who(), first.who()),
	}
	if first.from == nil || second.from == nil {
		return j.at(v, second.start)
	}
	v.Endpoint = first.from.namespace + "/" + first.from.name
	v.Evidence = append(j.story(first.life, first.from, []netip.Addr{key.addr}), "the second holder:")
	v.Evidence = append(v.Evidence, j.story(second.life, second.from, nil)...)
	clear := j.enablingClear(key, first.from, second.from)
	if clear == nil {
		return j.at(j.by(v, second.from.created), second.start)
	}
	culprit := clear.write
	v.Message = fmt.Sprintf("%s cleared %s of %s (rv %d) while %s held it, so that %s got it too",
		userOf(culprit), key.addr, key.network, culprit.RV, first.who(), second.who())
	if taken := first.from.deleted; taken != nil && taken.place < clear.place {
		// Nothing claimed the address for the first any more, and others may have
		// come and gone since, so clearing its bit was right for all that anybody
		// could see. See bitMissing.
		culprit = taken
		v.Message = fmt.Sprintf("%s deleted %s (rv %d) while %s was live on it, so that %s got its %s of %s too",
			userOf(culprit), first.from, culprit.RV, first.who(), second.who(), key.addr, key.network)
	}
	v.Blame = j.blame(culprit.user())
	return j.by(v, culprit)
}

// enablingClear returns the clear between the two allocations, or nil.
func (j *judge) enablingClear(key holding, first, second *endpoint) *change {
	a := j.model.network(key.network).address(key.addr)
	firstSet := a.before(first.created.place, true)
	until := second.created.place
	if set := a.before(until, true); set != nil && (firstSet == nil || set.place > firstSet.place) {
		until = set.place
	}
	clear := a.before(until, false)
	if clear == nil || firstSet != nil && clear.place <= firstSet.place {
		return nil
	}
	return clear
}
