package conformance

import (
	"strconv"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

func updateChecks() []Check {
	return []Check{
		{"an update of an older version is a conflict and changes nothing", oldVersionConflicts},
		{"an update of a custom resource names a version", customResourceNamesVersion},
		{"an update of a core object needs no version", coreObjectNeedsNoVersion},
		{"an update of another UID is a conflict", otherUIDConflicts},
		{"an update that changes nothing keeps the version", sameContentKeepsVersion},
		{"versions grow over all resources", versionsGrow},
		{"an update cannot change what only the server may", serverFieldsStay},
		{"an update of the status changes nothing else, and the reverse", statusIsApart},
		{"the spec of a pod cannot be changed", podSpecIsFixed},
		{"an update of nothing is not found", missingIsNotFound},
		{"a Lease is created by an update", leaseIsCreatedByUpdate},
		{"the name in the body is that of the path", bodyAndPathAgree},
		{"concurrent increments under conflicts are all counted", incrementsAreCounted},
	}
}

func oldVersionConflicts(t T, k *kit) {
	first := k.createNetwork("a", nil)
	k.touch("a", "gQAAAA==")
	k.setAlloc(first, "gIAAAA==")
	_, err := k.networks().Update(k.ctx(), first, metav1.UpdateOptions{})
	k.wantReason(err, metav1.StatusReasonConflict, 409)
	read, err := k.networks().Get(k.ctx(), "a", metav1.GetOptions{})
	k.must(err)
	if k.alloc(read) != "gQAAAA==" {
		t.Errorf("alloc is %s", k.alloc(read))
	}
	lease, err := k.core.CoordinationV1().Leases(k.namespace).Create(k.ctx(), k.lease("l", "a"), metav1.CreateOptions{})
	k.must(err)
	b := "b"
	renewed := lease.DeepCopy()
	renewed.Spec.HolderIdentity = &b
	_, err = k.core.CoordinationV1().Leases(k.namespace).Update(k.ctx(), renewed, metav1.UpdateOptions{})
	k.must(err)
	_, err = k.core.CoordinationV1().Leases(k.namespace).Update(k.ctx(), lease, metav1.UpdateOptions{})
	k.wantReason(err, metav1.StatusReasonConflict, 409)
}

func customResourceNamesVersion(_ T, k *kit) {
	made := k.createNetwork("a", nil)
	made.SetResourceVersion("")
	k.setAlloc(made, "gQAAAA==")
	_, err := k.networks().Update(k.ctx(), made, metav1.UpdateOptions{})
	k.wantReason(err, metav1.StatusReasonInvalid, 422)
}

func coreObjectNeedsNoVersion(t T, k *kit) {
	made := k.createConfigMap("a", map[string]string{"x": "1"})
	before := made.ResourceVersion
	made.ResourceVersion, made.Data = "", map[string]string{"x": "2"}
	made, err := k.core.CoreV1().ConfigMaps(k.namespace).Update(k.ctx(), made, metav1.UpdateOptions{})
	k.must(err)
	if made.Data["x"] != "2" || k.version(made.ResourceVersion) <= k.version(before) {
		t.Errorf("got %v at %s, before %s", made.Data, made.ResourceVersion, before)
	}
}

func otherUIDConflicts(_ T, k *kit) {
	made := k.createConfigMap("a", nil)
	made.UID, made.ResourceVersion, made.Data = "other", "", map[string]string{"x": "1"}
	_, err := k.core.CoreV1().ConfigMaps(k.namespace).Update(k.ctx(), made, metav1.UpdateOptions{})
	k.wantReason(err, metav1.StatusReasonConflict, 409)
}

func sameContentKeepsVersion(t T, k *kit) {
	network := k.createNetwork("a", nil)
	again, err := k.networks().Update(k.ctx(), network, metav1.UpdateOptions{})
	k.must(err)
	if again.GetResourceVersion() != network.GetResourceVersion() {
		t.Errorf("network: %s, before %s", again.GetResourceVersion(), network.GetResourceVersion())
	}
	configMap := k.createConfigMap("a", map[string]string{"x": "1"})
	same, err := k.core.CoreV1().ConfigMaps(k.namespace).Update(k.ctx(), configMap, metav1.UpdateOptions{})
	k.must(err)
	if same.ResourceVersion != configMap.ResourceVersion {
		t.Errorf("config map: %s, before %s", same.ResourceVersion, configMap.ResourceVersion)
	}
}

func versionsGrow(t T, k *kit) {
	last := int64(0)
	for _, rv := range []string{
		k.createNetwork("a", nil).GetResourceVersion(), k.createPod("a", "").ResourceVersion,
		k.touch("a", "gQAAAA==").GetResourceVersion(), k.createConfigMap("a", nil).ResourceVersion,
	} {
		if v := k.version(rv); v <= last {
			t.Errorf("%d after %d", v, last)
		} else {
			last = v
		}
	}
}

func serverFieldsStay(t T, k *kit) {
	made := k.createNetwork("a", nil)
	changed := made.DeepCopy()
	past := metav1.Unix(1, 0)
	changed.SetDeletionTimestamp(&past)
	_, err := k.networks().Update(k.ctx(), changed, metav1.UpdateOptions{})
	k.wantReason(err, metav1.StatusReasonInvalid, 422)
	changed.SetDeletionTimestamp(nil)
	changed.SetCreationTimestamp(past)
	changed.SetGeneration(99)
	k.setAlloc(changed, "gQAAAA==")
	got, err := k.networks().Update(k.ctx(), changed, metav1.UpdateOptions{})
	k.must(err)
	created := made.GetCreationTimestamp()
	if at := got.GetCreationTimestamp(); !at.Equal(&created) || got.GetDeletionTimestamp() != nil || got.GetGeneration() != 2 {
		t.Errorf("metadata: %v", got.Object["metadata"])
	}
	got.SetLabels(map[string]string{"x": "y"})
	got, err = k.networks().Update(k.ctx(), got, metav1.UpdateOptions{})
	k.must(err)
	if got.GetGeneration() != 2 {
		t.Errorf("a label made generation %d", got.GetGeneration())
	}
}

func statusIsApart(t T, k *kit) {
	pods := k.core.CoreV1().Pods(k.namespace)
	pod := k.createPod("a", "n1")
	pod.Status.Phase, pod.Spec.Containers[0].Image = corev1.PodRunning, "other"
	pod, err := pods.UpdateStatus(k.ctx(), pod, metav1.UpdateOptions{})
	k.must(err)
	if pod.Status.Phase != corev1.PodRunning || pod.Spec.Containers[0].Image != "image" {
		t.Errorf("after an update of the status: %s, %s", pod.Status.Phase, pod.Spec.Containers[0].Image)
	}
	pod.Status.Phase, pod.Spec.Containers[0].Image = corev1.PodFailed, "other"
	pod, err = pods.Update(k.ctx(), pod, metav1.UpdateOptions{})
	k.must(err)
	if pod.Status.Phase != corev1.PodRunning || pod.Spec.Containers[0].Image != "other" || pod.Generation != 2 {
		t.Errorf("after an update of the pod: %s, %s, generation %d", pod.Status.Phase, pod.Spec.Containers[0].Image, pod.Generation)
	}
}

func podSpecIsFixed(_ T, k *kit) {
	pod := k.createPod("a", "n1")
	pod.Spec.NodeName = "n2"
	_, err := k.core.CoreV1().Pods(k.namespace).Update(k.ctx(), pod, metav1.UpdateOptions{})
	k.wantReason(err, metav1.StatusReasonInvalid, 422)
}

func missingIsNotFound(_ T, k *kit) {
	missing := k.network("a", nil)
	missing.SetResourceVersion("1")
	_, err := k.networks().Update(k.ctx(), missing, metav1.UpdateOptions{})
	k.wantReason(err, metav1.StatusReasonNotFound, 404)
	_, err = k.core.CoreV1().ConfigMaps(k.namespace).Update(k.ctx(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.UpdateOptions{})
	k.wantReason(err, metav1.StatusReasonNotFound, 404)
}

func leaseIsCreatedByUpdate(t T, k *kit) {
	leases := k.core.CoordinationV1().Leases(k.namespace)
	made, err := leases.Update(k.ctx(), k.lease("l", "a"), metav1.UpdateOptions{})
	k.must(err)
	if made.UID == "" || *made.Spec.HolderIdentity != "a" {
		t.Errorf("got %v", made)
	}
	k.must(leases.Delete(k.ctx(), "l", metav1.DeleteOptions{}))
	_, err = leases.Update(k.ctx(), made, metav1.UpdateOptions{})
	k.wantReason(err, metav1.StatusReasonConflict, 409)
}

func bodyAndPathAgree(t T, k *kit) {
	k.createConfigMap("a", nil)
	other := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`
	if r := k.send(call{"PUT", k.corePath("configmaps/a"), contentJSON, contentJSON, other}); r.code != 400 {
		t.Errorf("got %d: %s", r.code, r.body)
	}
}

func incrementsAreCounted(t T, k *kit) {
	const writers, each = 3, 10
	k.createConfigMap("counter", map[string]string{"n": "0"})
	var group errgroup.Group
	for range writers {
		group.Go(func() error {
			for range each {
				if err := k.increment("counter"); err != nil {
					return err
				}
			}
			return nil
		})
	}
	k.must(group.Wait())
	read, err := k.core.CoreV1().ConfigMaps(k.namespace).Get(k.ctx(), "counter", metav1.GetOptions{})
	k.must(err)
	if want := strconv.Itoa(writers * each); read.Data["n"] != want {
		t.Errorf("counted %s, want %s", read.Data["n"], want)
	}
}

func (k *kit) increment(name string) error {
	backoff := retry.DefaultBackoff
	backoff.Steps = 20
	return retry.OnError(backoff, apierrors.IsConflict, func() error {
		configMap, err := k.core.CoreV1().ConfigMaps(k.namespace).Get(k.ctx(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(configMap.Data["n"])
		if err != nil {
			return err
		}
		configMap.Data["n"] = strconv.Itoa(n + 1)
		_, err = k.core.CoreV1().ConfigMaps(k.namespace).Update(k.ctx(), configMap, metav1.UpdateOptions{})
		return err
	})
}

func patchChecks() []Check {
	return []Check{
		{"a JSON patch whose test fails is refused and changes nothing", failedTestIsRefused},
		{"a JSON patch whose tests hold is applied as a whole", heldTestIsApplied},
		{"a merge patch sets and removes", mergePatchSetsAndRemoves},
		{"a merge patch of an older version is a conflict", mergePatchOfOldVersionConflicts},
		{"a strategic patch merges lists by their key, and is for core objects only", strategicPatchMerges},
		{"a patch cannot change the UID", patchKeepsUID},
		{"a patch of the status changes the status only", patchOfStatus},
		{"a patch of nothing is not found, a malformed one is refused", malformedPatchIsRefused},
	}
}

func (k *kit) patchNetwork(kind types.PatchType, patch string) (string, error) {
	u, err := k.networks().Patch(k.ctx(), "a", kind, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return "", err
	}
	return k.alloc(u), nil
}

func failedTestIsRefused(t T, k *kit) {
	made := k.createNetwork("a", nil)
	k.touch("a", "gQAAAA==")
	for _, test := range []string{
		`{"op":"test","path":"/spec/Options/alloc","value":"gAAAAA=="}`,
		`{"op":"test","path":"/metadata/resourceVersion","value":"` + made.GetResourceVersion() + `"}`,
		`{"op":"test","path":"/metadata/uid","value":"other"}`,
	} {
		_, err := k.patchNetwork(types.JSONPatchType, `[`+test+`,{"op":"replace","path":"/spec/Options/alloc","value":"gIAAAA=="}]`)
		k.wantReason(err, metav1.StatusReasonInvalid, 422)
	}
	_, err := k.patchNetwork(types.JSONPatchType, `[{"op":"replace","path":"/spec/Options/alloc","value":"gIAAAA=="},{"op":"test","path":"/metadata/uid","value":"other"}]`)
	k.wantReason(err, metav1.StatusReasonInvalid, 422)
	read, err := k.networks().Get(k.ctx(), "a", metav1.GetOptions{})
	k.must(err)
	if k.alloc(read) != "gQAAAA==" {
		t.Errorf("alloc is %s", k.alloc(read))
	}
}

func heldTestIsApplied(t T, k *kit) {
	made := k.createNetwork("a", nil)
	patch := `[{"op":"test","path":"/metadata/uid","value":"` + string(made.GetUID()) + `"},` +
		`{"op":"test","path":"/metadata/resourceVersion","value":"` + made.GetResourceVersion() + `"},` +
		`{"op":"test","path":"/spec/Options/alloc","value":"gAAAAA=="},{"op":"replace","path":"/spec/Options/alloc","value":"gQAAAA=="}]`
	alloc, err := k.patchNetwork(types.JSONPatchType, patch)
	k.must(err)
	if alloc != "gQAAAA==" {
		t.Errorf("alloc is %s", alloc)
	}
	_, err = k.patchNetwork(types.JSONPatchType, patch)
	k.wantReason(err, metav1.StatusReasonInvalid, 422)
}

func mergePatchSetsAndRemoves(t T, k *kit) {
	k.createNetwork("a", map[string]string{"x": "1", "y": "2"})
	u, err := k.networks().Patch(k.ctx(), "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"x":null,"z":"3"}},"spec":{"Options":{"alloc":"gQAAAA=="}}}`), metav1.PatchOptions{})
	k.must(err)
	labels := u.GetLabels()
	if _, has := labels["x"]; has || labels["y"] != "2" || labels["z"] != "3" || k.alloc(u) != "gQAAAA==" {
		t.Errorf("labels %v, alloc %s", labels, k.alloc(u))
	}
}

