package sim

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/danm-chaos/danm-chaos/clusters/sim/apiserver"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// Bounds of one simulation. stepsMax is far beyond what any needs; who gets
// there runs in circles.
const (
	stepsMax     = 20_000
	actingMax    = 1_500 // after so many, delays that nothing makes necessary end
	settleBudget = 4     // times both quarantines together
	settleExtra  = 3 * time.Minute
)

// timeSteps are the delays that may be chosen although something could happen.
// No two of them, and none of anybody's periods, have a common divisor, so that
// timers of different owners rarely meet.
var timeSteps = []time.Duration{
	7*time.Millisecond + 1_009*time.Nanosecond,
	1*time.Second + 310_019*time.Nanosecond,
	11*time.Second + 70_001*time.Nanosecond,
}

// timeKeys name the delays.
var timeKeys = [...]string{"0", "1", "2"}

// Options say how to play.
type Options struct {
	// Start runs the cleaner under test.
	Start Start
	// Story asks for Outcome.Story, which takes time to write.
	Story bool
}

// Steps counts what the gate granted.
type Steps struct {
	Calls, Events, World, Time int
}

// Total is the number of all granted steps.
func (s Steps) Total() int { return s.Calls + s.Events + s.World + s.Time }

// Outcome is what came of a simulation.
type Outcome struct {
	Records []history.Record
	// Choices were made where there was a choice, Widths are of how many.
	Choices, Widths []int
	Steps           Steps
	Virtual         time.Duration
	Digest          uint64   // of every step and every record
	Trace           []string // every step
	Story           []string // the same for people, without what nobody asks about; only if asked for
	Counts          string   // pods, endpoints and bits at the end
	Fired           []bool   // by fault of the simulation
	Reached         map[string]int
	// Err says that the simulator itself is wrong, or could not go on.
	Err error
}

// Play plays a simulation. t is only what package synctest needs to make a
// bubble; nothing is reported to it.
func Play(t *testing.T, plan schedule.Simulation, o Options) Outcome {
	var out Outcome
	synctest.Test(t, func(*testing.T) { out = play(plan, o) })
	return out
}

func play(plan schedule.Simulation, o Options) Outcome {
	seedGlobal(plan.Seed)
	began := time.Now()
	w, err := newWorld(plan, o)
	if err != nil {
		return Outcome{Err: err}
	}
	for i := range plan.World.Replicas {
		w.cleaners = append(w.cleaners, &replica{name: fmt.Sprintf("cleaner-%d", i), clock: &shiftedClock{}})
	}
	w.act()
	w.settle()
	w.stop()
	return w.outcome(began)
}

// act plays until the user is done and every fault is healed.
func (w *world) act() {
	for w.goesOn() && !w.user.isDone() {
		w.step(time.Time{})
	}
	synctest.Wait()
	w.stirred += w.inbox.empty()
	w.faults.healDue(true)
}

// settle plays on, with nothing broken any more, until everything agrees and
// then a little longer, or until the time for that is over. A CNI plugin that is
// late may spoil what agreed already; then there is time to heal that, too.
func (w *world) settle() {
	deadline := time.Now().Add(w.settleTime())
	for {
		w.phase = settling
		for w.goesOn() && time.Now().Before(deadline) && !w.isSettled() {
			w.step(deadline)
		}
		// What was in quarantine when everything agreed must not be released now.
		w.phase = quiet
		until := time.Now().Add(w.plan.World.ReleaseQuarantine + 2*time.Second)
		for w.goesOn() && time.Now().Before(until) {
			w.step(until)
		}
		if w.isSettled() || !time.Now().Before(deadline) || w.trouble != nil {
			break
		}
	}
	if w.plan.World.DryRun && !w.isSettled() {
		w.reach(staysDry)
	}
	w.last = w.snapshot()
	w.record.add(history.Record{Snapshot: w.last})
}

// settleTime is more than everything needs to agree when nothing is broken.
func (w *world) settleTime() time.Duration {
	return settleBudget*(w.plan.World.ReleaseQuarantine+w.plan.World.OrphanQuarantine) + settleExtra
}

func (w *world) goesOn() bool {
	if w.steps.Total() > stepsMax {
		w.fail(fmt.Errorf("no end after %d steps: %s", stepsMax, w.lastSteps()))
	}
	return w.trouble == nil
}

// lastSteps names what happened last, for messages about runs without end.
func (w *world) lastSteps() string {
	return strings.Join(w.trace[max(0, len(w.trace)-5):], "; ")
}

// step lets one thing happen. Time passes only when nothing else can, or when
// that was chosen; not beyond until, if that is set.
func (w *world) step(until time.Time) {
	synctest.Wait()
	w.stirred += w.inbox.empty()
	w.strike()
	w.faults.healDue(false)
	options := w.collect(until)
	if len(options) == 0 {
		w.idle(until)
		return
	}
	o := options[w.choices.choose(options, w.isCalm())]
	o.calls = slices.Clone(o.calls) // what they are part of is used again
	w.note(o.line())
	w.tellOption(o)
	w.grant(o)
}

