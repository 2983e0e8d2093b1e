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

// hidden is a time in which the cleaners are shown no pods, by whatever they
// read, as by an API server that came back with an empty store.
type hidden struct {
	since int64           // resourceVersion: no cache can have it that knows of a pod
	blind map[*actor]bool // cleaners whose caches have no pods any more
}

// hidePods hides all pods for a while. A cleaner that only reads single pods
// would be told lies that its cache contradicts, and no server tells such lies:
// until it has listed again, its reads fail.
func (w *world) hidePods(f *fault) bool {
	if len(w.endpoints) == 0 || w.hidden != nil {
		return false
	}
	w.expirePods()
	w.hidden = &hidden{since: w.server.ResourceVersion(), blind: map[*actor]bool{}}
	w.faults.later(f, func() {
		w.hidden = nil
		w.expirePods()
	})
	return true
}

// expirePods makes the cleaners list pods again. A write that concerns nobody
// makes everything that they can have too old.
func (w *world) expirePods() {
	n := w.nodes[len(w.nodes)-1]
	w.editNode(n, "", func(o *corev1.Node) { o.Labels[restartsLabel] = strconv.FormatInt(w.server.ResourceVersion(), 10) })
	for _, s := range w.gate.sweep() {
		if s.resource == podsResource && s.actor.user == clusters.UserCleaner {
			w.expire(s)
		}
	}
}

const (
	podsResource  = "pods"
	restartsLabel = "api-restarted-at"
)

// nobody is a name that no pod has.
const nobody = "nobody"

// withoutPods is a read of pods that finds none.
func withoutPods(c *call) apiserver.Request {
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

// isHidden tells whether a call is to find no pod.
func (w *world) isHidden(c *call) bool {
	isRead := c.request.Method == http.MethodGet && c.target == podsResource
	return w.hidden != nil && isRead && c.actor.user == clusters.UserCleaner
}

// readHidden makes a call find no pod, or refuses it.
func (w *world) readHidden(c *call) (refused *apiserver.Response) {
	h := w.hidden
	switch {
	case c.verb == "watch" && isOlder(c.request, h.since):
		r := refusal(http.StatusGone, "Expired").response
		refused = &r
	case c.verb == "watch" && c.request.Query.Get("sendInitialEvents") == "true":
		r := refusal(http.StatusUnprocessableEntity, "Invalid").response // so that it lists
		refused = &r
	case c.verb == "watch": // after a list, which its cache has by now
		h.blind[c.actor] = true
	case c.verb == "get" && !h.blind[c.actor]:
		r := refusal(http.StatusInternalServerError, "InternalError").response
		refused = &r
	}
	c.request = withoutPods(c)
	w.reach(seesNone)
	return refused
}

// isOlder tells whether a watch goes on from something older.
func isOlder(r apiserver.Request, than int64) bool {
	rv, err := strconv.ParseInt(r.Query.Get("resourceVersion"), 10, 64)
	return err == nil && rv > 0 && rv < than
}
