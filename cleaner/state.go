package cleaner

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// owner is what a live read of the owning pod told while it was alive.
type owner struct {
	// aliveAt is the local time just before that read began. The pod was alive
	// at some moment after it.
	aliveAt    time.Time
	node       string
	mirrorHash string
}

// endpointState is what the controller remembers of one endpoint. All of it is
// lost with a restart, which only makes the cleaner wait again.
type endpointState struct {
	owner        owner
	vouchTries   int
	suspectSince time.Time
	completed    time.Time // when the owner was first seen completed
	missingSince time.Time // when a bit of a living owner was first seen clear
	reported     bool      // a dry run has said what it would do
}

// state holds the memory of all endpoints by UID. It is never locked across a
// call.
type state struct {
	mu        sync.Mutex
	endpoints map[types.UID]*endpointState
}

func newState() *state { return &state{endpoints: map[types.UID]*endpointState{}} }

// with runs f on the endpoint's state under the lock.
func (s *state) with(uid types.UID, f func(*endpointState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, ok := s.endpoints[uid]
	if !ok {
		st = &endpointState{}
		s.endpoints[uid] = st
	}
	f(st)
}

func (s *state) get(uid types.UID) endpointState {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st, ok := s.endpoints[uid]; ok {
		return *st
	}
	return endpointState{}
}

func (s *state) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.endpoints, uid)
}

func (s *state) owner(uid types.UID) owner            { return s.get(uid).owner }
func (s *state) suspectSince(uid types.UID) time.Time { return s.get(uid).suspectSince }

// completedSince returns when the owner was first seen completed, and starts
// or stops that clock.
func (s *state) completedSince(uid types.UID, completed bool, now time.Time) time.Time {
	var since time.Time
	s.with(uid, func(st *endpointState) {
		switch {
		case !completed:
			st.completed = time.Time{}
		case st.completed.IsZero():
			st.completed = now
		}
		since = st.completed
	})
	return since
}

// suspect starts or keeps the quarantine, or ends it.
func (s *state) suspect(uid types.UID, is bool, now time.Time) {
	s.with(uid, func(st *endpointState) {
		switch {
		case !is:
			st.suspectSince, st.reported = time.Time{}, false
		case st.suspectSince.IsZero():
			st.suspectSince = now
		}
	})
}

// suspects returns the UIDs in quarantine or past it.
func (s *state) suspects() map[types.UID]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[types.UID]bool{}
	for uid, st := range s.endpoints {
		if !st.suspectSince.IsZero() {
			out[uid] = true
		}
	}
	return out
}