// isCalm tells whether everybody is as quick as can be: at the end, and when the
// user waits for so long, or at all for so many steps, that delays would be why he
// gives up.
func (w *world) isCalm() bool {
	return w.phase != acting || w.steps.Total() > actingMax || w.user.isImpatient(w.settleTime()/2)
}

// idle lets time pass until somebody comes to the gate or the world has
// something to do.
func (w *world) idle(until time.Time) {
	wake := w.nextAppointment(until)
	select {
	case <-w.gate.arrived:
	default:
	}
	timer := time.NewTimer(max(time.Until(wake), time.Nanosecond))
	defer timer.Stop()
	select {
	case <-w.gate.arrived:
	case <-timer.C:
	}
	w.steps.Time++
}

// idleMax bounds one wait; the world looks around at least that often.
const idleMax = 30*time.Second + 90_001*time.Nanosecond

// nextAppointment is when the world can do something by itself, or when to look
// around.
func (w *world) nextAppointment(until time.Time) time.Time {
	now := time.Now()
	next := now.Add(idleMax)
	add := func(t time.Time) {
		if t.After(now) && t.Before(next) {
			next = t
		}
	}
	add(until)
	add(w.user.ready)
	add(w.user.patience)
	if t, ok := w.faults.nextHeal(); ok {
		add(t)
	}
	for _, n := range w.nodes {
		if !n.silent.IsZero() {
			add(n.silent.Add(nodeGrace))
		}
	}
	for _, sb := range w.sandboxes {
		add(sb.notBefore)
	}
	for _, t := range w.retryPod {
		add(t)
	}
	for _, r := range w.cleaners {
		add(r.restartAt)
		add(r.freshAt)
	}
	for _, s := range w.gate.sweep() {
		add(s.stalled)
	}
	w.parked = w.gate.waiting(w.parked[:0])
	for _, c := range w.parked {
		add(c.heldUntil)
	}
	return next
}

// stop ends everything that still runs.
func (w *world) stop() {
	for _, r := range w.cleaners {
		if r.actor != nil {
			r.actor.kill()
			r.cancel()
		}
	}
	for _, sb := range w.sandboxes {
		if sb.actor != nil {
			sb.actor.kill()
			sb.cancel()
		}
	}
	w.group.Wait()
	w.gate.sweep()
}

// note adds a step to the trace.
func (w *world) note(what string) {
	w.trace = append(w.trace, what)
	w.record.hashStep(what)
}

func (w *world) outcome(began time.Time) Outcome {
	out := Outcome{
		Records: w.record.records, Choices: w.choices.taken, Widths: w.choices.widths, Steps: w.steps,
		Virtual: time.Since(began), Reached: w.reached, Err: w.trouble, Digest: w.record.digest.Sum64(),
		Trace: w.trace, Story: shortened(w.story), Counts: counts(w.last),
	}
	for _, f := range w.faults.all {
		out.Fired = append(out.Fired, f.fired)
	}
	return out
}

// seedGlobal makes what client-go draws from package math/rand repeatable. It
// needs the setting randseednop=0 in the program.
func seedGlobal(seed uint64) {
	//lint:ignore SA1019 client-go draws its jitter from the global source, and there is no other way to it
	rand.Seed(int64(seed))
}

// reseed is called when somebody dies or a watch ends: in what order the
// goroutines concerned draw from the global source is not known.
func (w *world) reseed() {
	synctest.Wait()
	seedGlobal(w.plan.Seed ^ uint64(w.steps.Total())<<20)
}

// template reads an object as somebody does who wants to make it anew.
func (w *world) template(path string) (map[string]any, bool) {
	found := w.server.Serve(apiserver.Request{User: userAdmin, Method: http.MethodGet, Path: path, Accept: runtime.ContentTypeJSON})
	object, err := withoutIdentity(found.Body)
	if err != nil {
		w.fail(err)
	}
	return object, err == nil
}

// withoutIdentity strips from an object what a new one must not have.
func withoutIdentity(data []byte) (map[string]any, error) {
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, fmt.Errorf("reading an object back: %w", err)
	}
	if metadata, ok := object["metadata"].(map[string]any); ok {
		for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"} {
			delete(metadata, field)
		}
	}
	return object, nil
}

// optionKind tells what an option does.
type optionKind int

const (
	deliverEvent optionKind = iota
	answerCalls
	worldStep
	passTime
)

// option is one thing that can happen next.
type option struct {
	kind   optionKind
	actor  string
	key    string // of a step of the world only what is done
	object string // to what a step of the world is done
	stream *stream
	calls  []*call // equal requests of one actor, which get equal answers
	do     func()
	pause  time.Duration
}

