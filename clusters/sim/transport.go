package sim

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/danm-chaos/danm-chaos/clusters/sim/apiserver"
)

// Errors of the simulated network.
var (
	errDead  = errors.New("the process that called is gone")
	errReset = errors.New("connection reset by peer")
)

// errTimeout is a timeout as package net has them.
type errTimeout struct{}

func (errTimeout) Error() string   { return "i/o timeout" }
func (errTimeout) Timeout() bool   { return true }
func (errTimeout) Temporary() bool { return true }

type actorKey struct{}

// withActor makes what plugins call under the context the actor's.
func withActor(ctx context.Context, a *actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// transport takes an actor's requests to the gate.
type transport struct {
	gate  *gate
	actor *actor
}

// config returns access to the API through the gate.
func (g *gate) config(a *actor) *rest.Config {
	return &rest.Config{Host: "http://sim", Transport: &transport{gate: g, actor: a}, QPS: -1}
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	a := t.actor
	request, err := apiserver.FromHTTP(r, a.user)
	if err != nil {
		return nil, fmt.Errorf("reading a request: %w", err)
	}
	c := newCall(request, a)
	if a.isDead.Load() {
		return nil, errDead
	}
	if c.target == "events" {
		return answerEvent(c.request).ToHTTP(r), nil
	}
	got, err := t.gate.pass(r.Context(), c)
	switch {
	case err != nil:
		return nil, err
	case got.stream != nil:
		return got.stream.watch.ToHTTP(r, got.stream), nil
	case got.response.ContentType == apiserver.ContentObjects:
		got.response.Body = t.gate.parcels.sendResponse(got.response)
	}
	response := got.response.ToHTTP(r)
	if got.response.Code == http.StatusTooManyRequests {
		response.Header.Set("Retry-After", "1")
	}
	return response, nil
}

// answerEvent accepts an Event without the gate and forgets it. Nobody in this
// world reads Events, and a cleaner's workers hand them to its recorder in an
// order that nobody decides.
func answerEvent(r apiserver.Request) apiserver.Response {
	if r.Method != http.MethodPost {
		return refusal(http.StatusNotFound, "NotFound").response
	}
	return apiserver.Response{Code: http.StatusCreated, ContentType: r.ContentType, Body: r.Body}
}

func newCall(request apiserver.Request, a *actor) *call {
	c := &call{actor: a, answers: make(chan *answer, 1), request: request}
	c.verb, c.target = meaning(request.Method, request.Path, request.Query)
	c.key, c.words = keyOf(c), opportunity(c)
	return c
}

// keyExtra is room for what most keys have beside actor, verb and path.
const keyExtra = 16

// keyOf names a call by its content, so that the order in which goroutines come
// to the gate does not matter. What a client draws at random is left out.
func keyOf(c *call) string {
	var b strings.Builder
	b.Grow(len(c.actor.name) + len(c.verb) + len(c.request.Path) + len(" ") + keyExtra)
	b.WriteString(c.actor.name)
	b.WriteByte(' ')
	b.WriteString(c.verb)
	b.WriteByte(' ')
	b.WriteString(c.request.Path)
	if len(c.request.Query) > 0 {
		names := make([]string, 0, len(c.request.Query))
		for name := range c.request.Query {
			if name != "timeoutSeconds" && name != "timeout" {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			b.WriteByte(' ')
			b.WriteString(name)
			b.WriteByte('=')
			b.WriteString(c.request.Query.Get(name))
		}
	}
	if len(c.request.Body) > 0 {
		h := fnv.New64a()
		h.Write(c.request.Body)
		b.WriteByte(' ')
		b.WriteString(strconv.FormatUint(h.Sum64(), 36))
	}
	return b.String()
}

// meaning returns the verb of Kubernetes that a request means, and the resource.
func meaning(method, path string, query url.Values) (verb, target string) {
	var room [8]string // enough for all but odd paths
	parts := slices.AppendSeq(room[:0], strings.SplitSeq(strings.Trim(path, "/"), "/"))
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return "get", "discovery"
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	target = parts[0]
	if len(parts) > 2 {
		target += "/" + parts[2]
	}
	switch method {
	case http.MethodPost:
		return "create", target
	case http.MethodPut:
		return "update", target
	case http.MethodPatch:
		return "patch", target
	case http.MethodDelete:
		return "delete", target
	}
	switch {
	case query.Get("watch") == "true" || query.Get("watch") == "1":
		return "watch", target
	case len(parts) == 1:
		return "list", target
	}
	return "get", target
}

// isWrite tells whether the call may change something.
func (c *call) isWrite() bool {
	switch c.verb {
	case "create", "update", "patch", "delete":
		return true
	}
	return false
}
