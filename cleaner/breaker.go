package cleaner

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Limits of the mass-release breaker: more than massSuspects and more than half
// of all endpoints. A small cluster that loses its biggest node must still
// work. massConfirmation is the time between the two lists that close it.
const (
	massSuspects     = 100
	massConfirmation = time.Minute
)

// breaker stops all releases while the picture is implausible.
type breaker struct {
	mu sync.Mutex
	// bothGroups says why the API groups forbid a release; empty if they do not.
	bothGroups string
	// truncated says that the last list of pods was incomplete.
	truncated string
	// confirmed holds the suspects whose owners two live lists did not have.
	confirmed map[types.UID]bool
	// first is the result of the first of two lists, firstAt its time.
	first   map[types.UID]bool
	firstAt time.Time
}

// trip is why nothing may be released: a cause out of a few, for metrics, and
// the same with figures, for people. The zero value means that all is well.
type trip struct {
	cause tripCause
	why   string
}

type tripCause string

// Causes of a trip.
const (
	bothGroupsActive tripCause = "BothGroups"
	truncatedList    tripCause = "TruncatedList"
	noPods           tripCause = "NoPods"
	massSuspicion    tripCause = "MassSuspicion"
)

func tripCauses() []tripCause {
	return []tripCause{bothGroupsActive, truncatedList, noPods, massSuspicion}
}

// why returns the reason to release nothing, or "" if all is well.
func (b *breaker) why(pods, endpoints int, suspects map[types.UID]bool) string {
	return b.trip(pods, endpoints, suspects).why
}

func (b *breaker) trip(pods, endpoints int, suspects map[types.UID]bool) trip {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.bothGroups != "":
		return trip{bothGroupsActive, b.bothGroups}
	case b.truncated != "":
		return trip{truncatedList, b.truncated}
	case pods == 0 && endpoints > 0:
		return trip{noPods, fmt.Sprintf("no pods at all, but %d endpoints", endpoints)}
	case b.isMass(endpoints, suspects):
		return trip{massSuspicion, fmt.Sprintf("%d of %d endpoints are suspects", len(suspects), endpoints)}
	}
	return trip{}
}

func (b *breaker) isMass(endpoints int, suspects map[types.UID]bool) bool {
	unconfirmed := 0
	for uid := range suspects {
		if !b.confirmed[uid] {
			unconfirmed++
		}
	}
	return unconfirmed > massSuspects && unconfirmed*2 > endpoints
}

// needsList tells whether a live list of pods would help to close the breaker.
func (b *breaker) needsList(endpoints int, suspects map[types.UID]bool, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Who is no suspect any more needs another confirmation should it become
	// one again; and what is not dropped would pile up for ever.
	maps.DeleteFunc(b.confirmed, func(uid types.UID, _ bool) bool { return !suspects[uid] })
	if !b.isMass(endpoints, suspects) {
		b.first = nil
		return false
	}
	return b.first == nil || now.Sub(b.firstAt) >= massConfirmation
}

// listed takes the suspects whose owners a complete live list did not have.
// Two such lists, a minute apart, that agree on every suspect of the first
// close the breaker for those; otherwise the second becomes the first.
func (b *breaker) listed(ownerless map[types.UID]bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.first != nil && isSubset(b.first, ownerless) {
		b.confirmed = b.first
		b.first = nil
		return
	}
	b.first, b.firstAt = ownerless, now
}

// setGroups and setTruncated note the outcome of the latest look; "" clears.
func (b *breaker) setGroups(why string)    { b.mu.Lock(); b.bothGroups = why; b.mu.Unlock() }
func (b *breaker) setTruncated(why string) { b.mu.Lock(); b.truncated = why; b.mu.Unlock() }

func (b *breaker) isTruncated() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.truncated != "" }

func isSubset(a, of map[types.UID]bool) bool {
	for uid := range a {
		if !of[uid] {
			return false
		}
	}
	return true
}
