package sim

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/sim/apiserver"
)

// hidden is a time in which the cleaners are shown none of a resource, by
// whatever they read.
type hidden struct {
	since int64           // resourceVersion: no cache can have it that knows of any
	blind map[*actor]bool // cleaners whose caches have none any more
}

// hidePods hides all pods for a while, as an API server does that came back with
// an empty store.
func (w *world) hidePods(f *fault) bool {
	if len(w.endpoints) == 0 || w.hidden[podsResource] != nil {
		return false
	}
	w.hide(podsResource)
	w.faults.later(f, func() { w.show(podsResource) })
	return true
}

// hide hides a resource. A cleaner that only reads single objects would be told
// lies that its cache contradicts, and no server tells such lies: until it has
// listed again, its reads fail.
func (w *world) hide(resource string) {
	w.expireAll(resource)
	w.hidden[resource] = &hidden{since: w.server.ResourceVersion(), blind: map[*actor]bool{}}
}

func (w *world) show(resource string) {
	delete(w.hidden, resource)
	w.expireAll(resource)
}

// expireAll makes the cleaners list a resource again. A write that concerns
// nobody makes everything that they can have too old.
func (w *world) expireAll(resource string) {
	n := w.nodes[len(w.nodes)-1]
	w.editNode(n, "", func(o *corev1.Node) { o.Labels[restartsLabel] = strconv.FormatInt(w.server.ResourceVersion(), 10) })
	for _, s := range w.gate.sweep() {
		if s.resource == resource && s.actor.user == clusters.UserCleaner {
			w.expire(s)
		}
	}
}

const (
	podsResource  = "pods"
	restartsLabel = "api-restarted-at"
	nobody        = "nobody" // a name that nothing has
)

// findingNothing is a read that finds nothing.
func findingNothing(c *call) apiserver.Request {
	r := c.request
	if c.verb == "get" {
		r.Path = r.Path[:strings.LastIndexByte(r.Path, '/')+1] + nobody
		return r
	}
	query := url.Values{"fieldSelector": {"metadata.name=" + nobody}}
	for name, values := range r.Query {
		if name != "fieldSelector" {
			query[name] = values
		}
	}
	r.Query = query
	return r
}

// hiding returns why a call is to find nothing, or nil. What lies in DANM's other
// API group is never hidden.
func (w *world) hiding(c *call) *hidden {
	isOfCleaner := c.request.Method == http.MethodGet && c.actor.user == clusters.UserCleaner
	if !isOfCleaner || w.isOfOtherGroup(c) {
		return nil
	}
	return w.hidden[c.target]
}

// readHidden makes a call find nothing, or refuses it.
func (w *world) readHidden(c *call, h *hidden) (refused *apiserver.Response) {
	refuse := func(code int, reason string) { r := refusal(code, reason).response; refused = &r }
	switch {
	case c.verb == "watch" && isOlder(c.request, h.since):
		refuse(http.StatusGone, "Expired")
	case c.verb == "watch" && c.request.Query.Get("sendInitialEvents") == "true":
		refuse(http.StatusUnprocessableEntity, "Invalid") // so that it lists
	case c.verb == "watch": // after a list, which its cache has by now
		h.blind[c.actor] = true
	case c.verb == "get" && !h.blind[c.actor]:
		refuse(http.StatusInternalServerError, "InternalError")
	}
	c.request = findingNothing(c)
	if c.target == podsResource {
		w.reach(seesNone)
	}
	return refused
}

// isOlder tells whether a watch goes on from something older.
func isOlder(r apiserver.Request, than int64) bool {
	rv, err := strconv.ParseInt(r.Query.Get("resourceVersion"), 10, 64)
	return err == nil && rv > 0 && rv < than
}
