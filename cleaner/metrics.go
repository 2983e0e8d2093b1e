package cleaner

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the cleaner's counters and gauges.
type metrics struct {
	released   *prometheus.CounterVec
	cleared    *prometheus.CounterVec
	repaired   prometheus.Counter
	conflicts  *prometheus.CounterVec
	errors     *prometheus.CounterVec
	suspects   prometheus.Gauge
	duplicates prometheus.Gauge
	malformed  prometheus.Gauge
	frozen     prometheus.Gauge
	leading    prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "danm_cleaner", Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "danm_cleaner", Name: name, Help: help})
	}
	m := &metrics{
		released:   counter("endpoints_released_total", "Endpoints deleted because their owner was gone.", "reason"),
		cleared:    counter("addresses_released_total", "Bits cleared: at once by lineage, or later by the orphan sweep.", "by"),
		repaired:   prometheus.NewCounter(prometheus.CounterOpts{Namespace: "danm_cleaner", Name: "addresses_repaired_total", Help: "Bits set again because a living pod held the address."}),
		conflicts:  counter("conflicts_total", "Conditional writes that found another state than was read.", "write"),
		errors:     counter("errors_total", "Work that failed and was queued again.", "queue"),
		suspects:   gauge("suspects", "Endpoints whose owner was not seen."),
		duplicates: gauge("duplicate_addresses", "Addresses held by more than one living pod."),
		malformed:  gauge("malformed_objects", "DANM objects that cannot be read."),
		frozen:     gauge("breaker_open", "1 while the circuit breaker forbids every release."),
		leading:    gauge("leader", "1 while this replica works."),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.released, m.cleared, m.repaired, m.conflicts, m.errors, m.suspects, m.duplicates, m.malformed, m.frozen, m.leading,
	} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}
