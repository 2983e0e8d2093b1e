package apiserver

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Request is an HTTP request without the connection it came by.
type Request struct {
	User        string
	Method      string
	Path        string
	Query       url.Values
	ContentType string
	Accept      string
	Body        []byte
	// Object is what Body would say, from callers in the same process who need
	// no encoding. The server takes it over.
	Object Object
	// Deletion is the same for the options of a removal.
	Deletion *metav1.DeleteOptions
	// Snapshot is the resourceVersion that reads with resourceVersion=0 see; 0
	// is the newest. It stands for an API server whose cache is behind.
	Snapshot int64
}

// Response is an HTTP response.
type Response struct {
	Code        int
	ContentType string
	Body        []byte
	// Objects are what Body shows, for callers in the same process who would
	// only decode it again. They stay the server's: who changes one copies it.
	Objects []Object
	// List is set if they are a list, and Status if the answer is one.
	List   *List
	Status *metav1.Status
	// Served is set if the answer is a list of groups or of resources.
	Served runtime.Object
	// RetryAfter is how many seconds the client shall wait before it tries
	// again; 0 says nothing about that.
	RetryAfter int
	// Effect is the resourceVersion of the last commit that the request made,
	// 0 if it changed nothing.
	Effect int64
}

// List is what there is to a list beside its items.
type List struct {
	metav1.TypeMeta
	metav1.ListMeta
}

// FromHTTP reads the body of r, too.
func FromHTTP(r *http.Request, user string) (Request, error) {
	req := Request{
		User: user, Method: r.Method, Path: r.URL.Path, Query: r.URL.Query(),
		ContentType: r.Header.Get("Content-Type"), Accept: r.Header.Get("Accept"),
	}
	if r.Body == nil {
		return req, nil
	}
	var err error
	req.Body, err = io.ReadAll(r.Body)
	_ = r.Body.Close() // everything was read
	return req, err
}

// ToHTTP makes the response to r.
func (p Response) ToHTTP(r *http.Request) *http.Response {
	response := newHTTPResponse(r, p.Code, p.ContentType, io.NopCloser(bytes.NewReader(p.Body)))
	if p.RetryAfter > 0 {
		response.Header.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	return response
}

func newHTTPResponse(r *http.Request, code int, contentType string, body io.ReadCloser) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {contentType}}, Body: body, ContentLength: -1, Request: r,
	}
}

// IsWatch tells whether the request must go to Watch instead of Serve.
func (r Request) IsWatch() bool {
	return r.Method == http.MethodGet && isTrue(r.Query.Get("watch"))
}

func isTrue(value string) bool { return value == "true" || value == "1" }

// target is what a path names.
type target struct {
	table       *table
	namespace   string
	name        string // empty: the collection
	subresource string
}

// route finds the target of a path below /api or /apis.
func (s *Server) route(path string) (target, error) {
	group, rest, ok := splitGroup(path)
	if !ok {
		return target{}, notFoundPath()
	}
	var room [8]string // enough for all but odd paths
	parts := slices.AppendSeq(room[:0], strings.SplitSeq(rest, "/"))
	var t target
	if parts[0] == "namespaces" && len(parts) > 2 && !isNamespaceSubresource(parts) {
		t.namespace, parts = parts[1], parts[2:]
	}
	t.table = s.tables[schema.GroupResource{Group: group.Group, Resource: parts[0]}]
	if t.table == nil || t.table.kind.Version != group.Version {
		return target{}, notServed(group, parts[0])
	}
	if len(parts) > 3 || slices.Contains(parts, "") {
		return target{}, notFoundPath()
	}
	if len(parts) > 1 {
		t.name = parts[1]
	}
	if len(parts) > 2 {
		t.subresource = parts[2]
	}
	return t, t.check()
}

// isNamespaceSubresource tells namespaces/x/status from namespaces/x/pods.
func isNamespaceSubresource(parts []string) bool {
	return len(parts) == 3 && (parts[2] == subresourceStatus || parts[2] == subresourceFinalize)
}

// splitGroup takes /api/v1/... or /apis/GROUP/VERSION/... apart.
func splitGroup(path string) (schema.GroupVersion, string, bool) {
	if rest, ok := strings.CutPrefix(path, "/api/"); ok {
		version, rest, ok := strings.Cut(rest, "/")
		return schema.GroupVersion{Version: version}, rest, ok
	}
	rest, ok := strings.CutPrefix(path, "/apis/")
	if !ok {
		return schema.GroupVersion{}, "", false
	}
	group, rest, _ := strings.Cut(rest, "/")
	version, rest, ok := strings.Cut(rest, "/")
	return schema.GroupVersion{Group: group, Version: version}, rest, ok
}

// check refuses paths that a resource of this kind does not have.
func (t target) check() error {
	k := t.table.kind
	if !k.Namespaced && t.namespace != "" || k.Namespaced && t.namespace == "" && t.name != "" {
		return notFoundPath()
	}
	if t.subresource != "" && !slices.Contains(k.subresources, t.subresource) {
		if k.isCustom() {
			return notFoundPath()
		}
		return notImplemented("subresource %s of %s", t.subresource, k.Resource)
	}
	return nil
}
