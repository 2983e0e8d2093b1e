package danm

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// targets are what client-go decodes answers into.
var targets = map[string]func() runtime.Object{
	"a new object": func() runtime.Object { return nil },
	"an object":    func() runtime.Object { return &unstructured.Unstructured{} },
	"a list":       func() runtime.Object { return &unstructured.UnstructuredList{} },
	"a status":     func() runtime.Object { return &metav1.Status{} },
}

func FuzzAnswersAreReadAsClientGoReadsThem(f *testing.F) {
	for _, answer := range []string{
		`{"apiVersion":"danm.io/v1","kind":"DanmEp","metadata":{"name":"x","generation":3},"spec":{"n":1,"f":1.5,"l":[null,true]}}`,
		`{"apiVersion":"danm.io/v1","kind":"DanmEpList","metadata":{"resourceVersion":"7"},"items":[{"kind":"DanmEp","metadata":{"name":"x"}},{"metadata":{"name":"y"}}]}`,
		`{"apiVersion":"danm.io/v1","kind":"DanmEpList","items":null}`, `{"apiVersion":"danm.io/v1","kind":"DanmEpList","items":[7]}`,
		`{"apiVersion":"danm.io/v1","kind":"DanmEpList"}`, `{"apiVersion":"danm.io/v1","kind":7,"items":[]}`, `{"apiVersion":"danm.io/v1"}`,
		`{"apiVersion":"v1","kind":"Status","status":"Failure","code":410}`, `{"kind":"Status"}`, `{"apiVersion":"/","kind":"x"}`,
		`{"apiVersion":"a/b/c","kind":"x"}`, `null`, `[]`, `{}`, `{`, `{"apiVersion":"danm.io/v1","kind":"DanmEp"}{}`,
		`{"type":"ADDED","object":{"apiVersion":"danm.io/v1","kind":"DanmEp"}}`, `{"type":"ERROR","object":null}`, `{"type":7}`,
		`{"apiVersion":"danm.io/v1","kind":"DanmEp","kind":"last"}`,
	} {
		f.Add([]byte(answer))
	}
	own := dynamic.ConfigFor(&rest.Config{}).NegotiatedSerializer
	slow, quick := own.SupportedMediaTypes()[0], newOnceReader(own).SupportedMediaTypes()[0]
	f.Fuzz(func(t *testing.T, data []byte) {
		if isOddlySpelt(data) {
			return
		}
		for name, target := range targets {
			compareDecoders(t, name, data, slow.Serializer, quick.Serializer, target)
		}
		compareDecoders(t, "an event", data, slow.StreamSerializer.Serializer, quick.StreamSerializer.Serializer,
			func() runtime.Object { return &metav1.WatchEvent{} })
	})
}

// isOddlySpelt tells whether an answer spells kind or apiVersion as no API server
// does. client-go finds them in capitals, too, but only where it looks for both.
func isOddlySpelt(data []byte) bool {
	var object map[string]any
	if json.Unmarshal(data, &object) != nil {
		return false
	}
	for field := range object {
		for _, name := range []string{"kind", "apiVersion"} {
			if field != name && strings.EqualFold(field, name) {
				return true
			}
		}
	}
	return false
}

func compareDecoders(t *testing.T, name string, data []byte, slow, quick runtime.Decoder, target func() runtime.Object) {
	t.Helper()
	want, wantKind, wantErr := slow.Decode(data, nil, target())
	got, gotKind, gotErr := quick.Decode(data, nil, target())
	if (wantErr == nil) != (gotErr == nil) || wantErr != nil && wantErr.Error() != gotErr.Error() {
		t.Fatalf("reading %s from %s: client-go says %v, we say %v", name, data, wantErr, gotErr)
	}
	if wantErr != nil {
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reading %s from %s differs:\n%s", name, data, diff)
	}
	if name != "an event" && *wantKind != *gotKind {
		t.Errorf("reading %s from %s: kind %s, client-go says %s", name, data, gotKind, wantKind)
	}
}
