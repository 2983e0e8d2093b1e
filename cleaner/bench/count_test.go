package bench_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
)

// requests counts what a client asks of the API server. Watches are not
// counted: they are one request that lasts.
type requests struct {
	mu               sync.Mutex
	reads, writes    int
	podPages         int // of complete live lists
	endpointsDeleted int
	lastDelete       time.Time
}

// countingConfig is access as the cleaner, every request counted.
func countingConfig(t *testing.T, c *controlplane.Cluster) (*rest.Config, *requests) {
	t.Helper()
	config, err := c.RESTConfig(clusters.UserCleaner)
	if err != nil {
		t.Fatal(err)
	}
	count := &requests{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			count.see(r, response)
			return response, err
		})
	})
	return config, count
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (q *requests) see(r *http.Request, response *http.Response) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.URL.Path == "/api/v1/pods" && r.URL.Query().Get("limit") != "" {
		q.podPages++
	}
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") == "":
		q.reads++
	case r.Method != http.MethodGet:
		q.writes++
	}
	if r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/"+danm.EndpointResource+"/") && response != nil && response.StatusCode == http.StatusOK {
		q.endpointsDeleted++
		q.lastDelete = time.Now()
	}
}

func (q *requests) reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reads, q.writes, q.endpointsDeleted = 0, 0, 0
}

func (q *requests) pages() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.podPages
}

func (q *requests) get() (reads, writes, deleted int, lastDelete time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.reads, q.writes, q.endpointsDeleted, q.lastDelete
}
