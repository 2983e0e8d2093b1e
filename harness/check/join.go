package check

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// request is a successful mutating request of the audit log.
type request struct {
	*history.Audit
	record uint64
	used   bool // it explains a write
}

// requests is the audit log, indexed for the join.
type requests struct {
	all         []*request
	writesOf    map[version][]*request // create, update, patch
	deletesOf   map[string]*request    // by UID
	deletes     map[objectKey][]*request
	collections map[objectKey][]*request // without name
	unresolved  map[objectKey][]*request // that may have taken effect or not
	podDeletes  map[string]time.Time     // by UID: the first attempt
}

// lateCommitMax is how long after its unresolved answer a request may still
// take effect: the API server gives up on its store no later.
const lateCommitMax = time.Minute

// isUnresolved tells whether the answer leaves open if the request took effect:
// none, one that the client did not wait for, or a timeout.
func isUnresolved(a *history.Audit) bool {
	const clientClosedRequest = 499
	return !a.DryRun && (a.Code == 0 || a.Code == clientClosedRequest || a.Code >= 500)
}

func isSuccess(a *history.Audit) bool { return a.Code >= 200 && a.Code < 300 && !a.DryRun }

func indexRequests(records []history.Record) *requests {
	n := 0
	for i := range records {
		if records[i].Audit != nil {
			n++
		}
	}
	q := &requests{
		all: make([]*request, 0, n), writesOf: make(map[version][]*request, n), deletesOf: map[string]*request{},
		deletes: map[objectKey][]*request{}, collections: map[objectKey][]*request{},
		unresolved: map[objectKey][]*request{}, podDeletes: map[string]time.Time{},
	}
	all := make([]request, 0, n)
	for i := range records {
		if a := records[i].Audit; a != nil {
			all = append(all, request{Audit: a, record: records[i].N})
			q.add(&all[len(all)-1])
		}
	}
	byBegin := func(a, b *request) int { return a.Begin.Compare(b.Begin) }
	for _, index := range []map[objectKey][]*request{q.deletes, q.collections, q.unresolved} {
		for _, list := range index {
			slices.SortStableFunc(list, byBegin)
		}
	}
	for _, list := range q.writesOf {
		slices.SortStableFunc(list, byBegin)
	}
	return q
}

func (q *requests) add(r *request) {
	q.all = append(q.all, r)
	if isUnresolved(r.Audit) {
		key := objectKey{r.Resource, r.Namespace, r.Name}
		q.unresolved[key] = q.listed(q.unresolved[key])
	}
	if !isSuccess(r.Audit) {
		return
	}
	switch r.Verb {
	case "create", "update", "patch":
		v := version{r.UID, r.RV}
		q.writesOf[v] = q.listed(q.writesOf[v])
	case "delete":
		if r.Resource == "pods" && r.UID != "" {
			if first, ok := q.podDeletes[r.UID]; !ok || r.Begin.Before(first) {
				q.podDeletes[r.UID] = r.Begin
			}
		}
		if r.UID != "" && q.deletesOf[r.UID] == nil {
			q.deletesOf[r.UID] = r
		}
		key := objectKey{r.Resource, r.Namespace, r.Name}
		q.deletes[key] = q.listed(q.deletes[key])
	case "deletecollection":
		key := objectKey{resource: r.Resource, namespace: r.Namespace}
		q.collections[key] = q.listed(q.collections[key])
	}
}

// listed appends the last of all requests to a list. Few lists get a second, so
// one of a single request is a part of the list of all.
func (q *requests) listed(list []*request) []*request {
	last := len(q.all) - 1
	if len(list) == 0 {
		return q.all[last : last+1 : last+1]
	}
	return append(list, q.all[last])
}

// join finds the writer of every write. What is exact comes first, because it
// narrows the times between which the rest must lie.
func (j *judge) join(q *requests, writes []*write) {
	for _, w := range writes {
		if r := q.exact(w); r != nil {
			w.audit, r.used = r.Audit, true
		}
	}
	for _, guess := range []func(*write) *history.Audit{q.likely, q.perhaps} {
		placeInTime(writes)
		for _, w := range writes {
			if w.audit == nil && isDanm(w.Resource) {
				w.audit = guess(w)
			}
		}
	}
	placeInTime(writes)
	q.placePodDeletes(writes)
	j.checkClocks(writes)
	j.checkWriters(q, writes)
}

// exact returns the request that names the write by UID, and by revision
// unless it is a deletion. A request that changed nothing is answered with the
// revision of an older write; it can only have begun after that write, so the
// first to begin is the writer.
func (q *requests) exact(w *write) *request {
	if w.Type == history.Deleted {
		if r := q.deletesOf[w.UID]; r != nil && isDanm(w.Resource) && r.Resource == w.Resource {
			return r
		}
		return nil
	}
	for _, r := range q.writesOf[version{w.UID, w.RV}] {
		if r.Resource == w.Resource && !r.Begin.After(w.seen) {
			return r
		}
	}
	return nil
}

