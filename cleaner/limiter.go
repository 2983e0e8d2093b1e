package cleaner

import (
	"fmt"
	"net/http"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// Paces of the limiter: a refusal halves the rate, a success gives back a
// hundredth of the full rate, and nothing takes it below slowestQPS.
const (
	slowestQPS    = 1
	slowDown      = 0.5
	recoveryShare = 0.01
)

// limiter is a token bucket, one for all clients of a cleaner, that follows the
// API server: where it answers 429, requests become rarer, and more frequent
// again as it copes (additive increase, multiplicative decrease, as in RFC 5681).
// client-go alone repeats the refused request after Retry-After and sends all
// others at the full rate. It sits in the transport: client-go's own limiter has
// it spell out a request's URL once more, for a metric that nobody takes.
type limiter struct {
	bucket *rate.Limiter
	full   rate.Limit
}

func newLimiter(qps float32, burst int) *limiter {
	return &limiter{bucket: rate.NewLimiter(rate.Limit(qps), burst), full: rate.Limit(qps)}
}

// limit returns a copy of the config whose requests the limiter paces.
func (l *limiter) limit(config *rest.Config) *rest.Config {
	limited := rest.CopyConfig(config)
	limited.QPS, limited.RateLimiter = -1, nil // none of client-go's
	limited.WrapTransport = transport.Wrappers(limited.WrapTransport, func(next http.RoundTripper) http.RoundTripper {
		return &limitedTransport{next: next, limiter: l}
	})
	return limited
}

// see adapts the rate to one answer. Answers that come at once may overwrite
// each other's change, which the next one makes up for.
func (l *limiter) see(code int) {
	now := l.bucket.Limit()
	if code == http.StatusTooManyRequests {
		l.bucket.SetLimit(max(now*slowDown, min(slowestQPS, l.full)))
		return
	}
	if now < l.full {
		l.bucket.SetLimit(min(now+l.full*recoveryShare, l.full))
	}
}

type limitedTransport struct {
	next    http.RoundTripper
	limiter *limiter
}

// RoundTrip implements http.RoundTripper. A watch is one request for minutes, so
// none has to wait.
func (t *limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !isWatch(r.URL) {
		if err := t.limiter.bucket.Wait(r.Context()); err != nil {
			if r.Body != nil {
				_ = r.Body.Close() // a transport has to, whatever becomes of the request
			}
			return nil, fmt.Errorf("keeping the pace of requests: %w", err)
		}
	}
	response, err := t.next.RoundTrip(r)
	if err == nil {
		t.limiter.see(response.StatusCode)
	}
	return response, err
}

// WrappedRoundTripper lets client-go find the transport that we wrap.
func (t *limitedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
