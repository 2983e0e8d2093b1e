package check

import (
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// model is what the writes of a history amount to: every endpoint, pod and
// address with all that happened to it.
type model struct {
	endpoints map[string]*endpoint // by UID
	ofPod     map[string][]*endpoint
	pods      map[string]*pod        // by UID
	living    map[string]*population // by namespace
	networks  map[danm.NetworkRef]*network
	aside     map[string]*unstructured.Unstructured // ReservedIPs by key
	edits     []edit                                // what the cleaner did to networks
}

// endpoint is a DanmEp from its creation to its end.
type endpoint struct {
	namespace, name, uid string
	pod, podUID, cid     string
	network              danm.NetworkRef
	addresses            []netip.Addr
	created, deleted     *write
}

func (e *endpoint) String() string { return fmt.Sprintf("DanmEp %s/%s", e.namespace, e.name) }

// outages are the times at which the endpoint does not exist.
func (e *endpoint) outages() []outage {
	out := []outage{{until: e.created}}
	if e.deleted != nil {
		out = append(out, outage{from: e.deleted})
	}
	return out
}

type pod struct {
	uid              string
	created, deleted *write
}

// population is what ever lived in a namespace.
type population struct {
	endpoints queue[*endpoint]
	pods      queue[*pod]
}

// queue passes objects in the order of their creation, so that following who
// is alive through time costs each object once.
type queue[T mortal] struct{ coming, alive []T }

type mortal interface {
	life() (created, deleted *write)
}

func (e *endpoint) life() (created, deleted *write) { return e.created, e.deleted }

func (p *pod) life() (created, deleted *write) { return p.created, p.deleted }

// at returns what was created before t and not yet deleted. Calls must come in
// the order of time.
func (q *queue[T]) at(t time.Time) []T {
	for len(q.coming) > 0 {
		if created, _ := q.coming[0].life(); !created.latest.Before(t) {
			break
		}
		q.alive, q.coming = append(q.alive, q.coming[0]), q.coming[1:]
	}
	q.alive = slices.DeleteFunc(q.alive, func(o T) bool {
		_, deleted := o.life()
		return deleted != nil && deleted.latest.Before(t)
	})
	return q.alive
}

func (m *model) population(namespace string) *population {
	p := m.living[namespace]
	if p == nil {
		p = &population{}
		m.living[namespace] = p
	}
	return p
}

// outage is a time in which something that a live attachment needs is
// missing: from one write until another. Without from it was never there
// before, without until it did not come back.
type outage struct {
	from, until *write
	claimant    string // endpoint UID that the address belonged to at from
}

// address is what happened to one address of a network.
type address struct {
	changes  []change
	claims   []*endpoint // in the order of their creation
	claimant string      // UID of the endpoint that the bit now belongs to, if any
	dark     []outage    // see outages
}

// change is a transition of a bit.
type change struct {
	*write
	set      bool
	claimant string // endpoint UID that the bit belonged to before
}

func (a *address) isSet() bool {
	return len(a.changes) > 0 && a.changes[len(a.changes)-1].set
}

// outages are the times at which the bit is clear, in order. The replay must be
// over, because they are worked out once.
func (a *address) outages() []outage {
	if a.dark == nil {
		a.dark = a.findOutages()
	}
	return a.dark
}

func (a *address) findOutages() []outage {
	out := []outage{}
	open := &outage{}
	for _, c := range a.changes {
		switch {
		case c.set && open != nil:
			open.until = c.write
			out, open = append(out, *open), nil
		case !c.set:
			open = &outage{from: c.write, claimant: c.claimant}
		}
	}
	if open != nil {
		out = append(out, *open)
	}
	return out
}

// before returns the last transition to the wanted value before a place in
// the replay, and nil if there is none.
func (a *address) before(place int, set bool) *change {
	for i := a.firstFrom(place) - 1; i >= 0; i-- {
		if c := &a.changes[i]; c.set == set {
			return c
		}
	}
	return nil
}

// firstFrom returns the index of the first transition at a place or after it.
func (a *address) firstFrom(place int) int {
	return sort.Search(len(a.changes), func(i int) bool { return a.changes[i].place >= place })
}

// replay applies all writes in order.
func (j *judge) replay(writes []*write) {
	j.model = &model{
		endpoints: map[string]*endpoint{}, ofPod: map[string][]*endpoint{},
		pods: map[string]*pod{}, living: map[string]*population{}, networks: map[danm.NetworkRef]*network{},
		aside: map[string]*unstructured.Unstructured{},
	}
	for _, list := range [][]*write{j.initial, writes} {
		for _, w := range list {
			switch {
			case w.Resource == "pods":
				j.model.applyPod(w)
			case w.Resource == danm.EndpointResource:
				j.applyEndpoint(w)
			case w.Resource == danm.ReservedIPResource:
				j.applyReservedIP(w)
			case isDanm(w.Resource):
				j.applyNetwork(w)
			}
		}
	}
}

func (m *model) applyPod(w *write) {
	p := m.pods[w.UID]
	if p == nil {
		p = &pod{uid: w.UID, created: w}
		m.pods[w.UID] = p
		all := m.population(w.Namespace)
		all.pods.coming = append(all.pods.coming, p)
	}
	if w.Type == history.Deleted {
		p.deleted = w
	}
}

func (j *judge) applyEndpoint(w *write) {
	e := j.model.endpoints[w.UID]
	switch {
	case e == nil:
		e = j.readEndpoint(w)
		j.model.addEndpoint(e)
	case w.Type == history.Modified:
		j.checkSameClaim(e, j.readEndpoint(w))
	}
	if w.Type == history.Deleted {
		e.deleted = w
	}
}

func (j *judge) readEndpoint(w *write) *endpoint {
	object := &j.scratch
	if err := decodeEndpoint(w.Object, object); err != nil {
		j.unknownf(HistoryComplete, "%s at rv %d cannot be read: %v", w.key(), w.RV, err)
	}
	object.Namespace, object.Name = w.Namespace, w.Name
	addresses, err := object.Addresses()
	if err != nil {
		j.unknownf(HistoryComplete, "at rv %d: %v", w.RV, err)
	}
	return &endpoint{
		namespace: w.Namespace, name: w.Name, uid: w.UID,
		pod: object.Spec.Pod, podUID: string(object.Spec.PodUID), cid: object.Spec.CID,
		network: object.Network(), addresses: addresses, created: w,
	}
}

func (m *model) addEndpoint(e *endpoint) {
	m.endpoints[e.uid] = e
	m.ofPod[e.podUID] = append(m.ofPod[e.podUID], e)
	all := m.population(e.namespace)
	all.endpoints.coming = append(all.endpoints.coming, e)
	for _, a := range e.addresses {
		claimed := m.network(e.network).address(a)
		claimed.claims = append(claimed.claims, e)
		claimed.claimant = e.uid
	}
}

// checkSameClaim complains about an endpoint that changes its owner, network
// or addresses. The model does not follow that.
func (j *judge) checkSameClaim(was, is *endpoint) {
	if was.podUID != is.podUID || was.network != is.network || !slices.Equal(was.addresses, is.addresses) {
		j.unknownf(HistoryComplete, "%s (uid %s) changes its owner, network or addresses at rv %d", was, was.uid, is.created.RV)
	}
}

func (m *model) network(ref danm.NetworkRef) *network {
	n := m.networks[ref]
	if n == nil {
		n = &network{ref: ref, addresses: map[netip.Addr]*address{}}
		m.networks[ref] = n
	}
	return n
}

// lastCreatedOf returns the youngest endpoint of a pod that still exists, or nil.
func (m *model) lastCreatedOf(podUID string) *endpoint {
	var last *endpoint
	for _, e := range m.ofPod[podUID] {
		if e.deleted == nil && e.created != nil && (last == nil || last.created.place < e.created.place) {
			last = e
		}
	}
	return last
}

// lastDeletedOf returns the endpoint of a pod that was deleted last, or nil.
func (m *model) lastDeletedOf(podUID string) *endpoint {
	var last *endpoint
	for _, e := range m.ofPod[podUID] {
		if e.deleted != nil && (last == nil || last.deleted.place < e.deleted.place) {
			last = e
		}
	}
	return last
}