// likely returns the request that deleted the object by name, or with all
// others of its namespace.
func (q *requests) likely(w *write) *history.Audit {
	if w.Type != history.Deleted {
		return nil
	}
	for _, r := range q.deletes[w.key()] {
		if !r.used && (r.UID == "" || r.UID == w.UID) && couldCommit(r, w) {
			r.used = true
			return r.Audit
		}
	}
	for _, r := range q.collections[objectKey{resource: w.Resource, namespace: w.Namespace}] {
		if couldCommit(r, w) {
			return r.Audit
		}
	}
	return nil
}

// perhaps returns the request that made a write although its answer does not
// say so, as happens when the client dies while it waits. If more than one
// user may have been it, nobody is named. The answer's time bounds nothing.
func (q *requests) perhaps(w *write) *history.Audit {
	var found *request
	for _, r := range q.unresolved[w.key()] {
		lateEnd := orForever(r.End).Add(lateCommitMax)
		if r.used || !canMake(r.Verb, w.Type) || r.Begin.After(w.latest) || lateEnd.Before(w.earliest) {
			continue
		}
		if found != nil && found.User != r.User {
			return nil
		}
		if found == nil {
			found = r
		}
	}
	if found == nil {
		return nil
	}
	found.used = true
	open := *found.Audit
	open.End = time.Time{}
	return &open
}

func canMake(verb string, t history.WriteType) bool {
	switch verb {
	case "create":
		return t == history.Added
	case "delete":
		return t == history.Deleted
	default:
		return verb == "update" && t == history.Modified || verb == "patch" && t != history.Deleted
	}
}

func couldCommit(r *request, w *write) bool {
	return !r.Begin.After(w.latest) && !orForever(r.End).Before(w.earliest)
}

// placePodDeletes uses that no pod disappears before somebody asks for it. The
// removal itself may be another request, so this bounds one side only.
func (q *requests) placePodDeletes(writes []*write) {
	for _, w := range writes {
		first, ok := q.podDeletes[w.UID]
		if ok && w.Type == history.Deleted && first.After(w.earliest) && !first.After(w.latest) {
			w.earliest = first
		}
	}
}

// checkWriters complains about writes without a writer and about requests
// whose effect was not seen.
func (j *judge) checkWriters(q *requests, writes []*write) {
	var orphans []*write
	for _, w := range writes {
		if !isDanm(w.Resource) {
			continue
		}
		j.count(HistoryComplete)
		if w.audit == nil {
			orphans = append(orphans, w)
		}
	}
	if len(q.all) == 0 && len(orphans) > 0 {
		j.unknownf(HistoryComplete, "there is no audit record at all, so none of %d writes has a writer", len(orphans))
		return
	}
	for _, w := range orphans {
		j.unknownf(HistoryComplete, "nobody is known to have made rv %d: %s %s", w.RV, w.Type, w.key())
	}
	j.checkEffects(q, writes)
}

// checkEffects complains about successful requests that no watch event shows.
// Those after the last snapshot are left alone: the watch may have ended
// before they came, and nothing that was judged depends on them.
func (j *judge) checkEffects(q *requests, writes []*write) {
	var lastRV uint64
	if len(writes) > 0 {
		lastRV = writes[len(writes)-1].RV
	}
	// Those that explain a write need not be looked for, which are nearly all.
	versions := sync.OnceValue(func() map[version]bool { return versionsOf(j.initial, writes) })
	for _, r := range q.all {
		if r.used || !isSuccess(r.Audit) || !isDanm(r.Resource) || !j.isGroup(r.Group) {
			continue
		}
		isAfter := r.Begin.After(j.lastSnapshot)
		switch r.Verb {
		case "create", "update", "patch":
			if r.RV != 0 && !versions()[version{r.UID, r.RV}] && !(isAfter && r.RV > lastRV) {
				j.unknownf(HistoryComplete, "%s committed rv %d (%s) but no watch showed it", describe(r.Audit), r.RV, r.UID)
			}
		case "delete":
			if !isAfter {
				j.unknownf(HistoryComplete, "%s succeeded but no watch showed it", describe(r.Audit))
			}
		}
	}
}

func versionsOf(lists ...[]*write) map[version]bool {
	versions := map[version]bool{}
	for _, list := range lists {
		for _, w := range list {
			versions[version{w.UID, w.RV}] = true
		}
	}
	return versions
}

func (j *judge) isGroup(group string) bool {
	return group == "" || j.run.Group == "" || group == j.run.Group
}

// isDanmGroup tells whether the group is one of DANM's, in use or not.
func isDanmGroup(a *history.Audit) bool {
	if a.Group == "" {
		return isDanm(a.Resource)
	}
	return slices.Contains(danm.Groups(), danm.Group(a.Group))
}

func describe(a *history.Audit) string {
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	name := cmp.Or(a.Name, "?")
	if a.Namespace != "" {
		name = a.Namespace + "/" + name
	}
	return fmt.Sprintf("%s %s %s by %s", a.Verb, resource, name, a.User)
}
