package cleaner

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
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
	completed    time.Time        // when the owner was first seen completed
	missingSince time.Time        // when a bit of a living owner was first seen clear
	reported     bool             // a dry run has said what it would do
	hostNode     string           // the node whose host name the endpoint has, or had while that existed
	held         ownership.Reason // why it is held, as last logged; empty if it is not
	waiter       types.UID        // the pod that was told that it waits for this endpoint
}

// state holds the memory of all endpoints by UID. It is never locked across a
// call.
type state struct {
	mu        sync.Mutex
	endpoints map[types.UID]*endpointState
	suspected int // how many have suspectSince set
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
	s.drop(uid)
}

func (s *state) drop(uid types.UID) {
	if st, ok := s.endpoints[uid]; ok && !st.suspectSince.IsZero() {
		s.suspected--
	}
	delete(s.endpoints, uid)
}

// keepOnly forgets endpoints that no longer exist. Work that was under way when
// an endpoint went may have remembered it again.
func (s *state) keepOnly(exists map[types.UID]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.endpoints {
		if !exists[uid] {
			s.drop(uid)
		}
	}
}

func (s *state) suspectCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.suspected
}

// held returns the UIDs that are held, for whatever reason.
func (s *state) held() map[types.UID]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[types.UID]bool{}
	for uid, st := range s.endpoints {
		if st.held != "" {
			out[uid] = true
		}
	}
	return out
}

// ripeCount returns how many endpoints are suspects since t or longer.
func (s *state) ripeCount(t time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, st := range s.endpoints {
		if !st.suspectSince.IsZero() && !st.suspectSince.After(t) {
			n++
		}
	}
	return n
}

// hold notes why an endpoint is held, "" if it is not, and tells whether that
// is news.
func (s *state) hold(uid types.UID, why ownership.Reason) (isNews bool) {
	s.with(uid, func(st *endpointState) { isNews, st.held = st.held != why, why })
	return isNews
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
		case !is && !st.suspectSince.IsZero():
			st.suspectSince, st.reported = time.Time{}, false
			s.suspected--
		case is && st.suspectSince.IsZero():
			st.suspectSince = now
			s.suspected++
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
