package timeline

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// index is a whole history, arranged so that the story of one object can be
// told: writes with their writers, claims on addresses, lives of attachments.
type index struct {
	*Builder
	writers  map[int]string    // user name by index of the write
	times    map[int]time.Time // the latest that each write can have happened
	versions map[string][]int  // writes of an object by UID, in order of revision
	byName   map[string][]int  // writes by resource, namespace and name, the same
	claims   map[holding][]claim
	lives    []*life
	podGone  map[string]time.Time // by UID
	decoded  map[int]danm.Endpoint
}

// claim is an endpoint on one of its addresses, from creation to deletion.
type claim struct {
	uid, endpoint, pod, podUID string
	from, until                time.Time // until is zero while it exists
}

// life is an attachment.
type life struct {
	*history.Attachment
	record      uint64
	from, until time.Time
	ended       history.AttachmentEvent
}

func (b *Builder) index() *index {
	i := &index{
		Builder: b, writers: map[int]string{}, times: map[int]time.Time{}, versions: map[string][]int{},
		byName: map[string][]int{}, claims: map[holding][]claim{}, podGone: map[string]time.Time{},
		decoded: map[int]danm.Endpoint{},
	}
	order := i.orderWrites()
	i.findWriters(order)
	i.findTimes(order)
	for _, k := range order {
		w := b.records[k].Write
		i.versions[w.UID] = append(i.versions[w.UID], k)
		i.byName[objectKey(w.Resource, w.Namespace, w.Name)] = append(i.byName[objectKey(w.Resource, w.Namespace, w.Name)], k)
		i.follow(k, w)
	}
	i.readLives()
	return i
}

func objectKey(resource, namespace, name string) string {
	return resource + " " + namespace + "/" + name
}

// orderWrites returns the indices of all writes in order of revision.
func (i *index) orderWrites() []int {
	var order []int
	for k := range i.records {
		if i.records[k].Write != nil {
			order = append(order, k)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(i.records[a].Write.RV, i.records[b].Write.RV) })
	return order
}

// version names a write by the object's UID and its revision.
type version struct {
	uid string
	rv  uint64
}

// findWriters joins writes with the audit log: changes by UID and revision,
// deletions by UID, or by namespace if all objects of one were deleted at once.
func (i *index) findWriters(order []int) {
	changes, deletes, collections := map[version]*history.Audit{}, map[string]*history.Audit{}, map[string]*history.Audit{}
	for k := range i.records {
		a := i.records[k].Audit
		if a == nil || a.DryRun || a.Code < 200 || a.Code > 299 {
			continue
		}
		switch a.Verb {
		case "create", "update", "patch":
			keepFirst(changes, version{a.UID, a.RV}, a)
		case "delete":
			keepFirst(deletes, a.UID, a)
		case "deletecollection":
			keepFirst(collections, objectKey(a.Resource, a.Namespace, ""), a)
		}
	}
	for _, k := range order {
		w := i.records[k].Write
		a := changes[version{w.UID, w.RV}]
		if w.Type == history.Deleted {
			a = cmp.Or(deletes[w.UID], collections[objectKey(w.Resource, w.Namespace, "")])
		}
		if a != nil && !w.Initial {
			i.writers[k], i.times[k] = a.User, a.End
		}
	}
}

func keepFirst[K comparable](into map[K]*history.Audit, key K, a *history.Audit) {
	if into[key] == nil {
		into[key] = a
	}
}

// findTimes bounds when each write happened: not after it was seen, not after
// its request was answered, and not after any write that follows it.
func (i *index) findTimes(order []int) {
	var next time.Time
	for _, k := range slices.Backward(order) {
		at := i.records[k].Time
		if end, ok := i.times[k]; ok && !end.IsZero() && end.Before(at) && i.records[k].Write.Type != history.Deleted {
			at = end
		}
		if !next.IsZero() && next.Before(at) {
			at = next
		}
		i.times[k], next = at, at
	}
}

// follow notes who claims which address, and which pods are gone.
func (i *index) follow(k int, w *history.Write) {
	switch {
	case w.Resource == "pods" && w.Type == history.Deleted:
		i.podGone[w.UID] = i.times[k]
	case w.Resource != danm.EndpointResource:
		return
	}
	ep, ok := endpointOf(w)
	if !ok {
		return // what cannot be read is not shown
	}
	i.decoded[k] = ep
	switch w.Type {
	case history.Added:
		i.claim(k, w, ep)
	case history.Deleted:
		i.unclaim(k, w, ep)
	}
}

