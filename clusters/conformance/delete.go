package conformance

import (
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func deleteChecks() []Check {
	return []Check{
		{"a deletion under another UID or version is a conflict", otherPreconditionsConflict},
		{"a deletion under the right UID and version deletes", rightPreconditionsDelete},
		{"a deletion of nothing is not found", deletionOfNothing},
		{"a name that was freed is taken by an object of another UID", freedNameIsTaken},
		{"a pod on a node goes after its grace period, or when it is forced", boundPodIsGraceful},
		{"a pod without node goes at once", unboundPodGoes},
		{"a forced deletion shows the mark and then the removal", forcedDeletionIsTwoEvents},
		{"a finalizer holds an object until it is taken away", finalizerHolds},
		{"a dry run deletes nothing", dryRunDeletesNothing},
		{"a deletion of a collection deletes what is selected", collectionIsDeleted},
		{"an object goes after its last owner", dependentFollowsOwner},
		{"an object with an owner of another UID goes", dependentOfOtherUIDGoes},
		{"an owner goes after the dependents that block it, in the foreground", foregroundDeletionWaits},
		{"an orphaned object stays without owner", orphanedObjectStays},
		{"an eviction deletes", evictionDeletes},
	}
}

func preconditions(uid types.UID, rv string) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &rv}}
}

func otherPreconditionsConflict(_ T, k *kit) {
	made := k.createNetwork("a", nil)
	k.wantReason(k.networks().Delete(k.ctx(), "a", preconditions("other", made.GetResourceVersion())), metav1.StatusReasonConflict, 409)
	changed := k.touch("a", "gQAAAA==")
	k.wantReason(k.networks().Delete(k.ctx(), "a", preconditions(made.GetUID(), made.GetResourceVersion())), metav1.StatusReasonConflict, 409)
	pod := k.createPod("a", "n1")
	k.wantReason(k.core.CoreV1().Pods(k.namespace).Delete(k.ctx(), "a", preconditions("other", pod.ResourceVersion)), metav1.StatusReasonConflict, 409)
	read, err := k.networks().Get(k.ctx(), "a", metav1.GetOptions{})
	k.must(err)
	if read.GetResourceVersion() != changed.GetResourceVersion() {
		k.t.Errorf("it was changed: %v", read.Object)
	}
}

func rightPreconditionsDelete(_ T, k *kit) {
	made := k.createNetwork("a", nil)
	k.must(k.networks().Delete(k.ctx(), "a", preconditions(made.GetUID(), made.GetResourceVersion())))
	_, err := k.networks().Get(k.ctx(), "a", metav1.GetOptions{})
	k.wantReason(err, metav1.StatusReasonNotFound, 404)
}

func deletionOfNothing(_ T, k *kit) {
	k.wantReason(k.networks().Delete(k.ctx(), "a", metav1.DeleteOptions{}), metav1.StatusReasonNotFound, 404)
	k.wantReason(k.core.CoreV1().Pods(k.namespace).Delete(k.ctx(), "a", metav1.DeleteOptions{}), metav1.StatusReasonNotFound, 404)
}

func freedNameIsTaken(t T, k *kit) {
	first := k.createNetwork("a", nil)
	k.must(k.networks().Delete(k.ctx(), "a", metav1.DeleteOptions{}))
	second := k.createNetwork("a", nil)
	if first.GetUID() == second.GetUID() {
		t.Errorf("both have UID %s", first.GetUID())
	}
	k.wantReason(k.networks().Delete(k.ctx(), "a", preconditions(first.GetUID(), second.GetResourceVersion())), metav1.StatusReasonConflict, 409)
}

