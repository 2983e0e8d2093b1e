package sim

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
	"github.com/danm-chaos/danm-chaos/clusters/sim/apiserver"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// point is a kind of moment at which a fault may strike.
type point int

const (
	callPoint    point = iota // a call is granted
	watchPoint                // an event is about to be delivered to a cleaner
	cleanerPoint              // a call of a cleaner was granted
	stepPoint                 // anything was granted
	delPoint                  // CNI DEL is about to begin
	addPoint                  // CNI ADD is between bit and endpoint
	clearPoint                // CNI DEL is between reading and writing
	slowPoint                 // a call is about to be granted
)

// pointOf tells when a kind of fault strikes.
func pointOf(kind schedule.FaultKind) point {
	switch kind {
	case schedule.ReplyLost, schedule.TimeoutBefore, schedule.Conflict, schedule.TooMany, schedule.ServerError,
		schedule.CrashAfter, schedule.PartialList:
		return callPoint
	case schedule.WatchCut, schedule.WatchExpired, schedule.WatchStall, schedule.Coalesce:
		return watchPoint
	case schedule.StaleRestart, schedule.PauseCleaner, schedule.ClockJump:
		return cleanerPoint
	case schedule.DelLost, schedule.DelTwice, schedule.DelLate:
		return delPoint
	case schedule.AddCrashed, schedule.AddStalled:
		return addPoint
	case schedule.DelStalled:
		return clearPoint
	case schedule.SlowCall, schedule.LateCall:
		return slowPoint
	}
	return stepPoint
}

// faults holds what is to go wrong, in the order of the simulation.
type faults struct {
	world *world
	all   []*fault
	by    [slowPoint + 1][]*fault // the same, by point
	heals []heal
}

// fault is a planned fault and how far it is.
type fault struct {
	schedule.SimFault
	words []string
	seen  int // opportunities
	left  int // repetitions
	fired bool
}

// heal is what undoes a fault, and when: at a time, or after a call.
type heal struct {
	at    time.Time
	until []string // words of the call; none is no call
	do    func()
}

func newFaults(w *world, plan []schedule.SimFault) *faults {
	f := &faults{world: w}
	for _, planned := range plan {
		p := pointOf(planned.Do)
		next := &fault{SimFault: planned, words: strings.Fields(planned.On), left: max(1, planned.Count)}
		f.all, f.by[p] = append(f.all, next), append(f.by[p], next)
	}
	return f
}

// at counts an opportunity and returns the fault that strikes, if any. what
// describes the opportunity in words.
func (f *faults) at(p point, what string) *fault {
	if f.world.phase != acting || f.world.isLegacy() {
		return nil
	}
	var strikes *fault
	for _, planned := range f.by[p] {
		if planned.left == 0 || !planned.means(what) {
			continue
		}
		planned.seen++
		if strikes == nil && planned.seen >= planned.Nth {
			strikes = planned
		}
	}
	if strikes != nil {
		strikes.left--
		strikes.fired = true
		f.world.stirred++
	}
	return strikes
}

// noteFault puts a fault into trace and story.
func (w *world) noteFault(f *fault, on string) {
	text := strings.TrimSpace("fault " + string(f.Do) + " " + on)
	w.note(text)
	w.tell("%s", text)
}

// means tells whether every word of the fault's is among those of the
// opportunity.
func (f *fault) means(what string) bool { return hasWords(what, f.words) }

func hasWords(what string, words []string) bool {
	for _, word := range words {
		if !hasWord(what, word) {
			return false
		}
	}
	return true
}

func hasWord(what, word string) bool {
	for rest := what; len(rest) >= len(word); {
		next, after, _ := strings.Cut(rest, " ")
		if next == word {
			return true
		}
		rest = after
	}
	return false
}

// later heals after a while, after the call that the fault waits for, or when
// the user is done.
func (f *faults) later(planned *fault, do func()) {
	f.heals = append(f.heals, heal{time.Now().Add(planned.For), strings.Fields(planned.Until), do})
}

