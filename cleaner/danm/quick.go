package danm

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// quickly reads fields of an unstructured object without reflection: a cleaner
// of a large cluster converts tens of thousands of objects at once, and
// reflection is most of what that costs. isOdd says that something is not of
// the type that it should be; what was read is then of no use.
type quickly struct{ isOdd bool }

// text returns a string field. One that is absent or null is empty.
func (q *quickly) text(object map[string]any, field string) string {
	value, isText := object[field].(string)
	if !isText && object[field] != nil {
		q.isOdd = true
	}
	return value
}

// object returns an object field. One that is absent or null is nil.
func (q *quickly) object(object map[string]any, field string) map[string]any {
	value, isObject := object[field].(map[string]any)
	if !isObject && object[field] != nil {
		q.isOdd = true
	}
	return value
}

// texts returns an object field whose values are strings.
func (q *quickly) texts(object map[string]any, field string) map[string]string {
	from := q.object(object, field)
	if from == nil {
		return nil
	}
	texts := make(map[string]string, len(from))
	for name := range from {
		texts[name] = q.text(from, name)
	}
	return texts
}

// commonMetadata are the fields that nearly every object has. Nobody here reads
// managedFields, which are larger than all else of an object.
var commonMetadata = map[string]bool{
	"managedFields": true, "name": true, "namespace": true, "uid": true, "resourceVersion": true, "generation": true,
	"creationTimestamp": true, "labels": true, "annotations": true,
}

func (q *quickly) metadata(object map[string]any) metav1.ObjectMeta {
	from := q.object(object, "metadata")
	for field := range from {
		if !commonMetadata[field] {
			return q.allMetadata(from)
		}
	}
	generation, isNumber := from["generation"].(int64)
	if !isNumber && from["generation"] != nil {
		q.isOdd = true
	}
	return metav1.ObjectMeta{
		Name: q.text(from, "name"), Namespace: q.text(from, "namespace"), UID: types.UID(q.text(from, "uid")),
		ResourceVersion: q.text(from, "resourceVersion"), Generation: generation,
		CreationTimestamp: q.time(from, "creationTimestamp"),
		Labels:            q.texts(from, "labels"), Annotations: q.texts(from, "annotations"),
	}
}

func (q *quickly) time(object map[string]any, field string) metav1.Time {
	text := q.text(object, field)
	if text == "" {
		q.isOdd = q.isOdd || object[field] != nil
		return metav1.Time{}
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		q.isOdd = true
	}
	return metav1.NewTime(t.Local())
}

func (q *quickly) allMetadata(from map[string]any) metav1.ObjectMeta {
	var meta metav1.ObjectMeta
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from, &meta); err != nil {
		q.isOdd = true
	}
	meta.ManagedFields = nil
	return meta
}

func (q *quickly) typeMeta(object map[string]any) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: q.text(object, "kind"), APIVersion: q.text(object, "apiVersion")}
}

func (q *quickly) endpoint(object map[string]any) *Endpoint {
	spec := q.object(object, "spec")
	face := q.object(spec, "Interface")
	return &Endpoint{
		TypeMeta: q.typeMeta(object), ObjectMeta: q.metadata(object),
		Spec: EndpointSpec{
			NetworkName: q.text(spec, "NetworkName"), NetworkType: q.text(spec, "NetworkType"), EndpointID: q.text(spec, "EndpointID"),
			Interface: EndpointInterface{
				Name: q.text(face, "Name"), Address: q.text(face, "Address"), AddressIPv6: q.text(face, "AddressIPv6"),
				MacAddress: q.text(face, "MacAddress"), Proutes: q.texts(face, "proutes"), Proutes6: q.texts(face, "proutes6"),
				DeviceID: q.text(face, "DeviceID"),
			},
			Host: q.text(spec, "Host"), Pod: q.text(spec, "Pod"), PodUID: types.UID(q.text(spec, "PodUID")),
			CID: q.text(spec, "CID"), Netns: q.text(spec, "netns"), APIType: q.text(spec, "apiType"),
		},
	}
}

func (q *quickly) network(object map[string]any) *Network {
	spec := q.object(object, "spec")
	o := q.object(spec, "Options")
	pool, pool6 := q.object(o, "allocation_pool"), q.object(o, "allocation_pool_v6")
	return &Network{
		TypeMeta: q.typeMeta(object), ObjectMeta: q.metadata(object),
		Spec: NetworkSpec{
			NetworkID: q.text(spec, "NetworkID"), NetworkType: q.text(spec, "NetworkType"),
			Options: NetworkOptions{
				CIDR: q.text(o, "cidr"), Alloc: q.text(o, "alloc"),
				Pool: IPPool{Start: q.text(pool, "start"), End: q.text(pool, "end"), LastIP: q.text(pool, "lastIp")},
				Net6: q.text(o, "net6"), Alloc6: q.text(o, "alloc6"),
				PoolV6: IPPoolV6{
					Start: q.text(pool6, "start"), End: q.text(pool6, "end"), CIDR: q.text(pool6, "cidr"), LastIP: q.text(pool6, "lastIp"),
				},
				Routes: q.texts(o, "routes"), Routes6: q.texts(o, "routes6"), HostDev: q.text(o, "host_device"),
			},
		},
	}
}
