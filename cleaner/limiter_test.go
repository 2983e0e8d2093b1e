package cleaner

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

var _ flowcontrol.RateLimiter = (*limiter)(nil)

func TestTheRateFollowsTheServersAnswers(t *testing.T) {
	repeat := func(n, code int) []int {
		codes := make([]int, n)
		for i := range codes {
			codes[i] = code
		}
		return codes
	}
	for _, tt := range []struct {
		name  string
		codes []int
		want  float32
	}{
		{"answers without refusal change nothing", repeat(10, 200), 400},
		{"a refusal halves it", repeat(1, 429), 200},
		{"two refusals quarter it", repeat(2, 429), 100},
		{"it does not stop altogether", repeat(100, 429), 1},
		{"successes bring it back step by step", append(repeat(1, 429), repeat(25, 200)...), 300},
		{"it does not exceed the full rate", append(repeat(1, 429), repeat(1000, 200)...), 400},
		{"other errors do not slow it down", repeat(10, 500), 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLimiter(400, 800)
			for _, code := range tt.codes {
				l.see(code)
			}
			if got := l.QPS(); got != tt.want {
				t.Errorf("%v requests a second, want %v", got, tt.want)
			}
		})
	}
}

func TestARefusalSlowsTheClientDown(t *testing.T) {
	var refused atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if refused.CompareAndSwap(false, true) {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		}
		_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1","items":[]}`))
	}))
	defer server.Close()
	cfg, err := Config{REST: &rest.Config{Host: server.URL}, QPS: 400}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	core, _, err := newClients(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := core.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if !refused.Load() {
		t.Fatal("no request was refused")
	}
	if got := core.CoreV1().RESTClient().GetRateLimiter().QPS(); got >= 400 {
		t.Errorf("%v requests a second after a refusal", got)
	}
}
