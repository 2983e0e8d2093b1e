package cleaner

import (
	"context"
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
// others at the full rate. It implements flowcontrol.RateLimiter.
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
	limited.RateLimiter = l
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

func (l *limiter) TryAccept() bool                { return l.bucket.Allow() }
func (l *limiter) Wait(ctx context.Context) error { return l.bucket.Wait(ctx) }
func (l *limiter) Accept()                        { _ = l.bucket.Wait(context.Background()) } // the only error is a context's
func (l *limiter) QPS() float32                   { return float32(l.bucket.Limit()) }
func (l *limiter) Stop()                          {}

type limitedTransport struct {
	next    http.RoundTripper
	limiter *limiter
}

// RoundTrip implements http.RoundTripper.
func (t *limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err == nil {
		t.limiter.see(response.StatusCode)
	}
	return response, err
}

// WrappedRoundTripper lets client-go find the transport that we wrap.
func (t *limitedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
