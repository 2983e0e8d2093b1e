package harness

import (
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// ownedFields are the fields of a resource whose managers tell who wrote.
func ownedFields(resource string) map[string][]string {
	if resource == danm.EndpointResource {
		return map[string][]string{"spec": {"f:spec"}}
	}
	if _, ok := danm.NetworkKindOf(resource); !ok {
		return nil
	}
	fields := map[string][]string{}
	for _, family := range []danm.Family{danm.IPv4, danm.IPv6} {
		fields[family.Field()] = []string{"f:spec", "f:Options", "f:" + family.Field()}
	}
	return fields
}

// owners returns the manager of each field that has exactly one. Whoever
// changes a field takes it from all others, so the owner of a field that a
// write changed is the writer.
func owners(entries []metav1.ManagedFieldsEntry, fields map[string][]string) map[string]string {
	found := map[string]string{}
	for name, path := range fields {
		var managers []string
		for _, e := range entries {
			if e.FieldsV1 != nil && hasField(e.FieldsV1.GetRawBytes(), path) && !slices.Contains(managers, e.Manager) {
				managers = append(managers, e.Manager)
			}
		}
		if len(managers) == 1 {
			found[name] = managers[0]
		}
	}
	return found
}

func hasField(fields []byte, path []string) bool {
	if len(path) == 0 {
		return true
	}
	var below map[string]json.RawMessage
	if json.Unmarshal(fields, &below) != nil {
		return false
	}
	next, ok := below[path[0]]
	return ok && hasField(next, path[1:])
}
