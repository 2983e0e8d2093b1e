package cleaner

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// countRequests returns a copy of the config whose requests are counted. It
// sits in the transport, not in client-go's metrics hooks: those are global.
func (m *metrics) countRequests(config *rest.Config) *rest.Config {
	counted := rest.CopyConfig(config)
	counted.WrapTransport = transport.Wrappers(counted.WrapTransport, func(next http.RoundTripper) http.RoundTripper {
		return &countingTransport{next: next, requests: m.requests}
	})
	return counted
}

type countingTransport struct {
	next     http.RoundTripper
	requests *prometheus.CounterVec
}

// RoundTrip implements http.RoundTripper.
func (t *countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	code := "error"
	if err == nil {
		code = strconv.Itoa(response.StatusCode)
	}
	t.requests.WithLabelValues(verbOf(r), code).Inc()
	return response, err
}

// WrappedRoundTripper lets client-go find the transport that we wrap.
func (t *countingTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// verbOf returns the verb of Kubernetes that a request means, as in a Role.
func verbOf(r *http.Request) string {
	switch r.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	switch {
	case isWatch(r.URL):
		return "watch"
	case isCollection(r.URL.Path):
		return "list"
	}
	return "get"
}

// isWatch tells whether the query asks for a watch. No client writes that in any
// other way, so the query need not be parsed.
func isWatch(u *url.URL) bool {
	for option := range strings.SplitSeq(u.RawQuery, "&") {
		if option == "watch=true" || option == "watch=1" {
			return true
		}
	}
	return false
}

// isCollection tells whether the path names a resource and no object of it.
func isCollection(path string) bool {
	var room [8]string // enough for all but odd paths
	parts := slices.AppendSeq(room[:0], strings.SplitSeq(strings.Trim(path, "/"), "/"))
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:] // api/v1
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:] // apis/group/version
	default:
		return false // discovery
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	return len(parts) == 1
}
