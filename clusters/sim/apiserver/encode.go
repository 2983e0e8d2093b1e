package apiserver

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// The two encodings of the API.
const (
	contentJSON     = "application/json"
	contentProtobuf = "application/vnd.kubernetes.protobuf"
)

// ContentObjects is the media type of answers without a body: who accepts it is
// in the same process and takes the objects themselves.
const ContentObjects = "application/vnd.danm-chaos.objects"

// encoding is what a client accepts and the server answers in.
type encoding int

const (
	inJSON encoding = iota
	inProtobuf
	asObjects
)

func (e encoding) contentType() string {
	return [...]string{contentJSON, contentProtobuf, ContentObjects}[e]
}

// negotiate picks the first type of an Accept header that the server can
// produce. Custom resources have no protobuf.
func negotiate(accept string, canProtobuf bool) (encoding, error) {
	if accept == "" {
		return inJSON, nil
	}
	for part := range strings.SplitSeq(accept, ",") {
		media, parameters, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.Contains(parameters, "as=") {
			continue // tables, partial metadata, aggregated discovery
		}
		switch {
		case media == ContentObjects:
			return asObjects, nil
		case media == contentProtobuf && canProtobuf:
			return inProtobuf, nil
		case media == contentJSON, media == "application/*", media == "*/*":
			return inJSON, nil
		}
	}
	return inJSON, refusal(406, metav1.StatusReasonNotAcceptable, "only the following media types are accepted: %s, %s", contentJSON, contentProtobuf)
}

// protobufObject is what every object of Kubernetes' own kinds can do.
type protobufObject interface {
	Size() int
	MarshalTo([]byte) (int, error)
	Unmarshal([]byte) error
}

// bytes returns the state on the wire, without envelope. It is computed once.
func (v *version) bytes(e encoding) []byte {
	if e == inProtobuf {
		if v.proto == nil {
			v.proto = marshalProtobuf(v.object.(protobufObject))
		}
		return v.proto
	}
	if v.json == nil {
		v.json = marshalJSON(v.object)
	}
	return v.json
}

func marshalJSON(o any) []byte {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return toJSON(u)
	}
	data, err := json.Marshal(o)
	if err != nil {
		panic(fmt.Sprintf("encoding an object that was decoded before: %v", err))
	}
	return data
}

func marshalProtobuf(o protobufObject) []byte {
	data := make([]byte, o.Size())
	if _, err := o.MarshalTo(data); err != nil {
		panic(fmt.Sprintf("encoding an object that was decoded before: %v", err))
	}
	return data
}

// protobufMagic begins every message that is not part of a stream.
var protobufMagic = []byte("k8s\x00")

// envelope wraps a protobuf message in its name. Its wire format is that of
// runtime.Unknown: field 1 the type, 2 the message, 3 and 4 empty.
func envelope(apiVersion, kind string, message []byte) []byte {
	name := runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}
	size := name.Size()
	out := make([]byte, 0, len(protobufMagic)+size+len(message)+2*binary.MaxVarintLen32+6)
	out = append(out, protobufMagic...)
	out = appendField(out, 1, marshalProtobuf(&name))
	out = appendField(out, 2, message)
	return append(out, 3<<3|2, 0, 4<<3|2, 0)
}

// appendField appends a length-delimited protobuf field.
func appendField(out []byte, number int, message []byte) []byte {
	out = append(out, byte(number<<3|2))
	out = binary.AppendUvarint(out, uint64(len(message)))
	return append(out, message...)
}

// encodeVersion is a complete answer with one object.
func (k *kind) encodeVersion(v *version, e encoding) []byte {
	switch e {
	case asObjects:
		return nil
	case inProtobuf:
		return envelope(k.GroupVersion().String(), k.Kind, v.bytes(e))
	}
	return v.bytes(e)
}

// encodeList is a complete answer with a list. Every list of Kubernetes has its
// metadata in field 1 and its items in field 2.
func (k *kind) encodeList(meta metav1.ListMeta, items []*version, e encoding) []byte {
	switch e {
	case asObjects:
		return nil
	case inProtobuf:
		body := appendField(nil, 1, marshalProtobuf(&meta))
		for _, v := range items {
			body = appendField(body, 2, v.bytes(e))
		}
		return envelope(k.GroupVersion().String(), k.Kind+"List", body)
	}
	out := []byte(`{"apiVersion":` + strconv.Quote(k.GroupVersion().String()) + `,"kind":` + strconv.Quote(k.Kind+"List") + `,"metadata":`)
	out = append(append(out, marshalJSON(meta)...), `,"items":[`...)
	for i, v := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, k.listItem(v.bytes(e))...)
	}
	return append(out, "]}\n"...)
}

// listItem is an object of Kubernetes' own kinds without its kind and version,
// which lists leave out. Custom resources keep theirs.
func (k *kind) listItem(object []byte) []byte {
	if k.isCustom() {
		return object
	}
	named := `{"kind":` + strconv.Quote(k.Kind) + `,"apiVersion":` + strconv.Quote(k.GroupVersion().String()) + `,`
	if rest, ok := bytes.CutPrefix(object, []byte(named)); ok {
		return append([]byte("{"), rest...)
	}
	return object
}

func encodeStatus(status *metav1.Status, e encoding) []byte {
	switch e {
	case asObjects:
		return nil
	case inProtobuf:
		return envelope("v1", "Status", marshalProtobuf(status))
	}
	return marshalJSON(status)
}

// encodeFrame is one event of a watch. object is complete, with envelope.
func encodeFrame(event string, object []byte, e encoding) []byte {
	switch e {
	case asObjects:
		return nil
	case inProtobuf:
		// WatchEvent: field 1 the type, 2 the object as RawExtension, whose
		// field 1 are the bytes. Frames begin with their length.
		message := appendField(nil, 1, []byte(event))
		message = appendField(message, 2, appendField(nil, 1, object))
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)
	}
	out := make([]byte, 0, len(object)+len(event)+24)
	out = append(append(append(out, `{"type":"`...), event...), `","object":`...)
	out = append(out, object...)
	return append(out, "}\n"...)
}
