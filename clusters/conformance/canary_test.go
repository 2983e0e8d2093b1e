package conformance_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters/conformance"
	"github.com/danm-chaos/danm-chaos/clusters/sim/apiserver"
)

// broken is a server with one defect, which sits between it and its clients.
type broken struct {
	*apiserver.Direct
	defect func(next http.RoundTripper) http.RoundTripper
}

func (b broken) RESTConfig(user string) (*rest.Config, error) {
	config := b.Direct.RESTConfig(user)
	config.Wrap(b.defect)
	return config, nil
}

func (b broken) StepControllers() {
	b.Use(func(s *apiserver.Server) { s.CollectGarbage("collector") })
}

func newBroken(t *testing.T, defect func(http.RoundTripper) http.RoundTripper, newUID func() types.UID) broken {
	t.Helper()
	s, err := apiserver.New(apiserver.Options{Now: time.Now, NewUID: newUID, Groups: []danm.Group{danm.GroupDanmIO}})
	if err != nil {
		t.Fatal(err)
	}
	return broken{apiserver.NewDirect(s), defect}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// onRequest changes requests.
func onRequest(change func(*http.Request)) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			change(r)
			return next.RoundTrip(r)
		})
	}
}

// withoutQuery makes the server ignore a parameter.
func withoutQuery(name string) func(http.RoundTripper) http.RoundTripper {
	return onRequest(func(r *http.Request) {
		query := r.URL.Query()
		query.Del(name)
		r.URL = &url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Path: r.URL.Path, RawQuery: query.Encode()}
	})
}

// onBody changes the JSON bodies of requests with that method.
func onBody(method string, change func(body any) any) func(http.RoundTripper) http.RoundTripper {
	return onRequest(func(r *http.Request) {
		if r.Method != method || r.Body == nil {
			return
		}
		data, _ := io.ReadAll(r.Body) // from memory
		var body any
		if json.Unmarshal(data, &body) == nil {
			data, _ = json.Marshal(change(body))
		}
		r.Body = io.NopCloser(bytes.NewReader(data))
	})
}

// withoutEvent loses the events of a type from watches in JSON.
func withoutEvent(name string) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil && r.URL.Query().Get("watch") != "" {
				response.Body = &lineFilter{Closer: response.Body, lines: bufio.NewReader(response.Body), without: `"type":"` + name + `"`}
			}
			return response, err
		})
	}
}

type lineFilter struct {
	io.Closer
	lines   *bufio.Reader
	without string
	rest    []byte
}

func (f *lineFilter) Read(p []byte) (int, error) {
	for len(f.rest) == 0 {
		line, err := f.lines.ReadBytes('\n')
		if err != nil {
			return 0, err
		}
		if !strings.Contains(string(line), f.without) {
			f.rest = line
		}
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

func without(field ...string) func(any) any {
	return func(body any) any {
		o, _ := body.(map[string]any)
		for _, name := range field[:len(field)-1] {
			o, _ = o[name].(map[string]any)
		}
		if o != nil {
			delete(o, field[len(field)-1])
		}
		return body
	}
}

func withoutTests(body any) any {
	operations, _ := body.([]any)
	return slices.DeleteFunc(operations, func(o any) bool {
		operation, _ := o.(map[string]any)
		return operation["op"] == "test"
	})
}

// answering404By makes the server say something else than "not found".
func answering404By(code int) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil && response.StatusCode == http.StatusNotFound {
				response.StatusCode = code
			}
			return response, err
		})
	}
}

func TestTheSuiteRejectsABrokenServer(t *testing.T) {
	healthy := onRequest(func(*http.Request) {})
	tests := []struct {
		defect   string
		wrap     func(http.RoundTripper) http.RoundTripper
		check    string
		sameUIDs bool
	}{
		{"ignores the preconditions of deletions", onBody("DELETE", without("preconditions")), "a deletion under another UID or version is a conflict", false},
		{"ignores the version of updates", onBody("PUT", without("metadata", "resourceVersion")), "an update of an older version is a conflict and changes nothing", false},
		{"ignores the tests of patches", onBody("PATCH", withoutTests), "a JSON patch whose test fails is refused and changes nothing", false},
		{"ignores field selectors", withoutQuery("fieldSelector"), "a field selector selects, by known fields only", false},
		{"ignores label selectors", withoutQuery("labelSelector"), "a label selector selects", false},
		{"ignores the label selectors of watches", withoutQuery("labelSelector"), "a selecting watch adds what begins to match and deletes what ceases to", false},
		{"ignores the size of pages", withoutQuery("limit"), "pages show one moment", false},
		{"ignores the version of watches", withoutQuery("resourceVersion"), "a watch shows every change since its version, in order", false},
		{"ignores dry runs", withoutQuery("dryRun"), "a dry run creates nothing", false},
		{"ignores finalizers", onBody("POST", without("metadata", "finalizers")), "a finalizer holds an object until it is taken away", false},
		{"ignores owners", onBody("POST", without("metadata", "ownerReferences")), "an object goes after its last owner", false},
		{"deletes collections wholly", withoutQuery("labelSelector"), "a deletion of a collection deletes what is selected", false},
		{"loses the deletions of watches", withoutEvent("DELETED"), "a name that is taken again is deleted and added", false},
		{"says that what is gone is forbidden", answering404By(http.StatusTeapot), "unknown paths and methods are refused", false},
		{"gives every object the same UID", healthy, "a name that was freed is taken by an object of another UID", true},
	}
	for _, tt := range tests {
		t.Run(tt.defect, func(t *testing.T) {
			n := 0
			newUID := func() types.UID {
				if !tt.sameUIDs {
					n++
				}
				return types.UID("uid-" + strings.Repeat("i", n))
			}
			check := find(t, tt.check)
			if said := check.Failures(brief(t), newBroken(t, tt.wrap, newUID)); len(said) == 0 {
				t.Errorf("passes %q", tt.check)
			} else {
				t.Log(said[0])
			}
			if tt.sameUIDs {
				return
			}
			if said := check.Failures(t.Context(), newBroken(t, healthy, newUID)); len(said) > 0 {
				t.Errorf("%q fails without the defect, too: %s", tt.check, said)
			}
		})
	}
}

// brief bounds checks that wait for what never comes.
func brief(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func find(t *testing.T, name string) conformance.Check {
	t.Helper()
	all := conformance.Checks()
	i := slices.IndexFunc(all, func(c conformance.Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no check %q", name)
	}
	return all[i]
}

func TestEveryCheckHasANameOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range conformance.Checks() {
		if c.Name == "" || seen[c.Name] {
			t.Errorf("name %q", c.Name)
		}
		seen[c.Name] = true
	}
	if len(seen) < 70 {
		t.Errorf("only %d checks", len(seen))
	}
}
