package danmcni

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
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

type object = map[string]any

// memoryAPI is an API server small enough for a test: it enforces conflicts
// and preconditions, which the fake clients do not, and notes every request.
type memoryAPI struct {
	mu       sync.Mutex
	rv       int
	objects  map[string]object // by URL path
	requests []string          // "PUT danmnets/net 409"
	// onRequest may refuse a request with a status, or change objects first.
	onRequest func(method, path string) (status int)
}

func newMemoryAPI() *memoryAPI { return &memoryAPI{objects: map[string]object{}} }

func (a *memoryAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	status, answer := 0, object(nil)
	if a.onRequest != nil {
		status = a.onRequest(r.Method, r.URL.Path)
	}
	if status == 0 {
		status, answer = a.serve(r.Method, r.URL.Path, body)
	}
	a.requests = append(a.requests, fmt.Sprintf("%s %s %d", r.Method, shortPath(r.URL.Path), status))
	return response(r, status, answer), nil
}

// shortPath is "resource/name", or "resource" for a collection.
func shortPath(p string) string {
	if isCollection(p) {
		return path.Base(p)
	}
	return path.Base(path.Dir(p)) + "/" + path.Base(p)
}

func isCollection(p string) bool {
	return slices.Contains([]string{"danmeps", "danmnets", "tenantnetworks", "clusternetworks"}, path.Base(p))
}

var reasons = map[int]metav1.StatusReason{
	403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound, 409: metav1.StatusReasonConflict,
	422: metav1.StatusReasonInvalid, 500: metav1.StatusReasonInternalError,
}

func response(r *http.Request, status int, answer any) *http.Response {
	if status >= 400 {
		answer = metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure, Code: int32(status), Reason: reasons[status],
		}
	}
	data, _ := json.Marshal(answer)
	return &http.Response{
		StatusCode: status, Request: r, Body: io.NopCloser(bytes.NewReader(data)),
		Header: http.Header{"Content-Type": {"application/json"}},
	}
}

func (a *memoryAPI) serve(method, p string, body []byte) (int, object) {
	switch {
	case method == http.MethodGet && isCollection(p):
		return a.list(p)
	case method == http.MethodPost:
		return a.create(p, body)
	}
	current, ok := a.objects[p]
	if !ok {
		return 404, nil
	}
	switch method {
	case http.MethodGet:
		return 200, current
	case http.MethodPut:
		return a.update(p, current, body)
	case http.MethodPatch:
		return a.patch(p, current, body)
	default:
		return a.remove(p, current, body)
	}
}

func (a *memoryAPI) list(p string) (int, object) {
	parent, resource := path.Dir(p), path.Base(p)
	items := []any{}
	for _, key := range slices.Sorted(maps.Keys(a.objects)) {
		if strings.HasPrefix(key, parent) && path.Base(path.Dir(key)) == resource {
			items = append(items, a.objects[key])
		}
	}
	return 200, object{"kind": "List", "apiVersion": "v1", "metadata": object{}, "items": items}
}

func (a *memoryAPI) create(p string, body []byte) (int, object) {
	var o object
	if err := json.Unmarshal(body, &o); err != nil {
		return 400, nil
	}
	name := o["metadata"].(object)["name"].(string)
	o["metadata"].(object)["uid"] = "uid-of-" + name
	a.store(p+"/"+name, o)
	return 201, o
}

func (a *memoryAPI) store(p string, o object) {
	a.rv++
	o["metadata"].(object)["resourceVersion"] = strconv.Itoa(a.rv)
	a.objects[p] = o
}

func (a *memoryAPI) update(p string, current object, body []byte) (int, object) {
	var o object
	if err := json.Unmarshal(body, &o); err != nil {
		return 400, nil
	}
	if o["metadata"].(object)["resourceVersion"] != current["metadata"].(object)["resourceVersion"] {
		return 409, nil
	}
	a.store(p, o)
	return 200, o
}

