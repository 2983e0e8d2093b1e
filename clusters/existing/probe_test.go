package existing

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestPodsThatNoControllerTakesAwayAreDeleted(t *testing.T) {
	isController := true
	kept := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "of-a-set",
		OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "s", Controller: &isController}}}}
	core := fake.NewClientset(kept, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "lone"}})
	if err := (undoing{access: access{core: core}}).deleteLonePods(t.Context(), "ns"); err != nil {
		t.Fatal(err)
	}
	left, err := core.CoreV1().Pods("ns").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 1 || left.Items[0].Name != kept.Name {
		t.Errorf("left are %+v, %v", left, err)
	}
}
