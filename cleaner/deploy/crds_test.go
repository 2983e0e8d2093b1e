package deploy

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

func TestCRDsServeEveryResourceInTheGroup(t *testing.T) {
	for _, g := range danm.Groups() {
		t.Run(string(g), func(t *testing.T) {
			crds, err := CRDs(g)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, crd := range crds {
				got = append(got, describe(t, crd))
			}
			suffix := "." + string(g)
			want := []string{
				"danmeps" + suffix + " DanmEp Namespaced v1",
				"danmnets" + suffix + " DanmNet Namespaced v1",
				"tenantnetworks" + suffix + " TenantNetwork Namespaced v1",
				"clusternetworks" + suffix + " ClusterNetwork Cluster v1",
				"reservedips" + suffix + " ReservedIP Namespaced v1",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("CRDs (-want +got):\n%s", diff)
			}
		})
	}
}

func describe(t *testing.T, crd *unstructured.Unstructured) string {
	t.Helper()
	field := func(fields ...string) string {
		value, _, err := unstructured.NestedString(crd.Object, fields...)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil || len(versions) != 1 {
		t.Fatalf("%s has %d versions, error %v", crd.GetName(), len(versions), err)
	}
	if want := field("spec", "names", "plural") + "." + field("spec", "group"); crd.GetName() != want {
		t.Errorf("CRD is named %s, but the API server accepts only %s", crd.GetName(), want)
	}
	version := versions[0].(map[string]any)
	return fmt.Sprintf("%s %s %s %s", crd.GetName(), field("spec", "names", "kind"), field("spec", "scope"), version["name"])
}

func TestOnlyTheProtectedGroupCarriesAnApproval(t *testing.T) {
	for _, g := range danm.Groups() {
		crds, err := CRDs(g)
		if err != nil {
			t.Fatal(err)
		}
		for _, crd := range crds {
			_, got := crd.GetAnnotations()[approvalAnnotation]
			if want := g == danm.GroupDanmK8sIO; got != want {
				t.Errorf("%s: approval annotation present: %v, want %v", crd.GetName(), got, want)
			}
		}
	}
}

// Every object of the schema must keep what it does not know; one level that
// prunes is enough to lose a newer release's fields at a full update.
func TestNoObjectOfTheSchemaPrunes(t *testing.T) {
	crds, err := CRDs(danm.GroupDanmIO)
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		if err != nil {
			t.Fatal(err)
		}
		schema, found, err := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema")
		if err != nil || !found {
			t.Fatalf("%s has no schema: %v", crd.GetName(), err)
		}
		for _, path := range pruning(schema, crd.GetName()) {
			t.Errorf("%s prunes unknown fields", path)
		}
	}
}

// pruning returns the paths of objects that drop unknown fields. A map of
// strings has none that are unknown.
func pruning(schema map[string]any, path string) []string {
	var out []string
	_, isMap := schema["additionalProperties"]
	if schema["type"] == "object" && schema["x-kubernetes-preserve-unknown-fields"] != true && !isMap {
		out = append(out, path)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		out = append(out, pruning(property.(map[string]any), path+"."+name)...)
	}
	if items, ok := schema["items"].(map[string]any); ok {
		out = append(out, pruning(items, path+"[]")...)
	}
	return out
}