func mergePatchOfOldVersionConflicts(_ T, k *kit) {
	made := k.createNetwork("a", nil)
	k.touch("a", "gQAAAA==")
	_, err := k.patchNetwork(types.MergePatchType, `{"metadata":{"resourceVersion":"`+made.GetResourceVersion()+`"},"spec":{"Options":{"alloc":"gIAAAA=="}}}`)
	k.wantReason(err, metav1.StatusReasonConflict, 409)
}

func strategicPatchMerges(t T, k *kit) {
	k.createPod("a", "n1")
	pods := k.core.CoreV1().Pods(k.namespace)
	for _, patch := range []string{
		`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`,
		`{"status":{"conditions":[{"type":"Initialized","status":"True"}]}}`,
		`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`,
	} {
		_, err := pods.Patch(k.ctx(), "a", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		k.must(err)
	}
	pod, err := pods.Get(k.ctx(), "a", metav1.GetOptions{})
	k.must(err)
	conditions := map[corev1.PodConditionType]corev1.ConditionStatus{}
	for _, c := range pod.Status.Conditions {
		conditions[c.Type] = c.Status
	}
	if conditions[corev1.PodReady] != corev1.ConditionFalse || conditions[corev1.PodInitialized] != corev1.ConditionTrue {
		t.Errorf("conditions: %v", pod.Status.Conditions)
	}
	k.createNetwork("a", nil)
	_, err = k.patchNetwork(types.StrategicMergePatchType, `{}`)
	k.wantReason(err, metav1.StatusReasonUnsupportedMediaType, 415)
}

func patchKeepsUID(t T, k *kit) {
	made := k.createNetwork("a", nil)
	_, err := k.patchNetwork(types.MergePatchType, `{"metadata":{"uid":"other"},"spec":{"Options":{"alloc":"gIAAAA=="}}}`)
	if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
		t.Errorf("got %v", err)
	}
	read, err := k.networks().Get(k.ctx(), "a", metav1.GetOptions{})
	k.must(err)
	if read.GetUID() != made.GetUID() || k.alloc(read) != "gAAAAA==" {
		t.Errorf("it was changed: %v", read.Object)
	}
}

func patchOfStatus(t T, k *kit) {
	k.createPod("a", "n1")
	patch := `{"metadata":{"labels":{"x":"y"}},"spec":{"nodeName":"n2"},"status":{"phase":"Running"}}`
	pod, err := k.core.CoreV1().Pods(k.namespace).Patch(k.ctx(), "a", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	k.must(err)
	if pod.Status.Phase != corev1.PodRunning || pod.Spec.NodeName != "n1" {
		t.Errorf("phase %s, node %s", pod.Status.Phase, pod.Spec.NodeName)
	}
}

func malformedPatchIsRefused(_ T, k *kit) {
	_, err := k.patchNetwork(types.MergePatchType, `{}`)
	k.wantReason(err, metav1.StatusReasonNotFound, 404)
	k.createNetwork("a", nil)
	_, err = k.patchNetwork(types.JSONPatchType, `{}`)
	k.wantReason(err, metav1.StatusReasonBadRequest, 400)
	_, err = k.patchNetwork(types.MergePatchType, `[`)
	k.wantReason(err, metav1.StatusReasonBadRequest, 400)
}
