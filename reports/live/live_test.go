package live

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/reports/timeline"
)

// begun is a run that has just begun: one lane and nothing in it.
func begun(t *testing.T, whole bool) (*Follower, *history.File) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history.jsonl")
	h, err := history.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	h.Record(history.Record{Run: &history.Run{SchemaVersion: history.SchemaVersion, CleanerUser: "danm-cleaner"}})
	h.Record(history.Record{Lane: &history.Lane{Name: "lane-0", Generation: 1, Namespace: "ns", NetworkKind: "DanmNet", Network: "net", IPv4: true}})
	f := NewFollower(Options{Result: harness.Result{Scenario: "node-shutdown", Cluster: "controlplane", Cleaner: "fixed"}, History: path, Flush: h.Flush, Whole: whole})
	return f, h
}

func addPod(h *history.File, name string, rv uint64) {
	h.Record(history.Record{Write: &history.Write{RV: rv, Type: history.Added, Resource: "pods", Namespace: "ns", Name: name, UID: name, Object: json.RawMessage(`{}`)}})
}

func TestTheCountsFollowTheRun(t *testing.T) {
	for _, whole := range []bool{false, true} {
		f, h := begun(t, whole)
		if got := f.Counts(); got != (timeline.Counts{}) {
			t.Errorf("before any pod: %+v", got)
		}
		addPod(h, "a", 1)
		addPod(h, "b", 2)
		if got := f.Counts(); got.Pods != 2 || f.CountsOf("lane-0").Pods != 2 || f.CountsOf("lane-1").Pods != 0 {
			t.Errorf("after two pods: %+v", got)
		}
	}
}

// serve serves a follower for the time of a test.
func serve(t *testing.T, address string, f *Follower) *Server {
	t.Helper()
	s, err := Serve(address, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

func get(t *testing.T, url string) (string, *http.Response) {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body), answer
}

func TestThePageGrows(t *testing.T) {
	f, h := begun(t, true)
	s := serve(t, ":0", f)
	before, answer := get(t, s.URL())
	if answer.StatusCode != http.StatusOK || !strings.Contains(before, "This run goes on") || !strings.Contains(before, "connect-src &#39;self&#39;") {
		t.Errorf("status %d, page of %d bytes", answer.StatusCode, len(before))
	}
	state, _ := get(t, s.URL()+"state")
	addPod(h, "a", 1)
	f.IterationDone(harness.Iteration{Number: 7, Lane: "lane-0", Network: "DanmNet v4", Verdict: check.Invalid, Note: "ss-0 has no endpoint"}, 1, 20)
	if changed, _ := get(t, s.URL()+"state"); changed == state {
		t.Errorf("the state stays %s", state)
	}
	after, _ := get(t, s.URL())
	for _, want := range []string{"pods=1 eps=0 bits=0", "ss-0 has no endpoint", "1 of 20"} {
		if !strings.Contains(after, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if _, answer := get(t, s.URL()+"elsewhere"); answer.StatusCode != http.StatusNotFound {
		t.Errorf("another path answers with %d", answer.StatusCode)
	}
}

func TestMetricsFollowTheRun(t *testing.T) {
	f, h := begun(t, true)
	s := serve(t, "127.0.0.1:0", f)
	addPod(h, "a", 1)
	f.IterationDone(harness.Iteration{Number: 1, Verdict: check.Valid, Took: 3 * time.Second}, 1, 20)
	text, _ := get(t, s.URL()+"metrics")
	for _, want := range []string{
		"danm_chaos_pods 1\n", `danm_chaos_iterations{cleaner="fixed",cluster="controlplane",cni="",danm_api="",scenario="node-shutdown",verdict="Valid"} 1`,
		`scenario="node-shutdown"} 20`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestWithoutAHostOnlyThisMachineIsServed(t *testing.T) {
	f, _ := begun(t, true)
	if s := serve(t, ":0", f); !strings.HasPrefix(s.URL(), "http://127.0.0.1:") {
		t.Errorf("served at %s", s.URL())
	}
}

func TestAnAddressInUseIsAnError(t *testing.T) {
	f, _ := begun(t, true)
	s := serve(t, ":0", f)
	address := strings.TrimSuffix(strings.TrimPrefix(s.URL(), "http://"), "/")
	if _, err := Serve(address, f); err == nil || !strings.Contains(err.Error(), "serving the report: ") {
		t.Errorf("got %v", err)
	}
}

func TestMetricsArePushed(t *testing.T) {
	var path, body string
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		path, body = r.Method+" "+r.URL.Path, string(data)
	}))
	defer gateway.Close()
	r := harness.Result{Scenario: "node-shutdown", Cluster: "sim", Verdict: check.Valid}
	if err := Push(t.Context(), gateway.URL, r); err != nil {
		t.Fatal(err)
	}
	if path != "PUT /metrics/job/danm-chaos:node-shutdown:sim" || !strings.Contains(body, "danm_chaos_run_verdict") {
		t.Errorf("%s with %d bytes", path, len(body))
	}
}

func TestAGatewayThatRefusesIsAnError(t *testing.T) {
	gateway := httptest.NewServer(http.NotFoundHandler())
	defer gateway.Close()
	if err := Push(t.Context(), gateway.URL, harness.Result{}); err == nil || !strings.Contains(err.Error(), "pushing metrics: ") {
		t.Errorf("got %v", err)
	}
}
