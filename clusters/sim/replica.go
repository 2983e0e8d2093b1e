package sim

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// CleanerEnv is what a cleaner under test gets.
type CleanerEnv struct {
	REST     *rest.Config
	Encoding *runtime.SerializerInfo // of answers that spare both sides the bytes; who does not know it gets bytes
	Identity string                  // of the replica
	Clock    clock.WithTicker
	World    schedule.World
}

// Workers is how many workers a cleaner should have. If all keys of a world that
// become ready at one moment find a worker, it does not matter in which order
// timers fire, which is the one thing that a bubble leaves to chance.
func (e CleanerEnv) Workers() int { return 10 + 3*e.World.Pods }

// Start runs a cleaner until the context ends. It returns only when everything
// that it started has ended.
type Start func(ctx context.Context, env CleanerEnv) error

// restartDelay is how long a replica that ended stays down.
const restartDelay = 3*time.Second + 700_027*time.Nanosecond

// replica is one copy of the cleaner. A copy that is started again is a new
// actor with a new identity, as a new process is.
type replica struct {
	name       string // without its generation
	generation int
	actor      *actor
	cancel     context.CancelFunc
	isRunning  bool
	restartAt  time.Time
	snapshot   int64     // what its caches see when it starts again
	freshAt    time.Time // until when
	clock      *shiftedClock
}

func (w *world) startReplica(r *replica) {
	r.generation++
	name := fmt.Sprintf("%s.%d", r.name, r.generation)
	r.actor = newActor(name, clusters.UserCleaner)
	r.actor.snapshot = r.snapshot
	r.isRunning, r.restartAt = true, time.Time{}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	a := r.actor
	env := CleanerEnv{REST: w.gate.config(a), Encoding: w.gate.parcels.encoding(), Identity: name, Clock: r.clock, World: w.plan.World}
	w.group.Go(func() {
		err := w.options.Start(ctx, env)
		cancel()
		w.inbox.put(name, func() { w.endReplica(r, a, err) })
		w.gate.notify()
	})
}

// endReplica notes that a copy has ended, and when the next starts.
func (w *world) endReplica(r *replica, a *actor, err error) {
	if r.actor != a {
		return
	}
	if err != nil && !a.isDead.Load() {
		w.reach(endsByItself)
	}
	a.kill()
	r.isRunning = false
	if r.restartAt.IsZero() {
		r.restartAt = time.Now().Add(restartDelay)
	}
}

// crash kills a replica at once; another copy starts after a while.
func (w *world) crash(r *replica) {
	r.actor.kill()
	r.cancel()
	r.isRunning = false
	r.restartAt = time.Now().Add(restartDelay)
	w.reseed()
}

// replicasOf offers to start replicas that are down.
func (w *world) replicas(offer offer) {
	for _, r := range w.cleaners {
		if !r.isRunning && !time.Now().Before(r.restartAt) {
			offer("replica", "start", r.name, func() { w.startReplica(r) })
		}
		if r.snapshot != 0 && r.isRunning && !time.Now().Before(r.freshAt) {
			r.snapshot, r.actor.snapshot = 0, 0
		}
	}
}

func (w *world) replicaOf(a *actor) *replica {
	for _, r := range w.cleaners {
		if r.actor == a {
			return r
		}
	}
	return nil
}

// shiftedClock is the bubble's clock, off by what was set.
type shiftedClock struct {
	clock.RealClock
	shift atomic.Int64 // in nanoseconds; a timer may wake a reader as it is set
}

// Now implements clock.PassiveClock.
func (c *shiftedClock) Now() time.Time { return time.Now().Add(time.Duration(c.shift.Load())) }

// Since implements clock.PassiveClock.
func (c *shiftedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