// after does something after a while, or when the user is done.
func (f *faults) after(d time.Duration, do func()) {
	f.heals = append(f.heals, heal{at: time.Now().Add(d), do: do})
}

// healAfter makes what waits for such a call due.
func (f *faults) healAfter(what string) {
	for i, h := range f.heals {
		if len(h.until) > 0 && hasWords(what, h.until) {
			f.heals[i].at = time.Now()
		}
	}
}

// healDue heals what is over; all of it at the end.
func (f *faults) healDue(all bool) {
	if len(f.heals) == 0 {
		return
	}
	kept := f.heals[:0]
	var due []func()
	for _, h := range f.heals {
		if all || !time.Now().Before(h.at) {
			due = append(due, h.do)
		} else {
			kept = append(kept, h)
		}
	}
	f.heals = kept
	for _, do := range due {
		f.world.stirred++
		do()
	}
}

// nextHeal returns when something heals next.
func (f *faults) nextHeal() (time.Time, bool) {
	var next time.Time
	for _, h := range f.heals {
		if next.IsZero() || h.at.Before(next) {
			next = h.at
		}
	}
	return next, !next.IsZero()
}

// opportunity describes a call in words.
func opportunity(c *call) string {
	who, _, _ := strings.Cut(c.actor.name, "-")
	who, _, _ = strings.Cut(who, "/")
	kind := "read"
	if c.isWrite() {
		kind = "write"
	}
	return who + " " + kind + " " + c.verb + " " + c.target
}

// serve answers a granted call, with what a fault makes of it.
func (w *world) serve(c *call, f *fault) answer {
	if f == nil {
		return w.answer(c)
	}
	switch f.Do {
	case schedule.TimeoutBefore:
		return answer{err: errTimeout{}}
	case schedule.Conflict:
		return refusal(http.StatusConflict, "Conflict")
	case schedule.TooMany:
		return refusal(http.StatusTooManyRequests, "TooManyRequests")
	case schedule.ServerError:
		return refusal(http.StatusInternalServerError, "InternalError")
	case schedule.PartialList:
		return w.partial(c)
	case schedule.CrashAfter:
		w.answer(c)
		w.crashActor(c.actor)
		return answer{err: errDead}
	}
	a := w.answer(c) // ReplyLost
	if a.stream != nil {
		a.stream.watch.Close()
	}
	return answer{err: errReset}
}

