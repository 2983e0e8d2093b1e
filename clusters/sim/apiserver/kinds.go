package apiserver

import (
	"fmt"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is what the server knows of one resource.
type kind struct {
	schema.GroupVersionResource
	Kind, Singular string
	ShortNames     []string
	Namespaced     bool
	// newObject makes an empty object to decode into; nil for custom resources.
	newObject func() Object
	// subresources beside the object itself.
	subresources []string
	// unconditionalUpdate allows a PUT that names no resourceVersion.
	unconditionalUpdate bool
	// createOnUpdate makes a PUT of what does not exist create it.
	createOnUpdate bool
	// hasGeneration makes metadata.generation count changes of the spec.
	hasGeneration bool
	// selectable are the fields besides name and namespace that a field
	// selector may name.
	selectable func(Object) fields.Set
	// schema of a custom resource.
	schema *structure
}

func (k *kind) groupResource() schema.GroupResource { return k.GroupResource() }

func (k *kind) groupVersionKind() schema.GroupVersionKind {
	return k.GroupVersion().WithKind(k.Kind)
}

func (k *kind) isCustom() bool { return k.newObject == nil }

func (k *kind) emptyObject() Object {
	if k.isCustom() {
		return &unstructured.Unstructured{Object: map[string]any{}}
	}
	return k.newObject()
}

func (k *kind) isDefinition() bool { return k.GroupVersionResource == crdResource }

func (k *kind) hasStatus() bool { return slices.Contains(k.subresources, subresourceStatus) }

// name writes kind and version into the object, which protobuf leaves out.
func (k *kind) name(o Object) {
	if o.GetObjectKind().GroupVersionKind() != k.groupVersionKind() {
		o.GetObjectKind().SetGroupVersionKind(k.groupVersionKind())
	}
}

const (
	subresourceStatus   = "status"
	subresourceFinalize = "finalize"
	subresourceBinding  = "binding"
	subresourceEviction = "eviction"
)

// crdResource is what custom resources are defined by.
var crdResource = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// builtinKinds are Kubernetes' own resources, as far as they are served.
func builtinKinds() []*kind {
	core, apps := corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion
	return []*kind{
		{
			GroupVersionResource: core.WithResource("pods"), Kind: "Pod", Singular: "pod", ShortNames: []string{"po"}, Namespaced: true,
			newObject:    func() Object { return &corev1.Pod{} },
			subresources: []string{subresourceStatus, subresourceBinding, subresourceEviction}, unconditionalUpdate: true, hasGeneration: true,
			selectable: podFields,
		},
		{
			GroupVersionResource: core.WithResource("nodes"), Kind: "Node", Singular: "node", ShortNames: []string{"no"},
			newObject:    func() Object { return &corev1.Node{} },
			subresources: []string{subresourceStatus}, unconditionalUpdate: true,
			selectable: nodeFields,
		},
		{
			GroupVersionResource: core.WithResource("namespaces"), Kind: "Namespace", Singular: "namespace", ShortNames: []string{"ns"},
			newObject:    func() Object { return &corev1.Namespace{} },
			subresources: []string{subresourceStatus, subresourceFinalize}, unconditionalUpdate: true,
			selectable: namespaceFields,
		},
		{
			GroupVersionResource: core.WithResource("events"), Kind: "Event", Singular: "event", ShortNames: []string{"ev"}, Namespaced: true,
			newObject: func() Object { return &corev1.Event{} }, unconditionalUpdate: true, createOnUpdate: true,
			selectable: eventFields,
		},
		{
			GroupVersionResource: core.WithResource("configmaps"), Kind: "ConfigMap", Singular: "configmap", ShortNames: []string{"cm"}, Namespaced: true,
			newObject: func() Object { return &corev1.ConfigMap{} }, unconditionalUpdate: true,
		},
		{
			GroupVersionResource: apps.WithResource("statefulsets"), Kind: "StatefulSet", Singular: "statefulset", ShortNames: []string{"sts"}, Namespaced: true,
			newObject:    func() Object { return &appsv1.StatefulSet{} },
			subresources: []string{subresourceStatus}, unconditionalUpdate: true, hasGeneration: true,
		},
		{
			GroupVersionResource: coordinationv1.SchemeGroupVersion.WithResource("leases"), Kind: "Lease", Singular: "lease", Namespaced: true,
			newObject: func() Object { return &coordinationv1.Lease{} }, createOnUpdate: true,
		},
		{
			GroupVersionResource: crdResource, Kind: "CustomResourceDefinition", Singular: "customresourcedefinition", ShortNames: []string{"crd", "crds"},
			subresources: []string{subresourceStatus}, hasGeneration: true,
		},
	}
}

// kubernetesGroups are the groups of the real server. What is not served of
// them is answered by 501, so that nobody takes it for absent.
var kubernetesGroups = []string{
	"", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "apps", "authentication.k8s.io",
	"authorization.k8s.io", "autoscaling", "batch", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io",
	"events.k8s.io", "flowcontrol.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io", "policy",
	"rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io",
}

// copyForWrite returns a copy whose metadata may be changed. What is below
// metadata stays shared with the original.
func copyForWrite(o Object) Object {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return copyUnstructured(u)
	}
	original := reflect.ValueOf(o).Elem()
	clone := reflect.New(original.Type())
	clone.Elem().Set(original)
	return clone.Interface().(Object)
}

