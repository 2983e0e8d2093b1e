package sim

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danm-chaos/danm-chaos/clusters/sim/apiserver"
)

// actor is whoever talks to the API: a replica of the cleaner or one run of a
// CNI plugin.
type actor struct {
	name string
	user string
	// Only the bubble's main goroutine changes these, and only while all
	// others wait.
	isHeld   bool  // none of its calls gets through for now
	snapshot int64 // what its caches may see instead of the present; 0 is the present

	born   time.Time
	dead   chan struct{} // closed when the process is gone: every call fails at once
	isDead atomic.Bool   // the same, for those who only look
}

func newActor(name, user string) *actor {
	return &actor{name: name, user: user, born: time.Now(), dead: make(chan struct{})}
}

// kill makes all calls of the actor fail, those under way included.
func (a *actor) kill() {
	if !a.isDead.Swap(true) {
		close(a.dead)
	}
}

// call is a request that waits at the gate.
type call struct {
	key     string // by content: equal keys are equal requests
	actor   *actor
	request apiserver.Request
	verb    string // as in a Role
	target  string // resource, or resource/subresource
	words   string // what faults look for: who reads or writes what how
	answers chan *answer

	heldUntil time.Time // it is not granted before
	left      bool      // the caller gave up or died
}

// answer is what becomes of a call. Exactly one of the fields is set.
type answer struct {
	response apiserver.Response
	stream   *stream
	err      error
}

// gate is where calls wait. Its lock is never held while somebody waits.
type gate struct {
	mu      sync.Mutex
	parked  []*call
	streams []*stream
	arrived chan struct{} // has a token when something came since it was last taken
	parcels parcels
}

func newGate() *gate { return &gate{arrived: make(chan struct{}, 1)} }

// notify wakes whoever lets time pass.
func (g *gate) notify() {
	select {
	case g.arrived <- struct{}{}:
	default:
	}
}

// pass waits until the call is granted and returns its answer, or an error if
// the caller gives up or dies first.
func (g *gate) pass(ctx context.Context, c *call) (*answer, error) {
	g.mu.Lock()
	g.parked = append(g.parked, c)
	g.mu.Unlock()
	g.notify()
	select {
	case a := <-c.answers:
		return a, a.err
	case <-ctx.Done():
		g.leave(c)
		return nil, ctx.Err()
	case <-c.actor.dead:
		g.leave(c)
		return nil, errDead
	}
}

// leave notes that nobody waits for the call any more.
func (g *gate) leave(c *call) {
	g.withdraw(c)
	g.mu.Lock()
	defer g.mu.Unlock()
	c.left = true
}

func (g *gate) hasLeft(c *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return c.left
}

func (g *gate) withdraw(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, waiting := range g.parked {
		if waiting == c {
			g.parked = append(g.parked[:i], g.parked[i+1:]...)
			return
		}
	}
}

// take removes calls from the gate. They are answered next.
func (g *gate) take(calls []*call) {
	for _, c := range calls {
		g.withdraw(c)
	}
}

// add keeps a stream until it ends.
func (g *gate) add(s *stream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.streams = append(g.streams, s)
}

// sweep forgets streams that ended and returns the others.
func (g *gate) sweep() []*stream {
	g.mu.Lock()
	defer g.mu.Unlock()
	kept := g.streams[:0]
	for _, s := range g.streams {
		if s.isOpen() {
			kept = append(kept, s)
		} else {
			s.watch.Close()
		}
	}
	clear(g.streams[len(kept):])
	g.streams = kept
	return kept
}

// waiting appends the calls at the gate to a slice.
func (g *gate) waiting(to []*call) []*call {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append(to, g.parked...)
}
