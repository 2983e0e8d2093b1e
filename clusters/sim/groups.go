package sim

import (
	"net/http"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/deploy"
)

const crdPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// migrate installs DANM's other API group with an endpoint in it, as in the
// middle of a migration between releases.
func (w *world) migrate(f *fault) bool {
	if w.isDraining {
		return false
	}
	other := danm.Group(w.plan.World.Group).Other()
	crds, err := deploy.CRDs(other)
	if err != nil {
		w.fail(err)
		return false
	}
	for _, crd := range crds {
		w.do(userAdmin, http.MethodPost, crdPath, crd)
	}
	w.do(userAdmin, http.MethodPost, w.migratedPath(other), map[string]any{
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

func (w *world) migratedPath(group danm.Group) string {
	return "/apis/" + string(group) + "/" + danm.Version + "/namespaces/" + namespaceName + "/" + danm.EndpointResource
}

// endMigration takes the other group out of use.
func (w *world) endMigration() {
	w.do(userAdmin, http.MethodDelete, w.migratedPath(danm.Group(w.plan.World.Group).Other())+"/"+migratedName, nil)
}
