package conformance

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func createChecks() []Check {
	return []Check{
		{"a created object has what the client sent and what the server adds", createdObjectIsStamped},
		{"a new pod is Pending, and tolerates silent nodes for a while", newPodHasDefaults},
		{"what a client says about system fields of a new object is ignored", systemFieldsAreIgnored},
		{"a name that exists cannot be created again", existingNameIsRefused},
		{"generated names differ and keep the prefix", generatedNamesDiffer},
		{"an object cannot be created with a resourceVersion", resourceVersionIsRefused},
		{"names are checked", namesAreChecked},
		{"a namespace that does not exist takes nothing", missingNamespaceIsRefused},
		{"a namespace that is being deleted takes nothing, and goes when it is empty", terminatingNamespaceIsRefused},
		{"a dry run creates nothing", dryRunCreatesNothing},
		{"a custom resource obeys its schema and keeps unknown fields", schemaIsObeyed},
		{"a pod is bound once", podIsBoundOnce},
	}
}

func createdObjectIsStamped(t T, k *kit) {
	made := k.createNetwork("a", map[string]string{"x": "y"})
	k.version(made.GetResourceVersion())
	created := made.GetCreationTimestamp()
	switch {
	case made.GetUID() == "" || created.IsZero() || made.GetGeneration() != 1:
		t.Errorf("server fields: %v", made.Object["metadata"])
	case made.GetNamespace() != k.namespace || made.GetLabels()["x"] != "y" || k.alloc(made) != "gAAAAA==":
		t.Errorf("client fields: %v", made.Object)
	}
	vlan, _, _ := unstructured.NestedInt64(made.Object, "spec", "Options", "vlan")
	if vlan != 7 {
		t.Errorf("an integer came back as %d", vlan)
	}
	read, err := k.networks().Get(k.ctx(), "a", metav1.GetOptions{})
	k.must(err)
	if read.GetUID() != made.GetUID() || read.GetResourceVersion() != made.GetResourceVersion() {
		t.Errorf("read %v, created %v", read.Object["metadata"], made.Object["metadata"])
	}
}

func newPodHasDefaults(t T, k *kit) {
	sent := k.pod("a", "")
	sent.Status.Phase = corev1.PodRunning
	pod, err := k.core.CoreV1().Pods(k.namespace).Create(k.ctx(), sent, metav1.CreateOptions{})
	k.must(err)
	if pod.Status.Phase != corev1.PodPending || pod.Spec.RestartPolicy != corev1.RestartPolicyAlways || pod.Generation != 1 {
		t.Errorf("phase %s, restart policy %s, generation %d", pod.Status.Phase, pod.Spec.RestartPolicy, pod.Generation)
	}
	if grace := pod.Spec.TerminationGracePeriodSeconds; grace == nil || *grace != 30 {
		t.Errorf("grace period %v", grace)
	}
	keys := map[string]bool{}
	for _, toleration := range pod.Spec.Tolerations {
		keys[toleration.Key] = toleration.TolerationSeconds != nil
	}
	if !keys[corev1.TaintNodeNotReady] || !keys[corev1.TaintNodeUnreachable] {
		t.Errorf("tolerations: %v", pod.Spec.Tolerations)
	}
}

func systemFieldsAreIgnored(t T, k *kit) {
	now := metav1.Now()
	sent := k.network("a", nil)
	sent.SetUID("mine")
	sent.SetDeletionTimestamp(&now)
	sent.SetGeneration(9)
	made, err := k.networks().Create(k.ctx(), sent, metav1.CreateOptions{})
	k.must(err)
	if made.GetUID() == "mine" || made.GetDeletionTimestamp() != nil || made.GetGeneration() != 1 {
		t.Errorf("metadata: %v", made.Object["metadata"])
	}
}

func existingNameIsRefused(t T, k *kit) {
	first := k.createNetwork("a", nil)
	_, err := k.networks().Create(k.ctx(), k.network("a", nil), metav1.CreateOptions{})
	k.wantReason(err, metav1.StatusReasonAlreadyExists, 409)
	k.createPod("a", "")
	_, err = k.core.CoreV1().Pods(k.namespace).Create(k.ctx(), k.pod("a", ""), metav1.CreateOptions{})
	k.wantReason(err, metav1.StatusReasonAlreadyExists, 409)
	read, err := k.networks().Get(k.ctx(), "a", metav1.GetOptions{})
	k.must(err)
	if read.GetUID() != first.GetUID() || read.GetResourceVersion() != first.GetResourceVersion() {
		t.Errorf("the first object was changed")
	}
}

func generatedNamesDiffer(t T, k *kit) {
	seen := map[string]bool{}
	for range 3 {
		sent := k.network("", nil)
		sent.SetGenerateName("net-")
		made, err := k.networks().Create(k.ctx(), sent, metav1.CreateOptions{})
		k.must(err)
		if name := made.GetName(); seen[name] || !strings.HasPrefix(name, "net-") || len(name) <= len("net-") {
			t.Errorf("generated name %q", name)
		}
		seen[made.GetName()] = true
	}
}

func resourceVersionIsRefused(t T, k *kit) {
	sent := k.network("a", nil)
	sent.SetResourceVersion("1")
	if _, err := k.networks().Create(k.ctx(), sent, metav1.CreateOptions{}); err == nil {
		t.Errorf("it was created")
	}
}

