package sim

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/deploy"
	"github.com/danm-chaos/danm-chaos/clusters/sim/apiserver"
)

const crdPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

func (w *world) ownGroup() danm.Group { return danm.Group(w.plan.World.Group) }

// serveOther installs DANM's other API group, as before a migration between
// releases.
func (w *world) serveOther() bool {
	crds, err := deploy.CRDs(w.ownGroup().Other())
	if err != nil {
		w.fail(err)
		return false
	}
	for _, crd := range crds {
		w.do(userAdmin, http.MethodPost, crdPath, crd)
	}
	return true
}

// migrate puts an endpoint into DANM's other API group, as in the middle of a
// migration.
func (w *world) migrate(f *fault) bool {
	if w.isDraining || !w.serveOther() {
		return false
	}
	other := w.ownGroup().Other()
	w.do(userAdmin, http.MethodPost, w.endpointsPath(other), map[string]any{
		"apiVersion": other.GroupVersion().String(), "kind": danm.EndpointKind,
		"metadata": map[string]any{"namespace": namespaceName, "name": migratedName},
		"spec": map[string]any{
			"NetworkName": networkName, "NetworkType": "ipvlan", "EndpointID": migratedName, "Pod": "migrated",
			"Interface": map[string]any{"Name": "eth0", "Address": "none", "AddressIPv6": "none"},
		},
	})
	w.faults.later(f, w.endMigration)
	return true
}

const migratedName = "migrated"

func (w *world) endpointsPath(group danm.Group) string {
	return "/apis/" + string(group) + "/" + danm.Version + "/namespaces/" + namespaceName + "/" + danm.EndpointResource
}

// endMigration takes the other group out of use.
func (w *world) endMigration() {
	w.do(userAdmin, http.MethodDelete, w.endpointsPath(w.ownGroup().Other())+"/"+migratedName, nil)
}

// moving is a migration that stops half way: endpoints lie in both groups, then
// in the other alone while the bitmaps stay, and in the end in this one again.
type moving struct {
	world  *world
	lasts  time.Duration
	seenBy map[*actor]bool           // cleaners that have read the copies
	copies map[string]bool           // in the other group
	away   map[string]map[string]any // those that are not here any more
}

// moveEndpoints begins such a migration.
func (w *world) moveEndpoints(f *fault) bool {
	if w.isDraining || len(w.endpoints) == 0 || w.moving != nil || !w.serveOther() {
		return false
	}
	w.moving = &moving{
		world: w, lasts: f.For, seenBy: map[*actor]bool{}, copies: map[string]bool{}, away: map[string]map[string]any{},
	}
	for _, name := range slices.Sorted(maps.Keys(w.endpoints)) {
		w.moving.copy(name)
	}
	w.faults.after(moveLook, w.moving.goOn)
	return true
}

// moveLook is how often people look whether they can go on.
const moveLook = 3*time.Second + 130_003*time.Nanosecond

// goOn takes the endpoints away once all cleaners have seen the copies, as a
// migration between releases takes hours. Cleaners look once a minute, and here
// a quarantine is shorter than that.
func (m *moving) goOn() {
	switch w := m.world; {
	case w.user.isDone():
		m.putBack()
	case !m.isSeen():
		w.faults.after(moveLook, m.goOn)
	default:
		m.takeAway()
		w.faults.after(m.lasts, m.putBack)
	}
}

func (m *moving) isSeen() bool {
	for _, r := range m.world.cleaners {
		if r.isRunning && !m.seenBy[r.actor] {
			return false
		}
	}
	return true
}

// noteMoved notes that a cleaner reads the copies.
func (w *world) noteMoved(c *call) {
	if w.moving != nil && c.request.Method == http.MethodGet && c.target == danm.EndpointResource &&
		strings.HasPrefix(c.request.Path, "/apis/"+string(w.ownGroup().Other())+"/") {
		w.moving.seenBy[c.actor] = true
	}
}

// copy writes an endpoint into the other group and returns it as it is here.
func (m *moving) copy(name string) map[string]any {
	w, other := m.world, m.world.ownGroup().Other()
	found := w.server.Serve(apiserver.Request{
		User: userAdmin, Method: http.MethodGet, Path: w.endpointsPath(w.ownGroup()) + "/" + name, Accept: "application/json",
	})
	object, err := withoutIdentity(found.Body)
	if err != nil {
		w.fail(err)
		return nil
	}
	copied := maps.Clone(object)
	copied["apiVersion"] = other.GroupVersion().String()
	w.do(userAdmin, http.MethodPost, w.endpointsPath(other), copied)
	m.copies[name] = true
	return object
}

// takeAway leaves the endpoints to the other group alone.
func (m *moving) takeAway() {
	w := m.world
	for _, name := range slices.Sorted(maps.Keys(w.endpoints)) {
		m.away[name] = m.copy(name)
		w.do(userAdmin, http.MethodDelete, w.endpointsPath(w.ownGroup())+"/"+name, nil)
	}
	w.reach(areAway)
}

func (m *moving) putBack() {
	w := m.world
	for _, name := range slices.Sorted(maps.Keys(m.away)) {
		w.do(userAdmin, http.MethodPost, w.endpointsPath(w.ownGroup()), m.away[name])
	}
	for _, name := range slices.Sorted(maps.Keys(m.copies)) {
		w.do(userAdmin, http.MethodDelete, w.endpointsPath(w.ownGroup().Other())+"/"+name, nil)
	}
}
