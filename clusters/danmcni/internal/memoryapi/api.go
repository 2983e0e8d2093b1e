// Package memoryapi is an API server small enough for a test: it enforces
// conflicts and preconditions, which the fake clients do not, and notes every
// request. It serves no watch and validates nothing.
package memoryapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// Object is one API object as JSON has it.
type Object = map[string]any

// API holds the objects. It is an http.RoundTripper for clients in the same
// process and an http.Handler for those in others.
type API struct {
	// Mu guards everything below while requests are being served.
	Mu sync.Mutex
	// Objects are by URL path.
	Objects map[string]Object
	// Requests are those that were answered: "PUT danmnets/net 409".
	Requests []string
	// OnRequest may refuse a request with a status, or change Objects first.
	// It is called with Mu held.
	OnRequest func(method, path string) (status int)

	rv int
}

// New returns an API without Objects.
func New() *API { return &API{Objects: map[string]Object{}} }

// RoundTrip answers a request without a network.
func (a *API) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	status, data, err := a.answer(r)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: status, Request: r, Body: io.NopCloser(bytes.NewReader(data)),
		Header: http.Header{"Content-Type": {"application/json"}},
	}, nil
}

// ServeHTTP answers a request that came over a network.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status, data, err := a.answer(r)
	if err != nil {
		status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data) // a client that went away asked for it
}

func (a *API) answer(r *http.Request) (int, []byte, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return 0, nil, fmt.Errorf("reading the request: %w", err)
		}
	}
	a.Mu.Lock()
	defer a.Mu.Unlock()
	status, object := 0, Object(nil)
	if a.OnRequest != nil {
		status = a.OnRequest(r.Method, r.URL.Path)
	}
	if status == 0 {
		status, object = a.serve(r.Method, r.URL.Path, body)
	}
	a.Requests = append(a.Requests, fmt.Sprintf("%s %s %d", r.Method, ShortPath(r.URL.Path), status))
	data, err := json.Marshal(contentOf(status, object))
	return status, data, err
}

// ShortPath is "resource/name", or "resource" for a collection.
func ShortPath(p string) string {
	if isCollection(p) {
		return path.Base(p)
	}
	return path.Base(path.Dir(p)) + "/" + path.Base(p)
}

func isCollection(p string) bool {
	if path.Base(p) == danm.EndpointResource {
		return true
	}
	_, ok := danm.NetworkKindOf(path.Base(p))
	return ok
}

var reasons = map[int]metav1.StatusReason{
	http.StatusForbidden:           metav1.StatusReasonForbidden,
	http.StatusNotFound:            metav1.StatusReasonNotFound,
	http.StatusConflict:            metav1.StatusReasonConflict,
	http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
}

func contentOf(status int, object Object) any {
	if status < http.StatusBadRequest {
		return object
	}
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(status), Reason: reasons[status],
		Message: strings.ToLower(http.StatusText(status)),
	}
}
func (a *API) serve(method, p string, body []byte) (int, Object) {
	switch {
	case method == http.MethodGet && isCollection(p):
		return a.list(p)
	case method == http.MethodPost:
		return a.create(p, body)
	}
	current, ok := a.Objects[p]
	if !ok {
		return http.StatusNotFound, nil
	}
	switch method {
	case http.MethodGet:
		return http.StatusOK, current
	case http.MethodPut:
		return a.update(p, current, body)
	case http.MethodPatch:
		return a.patch(p, current, body)
	default:
		return a.remove(p, current, body)
	}
}

func (a *API) list(p string) (int, Object) {
	parent, resource := path.Dir(p), path.Base(p)
	items := []any{}
	for _, key := range slices.Sorted(maps.Keys(a.Objects)) {
		if strings.HasPrefix(key, parent+"/") && path.Base(path.Dir(key)) == resource {
			items = append(items, a.Objects[key])
		}
	}
	return http.StatusOK, Object{"kind": "List", "apiVersion": "v1", "metadata": Object{}, "items": items}
}

func (a *API) create(p string, body []byte) (int, Object) {
	var o Object
	if err := json.Unmarshal(body, &o); err != nil {
		return http.StatusBadRequest, nil
	}
	name := o["metadata"].(Object)["name"].(string)
	o["metadata"].(Object)["uid"] = "uid-of-" + name
	a.Store(p+"/"+name, o)
	return http.StatusCreated, o
}

// Store puts an object, whatever was there before, under the next
// resourceVersion. The caller holds Mu if requests may be under way.
func (a *API) Store(p string, o Object) {
	a.rv++
	o["metadata"].(Object)["resourceVersion"] = strconv.Itoa(a.rv)
	a.Objects[p] = o
}

func (a *API) update(p string, current Object, body []byte) (int, Object) {
	var o Object
	if err := json.Unmarshal(body, &o); err != nil {
		return http.StatusBadRequest, nil
	}
	if o["metadata"].(Object)["resourceVersion"] != current["metadata"].(Object)["resourceVersion"] {
		return http.StatusConflict, nil
	}
	a.Store(p, o)
	return http.StatusOK, o
}

// patch knows the operations test and replace.
func (a *API) patch(p string, current Object, body []byte) (int, Object) {
	var ops []struct{ Op, Path, Value string }
	if err := json.Unmarshal(body, &ops); err != nil {
		return http.StatusBadRequest, nil
	}
	changed := Clone(current)
	for _, op := range ops {
		parts := strings.Split(op.Path, "/")[1:]
		parent := changed
		for _, part := range parts[:len(parts)-1] {
			parent = parent[part].(Object)
		}
		last := parts[len(parts)-1]
		if op.Op == "test" && parent[last] != op.Value {
			return http.StatusUnprocessableEntity, nil
		}
		parent[last] = op.Value
	}
	a.Store(p, changed)
	return http.StatusOK, changed
}

// Clone returns a deep copy of an object.
func Clone(o Object) Object {
	data, _ := json.Marshal(o)
	var out Object
	_ = json.Unmarshal(data, &out)
	return out
}

func (a *API) remove(p string, current Object, body []byte) (int, Object) {
	var options metav1.DeleteOptions
	_ = json.Unmarshal(body, &options)
	meta := current["metadata"].(Object)
	if pre := options.Preconditions; pre != nil {
		if pre.UID != nil && string(*pre.UID) != meta["uid"] || pre.ResourceVersion != nil && *pre.ResourceVersion != meta["resourceVersion"] {
			return http.StatusConflict, nil
		}
	}
	delete(a.Objects, p)
	return http.StatusOK, Object{"kind": "Status", "apiVersion": "v1", "status": "Success"}
}
