package apiserver

import (
	"net/http"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// evictionTolerationSeconds is how long pods stay on a node that is silent,
// unless they say otherwise. The real server adds this to every pod.
const evictionTolerationSeconds = 300

const defaultGracePeriodSeconds = 30

// setDefaults fills in what the real server would, as far as somebody in a
// simulation acts on it.
func (k *kind) setDefaults(o Object) {
	switch o := o.(type) {
	case *corev1.Pod:
		setPodDefaults(o)
	case *corev1.Namespace:
		o.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
		o.Status.Phase = corev1.NamespaceActive
		metav1.SetMetaDataLabel(&o.ObjectMeta, corev1.LabelMetadataName, o.Name)
	}
}

func setPodDefaults(pod *corev1.Pod) {
	spec := &pod.Spec
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort}
	if spec.RestartPolicy == "" {
		spec.RestartPolicy = corev1.RestartPolicyAlways
	}
	if spec.TerminationGracePeriodSeconds == nil {
		grace := int64(defaultGracePeriodSeconds)
		spec.TerminationGracePeriodSeconds = &grace
	}
	if spec.SchedulerName == "" {
		spec.SchedulerName = corev1.DefaultSchedulerName
	}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		spec.Tolerations = tolerate(spec.Tolerations, key)
	}
}

// tolerate adds a toleration of the taint for a while, if there is none.
func tolerate(list []corev1.Toleration, taint string) []corev1.Toleration {
	for _, t := range list {
		coversEffect := t.Effect == "" || t.Effect == corev1.TaintEffectNoExecute
		if coversEffect && (t.Key == taint || t.Key == "" && t.Operator == corev1.TolerationOpExists) {
			return list
		}
	}
	seconds := int64(evictionTolerationSeconds)
	return append(list[:len(list):len(list)], corev1.Toleration{
		Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
	})
}

// clearStatus takes away a status that a creation may not bring along. Nodes
// register with theirs.
func (k *kind) clearStatus(o Object) {
	switch o := o.(type) {
	case *unstructured.Unstructured:
		delete(o.Object, "status")
	case *corev1.Pod, *corev1.Node, *corev1.Namespace: // by setDefaults, or allowed
	default:
		copyPart(o, k.newObject(), partStatus)
	}
}

// validate refuses what the real server would, as far as custom resources have
// a schema. Objects of Kubernetes' own kinds are believed.
func (k *kind) validate(o Object) error {
	u, ok := o.(*unstructured.Unstructured)
	if ok && k.isDefinition() {
		_, err := kindOf(o)
		return err
	}
	if !ok || k.schema == nil {
		return nil
	}
	if errs := k.schema.check(u.Object, nil); len(errs) > 0 {
		return apierrors.NewInvalid(k.groupVersionKind().GroupKind(), o.GetName(), errs)
	}
	return nil
}

// validateTransition refuses changes of what cannot change.
func (k *kind) validateTransition(old, o Object) error {
	before, ok := old.(*corev1.Pod)
	if !ok || k.isSpecOfPodKept(before, o.(*corev1.Pod)) {
		return nil
	}
	return apierrors.NewInvalid(k.groupVersionKind().GroupKind(), o.GetName(), field.ErrorList{
		field.Forbidden(field.NewPath("spec"), "pod updates may not change fields other than `spec.containers[*].image`,"+
			"`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"+
			"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"),
	})
}

func (k *kind) isSpecOfPodKept(before, after *corev1.Pod) bool {
	if isEqual(before.Spec, after.Spec) {
		return true
	}
	allowed := after.DeepCopy().Spec
	allowed.ActiveDeadlineSeconds, allowed.Tolerations = before.Spec.ActiveDeadlineSeconds, before.Spec.Tolerations
	for i := range min(len(allowed.Containers), len(before.Spec.Containers)) {
		allowed.Containers[i].Image = before.Spec.Containers[i].Image
	}
	return isEqual(before.Spec, allowed)
}

// holdsNamespace tells whether the object is a namespace that still waits for
// its content to be removed. That is its own kind of finalizer.
func holdsNamespace(o Object) bool {
	namespace, ok := o.(*corev1.Namespace)
	return ok && len(namespace.Spec.Finalizers) > 0
}

func markNamespace(o Object) {
	if namespace, ok := o.(*corev1.Namespace); ok {
		namespace.Status.Phase = corev1.NamespaceTerminating
	}
}

// keepFinalizersOfNamespace leaves them to the finalize subresource.
func keepFinalizersOfNamespace(old, o Object) {
	if namespace, ok := o.(*corev1.Namespace); ok {
		namespace.Spec.Finalizers = old.(*corev1.Namespace).Spec.Finalizers
	}
}

// bind gives a pod its node, as the scheduler asks for.
func (c *call) bind() (answer, error) {
	var binding corev1.Binding
	if err := decodeInto(c.request.ContentType, c.request.Body, &binding); err != nil {
		return answer{}, err
	}
	old := c.target.table.find(c.target.namespace, c.target.name)
	if old == nil {
		return answer{}, c.notFound()
	}
	pod := copyForWrite(old.object).(*corev1.Pod)
	switch {
	case binding.UID != "" && binding.UID != pod.UID:
		return answer{}, c.conflict("Precondition failed: UID in precondition: %s, UID in object meta: %s", binding.UID, pod.UID)
	case pod.DeletionTimestamp != nil:
		return answer{}, c.conflict("pod %s is being deleted, cannot be assigned to a host", pod.Name)
	case pod.Spec.NodeName != "":
		return answer{}, c.conflict("pod %s is already assigned to node %q", pod.Name, pod.Spec.NodeName)
	}
	pod.Spec.NodeName = binding.Target.Name
	pod.Status.Conditions = append(pod.Status.Conditions[:len(pod.Status.Conditions):len(pod.Status.Conditions)],
		corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: c.now()})
	c.commit(c.target.table, old, pod)
	return c.answerStatus(&metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated}), nil
}

// evict deletes a pod. There are no disruption budgets that could forbid it.
func (c *call) evict() (answer, error) {
	var eviction policyv1.Eviction
	if err := decodeInto(c.request.ContentType, c.request.Body, &eviction); err != nil {
		return answer{}, err
	}
	old := c.target.table.find(c.target.namespace, c.target.name)
	if old == nil {
		return answer{}, c.notFound()
	}
	options := eviction.DeleteOptions
	if options == nil {
		options = &metav1.DeleteOptions{}
	}
	if _, _, err := c.deleteVersion(old, options); err != nil {
		return answer{}, err
	}
	return c.answerStatus(&metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated}), nil
}
