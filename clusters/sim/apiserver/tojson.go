package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// buffers are reused: an encoding is kept for long, and should have no more room
// than it takes.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// toJSON encodes a custom resource as the server does.
func toJSON(u *unstructured.Unstructured) []byte {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	*buffer = appendJSON((*buffer)[:0], u.Object)
	return bytes.Clone(*buffer)
}

// appendJSON appends what encoding/json makes of a value that was decoded from
// JSON, without its reflection: custom resources are encoded at every write.
func appendJSON(out []byte, value any) []byte {
	switch value := value.(type) {
	case map[string]any:
		return appendMap(out, value)
	case []any:
		out = append(out, '[')
		for i, item := range value {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendJSON(out, item)
		}
		return append(out, ']')
	case string:
		return appendText(out, value)
	case int64:
		return strconv.AppendInt(out, value, 10)
	case bool:
		return strconv.AppendBool(out, value)
	case nil:
		return append(out, "null"...)
	}
	data, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("encoding an object that was decoded before: %v", err))
	}
	return append(out, data...)
}

func appendMap(out []byte, value map[string]any) []byte {
	if value == nil {
		return append(out, "null"...)
	}
	out = append(out, '{')
	var names [16]string // more only where an object has more fields
	for i, name := range sortedKeys(names[:0], value) {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(appendText(out, name), ':')
		out = appendJSON(out, value[name])
	}
	return append(out, '}')
}

// sortedKeys appends the keys of an object in their order.
func sortedKeys(names []string, value map[string]any) []string {
	for name := range value {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// appendText leaves to encoding/json whatever must be escaped.
func appendText(out []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			data, err := json.Marshal(text)
			if err != nil {
				panic(err) // a string can always be encoded
			}
			return append(out, data...)
		}
	}
	out = append(append(out, '"'), text...)
	return append(out, '"')
}
