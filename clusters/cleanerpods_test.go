package clusters

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func cleanerPod(name string, change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid-of-pod", Labels: map[string]string{"app": "cleaner"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	change(pod)
	return pod
}

func TestTheLeaderIsKnownByTheLeaseAndPodsOnTheirWayOutAreNotThere(t *testing.T) {
	holder, now := "cleaner-b_4711", metav1.Now()
	core := fake.NewClientset(
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "l"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}},
		cleanerPod("cleaner-b", func(*corev1.Pod) {}),
		cleanerPod("cleaner", func(*corev1.Pod) {}), // its name is where the leader's begins, too
		cleanerPod("dying", func(p *corev1.Pod) { p.DeletionTimestamp, p.Finalizers = &now, []string{"f/f"} }),
		cleanerPod("pending", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }),
		cleanerPod("stranger", func(p *corev1.Pod) { p.Labels = nil }),
	)
	got, err := ListCleanerPods(t.Context(), core, "ns", "app=cleaner")
	if err != nil {
		t.Fatal(err)
	}
	want := []CleanerPod{
		{Namespace: "ns", Name: "cleaner", UID: "uid-of-pod", Container: "main"},
		{Namespace: "ns", Name: "cleaner-b", UID: "uid-of-pod", Container: "main", Leads: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}
