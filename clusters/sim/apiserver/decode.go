package apiserver

import (
	"bytes"
	"maps"
	"mime"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
)

func isEqual(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }

// isEqualJSON compares what was decoded from JSON, without reflection: custom
// resources are compared at every write.
func isEqualJSON(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, isEqualJSON)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, isEqualJSON)
	}
	switch b.(type) {
	case map[string]any, []any:
		return false // not comparable by ==
	}
	return a == b
}

// mediaType strips the parameters of a Content-Type.
func mediaType(contentType string) string {
	if contentType == contentJSON || contentType == contentProtobuf {
		return contentType
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return contentType
	}
	return media
}

// sentObject returns what a create or an update sends.
func (c *call) sentObject() (Object, error) {
	if sent := c.request.Object; sent != nil {
		return sent, nil
	}
	return c.target.table.kind.decodeObject(c.request.ContentType, c.request.Body)
}

// decodeObject reads the body of a create or an update.
func (k *kind) decodeObject(contentType string, body []byte) (Object, error) {
	if k.isCustom() {
		if media := mediaType(contentType); media != contentJSON && media != "" {
			return nil, unsupportedMedia(media)
		}
		return k.decodeCustom(body)
	}
	o := k.newObject()
	if err := decodeInto(contentType, body, o); err != nil {
		return nil, err
	}
	if got := o.GetObjectKind().GroupVersionKind(); !got.Empty() && got != k.groupVersionKind() {
		return nil, badRequest("the API version in the data (%s) does not match the expected API version (%s)", got.GroupVersion(), k.GroupVersion())
	}
	return o, nil
}

// decodeInto reads JSON or protobuf into a Go value.
func decodeInto(contentType string, body []byte, into any) error {
	switch media := mediaType(contentType); media {
	case contentJSON, "":
		if err := json.Unmarshal(body, into); err != nil {
			return badRequest("decoding the body: %v", err)
		}
		return nil
	case contentProtobuf:
		return decodeProtobuf(body, into)
	default:
		return unsupportedMedia(media)
	}
}

func decodeProtobuf(body []byte, into any) error {
	rest, ok := bytes.CutPrefix(body, protobufMagic)
	if !ok {
		return badRequest("decoding the body: it does not begin as protobuf does")
	}
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(rest); err != nil {
		return badRequest("decoding the body: %v", err)
	}
	message, ok := into.(protobufObject)
	if !ok {
		return unsupportedMedia(contentProtobuf)
	}
	if err := message.Unmarshal(unknown.Raw); err != nil {
		return badRequest("decoding the body: %v", err)
	}
	return nil
}

func (k *kind) decodeCustom(body []byte) (Object, error) {
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(body, &u.Object); err != nil {
		return nil, badRequest("decoding the body: %v", err)
	}
	if u.Object == nil {
		return nil, badRequest("decoding the body: it is empty")
	}
	if got := u.GroupVersionKind(); got != k.groupVersionKind() {
		return nil, badRequest("%s in the data is not the expected %s", got, k.groupVersionKind())
	}
	if metadata, present := u.Object["metadata"]; present {
		if _, isMap := metadata.(map[string]any); !isMap {
			return nil, badRequest("metadata is no object")
		}
	}
	return u, nil
}

func unsupportedMedia(media string) error {
	return refusal(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		"the body of the request was in an unknown format - accepted media types include: %s, %s (got %q)", contentJSON, contentProtobuf, media)
}
