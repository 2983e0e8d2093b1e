package check

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// lanes finds the lane of an object and the step of a moment.
type lanes struct {
	byNamespace  map[string]*history.Lane
	byNetwork    map[string]*history.Lane // by NetworkRef as text
	byGeneration map[generation]*history.Lane
	steps        map[string][]step      // by lane name, in time
	faultsOn     map[string][]time.Time // by node, in time: when a fault was invoked
	restored     map[string][]time.Time // by node, in time: when it was known to have its power back
}

type generation struct {
	lane   string
	number int
}

// step is an op of a lane that was invoked.
type step struct {
	time time.Time
	op   *history.Op // nil before the first
}

// iteration and text say which it is.
func (s step) iteration() int {
	if s.op == nil {
		return 0
	}
	return s.op.Iteration
}

func (s step) text() string {
	if s.op == nil {
		return ""
	}
	return stepText(s.op)
}

func newLanes() *lanes {
	return &lanes{
		byNamespace: map[string]*history.Lane{}, byNetwork: map[string]*history.Lane{},
		byGeneration: map[generation]*history.Lane{}, steps: map[string][]step{},
		faultsOn: map[string][]time.Time{}, restored: map[string][]time.Time{},
	}
}

func (l *lanes) read(records []history.Record) {
	for i := range records {
		r := &records[i]
		switch {
		case r.Lane != nil:
			l.byNamespace[r.Lane.Namespace] = r.Lane
			l.byNetwork[networkOf(r.Lane).String()] = r.Lane
			l.byGeneration[generation{r.Lane.Name, r.Lane.Generation}] = r.Lane
		case r.Op != nil && r.Op.Type == history.Invoke:
			l.steps[r.Op.Lane] = append(l.steps[r.Op.Lane], step{r.Time, r.Op})
			if r.Op.Fault && r.Op.Target != "" {
				l.faultsOn[r.Op.Target] = append(l.faultsOn[r.Op.Target], r.Time)
			}
		case r.Op != nil && r.Op.Type == history.OK && r.Op.F == restoreNode:
			l.restored[r.Op.Target] = append(l.restored[r.Op.Target], r.Time)
		}
	}
	for _, steps := range l.steps {
		slices.SortStableFunc(steps, func(a, b step) int { return a.time.Compare(b.time) })
	}
	for _, times := range l.faultsOn {
		slices.SortFunc(times, time.Time.Compare)
	}
}

// restoreNode is the verb of the operation that gives a node its power back.
const restoreNode = "restore-node"

// isDoubtful tells whether the node may have been without power at t.
func (l *lanes) isDoubtful(node string, t time.Time) bool {
	broken := latestUntil(l.faultsOn[node], t)
	return !broken.IsZero() && !latestUntil(l.restored[node], t).After(broken)
}

// latestUntil returns the last of sorted times that is not after t, or zero.
func latestUntil(times []time.Time, t time.Time) time.Time {
	i := sort.Search(len(times), func(i int) bool { return times[i].After(t) })
	if i == 0 {
		return time.Time{}
	}
	return times[i-1]
}

// nextFault returns when the next fault on the node after t was invoked.
func (l *lanes) nextFault(node string, t time.Time) time.Time {
	times := l.faultsOn[node]
	i := sort.Search(len(times), func(i int) bool { return times[i].After(t) })
	if i == len(times) {
		return forever
	}
	return times[i]
}

func stepText(o *history.Op) string {
	text := fmt.Sprintf("iteration %d step %d %s", o.Iteration, o.Step, o.F)
	if o.Target != "" {
		text += " " + o.Target
	}
	return text
}

// networkOf names the network of a lane.
func networkOf(l *history.Lane) danm.NetworkRef {
	ref := danm.NetworkRef{Kind: danm.NetworkKind(l.NetworkKind), Namespace: l.Namespace, Name: l.Network}
	if !ref.Kind.IsNamespaced() {
		ref.Namespace = ""
	}
	return ref
}

// find returns the name of the lane that is known by any of the three.
func (l *lanes) find(name, namespace, network string) string {
	if name != "" {
		return name
	}
	if lane, ok := l.byNamespace[namespace]; ok {
		return lane.Name
	}
	if lane, ok := l.byNetwork[network]; ok {
		return lane.Name
	}
	return ""
}

// stepAt returns the last step that was invoked in the lane until t.
func (l *lanes) stepAt(lane string, t time.Time) step {
	steps := l.steps[lane]
	i := sort.Search(len(steps), func(i int) bool { return steps[i].time.After(t) })
	if i == 0 {
		return step{}
	}
	return steps[i-1]
}

// lastInvoke returns when the lane's last step before t began.
func (l *lanes) lastInvoke(lane string, t time.Time) time.Time { return l.stepAt(lane, t).time }

// faultBefore returns the last fault on the node that was invoked between the
// two times, or until if there is none.
func (l *lanes) faultBefore(node string, from, until time.Time) time.Time {
	times := l.faultsOn[node]
	i := sort.Search(len(times), func(i int) bool { return times[i].After(until) })
	if i == 0 || !times[i-1].After(from) {
		return until
	}
	return times[i-1]
}
