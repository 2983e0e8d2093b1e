package apiserver

import (
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/deploy"
)

// definition is the part of a CustomResourceDefinition that is understood.
type definition struct {
	Group string `json:"group"`
	Scope string `json:"scope"`
	Names struct {
		Kind       string   `json:"kind"`
		ListKind   string   `json:"listKind"`
		Plural     string   `json:"plural"`
		Singular   string   `json:"singular"`
		ShortNames []string `json:"shortNames"`
	} `json:"names"`
	Versions []struct {
		Name         string `json:"name"`
		Served       bool   `json:"served"`
		Storage      bool   `json:"storage"`
		Subresources map[string]any
		Schema       struct {
			OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
		} `json:"schema"`
	} `json:"versions"`
	Conversion map[string]any `json:"conversion"`
}

// kindOf returns the resource that a CRD defines.
func kindOf(crd Object) (*kind, error) {
	spec, err := json.Marshal(crd.(*unstructured.Unstructured).Object["spec"])
	if err != nil {
		return nil, badRequest("reading the definition: %v", err)
	}
	known, ok := definedKinds.Load(string(spec))
	if !ok {
		k, err := readDefinition(spec)
		if err != nil {
			return nil, err
		}
		known, _ = definedKinds.LoadOrStore(string(spec), k)
	}
	k := known.(*kind)
	if crd.GetName() != k.Resource+"."+k.Group {
		return nil, badRequest("metadata.name must be %s.%s", k.Resource, k.Group)
	}
	return k, nil
}

// definedKinds are the kinds of all definitions that were ever read, by the JSON
// of their specs. There are few, and each simulation brings the same.
var definedKinds sync.Map

func readDefinition(spec []byte) (*kind, error) {
	var d definition
	if err := json.Unmarshal(spec, &d); err != nil {
		return nil, badRequest("reading the definition: %v", err)
	}
	if len(d.Versions) != 1 || d.Conversion != nil && d.Conversion["strategy"] != "None" {
		return nil, notImplemented("a custom resource with several versions or a conversion")
	}
	version := d.Versions[0]
	structure, err := toStructure(version.Schema.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	k := &kind{
		GroupVersionResource: schema.GroupVersionResource{Group: d.Group, Version: version.Name, Resource: d.Names.Plural},
		Kind:                 d.Names.Kind, Singular: d.Names.Singular, ShortNames: d.Names.ShortNames,
		Namespaced: d.Scope == "Namespaced", hasGeneration: true, schema: structure,
	}
	for sub := range version.Subresources {
		if sub != subresourceStatus {
			return nil, notImplemented("subresource %s of a custom resource", sub)
		}
		k.subresources = []string{sub}
	}
	return k, nil
}

// serveCRD begins to serve what the CRD defines, and says so in its status. A
// changed definition is served from the next request on.
func (c *call) serveCRD(crd Object) error {
	k, err := kindOf(crd)
	if err != nil {
		return err
	}
	if t := c.tables[k.groupResource()]; t != nil {
		t.kind, c.discovery = k, &sync.Map{}
	} else {
		c.serveKind(k)
	}
	return nil
}

// withdrawCRD stops serving. The objects go with it.
func (c *call) withdrawCRD(crd Object) error {
	k, err := kindOf(crd)
	if err != nil {
		return err
	}
	t := c.tables[k.groupResource()]
	own := &call{Server: c.Server, request: c.request, target: target{table: t}}
	for _, e := range t.ordered {
		if v := e.latest(); v != nil {
			own.remove(t, v)
		}
	}
	delete(c.tables, k.groupResource())
	c.discovery = &sync.Map{}
	return nil
}

// established is the status of a CRD whose resource is served.
func (k *kind) established(now metav1.Time) map[string]any {
	condition := func(name, reason string) any {
		return map[string]any{
			"type": name, "status": "True", "reason": reason, "message": "", "lastTransitionTime": now.UTC().Format(time.RFC3339),
		}
	}
	names := map[string]any{"plural": k.Resource, "singular": k.Singular, "kind": k.Kind, "listKind": k.Kind + "List"}
	return map[string]any{
		"acceptedNames": names, "storedVersions": []any{k.Version},
		"conditions": []any{condition("NamesAccepted", "NoConflicts"), condition("Established", "InitialNamesAccepted")},
	}
}

// prepared is a CRD of DANM's with what it defines.
type prepared struct {
	crd  *unstructured.Unstructured
	kind *kind
}

var (
	preparedLock   sync.Mutex
	preparedGroups = map[danm.Group][]prepared{}
)

// definitionsOf returns DANM's CRDs in the group. They are read once in the
// life of the process, and never changed.
func definitionsOf(g danm.Group) ([]prepared, error) {
	preparedLock.Lock()
	defer preparedLock.Unlock()
	if list, ok := preparedGroups[g]; ok {
		return list, nil
	}
	crds, err := deploy.CRDs(g)
	if err != nil {
		return nil, err
	}
	var list []prepared
	for _, crd := range crds {
		k, err := kindOf(crd)
		if err != nil {
			return nil, fmt.Errorf("reading CRD %s: %w", crd.GetName(), err)
		}
		list = append(list, prepared{crd, k})
	}
	preparedGroups[g] = list
	return list, nil
}

// isCustomSpecChanged compares everything but metadata, and but the status if
// that is a subresource.
func isCustomSpecChanged(old, o Object, hasStatus bool) bool {
	before, after := o.(*unstructured.Unstructured).Object, old.(*unstructured.Unstructured).Object
	isSpec := func(name string) bool { return name != "metadata" && (name != "status" || !hasStatus) }
	for name, value := range before {
		if other, ok := after[name]; isSpec(name) && (!ok || !isEqualJSON(value, other)) {
			return true
		}
	}
	for name := range after {
		if _, ok := before[name]; isSpec(name) && !ok {
			return true
		}
	}
	return false
}

// keepCustom makes everything of o but its status what it is in old.
func keepCustom(old, o Object) {
	u := o.(*unstructured.Unstructured)
	status, ok := u.Object["status"]
	u.Object = copyUnstructured(old.(*unstructured.Unstructured)).Object
	delete(u.Object, "status")
	if ok {
		u.Object["status"] = status
	}
}

// kindsOf returns what is served of a group, in order; of any version if
// version is empty.
func (s *Server) kindsOf(group, version string) []*kind {
	var list []*kind
	for _, gr := range s.sortedResources() {
		k := s.tables[gr].kind
		if k.Group == group && (version == "" || k.Version == version) {
			list = append(list, k)
		}
	}
	return list
}

func compareResources(a, b schema.GroupResource) int {
	if a.Group != b.Group {
		return strings.Compare(a.Group, b.Group)
	}
	return strings.Compare(a.Resource, b.Resource)
}
