package cleaner

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

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
		want  rate.Limit
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
			if got := l.bucket.Limit(); got != tt.want {
				t.Errorf("%v requests a second, want %v", got, tt.want)
			}
		})
	}
}

// limitedPods returns access to the pods of a server that answers as told, and
// else with an empty list.
func limitedPods(t *testing.T, l *limiter, answer func(http.ResponseWriter)) typedcorev1.PodInterface {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer(w)
		_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1","items":[]}`))
	}))
	t.Cleanup(server.Close)
	core, err := typedClient(Config{}, l.limit(&rest.Config{Host: server.URL}), "/api", corev1.SchemeGroupVersion)
	if err != nil {
		t.Fatal(err)
	}
	return typedcorev1.New(core).Pods("")
}

func TestARefusalSlowsTheClientDown(t *testing.T) {
	var refused atomic.Bool
	l := newLimiter(400, 800)
	pods := limitedPods(t, l, func(w http.ResponseWriter) {
		if refused.CompareAndSwap(false, true) {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	if _, err := pods.List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if !refused.Load() {
		t.Fatal("no request was refused")
	}
	if got := l.bucket.Limit(); got >= 400 {
		t.Errorf("%v requests a second after a refusal", got)
	}
}

func TestRequestsKeepThePaceAndWatchesNeedNot(t *testing.T) {
	pods := limitedPods(t, newLimiter(0.001, 1), func(http.ResponseWriter) {})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := pods.List(ctx, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.List(ctx, metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), "keeping the pace") {
		t.Errorf("the next is due in a quarter of an hour and has a minute: got %v", err)
	}
	w, err := pods.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatalf("a watch: %v", err)
	}
	w.Stop()
}