// patch knows the operations test and replace.
func (a *memoryAPI) patch(p string, current object, body []byte) (int, object) {
	var ops []struct{ Op, Path, Value string }
	if err := json.Unmarshal(body, &ops); err != nil {
		return 400, nil
	}
	changed := clone(current)
	for _, op := range ops {
		parts := strings.Split(op.Path, "/")[1:]
		parent := changed
		for _, part := range parts[:len(parts)-1] {
			parent = parent[part].(object)
		}
		last := parts[len(parts)-1]
		if op.Op == "test" && parent[last] != op.Value {
			return 422, nil
		}
		parent[last] = op.Value
	}
	a.store(p, changed)
	return 200, changed
}

func clone(o object) object {
	data, _ := json.Marshal(o)
	var out object
	_ = json.Unmarshal(data, &out)
	return out
}

func (a *memoryAPI) remove(p string, current object, body []byte) (int, object) {
	var options metav1.DeleteOptions
	_ = json.Unmarshal(body, &options)
	meta := current["metadata"].(object)
	if pre := options.Preconditions; pre != nil {
		if pre.UID != nil && string(*pre.UID) != meta["uid"] || pre.ResourceVersion != nil && *pre.ResourceVersion != meta["resourceVersion"] {
			return 409, nil
		}
	}
	delete(a.objects, p)
	return 200, object{"kind": "Status", "apiVersion": "v1", "status": "Success"}
}

// Objects that the tests use.

const (
	netPath = "/apis/danm.io/v1/namespaces/ns/danmnets/net"
	podPath = "/api/v1/namespaces/ns/pods/web-0"
	epsPath = "/apis/danm.io/v1/namespaces/ns/danmeps"
)

func (a *memoryAPI) addPod(annotation string) {
	a.store(podPath, object{
		"kind": "Pod", "apiVersion": "v1",
		"metadata": object{
			"name": "web-0", "namespace": "ns", "uid": "pod-uid",
			"labels":      object{"app": "web"},
			"annotations": object{"danm.io/interfaces": annotation},
		},
	})
}

// addNetwork makes DanmNet ns/net. It has a field that nobody here knows.
func (a *memoryAPI) addNetwork(options object) {
	a.store(netPath, object{
		"kind": "DanmNet", "apiVersion": "danm.io/v1",
		"metadata": object{"name": "net", "namespace": "ns", "uid": "net-uid"},
		"spec":     object{"NetworkID": "net", "Future": object{"x": int64(1)}, "Options": options},
	})
}

// setOptions changes the network behind the plugin's back.
func (a *memoryAPI) setOptions(key, value string) {
	o := clone(a.objects[netPath])
	o["spec"].(object)["Options"].(object)[key] = value
	a.store(netPath, o)
}

func (a *memoryAPI) option(keys ...string) any {
	var value any = a.objects[netPath]["spec"].(object)["Options"]
	for _, key := range keys {
		value = value.(object)[key]
	}
	return value
}

func (a *memoryAPI) endpointNames() []string {
	var names []string
	for key := range a.objects {
		if strings.HasPrefix(key, epsPath) {
			names = append(names, path.Base(key))
		}
	}
	slices.Sort(names)
	return names
}

func (a *memoryAPI) plugin(t *testing.T, change func(*Config)) *Plugin {
	t.Helper()
	rc := &rest.Config{Host: "http://memory.invalid", Transport: a, QPS: -1}
	core, err := kubernetes.NewForConfig(rc)
	if err != nil {
		t.Fatal(err)
	}
	d, err := dynamic.NewForConfig(rc)
	if err != nil {
		t.Fatal(err)
	}
	ids := 0
	cfg := Config{
		Client: danm.NewClient(d, danm.GroupDanmIO), Core: core, Host: "node-a",
		NewID: func() string { ids++; return fmt.Sprintf("id-%d", ids) },
	}
	if change != nil {
		change(&cfg)
	}
	return New(cfg)
}

func podOf(annotations map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-0", Annotations: annotations}}
}
