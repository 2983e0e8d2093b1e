package cleaner

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
)

// metrics are the cleaner's counters, histograms and gauges. Labels take values
// out of small fixed sets; what is counted per network is in stock, which
// forgets networks that are gone.
type metrics struct {
	released   *prometheus.CounterVec
	cleared    *prometheus.CounterVec
	repaired   prometheus.Counter
	conflicts  *prometheus.CounterVec
	errors     *prometheus.CounterVec
	trips      *prometheus.CounterVec
	requests   *prometheus.CounterVec
	unrecorded prometheus.Counter
	untilGone  prometheus.Histogram
	reconciled *prometheus.HistogramVec
	suspects   prometheus.Gauge
	duplicates prometheus.Gauge
	malformed  prometheus.Gauge
	frozen     prometheus.Gauge
	leading    prometheus.Gauge
	stock      *stock
}

// metricsNamespace begins the name of every metric.
const metricsNamespace = "danm_cleaner"

// releaseBuckets reach from a test's quarantine to a node that nobody fenced
// over a night.
var releaseBuckets = []float64{.5, 1, 2, 5, 10, 30, 60, 65, 75, 90, 120, 300, 600, 1800, 3600, 6 * 3600, 24 * 3600}

// unregistered counts for all cleaners of the process that register no metrics.
// Nobody can read what it counts, so one does for all.
var unregistered = sync.OnceValue(makeMetrics)

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	if r == nil {
		return unregistered(), nil
	}
	m := makeMetrics()
	m.preset()
	for _, c := range m.all() {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}

func makeMetrics() *metrics {
	return &metrics{
		released:   counters("endpoints_released_total", "Endpoints deleted because their owner was gone.", "reason"),
		cleared:    counters("addresses_released_total", "Bits cleared: at once by lineage, or later by the orphan sweep.", "by"),
		repaired:   counter("addresses_repaired_total", "Bits set again because a living pod held the address."),
		conflicts:  counters("conflicts_total", "Conditional writes that found another state than was read.", "write"),
		errors:     counters("errors_total", "Work that failed and was queued again.", "queue"),
		trips:      counters("breaker_trips_total", "How often the circuit breaker opened.", "reason"),
		requests:   counters("api_requests_total", "Requests to the API server; code \"error\" got no answer.", "verb", "code"),
		unrecorded: counter("release_log_errors_total", "Release records that could not be written to the release log."),
		untilGone: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: metricsNamespace, Name: "time_to_release_seconds", Buckets: releaseBuckets,
			Help: "From the first suspicion to the release of the endpoint, quarantine included.",
		}),
		reconciled: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: metricsNamespace, Name: "reconcile_duration_seconds",
			Buckets: []float64{.0001, .001, .005, .01, .05, .1, .5, 1, 5, 15, 60},
			Help:    "How long one item of work took.",
		}, []string{"queue"}),
		suspects:   gauge("suspects", "Endpoints whose owner was not seen."),
		duplicates: gauge("duplicate_addresses", "Addresses held by more than one living pod."),
		malformed:  gauge("malformed_objects", "DANM objects that cannot be read."),
		frozen:     gauge("breaker_open", "1 while the circuit breaker forbids every release."),
		leading:    gauge("leader", "1 while this replica works."),
		stock:      newStock(),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{
		m.released, m.cleared, m.repaired, m.conflicts, m.errors, m.trips, m.requests, m.unrecorded,
		m.untilGone, m.reconciled, m.suspects, m.duplicates, m.malformed, m.frozen, m.leading, m.stock,
	}
}

// preset makes every series whose labels are known exist from the start: a
// rate over a series that begins with its first event misses that event.
func (m *metrics) preset() {
	for _, reason := range []ownership.Reason{ownership.PodGone, ownership.PodReplaced, ownership.PodCompleted} {
		m.released.WithLabelValues(string(reason))
	}
	for _, by := range []string{byLineage, bySweep} {
		m.cleared.WithLabelValues(by)
	}
	for _, write := range []string{"endpoint", "network"} {
		m.conflicts.WithLabelValues(write)
	}
	for _, queue := range []string{"endpoints", "networks"} {
		m.errors.WithLabelValues(queue)
		m.reconciled.WithLabelValues(queue)
	}
	for _, cause := range tripCauses() {
		m.trips.WithLabelValues(string(cause))
	}
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: metricsNamespace, Name: name, Help: help}, labels)
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: metricsNamespace, Name: name, Help: help})
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: metricsNamespace, Name: name, Help: help})
}
