package sim

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/sim/apiserver"
)

// What should happen sometimes. A search that never gets there says little.
const (
	addFails       = "a CNI ADD fails"
	runsBackwards  = "a Running pod goes back to Pending"
	watchEnds      = "a watch is cut"
	relisted       = "a list or watch is too old (410)"
	endsByItself   = "a replica loses its Lease"
	takesOver      = "another replica takes over"
	releases       = "the cleaner releases an endpoint"
	writesBits     = "the cleaner writes a bitmap"
	meetsConflict  = "a write of the cleaner is refused (409 or 422)"
	movesOn        = "an address of a dead pod goes to another"
	addInterrupted = "a node dies during a CNI ADD"
	isFenced       = "an endpoint waits until its node is fenced"
	staysDry       = "a cleaner in dry-run leaves an orphan alone"
	hasTwo         = "a pod with two interfaces loses its node"
	commitsLate    = "a write is committed after its caller gave up"
	isUnsigned     = "an endpoint without PodUID loses its pod"
	seesNone       = "a cleaner reads pods and is shown none"
	areAway        = "all endpoints lie in the other API group alone"
	isRenewed      = "the mirror of a static pod is made anew while that runs"
	isMisnamed     = "an ADD of a pod that is gone writes an endpoint of its namesake"
)

// Sometimes lists what a search should reach.
func Sometimes() []string {
	return []string{
		addFails, runsBackwards, watchEnds, relisted, endsByItself, takesOver, releases, writesBits, meetsConflict,
		movesOn, addInterrupted, isFenced, staysDry, hasTwo, commitsLate, isUnsigned, seesNone, areAway, isMisnamed, isRenewed,
	}
}

// noteCommit notes what the cleaner achieves.
func (w *world) noteCommit(c apiserver.Commit) {
	switch {
	case c.User != clusters.UserCleaner:
	case c.Resource.Resource == danm.EndpointResource:
		w.reach(releases)
	default:
		w.reach(writesBits)
	}
}

// noteAnswer notes refusals, and which replica is at work.
func (w *world) noteAnswer(c *call, code int) {
	if c.actor.user != clusters.UserCleaner {
		return
	}
	switch {
	case code == http.StatusGone:
		w.reach(relisted)
	case c.isWrite() && c.target != "leases" && (code == http.StatusConflict || code == http.StatusUnprocessableEntity):
		w.reach(meetsConflict)
	case c.isWrite() && c.target != "leases":
		replica, _, _ := strings.Cut(c.actor.name, ".")
		if w.worker != "" && w.worker != replica {
			w.reach(takesOver)
		}
		w.worker = replica
	}
}

// noteUnsigned notes that a pod goes whose endpoint does not say that it is its.
func (w *world) noteUnsigned(uid types.UID) {
	for _, ep := range w.endpoints {
		if ep.Spec.PodUID == "" && w.ownerOf(ep) == uid {
			w.reach(isUnsigned)
			return
		}
	}
}