// offer adds a step of the world to the options: who does what to which object.
type offer func(actor, what, object string, do func())

// line names an option in the trace. Few of the options that there are get there.
func (o option) line() string {
	switch o.kind {
	case worldStep:
		return o.actor + " " + o.what()
	case passTime:
		return o.actor + " " + o.key
	}
	return o.key
}

// what says what a step of the world does.
func (o option) what() string {
	if o.object == "" {
		return o.key
	}
	return o.key + " " + o.object
}

// collect lists what can happen, in a fixed order: events, calls, steps of the
// world, and the passing of time. The first of the list is what would happen if
// everybody were quick.
func (w *world) collect(until time.Time) []option {
	w.scratch = w.scratch[:0]
	w.collectEvents()
	w.collectCalls()
	w.scratch = append(w.scratch, w.collectOwn()...)
	if len(w.scratch) > 0 && w.phase == acting {
		for i, d := range timeSteps {
			w.scratch = append(w.scratch, option{kind: passTime, actor: "time", key: timeKeys[i], pause: d})
		}
	}
	return w.scratch
}

// moment is everything that the steps of the world depend on.
type moment struct {
	at      time.Time
	rv      int64 // of the last commit
	stirred int
	phase   phase
}

// collectOwn lists the steps of the world, and looks anew only if something has
// changed since it looked: most of what is granted are reads and events.
func (w *world) collectOwn() []option {
	now := moment{time.Now(), w.server.ResourceVersion(), w.stirred, w.phase}
	if w.ownAsOf == now {
		return w.own
	}
	w.own = w.own[:0]
	w.offerOwn(func(actor, what, object string, do func()) {
		w.own = append(w.own, option{kind: worldStep, actor: actor, key: what, object: object, do: do})
	})
	// The look itself may have taken steps of the user's that only wait.
	w.ownAsOf = moment{now.at, now.rv, w.stirred, w.phase}
	return w.own
}

func (w *world) offerOwn(offer offer) {
	w.kubelets(offer)
	w.controllers(offer)
	w.replicas(offer)
	if w.phase == acting {
		w.userSteps(offer)
		return
	}
	w.lastForceDeletes(offer)
	w.lastFences(offer)
	w.lastReturns(offer)
}

func (w *world) collectEvents() {
	from, now := len(w.scratch), time.Now()
	for _, s := range w.gate.sweep() {
		if s.actor.isHeld || now.Before(s.stalled) {
			continue
		}
		if s.isBroken {
			w.scratch = append(w.scratch, option{kind: deliverEvent, actor: s.actor.name, key: "expire " + s.key, stream: s})
		} else if s.watch.Pending() > 0 {
			w.scratch = append(w.scratch, option{kind: deliverEvent, actor: s.actor.name, key: s.event, stream: s})
		}
	}
	slices.SortFunc(w.scratch[from:], func(a, b option) int { return strings.Compare(a.key, b.key) })
}

func (w *world) collectCalls() {
	w.parked = w.gate.waiting(w.parked[:0])
	calls, now := w.parked, time.Now()
	slices.SortStableFunc(calls, func(a, b *call) int { return strings.Compare(a.key, b.key) })
	for i := 0; i < len(calls); {
		j := i + 1
		for j < len(calls) && calls[j].key == calls[i].key {
			j++
		}
		if !calls[i].actor.isHeld && !now.Before(calls[i].heldUntil) {
			w.scratch = append(w.scratch, option{kind: answerCalls, actor: calls[i].actor.name, key: calls[i].key, calls: calls[i:j]})
		}
		i = j
	}
}

// grant lets an option happen.
func (w *world) grant(o option) {
	switch o.kind {
	case deliverEvent:
		w.steps.Events++
		if o.stream.isBroken {
			w.expire(o.stream)
		} else {
			w.deliver(o.stream)
		}
	case answerCalls:
		w.steps.Calls++
		if !w.slow(o.calls) {
			w.answerAll(o.calls)
		}
	case worldStep:
		w.steps.World++
		w.stirred++
		o.do()
	case passTime:
		w.steps.Time++
		<-time.After(o.pause)
	}
	w.granted = o.calls
}

// answerAll finds all answers before anybody gets one, so that nobody goes on
// while the world still acts.
func (w *world) answerAll(calls []*call) {
	w.gate.take(calls)
	// One fault for all of them: nobody decides which of equal calls came first.
	f := w.faults.at(callPoint, calls[0].words)
	if f != nil {
		w.noteFault(f, calls[0].key)
	}
	answers := make([]answer, len(calls))
	for i, c := range calls {
		answers[i] = w.serve(c, f)
		w.tellCall(c, answers[i])
	}
	for i, c := range calls {
		c.answers <- &answers[i]
	}
}
