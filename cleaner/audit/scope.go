package audit

import (
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
)

// Scope is what somebody agreed to have healed: the fixable findings of one
// report and nothing that turns up later. A nil Scope restricts nothing.
type Scope struct {
	endpoints map[types.UID]bool
	bits      map[claim]bool
	repairs   map[types.UID]bool
}

// ScopeOf takes the fixable findings of a report.
func ScopeOf(r Report) *Scope {
	s := &Scope{endpoints: map[types.UID]bool{}, bits: map[claim]bool{}, repairs: map[types.UID]bool{}}
	for _, f := range r.With(Fixable) {
		switch f.Kind {
		case LeakedEndpoint:
			s.endpoints[f.EndpointUID] = true
			s.addBits(f)
		case OrphanBit:
			s.addBits(f)
		case MissingBit:
			s.repairs[f.EndpointUID] = true
		}
	}
	return s
}

func (s *Scope) addBits(f Finding) {
	for text := range strings.SplitSeq(f.Address, ", ") {
		if a, err := netip.ParseAddr(text); err == nil && f.Network != nil {
			s.bits[claim{*f.Network, a}] = true
		}
	}
}

// Releases tells whether the endpoint may be released.
func (s *Scope) Releases(endpoint types.UID) bool { return s == nil || s.endpoints[endpoint] }

// Clears tells whether the address may be marked free.
func (s *Scope) Clears(ref danm.NetworkRef, a netip.Addr) bool {
	return s == nil || s.bits[claim{ref, a}]
}

// Repairs tells whether the endpoint's bits may be set again.
func (s *Scope) Repairs(endpoint types.UID) bool { return s == nil || s.repairs[endpoint] }

// Remaining counts what of the scope a later look still finds: endpoints that
// are still leaked, then their bits and the others that nobody claims, then
// missing bits.
func (s *Scope) Remaining(w World, p ownership.Policy) int {
	x := newIndex(w, p)
	left := 0
	for _, ep := range x.Endpoints {
		_, last := x.decide(ep)
		switch {
		case s.endpoints[ep.UID] && last.Action == ownership.Release:
			left++
		case s.repairs[ep.UID] && x.isUsed(ep, last) && len(x.missingBits(ep)) > 0:
			left++
		}
	}
	for key := range s.bits {
		if x.isUnclaimed(key) {
			left++
		}
	}
	return left
}
