package harness

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

func managed(manager, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(fields)}
}

func TestTheOwnerOfAFieldIsItsWriterUnlessThereAreSeveral(t *testing.T) {
	const (
		both   = `{"f:spec":{"f:Options":{"f:alloc":{},"f:alloc6":{}}}}`
		only4  = `{"f:spec":{"f:Options":{".":{},"f:alloc":{}}}}`
		only6  = `{"f:spec":{"f:Options":{"f:alloc6":{}}}}`
		others = `{"f:metadata":{"f:labels":{}}}`
	)
	for _, c := range []struct {
		name     string
		resource string
		entries  []metav1.ManagedFieldsEntry
		want     map[string]string
	}{
		{"one wrote both", danm.DanmNetResource, []metav1.ManagedFieldsEntry{managed("danm", both), managed("kubectl", others)}, map[string]string{"alloc": "danm", "alloc6": "danm"}},
		{"each wrote one", danm.ClusterNetworkResource, []metav1.ManagedFieldsEntry{managed("danm", only6), managed("cleaner", only4)}, map[string]string{"alloc": "cleaner", "alloc6": "danm"}},
		{"two own the same: nobody is named", danm.DanmNetResource, []metav1.ManagedFieldsEntry{managed("danm", only4), managed("cleaner", only4)}, map[string]string{}},
		{"one manager with two operations", danm.DanmNetResource, []metav1.ManagedFieldsEntry{managed("danm", only4), managed("danm", both)}, map[string]string{"alloc": "danm", "alloc6": "danm"}},
		{"no managed fields at all", danm.DanmNetResource, nil, map[string]string{}},
		{"fields that cannot be read", danm.DanmNetResource, []metav1.ManagedFieldsEntry{managed("danm", "{")}, map[string]string{}},
		{"a new endpoint", danm.EndpointResource, []metav1.ManagedFieldsEntry{managed("danm", `{"f:spec":{"f:Pod":{}}}`)}, map[string]string{"spec": "danm"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, owners(c.entries, ownedFields(c.resource))); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
		})
	}
	if ownedFields(podResource) != nil {
		t.Error("pods have a writer that somebody wants to know")
	}
}
