package danm

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// ToEndpoint converts an object read from the API, without its managedFields. A
// field of the wrong type gives an error that names the object and the field.
func ToEndpoint(u *unstructured.Unstructured) (*Endpoint, error) {
	var fields fieldReader
	if ep := fields.endpoint(u.Object); !fields.isOdd {
		return ep, nil
	}
	ep := &Endpoint{}
	if err := convert(u, ep); err != nil {
		return nil, err
	}
	ep.ManagedFields = nil
	return ep, nil
}

// ToNetwork converts a network of any kind, without its managedFields; the kind
// is the object's own. A field of the wrong type gives an error that names the
// object and the field.
func ToNetwork(u *unstructured.Unstructured) (*Network, error) {
	var fields fieldReader
	if n := fields.network(u.Object); !fields.isOdd {
		return n, nil
	}
	n := &Network{}
	if err := convert(u, n); err != nil {
		return nil, err
	}
	n.ManagedFields = nil
	return n, nil
}

// convert is for objects with something odd in them. The detour through JSON is
// only for the error, because only encoding/json says which field it was.
func convert(u *unstructured.Unstructured, into any) error {
	quick := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into)
	if quick == nil {
		return nil
	}
	data, err := u.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	var wrongType *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrongType):
		return fmt.Errorf("%s: %s: %s where %s is expected", objectName(u), wrongType.Field, wrongType.Value, wrongType.Type)
	default:
		return fmt.Errorf("%s: %w", objectName(u), quick)
	}
}

func objectName(u *unstructured.Unstructured) string {
	return NetworkRef{Kind: NetworkKind(u.GetKind()), Namespace: u.GetNamespace(), Name: u.GetName()}.String()
}

// ToUnstructured converts an endpoint for writing; it sets apiVersion and kind
// for the group.
func (e *Endpoint) ToUnstructured(g Group) (*unstructured.Unstructured, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(e)
	if err != nil {
		return nil, fmt.Errorf("converting DanmEp %s/%s: %w", e.Namespace, e.Name, err)
	}
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(g.GroupVersion().WithKind(EndpointKind))
	return u, nil
}