func boundPodIsGraceful(t T, k *kit) {
	pods := k.core.CoreV1().Pods(k.namespace)
	made := k.createPod("a", "n1")
	k.must(pods.Delete(k.ctx(), "a", metav1.DeleteOptions{}))
	pod, err := pods.Get(k.ctx(), "a", metav1.GetOptions{})
	k.must(err)
	if pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds != 30 || pod.Generation != made.Generation+1 {
		t.Fatalf("metadata: %+v", pod.ObjectMeta)
	}
	longer, shorter, none := int64(60), int64(5), int64(0)
	k.must(pods.Delete(k.ctx(), "a", metav1.DeleteOptions{GracePeriodSeconds: &longer}))
	unchanged, err := pods.Get(k.ctx(), "a", metav1.GetOptions{})
	k.must(err)
	if unchanged.ResourceVersion != pod.ResourceVersion {
		t.Errorf("a longer grace period changed the pod")
	}
	k.must(pods.Delete(k.ctx(), "a", metav1.DeleteOptions{GracePeriodSeconds: &shorter}))
	hurried, err := pods.Get(k.ctx(), "a", metav1.GetOptions{})
	k.must(err)
	if *hurried.DeletionGracePeriodSeconds != 5 || !hurried.DeletionTimestamp.Before(pod.DeletionTimestamp) {
		t.Errorf("a shorter grace period: %+v", hurried.ObjectMeta)
	}
	k.must(pods.Delete(k.ctx(), "a", metav1.DeleteOptions{GracePeriodSeconds: &none, Preconditions: &metav1.Preconditions{UID: &pod.UID}}))
	_, err = pods.Get(k.ctx(), "a", metav1.GetOptions{})
	k.wantReason(err, metav1.StatusReasonNotFound, 404)
}

func unboundPodGoes(_ T, k *kit) {
	k.createPod("a", "")
	pods := k.core.CoreV1().Pods(k.namespace)
	k.must(pods.Delete(k.ctx(), "a", metav1.DeleteOptions{}))
	_, err := pods.Get(k.ctx(), "a", metav1.GetOptions{})
	k.wantReason(err, metav1.StatusReasonNotFound, 404)
}

func forcedDeletionIsTwoEvents(t T, k *kit) {
	pod := k.createPod("a", "n1")
	w := k.watchPods(metav1.ListOptions{ResourceVersion: pod.ResourceVersion})
	defer w.stop()
	none := int64(0)
	k.must(k.core.CoreV1().Pods(k.namespace).Delete(k.ctx(), "a", metav1.DeleteOptions{GracePeriodSeconds: &none}))
	marked, gone := w.next(), w.next()
	if got := marked.describe() + ", " + gone.describe(); got != "MODIFIED a, DELETED a" {
		t.Fatalf("saw %s", got)
	}
	if marked.object.GetDeletionTimestamp() == nil || gone.rv() <= marked.rv() {
		t.Errorf("deletion timestamp %v, versions %d and %d", marked.object.GetDeletionTimestamp(), marked.rv(), gone.rv())
	}
}

func finalizerHolds(t T, k *kit) {
	sent := k.network("a", nil)
	sent.SetFinalizers([]string{"conformance/hold"})
	_, err := k.networks().Create(k.ctx(), sent, metav1.CreateOptions{})
	k.must(err)
	k.must(k.networks().Delete(k.ctx(), "a", metav1.DeleteOptions{}))
	held, err := k.networks().Get(k.ctx(), "a", metav1.GetOptions{})
	k.must(err)
	if held.GetDeletionTimestamp() == nil || held.GetGeneration() != 2 {
		t.Errorf("metadata: %v", held.Object["metadata"])
	}
	_, err = k.patchNetwork(types.MergePatchType, `{"metadata":{"finalizers":["conformance/hold","conformance/more"]}}`)
	k.wantReason(err, metav1.StatusReasonInvalid, 422)
	held.SetFinalizers(nil)
	answered, err := k.networks().Update(k.ctx(), held, metav1.UpdateOptions{})
	k.must(err)
	if answered.GetName() != "a" {
		t.Errorf("the last update answered %v", answered.Object)
	}
	_, err = k.networks().Get(k.ctx(), "a", metav1.GetOptions{})
	k.wantReason(err, metav1.StatusReasonNotFound, 404)
}

