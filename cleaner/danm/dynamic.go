package danm

import (
	gojson "encoding/json"
	"fmt"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// NewDynamic returns a dynamic client that reads each answer once. client-go's
// own scans a list seven times and decodes it twice, at the cost of a cleaner's
// peak of memory. What the objects are is the same, and so are the errors:
// whatever is unusual goes client-go's way. It understands one more encoding, if
// one is given.
func NewDynamic(config *rest.Config, more *runtime.SerializerInfo) (dynamic.Interface, error) {
	usual := usualEncodings()
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = usual.ContentType, usual.AcceptContentTypes
	config.NegotiatedSerializer = usual.NegotiatedSerializer
	config = WithEncoding(config, more)
	config.GroupVersion = nil
	config.APIPath = "/apis"
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of custom resources: %w", err)
	}
	return dynamicClient{dynamic.New(client), client}, nil
}

// usualEncodings are client-go's for a dynamic client, with quicker decoders.
var usualEncodings = sync.OnceValue(func() *rest.Config {
	config := dynamic.ConfigFor(&rest.Config{})
	config.NegotiatedSerializer = newOnceReader(config.NegotiatedSerializer)
	return config
})

// onceReader is client-go's serializers with quicker decoders.
type onceReader struct {
	runtime.NegotiatedSerializer
	types []runtime.SerializerInfo
}

func newOnceReader(usual runtime.NegotiatedSerializer) onceReader {
	s := onceReader{NegotiatedSerializer: usual}
	for _, info := range usual.SupportedMediaTypes() {
		if info.MediaType == runtime.ContentTypeJSON {
			stream := *info.StreamSerializer
			stream.Serializer = eventSerializer{stream.Serializer}
			info.Serializer, info.StreamSerializer = objectSerializer{info.Serializer}, &stream
		}
		s.types = append(s.types, info)
	}
	return s
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s onceReader) SupportedMediaTypes() []runtime.SerializerInfo { return s.types }

// objectSerializer decodes unstructured objects and lists in one pass.
type objectSerializer struct{ runtime.Serializer }

// Decode implements runtime.Decoder.
func (s objectSerializer) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	isOfInterest := defaults == nil
	switch into.(type) {
	case nil, *unstructured.Unstructured, *unstructured.UnstructuredList:
	default:
		isOfInterest = false
	}
	if isOfInterest {
		if object, ok := decodeOnce(data, into); ok {
			kind := object.GetObjectKind().GroupVersionKind()
			return object, &kind, nil
		}
	}
	return s.Serializer.Decode(data, defaults, into)
}

// decodeOnce returns false for whatever client-go may have another view of: its
// own kinds, which are in no group, and what is no object.
func decodeOnce(data []byte, into runtime.Object) (runtime.Object, bool) {
	var object map[string]any
	if json.Unmarshal(data, &object) != nil {
		return nil, false
	}
	apiVersion, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	group, version, isGrouped := strings.Cut(apiVersion, "/")
	if kind == "" || !isGrouped || group == "" || version == "" || strings.Contains(version, "/") {
		return nil, false
	}
	switch into := into.(type) {
	case *unstructured.UnstructuredList:
		return into, fillList(into, object, apiVersion, strings.TrimSuffix(kind, "List"))
	case *unstructured.Unstructured:
		into.Object = object
		return into, true
	}
	_, isList := object["items"]
	return &unstructured.Unstructured{Object: object}, !isList
}

// fillList takes a list apart. Items that name no kind get the list's.
func fillList(list *unstructured.UnstructuredList, object map[string]any, apiVersion, kind string) bool {
	items, isList := object["items"].([]any)
	if !isList {
		return false
	}
	filled := make([]unstructured.Unstructured, len(items))
	for i, item := range items {
		fields, isObject := item.(map[string]any)
		if !isObject {
			return false
		}
		filled[i].Object = fields
		if filled[i].GetKind() == "" && filled[i].GetAPIVersion() == "" {
			filled[i].SetKind(kind)
			filled[i].SetAPIVersion(apiVersion)
		}
	}
	delete(object, "items")
	list.Object, list.Items = object, filled
	return true
}

// eventSerializer decodes the envelope of a watch's events in one pass.
type eventSerializer struct{ runtime.Serializer }

// Decode implements runtime.Decoder.
func (s eventSerializer) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	event, ok := into.(*metav1.WatchEvent)
	var read envelope
	if !ok || json.Unmarshal(data, &read) != nil || read.APIVersion != nil || read.Kind != nil {
		return s.Serializer.Decode(data, defaults, into)
	}
	event.Type, event.Object = read.Type, read.Object
	kind := metav1.SchemeGroupVersion.WithKind("WatchEvent")
	return event, &kind, nil
}

// envelope is an event on the wire. The real ones name no kind.
type envelope struct {
	APIVersion gojson.RawMessage    `json:"apiVersion"`
	Kind       gojson.RawMessage    `json:"kind"`
	Type       string               `json:"type"`
	Object     runtime.RawExtension `json:"object"`
}