// refusal is an answer of an API server that does not do what it was asked.
func refusal(code int, reason string) answer {
	status := &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Message: "injected", Reason: metav1.StatusReason(reason), Code: int32(code),
	}
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"injected","reason":%q,"code":%d}`, reason, code)
	return answer{response: apiserver.Response{Code: code, ContentType: "application/json", Body: []byte(body), Status: status}}
}

// answer does what the call asks for.
func (w *world) answer(c *call) answer {
	if c.actor.snapshot != 0 {
		c.request.Snapshot = c.actor.snapshot
	}
	if h := w.hiding(c); h != nil {
		if refused := w.readHidden(c, h); refused != nil {
			w.noteAnswer(c, refused.Code)
			return answer{response: *refused}
		}
	}
	if c.verb != "watch" {
		response := w.server.Serve(c.request)
		w.noteAnswer(c, response.Code)
		w.noteMoved(c)
		return answer{response: response}
	}
	watch, refused := w.server.Watch(c.request)
	if refused != nil {
		w.noteAnswer(c, refused.Code)
		return answer{response: *refused}
	}
	s := newStream(c, watch, &w.gate.parcels)
	if r := w.replicaOf(c.actor); r != nil && r.snapshot != 0 {
		s.stalled = r.freshAt
	}
	w.gate.add(s)
	return answer{stream: s}
}

// partial answers a list of pods for a cache with the state of long ago, when
// half of them did not exist. Other calls are answered as usual.
func (w *world) partial(c *call) answer {
	if c.verb == "list" && c.request.Snapshot == 0 {
		c.request.Snapshot = max(1, w.server.ResourceVersion()/2)
	}
	return w.answer(c)
}

// crashActor ends whoever called: a replica of the cleaner, or a plugin.
func (w *world) crashActor(a *actor) {
	if r := w.replicaOf(a); r != nil {
		w.crash(r)
		return
	}
	a.kill()
	for _, sb := range w.sandboxes {
		if sb.actor == a {
			sb.cancel()
		}
	}
	w.reseed()
}

// deliver hands the next event of a watch to its client, unless a fault has it
// otherwise.
func (w *world) deliver(s *stream) {
	f := w.faults.at(watchPoint, "cleaner "+s.resource)
	if f == nil || !strings.HasPrefix(s.actor.name, "cleaner") {
		s.deliver()
		return
	}
	w.noteFault(f, s.key)
	switch f.Do {
	case schedule.WatchStall:
		s.stalled = time.Now().Add(f.For)
	case schedule.Coalesce:
		s.stalled, s.isBroken = time.Now().Add(f.For), true
	case schedule.WatchExpired:
		w.expire(s)
	default:
		w.cut(s)
	}
}

// cut ends a watch; the client goes on from the last event that it got.
func (w *world) cut(s *stream) {
	s.watch.Close()
	s.end(errReset)
	w.reseed()
	w.reach(watchEnds)
}

// expire ends a watch so that its client has to list again.
func (w *world) expire(s *stream) {
	w.server.Compact(w.server.ResourceVersion())
	w.reach(relisted)
	w.cut(s)
}

// strike lets faults hit processes and nodes, once what was granted last has
// had its effect.
func (w *world) strike() {
	moment := "step"
	for _, c := range w.granted {
		moment = c.words
		w.faults.healAfter(moment)
		if r := w.replicaOf(c.actor); r != nil {
			if f := w.faults.at(cleanerPoint, moment); f != nil {
				w.strikeReplica(r, f)
			}
		}
	}
	w.granted = nil
	if f := w.faults.at(stepPoint, moment); f != nil {
		w.strikeWorld(f)
	}
}

func (w *world) strikeReplica(r *replica, f *fault) {
	w.noteFault(f, r.actor.name)
	switch f.Do {
	case schedule.StaleRestart:
		r.snapshot = max(1, w.server.ResourceVersion()-int64(5+f.Pick%40))
		r.freshAt = time.Now().Add(restartDelay + f.For)
		w.crash(r)
	case schedule.PauseCleaner:
		a := r.actor
		w.commitLate(f, w.underWay(a))
		a.isHeld = true
		w.faults.later(f, func() { a.isHeld = false })
	case schedule.ClockJump:
		r.clock.shift.Add(int64(f.For))
	}
}

// cniPoint is called by plugins in the gaps between their steps.
func (w *world) cniPoint(ctx context.Context, p danmcni.Point) error {
	at, isOfInterest := map[danmcni.Point]point{
		danmcni.BetweenReserveAndCreate: addPoint, danmcni.BeforeClear: clearPoint,
	}[p]
	a, isPlugin := ctx.Value(actorKey{}).(*actor)
	if !isOfInterest || !isPlugin {
		return ctx.Err()
	}
	return w.atCNIPoint(ctx, a, at)
}

// atCNIPoint runs while everybody else waits, as one call was granted and this
// plugin goes on from it.
func (w *world) atCNIPoint(ctx context.Context, a *actor, at point) error {
	f := w.faults.at(at, "cni")
	if f == nil {
		return ctx.Err()
	}
	w.noteFault(f, a.name)
	if f.Do == schedule.AddCrashed {
		return errKilled
	}
	a.isHeld = true
	w.faults.later(f, func() { a.isHeld = false })
	return ctx.Err()
}

// strikeWorld injects faults of nodes, pods and people. One that finds nothing
// to hit waits until it does.
func (w *world) strikeWorld(f *fault) {
	if !w.hit(f) {
		f.left++
		f.fired = f.left < max(1, f.Count)
		return
	}
	w.noteFault(f, "")
}

func (w *world) hit(f *fault) bool {
	switch f.Do {
	case schedule.RebootNode, schedule.PartitionNode:
		return w.strikeNode(f)
	case schedule.RemoveNode:
		return w.loseNode(f)
	case schedule.OutOfService:
		return w.giveUpNode()
	case schedule.EvictPod, schedule.DeletePod:
		return w.strikePod(f)
	case schedule.DeleteNamespace:
		return w.deleteNamespace()
	case schedule.RenewNetwork:
		return w.renewNetwork()
	case schedule.BothGroups:
		return w.migrate(f)
	case schedule.MoveEndpoints:
		return w.moveEndpoints(f)
	case schedule.ReserveAddress:
		return w.reserveAddress()
	case schedule.RenewMirror:
		return w.renewMirror()
	case schedule.HidePods:
		return w.hidePods(f)
	case schedule.ScaleDown:
		w.scale(f)
	case schedule.EditNetwork:
		w.mergePatch(map[string]any{"metadata": map[string]any{"labels": map[string]any{"edited": fmt.Sprint(f.Nth)}}})
	}
	return true
}

// scale takes one replica away, for a while or for good.
func (w *world) scale(f *fault) {
	w.replicasWanted = max(1, w.plan.World.Pods-1)
	if f.For > 0 {
		w.faults.later(f, func() { w.replicasWanted = w.plan.World.Pods })
		return
	}
	l := w.lane()
	l.Replicas = w.podsWanted()
	w.record.add(history.Record{Lane: l})
}

// slow keeps calls in front of the API server if a fault says so.
func (w *world) slow(calls []*call) bool {
	f := w.faults.at(slowPoint, calls[0].words)
	if f == nil {
		return false
	}
	w.noteFault(f, "on "+calls[0].key)
	if f.Do == schedule.LateCall {
		w.commitLate(f, calls)
		return true
	}
	held := time.Now().Add(f.For)
	for _, c := range calls {
		c.heldUntil = held
	}
	w.faults.later(f, func() {
		for _, c := range calls {
			c.heldUntil = time.Time{}
		}
	})
	return true
}

func (w *world) strikeNode(f *fault) bool {
	candidates := w.nodesWithPods(schedule.NodeWithPods)
	if len(candidates) == 0 {
		return false
	}
	n := candidates[f.Pick%uint64(len(candidates))]
	if n == w.user.failed || n.isCut {
		return false
	}
	if f.Do == schedule.RebootNode {
		w.powerOff(n)
		w.faults.later(f, func() { w.powerOn(n) })
		return true
	}
	w.partition(n, true)
	w.faults.later(f, func() { w.partition(n, false) })
	return true
}

// partition cuts the wire between a node and the API server, or mends it.
func (w *world) partition(n *node, isCut bool) {
	n.isCut = isCut
	switch {
	case isCut && n.silent.IsZero():
		n.silent = time.Now()
	case !isCut && n.hasPower:
		n.silent = time.Time{}
	}
	for _, sb := range w.sandboxes {
		if sb.node == n && sb.actor != nil {
			sb.actor.isHeld = isCut
		}
	}
}

func (w *world) strikePod(f *fault) bool {
	var candidates []*corev1.Pod
	for _, pod := range w.sortedPods() {
		if isRunning(pod) && !w.isMirror(pod) {
			candidates = append(candidates, pod)
		}
	}
	if len(candidates) == 0 {
		return false
	}
	pod := candidates[f.Pick%uint64(len(candidates))]
	if f.Do == schedule.DeletePod {
		w.deletePod(userAdmin, pod, new(int64))
		return true
	}
	n := w.nodeOf(pod)
	if n == nil || !n.acts() {
		return false
	}
	w.putStatus(n, pod, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"})
	return true
}

// renewNetwork deletes the network and makes it again as it was, bits included,
// as somebody does who restores it from a file.
func (w *world) renewNetwork() bool {
	if w.bits == nil || w.isDraining {
		return false
	}
	object, ok := w.template(w.networksPath() + "/" + networkName)
	if !ok {
		return false
	}
	w.do(userAdmin, http.MethodDelete, w.networksPath()+"/"+networkName, nil)
	w.do(userAdmin, http.MethodPost, w.networksPath(), object)
	return true
}