func dryRunDeletesNothing(_ T, k *kit) {
	k.createNetwork("a", nil)
	k.must(k.networks().Delete(k.ctx(), "a", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
	_, err := k.networks().Get(k.ctx(), "a", metav1.GetOptions{})
	k.must(err)
}

func collectionIsDeleted(t T, k *kit) {
	k.createNetwork("a", map[string]string{"x": "1"})
	k.createNetwork("b", map[string]string{"x": "2"})
	k.createNetwork("c", map[string]string{"x": "1"})
	k.must(k.networks().DeleteCollection(k.ctx(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "x=1"}))
	list, err := k.networks().List(k.ctx(), metav1.ListOptions{})
	k.must(err)
	if got := names(pointers(list.Items)); got != "b" {
		t.Errorf("left: %s", got)
	}
}

// own makes a network that is owned by another.
func (k *kit) own(name, owner string, uid types.UID, blocks bool) {
	k.t.Helper()
	sent := k.network(name, nil)
	sent.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: sent.GetAPIVersion(), Kind: sent.GetKind(), Name: owner, UID: uid, BlockOwnerDeletion: &blocks,
	}})
	_, err := k.networks().Create(k.ctx(), sent, metav1.CreateOptions{})
	k.must(err)
}

func (k *kit) isGone(name string) bool {
	_, err := k.networks().Get(k.ctx(), name, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

func dependentFollowsOwner(t T, k *kit) {
	owner := k.createNetwork("owner", nil)
	k.own("dependent", "owner", owner.GetUID(), false)
	k.createNetwork("free", nil)
	k.must(k.networks().Delete(k.ctx(), "owner", metav1.DeleteOptions{}))
	k.await("the dependent to go", func() bool { return k.isGone("dependent") })
	if k.isGone("free") {
		t.Errorf("an object without owner went")
	}
}

func dependentOfOtherUIDGoes(_ T, k *kit) {
	k.createNetwork("owner", nil)
	k.own("dependent", "owner", "00000000-0000-0000-0000-000000000000", false)
	k.await("the dependent to go", func() bool { return k.isGone("dependent") })
}

func foregroundDeletionWaits(t T, k *kit) {
	owner := k.createNetwork("owner", nil)
	k.own("dependent", "owner", owner.GetUID(), true)
	_, err := k.networks().Patch(k.ctx(), "dependent", types.MergePatchType, []byte(`{"metadata":{"finalizers":["conformance/hold"]}}`), metav1.PatchOptions{})
	k.must(err)
	foreground := metav1.DeletePropagationForeground
	k.must(k.networks().Delete(k.ctx(), "owner", metav1.DeleteOptions{PropagationPolicy: &foreground}))
	k.await("the dependent to be deleted", func() bool {
		u, err := k.networks().Get(k.ctx(), "dependent", metav1.GetOptions{})
		return err == nil && u.GetDeletionTimestamp() != nil
	})
	if k.isGone("owner") {
		t.Fatalf("the owner went before its dependent")
	}
	_, err = k.networks().Patch(k.ctx(), "dependent", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	k.must(err)
	k.await("the owner to go", func() bool { return k.isGone("owner") })
}

func orphanedObjectStays(t T, k *kit) {
	owner := k.createNetwork("owner", nil)
	k.own("dependent", "owner", owner.GetUID(), false)
	orphan := metav1.DeletePropagationOrphan
	k.must(k.networks().Delete(k.ctx(), "owner", metav1.DeleteOptions{PropagationPolicy: &orphan}))
	k.await("the owner to go", func() bool { return k.isGone("owner") })
	dependent, err := k.networks().Get(k.ctx(), "dependent", metav1.GetOptions{})
	k.must(err)
	if len(dependent.GetOwnerReferences()) != 0 {
		t.Errorf("owners: %v", dependent.GetOwnerReferences())
	}
}

func evictionDeletes(_ T, k *kit) {
	k.createPod("a", "")
	pods := k.core.CoreV1().Pods(k.namespace)
	k.must(pods.EvictV1(k.ctx(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "a"}}))
	_, err := pods.Get(k.ctx(), "a", metav1.GetOptions{})
	k.wantReason(err, metav1.StatusReasonNotFound, 404)
}
