package check

import (
	"fmt"
	"maps"
	"slices"

	"github.com/danm-chaos/danm-chaos/harness/history"
)

// opKey names an operation across its records.
type opKey struct {
	process, lane   string
	iteration, step int
	f               string
}

func keyOf(o *history.Op) opKey { return opKey{o.Process, o.Lane, o.Iteration, o.Step, o.F} }

// checkFaults makes sure that every planned fault fired and that the outcome
// of every operation is known.
func (j *judge) checkFaults(records []history.Record) {
	open := map[opKey]*history.Op{}
	var order []opKey
	for i := range records {
		o := records[i].Op
		if o == nil {
			continue
		}
		key := keyOf(o)
		if o.Type == history.Invoke {
			if open[key] != nil {
				j.unknownf(FaultsFired, "%s was invoked twice", stepText(o))
			}
			if o.Fault {
				j.count(FaultsFired)
			}
			open[key] = o
			order = append(order, key)
			continue
		}
		j.closeOp(open[key], o)
		delete(open, key)
	}
	for _, key := range order {
		if o := open[key]; o != nil {
			j.unknownf(FaultsFired, "%s of %s was invoked but has no outcome", stepText(o), laneOf(o))
			delete(open, key)
		}
	}
}

func laneOf(o *history.Op) string {
	if o.Lane != "" {
		return o.Lane
	}
	return o.Process
}

func (j *judge) closeOp(invoked, o *history.Op) {
	switch {
	case invoked == nil:
		j.unknownf(FaultsFired, "%s of %s has an outcome but was not invoked", stepText(o), laneOf(o))
	case o.Type == history.Info:
		j.unknownf(FaultsFired, "nobody knows whether %s of %s happened: %s", stepText(o), laneOf(o), orUnstated(o.Error))
	case o.Type != history.OK && (invoked.Fault || o.Fault):
		j.unknownf(FaultsFired, "the planned fault %s of %s did not fire: %s", stepText(o), laneOf(o), orUnstated(o.Error))
	}
}

// checkExercised makes sure that there was something to judge.
func (j *judge) checkExercised(records []history.Record) {
	attached := 0
	for i := range records {
		if a := records[i].Attachment; a != nil && a.Event == history.Attached {
			attached++
		}
	}
	for _, c := range []struct {
		missing bool
		reason  string
	}{
		{!j.hasRun, "nothing was exercised: the history has no run"},
		{j.hasRun && j.run.CleanerUser == "", "the run does not say who the cleaner is"},
		{attached == 0 && len(j.lives) == 0, "nothing was exercised: no pod was ever attached"},
		{j.lastSnapshot.IsZero(), "nothing was exercised: there is no snapshot"},
		{j.report.Checked[LiveAttachment] == 0, "nothing was exercised: " + string(LiveAttachment) + " was never evaluated"},
		{j.report.Checked[Convergence] == 0, "nothing was exercised: " + string(Convergence) + " was never evaluated"},
	} {
		if c.missing {
			j.unknownf(HistoryComplete, "%s", c.reason)
		}
	}
	j.checkRead(records)
}

// checkRead makes sure that every lane was read after the faults of every
// iteration, and every generation of it at least once.
func (j *judge) checkRead(records []history.Record) {
	faults := map[string]*history.Op{} // by lane: the last fault that nobody read after
	lanes := map[string]bool{}         // generations that nobody read
	for i := range records {
		r := &records[i]
		switch {
		case r.Op != nil && r.Op.Fault && r.Op.Lane != "":
			if last := faults[r.Op.Lane]; last != nil && last.Iteration != r.Op.Iteration {
				j.unreadAfter(last)
			}
			faults[r.Op.Lane] = r.Op
		case r.Lane != nil:
			lanes[generationOf(r.Lane)] = true
		case r.Snapshot != nil:
			delete(faults, r.Snapshot.Lane)
			if lane := j.lanes.byGeneration[generation{r.Snapshot.Lane, r.Snapshot.Generation}]; lane != nil {
				delete(lanes, generationOf(lane))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		j.unreadAfter(faults[name])
	}
	for _, name := range slices.Sorted(maps.Keys(lanes)) {
		j.unknownf(HistoryComplete, "%s was announced but never read", name)
	}
}

func (j *judge) unreadAfter(o *history.Op) {
	j.unknownf(HistoryComplete, "%s was never read after %s", o.Lane, stepText(o))
}

func generationOf(l *history.Lane) string {
	return fmt.Sprintf("%s generation %d", l.Name, l.Generation)
}
