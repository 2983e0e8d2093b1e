package canary

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// defect answers a request of the cleaner in a wrong way.
type defect func(exchange) (*http.Response, error)

// exchange is one request of the cleaner, on its way.
type exchange struct {
	request *http.Request
	meaning
	next http.RoundTripper
}

// meaning is what a request is about.
type meaning struct {
	resource, namespace, name string
	isWatch                   bool
}

func meaningOf(r *http.Request) meaning {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return meaning{}
	}
	m := meaning{isWatch: isSet(r.URL.Query().Get("watch"))}
	if len(parts) > 2 && parts[0] == "namespaces" {
		m.namespace, parts = parts[1], parts[2:]
	}
	m.resource = parts[0]
	if len(parts) > 1 {
		m.name = parts[1]
	}
	return m
}

func isSet(flag string) bool { return flag == "true" || flag == "1" }

func (m meaning) isNetwork() bool { _, ok := danm.NetworkKindOf(m.resource); return ok }

func (e exchange) is(method, resource string) bool {
	return e.request.Method == method && e.resource == resource && e.name != ""
}

func (e exchange) isNetworkPatch() bool { return e.request.Method == http.MethodPatch && e.isNetwork() }

// pass lets the request go on as it is.
func (e exchange) pass() (*http.Response, error) { return e.next.RoundTrip(e.request) }

// inJSON lets the request go on and asks for an answer that can be read here.
func (e exchange) inJSON() (*http.Response, error) {
	r := e.request.Clone(e.request.Context())
	r.Header.Set("Accept", "application/json")
	return e.next.RoundTrip(r)
}

// send makes another request in the name of the cleaner.
func (e exchange) send(method, path, contentType string, body []byte) (*http.Response, error) {
	r := e.request.Clone(e.request.Context())
	r.Method, r.URL.Path, r.URL.RawQuery = method, path, ""
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", contentType)
	r.Body, r.ContentLength = newBody(body), int64(len(body))
	return e.next.RoundTrip(r)
}

// body takes the body of the request and returns it.
func (e exchange) body() []byte {
	if e.request.Body == nil {
		return nil
	}
	data, _ := io.ReadAll(e.request.Body) // from memory
	e.request.Body = newBody(data)
	return data
}

func newBody(data []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(data)) }

// object is an API object as JSON has it.
type object = map[string]any

// within returns what is at a path of fields, nil if there is nothing.
func within(o object, fields ...string) object {
	for _, f := range fields {
		o, _ = o[f].(object)
	}
	return o
}

func text(o object, field string) string { s, _ := o[field].(string); return s }

func keyOf(o object) string {
	metadata := within(o, "metadata")
	return text(metadata, "namespace") + "/" + text(metadata, "name")
}

// read takes the body of an answer; what cannot be read is nil.
func read(response *http.Response) (object, []byte) {
	data, err := io.ReadAll(response.Body)
	_ = response.Body.Close() // it was read
	var o object
	if err != nil || json.Unmarshal(data, &o) != nil {
		return nil, data
	}
	return o, data
}

// answer makes a complete answer in JSON.
func (e exchange) answer(code int, o any) (*http.Response, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return e.answerBytes(code, data), nil
}

func (e exchange) answerBytes(code int, data []byte) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: e.request,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: newBody(data), ContentLength: int64(len(data)),
	}
}

func (e exchange) notFound() (*http.Response, error) {
	return e.answer(http.StatusNotFound, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "not found",
		Details: &metav1.StatusDetails{Kind: e.resource, Name: e.name},
	})
}

// event of a watch; its object may be changed.
type event struct {
	Type   watch.EventType `json:"type"`
	Object object          `json:"object"`
}

// screen decides what the cleaner sees of an object: as it is now, or, if it
// returns false, not at all.
type screen func(o object) bool

// throughScreen answers reads of a resource with what the screen lets through.
// An object that it holds back looks deleted.
func (e exchange) throughScreen(s screen) (*http.Response, error) {
	return e.throughEvents(func(event *event) bool {
		if event.Type != watch.Bookmark && !s(event.Object) {
			event.Type = watch.Deleted
		}
		return true
	}, s)
}

// throughEvents is throughScreen with a function for the events of watches,
// which loses those for which it returns false.
func (e exchange) throughEvents(see func(*event) bool, s screen) (*http.Response, error) {
	response, err := e.inJSON()
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	if e.isWatch {
		response.Body = &eventFilter{source: response.Body, lines: bufio.NewReader(response.Body), see: see}
		return response, nil
	}
	o, _ := read(response)
	if e.name != "" {
		if !s(o) {
			return e.notFound()
		}
		return e.answer(http.StatusOK, o)
	}
	items, _ := o["items"].([]any)
	kept := []any{}
	for _, item := range items {
		if one, ok := item.(object); ok && s(one) {
			kept = append(kept, one)
		}
	}
	o["items"] = kept
	return e.answer(http.StatusOK, o)
}

// eventFilter is the body of a watch with other events in it.
type eventFilter struct {
	source io.Closer
	lines  *bufio.Reader
	see    func(*event) bool
	rest   []byte
}

// Close implements io.Closer.
func (f *eventFilter) Close() error { return f.source.Close() }

// Read implements io.Reader.
func (f *eventFilter) Read(p []byte) (int, error) {
	for len(f.rest) == 0 {
		line, err := f.lines.ReadBytes('\n')
		if err != nil {
			return 0, err
		}
		f.rest = f.replace(line)
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

func (f *eventFilter) replace(line []byte) []byte {
	var e event
	if json.Unmarshal(line, &e) != nil || e.Type == watch.Error {
		return line
	}
	if !f.see(&e) {
		return nil
	}
	data, err := json.Marshal(e)
	if err != nil {
		return line
	}
	return append(data, '\n')
}
