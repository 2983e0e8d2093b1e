package danm

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// fieldReader reads fields of an unstructured object without reflection: a cleaner
// of a large cluster converts tens of thousands of objects at once, and
// reflection is most of what that costs. isOdd says that something is not of
// the type that it should be; what was read is then of no use.
type fieldReader struct{ isOdd bool }

// text returns a string field. One that is absent or null is empty.
func (r *fieldReader) text(object map[string]any, field string) string {
	value, isText := object[field].(string)
	if !isText && object[field] != nil {
		r.isOdd = true
	}
	return value
}

// object returns an object field. One that is absent or null is nil.
func (r *fieldReader) object(object map[string]any, field string) map[string]any {
	value, isObject := object[field].(map[string]any)
	if !isObject && object[field] != nil {
		r.isOdd = true
	}
	return value
}

// texts returns an object field whose values are strings.
func (r *fieldReader) texts(object map[string]any, field string) map[string]string {
	from := r.object(object, field)
	if from == nil {
		return nil
	}
	texts := make(map[string]string, len(from))
	for name := range from {
		texts[name] = r.text(from, name)
	}
	return texts
}

// commonMetadata are the fields that nearly every object has. Nobody here reads
// managedFields, which are larger than all else of an object.
var commonMetadata = map[string]bool{
	"managedFields": true, "name": true, "namespace": true, "uid": true, "resourceVersion": true, "generation": true,
	"creationTimestamp": true, "labels": true, "annotations": true,
}

func (r *fieldReader) metadata(object map[string]any) metav1.ObjectMeta {
	from := r.object(object, "metadata")
	for field := range from {
		if !commonMetadata[field] {
			return r.allMetadata(from)
		}
	}
	generation, isNumber := from["generation"].(int64)
	if !isNumber && from["generation"] != nil {
		r.isOdd = true
	}
	return metav1.ObjectMeta{
		Name: r.text(from, "name"), Namespace: r.text(from, "namespace"), UID: types.UID(r.text(from, "uid")),
		ResourceVersion: r.text(from, "resourceVersion"), Generation: generation,
		CreationTimestamp: r.time(from, "creationTimestamp"),
		Labels:            r.texts(from, "labels"), Annotations: r.texts(from, "annotations"),
	}
}

func (r *fieldReader) time(object map[string]any, field string) metav1.Time {
	text := r.text(object, field)
	if text == "" {
		r.isOdd = r.isOdd || object[field] != nil
		return metav1.Time{}
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		r.isOdd = true
	}
	return metav1.NewTime(t.Local())
}

func (r *fieldReader) allMetadata(from map[string]any) metav1.ObjectMeta {
	var meta metav1.ObjectMeta
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from, &meta); err != nil {
		r.isOdd = true
	}
	meta.ManagedFields = nil
	return meta
}

func (r *fieldReader) typeMeta(object map[string]any) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: r.text(object, "kind"), APIVersion: r.text(object, "apiVersion")}
}

func (r *fieldReader) endpoint(object map[string]any) *Endpoint {
	spec := r.object(object, "spec")
	face := r.object(spec, "Interface")
	return &Endpoint{
		TypeMeta: r.typeMeta(object), ObjectMeta: r.metadata(object),
		Spec: EndpointSpec{
			NetworkName: r.text(spec, "NetworkName"), NetworkType: r.text(spec, "NetworkType"), EndpointID: r.text(spec, "EndpointID"),
			Interface: EndpointInterface{
				Name: r.text(face, "Name"), Address: r.text(face, "Address"), AddressIPv6: r.text(face, "AddressIPv6"),
				MacAddress: r.text(face, "MacAddress"), Proutes: r.texts(face, "proutes"), Proutes6: r.texts(face, "proutes6"),
				DeviceID: r.text(face, "DeviceID"),
			},
			Host: r.text(spec, "Host"), Pod: r.text(spec, "Pod"), PodUID: types.UID(r.text(spec, "PodUID")),
			CID: r.text(spec, "CID"), Netns: r.text(spec, "netns"), APIType: r.text(spec, "apiType"),
		},
	}
}

func (r *fieldReader) network(object map[string]any) *Network {
	spec := r.object(object, "spec")
	o := r.object(spec, "Options")
	pool, pool6 := r.object(o, "allocation_pool"), r.object(o, "allocation_pool_v6")
	return &Network{
		TypeMeta: r.typeMeta(object), ObjectMeta: r.metadata(object),
		Spec: NetworkSpec{
			NetworkID: r.text(spec, "NetworkID"), NetworkType: r.text(spec, "NetworkType"),
			Options: NetworkOptions{
				CIDR: r.text(o, "cidr"), Alloc: r.text(o, "alloc"),
				Pool: IPPool{Start: r.text(pool, "start"), End: r.text(pool, "end"), LastIP: r.text(pool, "lastIp")},
				Net6: r.text(o, "net6"), Alloc6: r.text(o, "alloc6"),
				PoolV6: IPPoolV6{
					Start: r.text(pool6, "start"), End: r.text(pool6, "end"), CIDR: r.text(pool6, "cidr"), LastIP: r.text(pool6, "lastIp"),
				},
				Routes: r.texts(o, "routes"), Routes6: r.texts(o, "routes6"), HostDev: r.text(o, "host_device"),
			},
		},
	}
}
