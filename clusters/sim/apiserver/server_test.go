package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters/sim/apiserver"
)

// What the suite of all clusters cannot ask, because a real server has no such
// knobs: old snapshots, compaction, what happens to frames, refusals by 501.

const configMaps = "/api/v1/namespaces/default/configmaps"

func do(s *apiserver.Server, method, path, body string, query ...string) apiserver.Response {
	r := apiserver.Request{User: "tester", Method: method, Path: path, Query: url.Values{}, ContentType: "application/json"}
	if method == http.MethodPatch {
		r.ContentType = string(types.MergePatchType)
	}
	if body != "" {
		r.Body = []byte(body)
	}
	for _, pair := range query {
		name, value, _ := strings.Cut(pair, "=")
		r.Query.Set(name, value)
	}
	return s.Serve(r)
}

// write makes or changes a config map and returns the resourceVersion.
func write(t *testing.T, s *apiserver.Server, name, value string) int64 {
	t.Helper()
	body := fmt.Sprintf(`{"metadata":{"name":%q},"data":{"x":%q}}`, name, value)
	r := do(s, http.MethodPatch, configMaps+"/"+name, body)
	if r.Code == http.StatusNotFound {
		r = do(s, http.MethodPost, configMaps, body)
	}
	if r.Effect == 0 || r.Effect != s.ResourceVersion() {
		t.Fatalf("%d with effect %d at %d: %s", r.Code, r.Effect, s.ResourceVersion(), r.Body)
	}
	return r.Effect
}

// listed is what a list shows: names and values.
func listed(t *testing.T, r apiserver.Response) string {
	t.Helper()
	var list corev1.ConfigMapList
	if err := json.Unmarshal(r.Body, &list); err != nil || r.Code != http.StatusOK {
		t.Fatalf("%d: %s", r.Code, r.Body)
	}
	var out []string
	for _, c := range list.Items {
		out = append(out, c.Name+"="+c.Data["x"])
	}
	return strings.Join(out, " ") + " at " + list.ResourceVersion
}

