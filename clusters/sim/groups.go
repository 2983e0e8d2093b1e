package sim

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/deploy"
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
	return pathOf(group, namespaceName, danm.EndpointResource)
}

// endMigration takes the other group out of use.
func (w *world) endMigration() {
	w.do(userAdmin, http.MethodDelete, w.endpointsPath(w.ownGroup().Other())+"/"+migratedName, nil)
}

// moving is a migration that stops half way. The CNI plugins still work on the
// other group, so that the endpoints are there, and a cleaner of this group,
// whose bitmaps are up to date, sees none.
type moving struct {
	world  *world
	lasts  time.Duration
	seenBy map[*actor]bool // cleaners that have read the copies
	copies []string        // in the other group
}

// moveEndpoints begins such a migration.
func (w *world) moveEndpoints(f *fault) bool {
	if w.isDraining || len(w.endpoints) == 0 || w.moving != nil || !w.serveOther() {
		return false
	}
	m := &moving{world: w, lasts: f.For, seenBy: map[*actor]bool{}, copies: slices.Sorted(maps.Keys(w.endpoints))}
	w.moving = m
	for _, name := range m.copies {
		m.copy(name)
	}
	w.faults.after(moveLook, m.goOn)
	return true
}

// moveLook is how often people look whether they can go on.
const moveLook = 3*time.Second + 130_003*time.Nanosecond

// goOn takes the endpoints out of this group once all cleaners have seen the
// copies, as a migration between releases takes hours. Cleaners look once a
// minute, and here a quarantine is shorter than that.
func (m *moving) goOn() {
	switch w := m.world; {
	case w.user.isDone():
		m.end()
	case !m.isSeen():
		w.faults.after(moveLook, m.goOn)
	default:
		w.hide(danm.EndpointResource)
		w.reach(areAway)
		w.faults.after(m.lasts, m.end)
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
	if w.moving != nil && c.verb == "list" && c.target == danm.EndpointResource && w.isOfOtherGroup(c) {
		w.moving.seenBy[c.actor] = true
	}
}

// isOfOtherGroup tells whether a call is about the group that is not ours.
func (w *world) isOfOtherGroup(c *call) bool {
	return strings.HasPrefix(c.request.Path, "/apis/"+string(w.ownGroup().Other())+"/")
}

// copy writes an endpoint into the other group.
func (m *moving) copy(name string) {
	w, other := m.world, m.world.ownGroup().Other()
	object, ok := w.template(w.endpointsPath(w.ownGroup()) + "/" + name)
	if !ok {
		return
	}
	object["apiVersion"] = other.GroupVersion().String()
	w.do(userAdmin, http.MethodPost, w.endpointsPath(other), object)
}

// end brings the endpoints into this group, and takes the other out of use.
func (m *moving) end() {
	w := m.world
	if w.hidden[danm.EndpointResource] != nil {
		w.show(danm.EndpointResource)
	}
	for _, name := range m.copies {
		w.do(userAdmin, http.MethodDelete, w.endpointsPath(w.ownGroup().Other())+"/"+name, nil)
	}
}