func (i *index) claim(k int, w *history.Write, ep danm.Endpoint) {
	addresses, _ := ep.Addresses()
	for _, a := range addresses {
		key := holding{ep.Network(), a}
		i.claims[key] = append(i.claims[key], claim{
			uid: w.UID, endpoint: w.Namespace + "/" + w.Name, pod: w.Namespace + "/" + ep.Spec.Pod,
			podUID: string(ep.Spec.PodUID), from: i.times[k],
		})
	}
}

func (i *index) unclaim(k int, w *history.Write, ep danm.Endpoint) {
	addresses, _ := ep.Addresses()
	for _, a := range addresses {
		claims := i.claims[holding{ep.Network(), a}]
		for c := range claims {
			if claims[c].uid == w.UID {
				claims[c].until = i.times[k]
			}
		}
	}
}

func endpointOf(w *history.Write) (danm.Endpoint, bool) {
	var ep danm.Endpoint
	if err := json.Unmarshal(w.Object, &ep); err != nil {
		return ep, false
	}
	ep.Namespace, ep.Name = w.Namespace, w.Name
	return ep, true
}

func (i *index) readLives() {
	open := map[string]*life{}
	for k := range i.records {
		a := i.records[k].Attachment
		if a == nil {
			continue
		}
		if a.Event == history.Attached {
			l := &life{Attachment: a, record: i.records[k].N, from: i.records[k].Time}
			open[a.ID] = l
			i.lives = append(i.lives, l)
		} else if l := open[a.ID]; l != nil && l.until.IsZero() {
			l.until, l.ended = i.records[k].Time, a.Event
		}
	}
}

// releases lists every bit that the cleaner cleared.
func (i *index) releases() []Release {
	var out []Release
	for key, flips := range i.flips {
		for _, f := range flips {
			if !f.set && i.isCleaner(f.record) {
				out = append(out, i.release(key, f))
			}
		}
	}
	slices.SortFunc(out, func(a, b Release) int {
		return cmp.Or(cmp.Compare(a.At, b.At), strings.Compare(a.Network, b.Network), strings.Compare(a.Address, b.Address))
	})
	return out
}

func (i *index) isCleaner(k int) bool {
	return i.run.CleanerUser != "" && i.writers[k] == i.run.CleanerUser
}

// release tells whose the address was, and for how long that owner was gone.
func (i *index) release(key holding, f flip) Release {
	at := i.times[f.record]
	r := Release{At: i.offset(at), Lane: i.byNetwork[key.network], Network: key.network.String(), Address: key.address.String()}
	claims := i.claims[key]
	for c := len(claims) - 1; c >= 0; c-- {
		if claims[c].from.After(at) {
			continue
		}
		r.Pod, r.PodUID, r.Endpoint = claims[c].pod, claims[c].podUID, claims[c].endpoint
		done := at
		if claims[c].until.After(done) {
			done = claims[c].until // bit first, endpoint second, as some cleaners do it
		}
		if gone, ok := i.podGone[r.PodUID]; ok && !gone.After(at) {
			r.After, r.OwnerGone = done.Sub(gone), true
		}
		break
	}
	return r
}

// countRequests counts what the cleaner asked for, in all and between the
// snapshots of each lane. What comes after a lane's last iteration belongs to
// that, though the lane is looked at once more in the end.
func (i *index) countRequests(t *Timeline) {
	pending, last := map[string]int{}, map[string]sample{}
	for k := range i.records {
		switch r := &i.records[k]; {
		case r.Audit != nil && i.run.CleanerUser != "" && r.Audit.User == i.run.CleanerUser:
			t.Requests[r.Audit.Verb+" "+r.Audit.Resource]++
			pending[i.laneOf(r.Audit)]++
		case r.Snapshot != nil && r.Snapshot.Iteration > 0:
			s := last[r.Snapshot.Lane]
			if s.iteration != r.Snapshot.Iteration {
				s = sample{r.Snapshot.Iteration, len(t.RequestsPerIteration)}
				t.RequestsPerIteration = append(t.RequestsPerIteration, 0)
				last[r.Snapshot.Lane] = s
			}
			t.RequestsPerIteration[s.place] += pending[r.Snapshot.Lane]
			pending[r.Snapshot.Lane] = 0
		}
	}
}

// sample is where the count of an iteration is kept.
type sample struct{ iteration, place int }

func (i *index) laneOf(a *history.Audit) string {
	if lane, ok := i.byNamespace[a.Namespace]; ok {
		return lane
	}
	kind, _ := danm.NetworkKindOf(a.Resource)
	return i.byNetwork[danm.NetworkRef{Kind: kind, Namespace: a.Namespace, Name: a.Name}]
}
