package check

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// forever is later than any time in a history.
var forever = time.Unix(1<<40, 0)

func orForever(t time.Time) time.Time {
	if t.IsZero() {
		return forever
	}
	return t
}

// write is a committed write with what is known about its origin. Its commit
// lies between earliest and latest.
type write struct {
	*history.Write
	record           uint64
	seen             time.Time // when the watch delivered it
	place            int       // position in the replay; 0 for everything that was there at the start
	audit            *history.Audit
	manager          string // who it was by managedFields, where there is no audit log
	earliest, latest time.Time
}

// user is who made the write, or "" if that is unknown.
func (w *write) user() string {
	switch {
	case w == nil:
		return ""
	case w.audit == nil:
		return w.manager
	default:
		return w.audit.User
	}
}

func (w *write) key() objectKey { return objectKey{w.Resource, w.Namespace, w.Name} }

// objectKey names an object, whichever has that name at the time.
type objectKey struct{ resource, namespace, name string }

func (k objectKey) String() string { return k.resource + "/" + k.namespace + "/" + k.name }

// isDanm tells whether the resource is one whose every write needs a writer.
func isDanm(resource string) bool {
	_, isNetwork := danm.NetworkKindOf(resource)
	return isNetwork || resource == danm.EndpointResource
}

type version struct {
	uid string
	rv  uint64
}

// orderWrites returns the objects that were there at the start and the writes
// of the run by revision. It complains about anything that a complete record
// of one store cannot contain.
func (j *judge) orderWrites(records []history.Record) (initial, writes []*write) {
	n := 0
	for i := range records {
		if records[i].Write != nil {
			n++
		}
	}
	all := make([]write, 0, n)
	writes = make([]*write, 0, n)
	for i := range records {
		r := &records[i]
		if r.Write == nil {
			continue
		}
		all = append(all, write{Write: r.Write, record: r.N, seen: orForever(r.Time)})
		w := &all[len(all)-1]
		if w.Initial {
			initial = append(initial, w)
		} else {
			writes = append(writes, w)
		}
	}
	slices.SortStableFunc(writes, func(a, b *write) int { return cmp.Compare(a.RV, b.RV) })
	writes = j.withoutRepeats(writes)
	for i, w := range writes {
		w.place = i + 1
	}
	j.checkLives(initial, writes)
	return initial, writes
}

// withoutRepeats drops events that a restarted watch delivered again. Two
// different writes cannot share a revision.
func (j *judge) withoutRepeats(writes []*write) []*write {
	kept := writes[:0]
	for _, w := range writes {
		if len(kept) == 0 || kept[len(kept)-1].RV != w.RV {
			kept = append(kept, w)
			continue
		}
		if last := kept[len(kept)-1]; last.UID != w.UID || last.Type != w.Type || !bytes.Equal(last.Object, w.Object) {
			j.unknownf(HistoryComplete, "revision %d is claimed by %s %s and %s %s", w.RV, last.Type, last.key(), w.Type, w.key())
		}
	}
	return kept
}

// checkLives complains about objects that change before they exist or appear
// twice: the watch that recorded them missed something.
func (j *judge) checkLives(initial, writes []*write) {
	last := map[string]*write{}       // by UID
	current := map[objectKey]*write{} // the object that exists
	for _, w := range initial {
		last[w.UID], current[w.key()] = w, w
	}
	for _, w := range writes {
		before, known := last[w.UID]
		holder := current[w.key()]
		switch {
		case w.Type == history.Added && known:
			j.unknownf(HistoryComplete, "%s (uid %s) is created twice, again at rv %d", w.key(), w.UID, w.RV)
		case w.Type == history.Added && holder != nil:
			j.unknownf(HistoryComplete, "%s is created at rv %d although uid %s was not deleted", w.key(), w.RV, holder.UID)
		case w.Type != history.Added && (!known || before.Type == history.Deleted):
			j.unknownf(HistoryComplete, "%s (uid %s) is %s at rv %d but did not exist", w.key(), w.UID, strings.ToLower(string(w.Type)), w.RV)
		case known && before.RV >= w.RV:
			j.unknownf(HistoryComplete, "%s (uid %s) goes back from rv %d to %d", w.key(), w.UID, before.RV, w.RV)
		}
		last[w.UID] = w
		if w.Type == history.Deleted {
			delete(current, w.key())
		} else {
			current[w.key()] = w
		}
	}
}

// placeInTime bounds the commit of every write. Commits happen in the order of
// revisions, so each write also profits from what is known of its neighbours.
func placeInTime(writes []*write) {
	var earliest time.Time
	for _, w := range writes {
		if w.audit != nil && w.audit.Begin.After(earliest) {
			earliest = w.audit.Begin
		}
		w.earliest = earliest
	}
	latest := forever
	for _, w := range slices.Backward(writes) {
		latest = earlier(latest, w.seen)
		if w.audit != nil {
			latest = earlier(latest, orForever(w.audit.End))
		}
		w.latest = latest
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// checkClocks complains if audit log and watch cannot both be right.
func (j *judge) checkClocks(writes []*write) {
	for _, w := range writes {
		if w.earliest.After(w.latest) {
			j.unknownf(HistoryComplete, "the clocks disagree: rv %d was requested after %v but known at %v", w.RV, w.earliest, w.latest)
			return
		}
	}
}