func namesAreChecked(t T, k *kit) {
	for _, name := range []string{"Upper", "a_b", "-a"} {
		_, err := k.networks().Create(k.ctx(), k.network(name, nil), metav1.CreateOptions{})
		k.wantReason(err, metav1.StatusReasonInvalid, 422)
	}
	_, err := k.core.CoreV1().ConfigMaps(k.namespace).Create(k.ctx(), &corev1.ConfigMap{}, metav1.CreateOptions{})
	k.wantReason(err, metav1.StatusReasonInvalid, 422)
	elsewhere := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default"}}`
	if r := k.send(call{"POST", k.corePath("configmaps"), contentJSON, contentJSON, elsewhere}); r.code != 400 {
		t.Errorf("an object of another namespace: %d: %s", r.code, r.body)
	}
}

func missingNamespaceIsRefused(_ T, k *kit) {
	_, err := k.core.CoreV1().ConfigMaps("no-such-namespace").Create(k.ctx(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	k.wantReason(err, metav1.StatusReasonNotFound, 404)
}

func terminatingNamespaceIsRefused(t T, k *kit) {
	held := k.network("held", nil)
	held.SetFinalizers([]string{"conformance/hold"})
	_, err := k.networks().Create(k.ctx(), held, metav1.CreateOptions{})
	k.must(err)
	k.must(k.core.CoreV1().Namespaces().Delete(k.ctx(), k.namespace, metav1.DeleteOptions{}))
	namespace, err := k.core.CoreV1().Namespaces().Get(k.ctx(), k.namespace, metav1.GetOptions{})
	k.must(err)
	if namespace.DeletionTimestamp == nil || namespace.Status.Phase != corev1.NamespaceTerminating {
		t.Errorf("deleted at %v, phase %s", namespace.DeletionTimestamp, namespace.Status.Phase)
	}
	_, err = k.networks().Create(k.ctx(), k.network("late", nil), metav1.CreateOptions{})
	k.wantReason(err, metav1.StatusReasonForbidden, 403)
	if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("the refusal does not say that the namespace is terminating: %v", err)
	}
	k.await("the content to be deleted", func() bool {
		u, err := k.networks().Get(k.ctx(), "held", metav1.GetOptions{})
		return err == nil && u.GetDeletionTimestamp() != nil
	})
	_, err = k.networks().Patch(k.ctx(), "held", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	k.must(err)
	k.await("the namespace to go", func() bool {
		_, err := k.core.CoreV1().Namespaces().Get(k.ctx(), k.namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func dryRunCreatesNothing(_ T, k *kit) {
	_, err := k.networks().Create(k.ctx(), k.network("a", nil), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	k.must(err)
	_, err = k.networks().Get(k.ctx(), "a", metav1.GetOptions{})
	k.wantReason(err, metav1.StatusReasonNotFound, 404)
}

func schemaIsObeyed(t T, k *kit) {
	for _, wrong := range []struct {
		what   string
		change func(spec object)
	}{
		{"a required field is missing", func(spec object) { delete(spec, "NetworkID") }},
		{"a text is too short", func(spec object) { spec["NetworkID"] = "" }},
		{"a text is a number", func(spec object) { spec["NetworkID"] = int64(1) }},
		{"a prefix is malformed", func(spec object) { spec["Options"].(object)["cidr"] = "10.0.0.0/99" }},
		{"a required field is null", func(spec object) { spec["NetworkID"] = nil }},
		{"a value of a map is a number", func(spec object) { spec["Options"].(object)["routes"] = object{"a": int64(1)} }},
	} {
		sent := k.network("a", nil)
		wrong.change(sent.Object["spec"].(object))
		if _, err := k.networks().Create(k.ctx(), sent, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); !apierrors.IsInvalid(err) {
			t.Errorf("%s: got %v, want Invalid", wrong.what, err)
		}
	}
	sent := k.network("a", nil)
	sent.Object["spec"].(object)["Options"].(object)["mtu"] = int64(1500)
	sent.Object["spec"].(object)["Options"].(object)["routes"] = nil
	sent.Object["spec"].(object)["Options"].(object)["alloc6"] = nil
	made, err := k.networks().Create(k.ctx(), sent, metav1.CreateOptions{})
	k.must(err)
	options := made.Object["spec"].(object)["Options"].(object)
	_, hasRoutes := options["routes"]
	_, hasAlloc6 := options["alloc6"]
	if !hasRoutes || hasAlloc6 {
		t.Errorf("null stays where it is allowed, and goes elsewhere: %v", options)
	}
	if mtu, _, _ := unstructured.NestedInt64(made.Object, "spec", "Options", "mtu"); mtu != 1500 {
		t.Errorf("an unknown field was dropped: %v", made.Object)
	}
}

func podIsBoundOnce(t T, k *kit) {
	pod := k.createPod("a", "")
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
	pods := k.core.CoreV1().Pods(k.namespace)
	other := binding.DeepCopy()
	other.UID = "other"
	k.wantReason(pods.Bind(k.ctx(), other, metav1.CreateOptions{}), metav1.StatusReasonConflict, 409)
	k.must(pods.Bind(k.ctx(), binding, metav1.CreateOptions{}))
	bound, err := pods.Get(k.ctx(), "a", metav1.GetOptions{})
	k.must(err)
	if bound.Spec.NodeName != "n1" {
		t.Errorf("bound to %q", bound.Spec.NodeName)
	}
	k.wantReason(pods.Bind(k.ctx(), binding, metav1.CreateOptions{}), metav1.StatusReasonConflict, 409)
}