func TestReadsOfVersionZeroSeeTheSnapshot(t *testing.T) {
	s := newServer(t, apiserver.Options{})
	first := write(t, s, "a", "1")
	write(t, s, "a", "2")
	do(s, http.MethodDelete, configMaps+"/a", "")
	last := write(t, s, "b", "1")
	read := func(snapshot int64, path, rv string) apiserver.Response {
		return s.Serve(apiserver.Request{Method: http.MethodGet, Path: path, Query: url.Values{"resourceVersion": {rv}}, Snapshot: snapshot})
	}
	for _, tt := range []struct {
		name     string
		snapshot int64
		rv, want string
	}{
		{"an old cache shows the past", first, "0", fmt.Sprintf("a=1 at %d", first)},
		{"a fresh cache shows the present", 0, "0", fmt.Sprintf("b=1 at %d", last)},
		{"a quorum read shows the present, whatever the cache has", first, "", fmt.Sprintf("b=1 at %d", last)},
		{"a cache catches up with what is asked for", first, fmt.Sprint(first + 1), fmt.Sprintf("a=2 at %d", first+1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := listed(t, read(tt.snapshot, configMaps, tt.rv)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
	if r := read(first, configMaps+"/a", "0"); r.Code != http.StatusOK {
		t.Errorf("GET from an old cache: %d", r.Code)
	}
	if r := read(first, configMaps+"/a", ""); r.Code != http.StatusNotFound {
		t.Errorf("GET by quorum: %d", r.Code)
	}
}

func TestWhatWasCompactedIsGone(t *testing.T) {
	s := newServer(t, apiserver.Options{})
	first := write(t, s, "a", "1")
	write(t, s, "b", "1")
	page := do(s, http.MethodGet, configMaps, "", "limit=1")
	var list metav1.List
	if err := json.Unmarshal(page.Body, &list); err != nil || list.Continue == "" {
		t.Fatalf("%v: %s", err, page.Body)
	}
	write(t, s, "c", "1")
	s.Compact(s.ResourceVersion())
	for _, query := range [][]string{
		{fmt.Sprintf("resourceVersion=%d", first), "resourceVersionMatch=Exact"}, {"continue=" + list.Continue},
	} {
		if r := do(s, http.MethodGet, configMaps, "", query...); r.Code != http.StatusGone {
			t.Errorf("%v: %d: %s", query, r.Code, r.Body)
		}
	}
	if r := do(s, http.MethodGet, configMaps, ""); r.Code != http.StatusOK {
		t.Errorf("a list of the present: %d", r.Code)
	}
}

func openWatch(t *testing.T, s *apiserver.Server, from int64, query ...string) *apiserver.Watch {
	t.Helper()
	values := url.Values{"watch": {"true"}, "resourceVersion": {fmt.Sprint(from)}}
	for _, pair := range query {
		name, value, _ := strings.Cut(pair, "=")
		values.Set(name, value)
	}
	w, refused := s.Watch(apiserver.Request{Method: http.MethodGet, Path: configMaps, Query: values})
	if refused != nil {
		t.Fatalf("%d: %s", refused.Code, refused.Body)
	}
	return w
}

// frames takes all that wait: "ADDED a=1".
func frames(t *testing.T, w *apiserver.Watch) []string {
	t.Helper()
	out := []string{}
	for pending := w.Pending(); pending > 0; pending-- {
		peeked, _ := w.Peek()
		frame, ok := w.Next()
		var e struct {
			Type   string
			Object corev1.ConfigMap
		}
		if err := json.Unmarshal(frame.Bytes, &e); err != nil || !ok || e.Type != string(peeked.Type) || e.Object.Name != peeked.Name {
			t.Fatalf("peeked %v, got %v: %s", peeked, err, frame.Bytes)
		}
		out = append(out, strings.TrimSuffix(e.Type+" "+e.Object.Name+"="+e.Object.Data["x"], " ="))
	}
	return out
}

func TestFramesCanBeLostMergedAndCutOff(t *testing.T) {
	s := newServer(t, apiserver.Options{})
	from := write(t, s, "a", "1")
	plain, merged, skipped, selective := openWatch(t, s, from), openWatch(t, s, from), openWatch(t, s, from), openWatch(t, s, from, "fieldSelector=metadata.name=b")
	write(t, s, "a", "2")
	write(t, s, "b", "1")
	do(s, http.MethodDelete, configMaps+"/a", "")
	write(t, s, "a", "3")
	write(t, s, "c", "1")
	do(s, http.MethodDelete, configMaps+"/c", "")
	all := []string{"MODIFIED a=2", "ADDED b=1", "DELETED a=2", "ADDED a=3", "ADDED c=1", "DELETED c=1"}
	if diff := cmp.Diff(all, frames(t, plain)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if n := merged.Coalesce("default", "a") + merged.Coalesce("default", "c") + merged.Coalesce("default", "b"); n != 4 {
		t.Errorf("%d frames merged away", n)
	}
	if diff := cmp.Diff([]string{"ADDED b=1", "MODIFIED a=3"}, frames(t, merged)); diff != "" {
		t.Errorf("merged: -want +got:\n%s", diff)
	}
	skipped.Skip()
	if diff := cmp.Diff(all[1:], frames(t, skipped)); diff != "" {
		t.Errorf("skipped: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"ADDED b=1"}, frames(t, selective)); diff != "" {
		t.Errorf("selective: -want +got:\n%s", diff)
	}
	write(t, s, "d", "1")
	plain.Expire()
	if diff := cmp.Diff([]string{"ERROR"}, frames(t, plain)); diff != "" || !plain.IsClosed() {
		t.Errorf("expired: closed %v, -want +got:\n%s", plain.IsClosed(), diff)
	}
	skipped.Close()
	if _, ok := skipped.Next(); ok || skipped.Pending() != 0 {
		t.Error("a closed watch goes on")
	}
}

func TestBookmarksComeAfterWhatWaits(t *testing.T) {
	s := newServer(t, apiserver.Options{})
	from := write(t, s, "a", "1")
	with, without := openWatch(t, s, from, "allowWatchBookmarks=true"), openWatch(t, s, from)
	write(t, s, "a", "2")
	with.Bookmark()
	without.Bookmark()
	if diff := cmp.Diff([]string{"MODIFIED a=2", "BOOKMARK"}, frames(t, with)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"MODIFIED a=2"}, frames(t, without)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWhatIsNotModelledIsAnsweredBy501(t *testing.T) {
	s := newServer(t, apiserver.Options{Groups: danm.Groups()})
	write(t, s, "a", "1")
	apply := s.Serve(apiserver.Request{Method: http.MethodPatch, Path: configMaps + "/a", ContentType: string(types.ApplyYAMLPatchType)})
	crd := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.example.com"},"spec":{` +
		`"group":"example.com","scope":"Namespaced","names":{"kind":"Thing","plural":"things","singular":"thing"},` +
		`"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"string","pattern":"a+"}}}}}]}}`
	for what, r := range map[string]apiserver.Response{
		"another resource":     do(s, http.MethodGet, "/api/v1/secrets", ""),
		"another group":        do(s, http.MethodGet, "/apis/batch/v1/jobs", ""),
		"another subresource":  do(s, http.MethodGet, "/api/v1/namespaces/default/pods/a/log", ""),
		"server-side apply":    apply,
		"strict validation":    do(s, http.MethodPost, configMaps, `{}`, "fieldValidation=Strict"),
		"a word of the schema": do(s, http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd),
	} {
		var status metav1.Status
		if err := json.Unmarshal(r.Body, &status); err != nil || r.Code != http.StatusNotImplemented || status.Reason != apiserver.ReasonNotImplemented {
			t.Errorf("%s: %d: %s", what, r.Code, r.Body)
		}
	}
}

func TestCRDsCanBeInstalledAndRemoved(t *testing.T) {
	s := newServer(t, apiserver.Options{Groups: danm.Groups()[:1]})
	const definitions, networks = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/danm.io/v1/namespaces/default/danmnets"
	network := `{"apiVersion":"danm.io/v1","kind":"DanmNet","metadata":{"name":"n"},"spec":{"NetworkID":"n"}}`
	if r := do(s, http.MethodPost, networks, network); r.Code != http.StatusCreated {
		t.Fatalf("%d: %s", r.Code, r.Body)
	}
	crd := do(s, http.MethodGet, definitions+"/danmnets.danm.io", "")
	if !strings.Contains(string(crd.Body), `"type":"Established"`) {
		t.Errorf("not established: %s", crd.Body)
	}
	if r := do(s, http.MethodDelete, definitions+"/danmnets.danm.io", ""); r.Code != http.StatusOK {
		t.Fatalf("%d: %s", r.Code, r.Body)
	}
	if r := do(s, http.MethodGet, networks, ""); r.Code != http.StatusNotFound {
		t.Errorf("still served: %d", r.Code)
	}
	var definition map[string]any
	if err := json.Unmarshal(crd.Body, &definition); err != nil {
		t.Fatal(err)
	}
	delete(definition["metadata"].(map[string]any), "resourceVersion")
	again, err := json.Marshal(definition)
	if err != nil {
		t.Fatal(err)
	}
	if r := do(s, http.MethodPost, definitions, string(again)); r.Code != http.StatusCreated {
		t.Fatalf("%d: %s", r.Code, r.Body)
	}
	if r := do(s, http.MethodGet, networks+"/n", ""); r.Code != http.StatusNotFound {
		t.Errorf("the object survived its definition: %d", r.Code)
	}
}

func TestEveryCommitIsAnnouncedOnce(t *testing.T) {
	s := newServer(t, apiserver.Options{})
	var seen []string
	s.OnCommit(func(c apiserver.Commit) {
		seen = append(seen, fmt.Sprintf("%s %s %s %s old=%v new=%v", c.User, c.Verb, c.Resource.Resource, c.Name, c.Old != nil, c.New != nil))
		if c.RV != s.ResourceVersion() || c.Time.IsZero() {
			t.Errorf("commit %d at %s, server at %d", c.RV, c.Time, s.ResourceVersion())
		}
	})
	write(t, s, "a", "1")
	write(t, s, "a", "2")
	if r := do(s, http.MethodPatch, configMaps+"/a", `{"data":{"x":"2"}}`); r.Effect != 0 || r.Code != http.StatusOK {
		t.Errorf("a patch that changes nothing had effect %d", r.Effect)
	}
	do(s, http.MethodDelete, configMaps, "")
	want := []string{
		"tester create configmaps a old=false new=true", "tester patch configmaps a old=true new=true",
		"tester deletecollection configmaps a old=true new=false",
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAServerNeedsTimeAndUIDs(t *testing.T) {
	if _, err := apiserver.New(apiserver.Options{Now: time.Now}); err == nil {
		t.Error("made without UIDs")
	}
}

func TestAClonePartsFromItsOriginal(t *testing.T) {
	s := newServer(t, apiserver.Options{})
	write(t, s, "a", "1")
	n := 1000
	c := s.Clone(apiserver.Options{Now: time.Now, NewUID: func() types.UID { n++; return types.UID(fmt.Sprint(n)) }})
	write(t, c, "a", "2")
	write(t, c, "b", "1")
	if got, want := listed(t, do(s, http.MethodGet, configMaps, "")), fmt.Sprintf("a=1 at %d", s.ResourceVersion()); got != want {
		t.Errorf("the original has %s, want %s", got, want)
	}
	if got, want := listed(t, do(c, http.MethodGet, configMaps, "")), fmt.Sprintf("a=2 b=1 at %d", c.ResourceVersion()); got != want {
		t.Errorf("the clone has %s, want %s", got, want)
	}
}