func copyUnstructured(u *unstructured.Unstructured) *unstructured.Unstructured {
	clone := &unstructured.Unstructured{Object: make(map[string]any, len(u.Object))}
	for name, value := range u.Object {
		clone.Object[name] = value
	}
	if metadata, ok := u.Object["metadata"].(map[string]any); ok {
		own := make(map[string]any, len(metadata)+1)
		for name, value := range metadata {
			own[name] = value
		}
		clone.Object["metadata"] = own
	}
	return clone
}

// copyPart makes a part of to, "Spec" or "Status", what it is in from.
func copyPart(to, from Object, part string) {
	if u, ok := to.(*unstructured.Unstructured); ok {
		source, name := from.(*unstructured.Unstructured).Object, jsonName(part)
		if value, ok := source[name]; ok {
			u.Object[name] = value
		} else {
			delete(u.Object, name)
		}
		return
	}
	field := reflect.ValueOf(to).Elem().FieldByName(part)
	if field.IsValid() {
		field.Set(reflect.ValueOf(from).Elem().FieldByName(part))
	}
}

// isPartEqual compares a part of two objects.
func isPartEqual(a, b Object, part string) bool {
	if u, ok := a.(*unstructured.Unstructured); ok {
		name := jsonName(part)
		return isEqualJSON(u.Object[name], b.(*unstructured.Unstructured).Object[name])
	}
	left, right := reflect.ValueOf(a).Elem().FieldByName(part), reflect.ValueOf(b).Elem().FieldByName(part)
	return !left.IsValid() || isEqual(left.Interface(), right.Interface())
}

const partSpec, partStatus = "Spec", "Status"

func jsonName(part string) string {
	switch part {
	case partSpec:
		return "spec"
	case partStatus:
		return "status"
	}
	panic("no such part of an object: " + part)
}

func podFields(o Object) fields.Set {
	pod := o.(*corev1.Pod)
	ip := ""
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	return fields.Set{
		"spec.nodeName": pod.Spec.NodeName, "spec.restartPolicy": string(pod.Spec.RestartPolicy),
		"spec.schedulerName": pod.Spec.SchedulerName, "spec.serviceAccountName": pod.Spec.ServiceAccountName,
		"spec.hostNetwork": fmt.Sprint(pod.Spec.HostNetwork), "status.phase": string(pod.Status.Phase),
		"status.podIP": ip, "status.nominatedNodeName": pod.Status.NominatedNodeName,
	}
}

func nodeFields(o Object) fields.Set {
	return fields.Set{"spec.unschedulable": fmt.Sprint(o.(*corev1.Node).Spec.Unschedulable)}
}

func namespaceFields(o Object) fields.Set {
	return fields.Set{"status.phase": string(o.(*corev1.Namespace).Status.Phase)}
}

func eventFields(o Object) fields.Set {
	e := o.(*corev1.Event)
	source := e.Source.Component
	if source == "" {
		source = e.ReportingController
	}
	return fields.Set{
		"involvedObject.kind": e.InvolvedObject.Kind, "involvedObject.namespace": e.InvolvedObject.Namespace,
		"involvedObject.name": e.InvolvedObject.Name, "involvedObject.uid": string(e.InvolvedObject.UID),
		"involvedObject.apiVersion": e.InvolvedObject.APIVersion, "involvedObject.fieldPath": e.InvolvedObject.FieldPath,
		"involvedObject.resourceVersion": e.InvolvedObject.ResourceVersion,
		"reason":                         e.Reason, "reportingComponent": e.ReportingController, "source": source, "type": e.Type,
	}
}

// apiResources is the answer of discovery for one group version.
func apiResources(kinds []*kind) []metav1.APIResource {
	var list []metav1.APIResource
	for _, k := range kinds {
		list = append(list, metav1.APIResource{
			Name: k.Resource, SingularName: k.Singular, Namespaced: k.Namespaced, Kind: k.Kind, ShortNames: k.ShortNames,
			Verbs: metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
		})
		for _, sub := range k.subresources {
			list = append(list, metav1.APIResource{
				Name: k.Resource + "/" + sub, Namespaced: k.Namespaced, Kind: k.Kind, Verbs: subresourceVerbs(sub),
			})
		}
	}
	return list
}

func subresourceVerbs(sub string) metav1.Verbs {
	switch sub {
	case subresourceBinding, subresourceEviction:
		return metav1.Verbs{"create"}
	case subresourceFinalize:
		return metav1.Verbs{"update"}
	}
	return metav1.Verbs{"get", "patch", "update"}
}
