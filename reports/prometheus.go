package reports

import (
	"bytes"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/reports/measure"
)

// latencyBuckets reach from a release without quarantine to one that needs the
// orphan quarantine of a real cluster.
func latencyBuckets() []float64 {
	return []float64{.1, .25, .5, 1, 2, 4, 6, 8, 12, 20, 30, 60, 120, 300, 600}
}

// NewRegistry returns metrics of one run, which may still go on.
func NewRegistry(r harness.Result) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	m := metricMaker{registry: registry, labels: prometheus.Labels{
		"scenario": r.Scenario, "cluster": r.Cluster, "cleaner": r.Cleaner, "danm_api": r.Group, "cni": r.CNI,
	}}
	m.verdict(r)
	m.iterations(r)
	m.judged(r)
	for _, l := range measure.Latencies(r) {
		m.latency(l)
	}
	m.gauge("run_duration_seconds", "How long the run took.", r.DurationSeconds)
	m.gauge("run_peak_resident_bytes", "Memory of all processes together, at most.", float64(r.PeakBytes))
	m.gauge("run_started_timestamp_seconds", "When the run began.", unixSeconds(r.Started))
	return registry
}

func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// exposition is the registry in the text format of Prometheus.
func exposition(r harness.Result) ([]byte, error) {
	families, err := NewRegistry(r).Gather()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// metricMaker registers metrics that all carry the labels of the run.
type metricMaker struct {
	registry *prometheus.Registry
	labels   prometheus.Labels
}

func (m metricMaker) opts(name, help string) prometheus.GaugeOpts {
	return prometheus.GaugeOpts{Namespace: "danm_chaos", Name: name, Help: help, ConstLabels: m.labels}
}

func (m metricMaker) gauge(name, help string, value float64) {
	g := prometheus.NewGauge(m.opts(name, help))
	g.Set(value)
	m.registry.MustRegister(g)
}

// counts registers a gauge for each key. They are gauges because a run is one
// thing that is over, and its file is read again and again.
func (m metricMaker) counts(name, help, label string, counts []named) {
	g := prometheus.NewGaugeVec(m.opts(name, help), []string{label})
	for _, c := range counts {
		g.WithLabelValues(c.Name).Set(float64(c.Count))
	}
	m.registry.MustRegister(g)
}

func (m metricMaker) verdict(r harness.Result) {
	counts := []named{{string(check.Valid), 0}, {string(check.Invalid), 0}, {string(check.Unknown), 0}}
	for i := range counts {
		if counts[i].Name == string(verdictOf(r)) {
			counts[i].Count = 1
		}
	}
	m.counts("run_verdict", "1 for the verdict of the run.", "verdict", counts)
}

func (m metricMaker) iterations(r harness.Result) {
	counts := map[check.Verdict]int{check.Valid: 0, check.Invalid: 0, check.Unknown: 0}
	for _, it := range r.Iterations {
		counts[it.Verdict]++
	}
	m.counts("iterations", "Finished iterations by the verdict of their snapshot.", "verdict", sortedCounts(counts))
	m.gauge("iterations_planned", "Iterations that were planned.", float64(r.Planned))
}

func (m metricMaker) judged(r harness.Result) {
	violations := map[check.Invariant]int{}
	for _, i := range invariantsOf(r) {
		violations[i] = 0
	}
	for _, v := range r.Violations {
		violations[v.Invariant]++
	}
	m.counts("violations", "Violations that make the run Invalid.", "invariant", sortedCounts(violations))
	m.gauge("findings", "Violations that are not held against the cleaner.", float64(len(r.Findings)))
	m.gauge("unknowns", "Reasons why something could not be decided.", float64(len(r.Unknowns)))
	m.counts("evaluations", "How often each invariant was evaluated.", "invariant", sortedCounts(r.Checked))
	m.counts("faults_planned", "Faults that were planned.", "fault", sortedCounts(r.FaultsPlanned))
	m.counts("faults_fired", "Faults that fired.", "fault", sortedCounts(r.FaultsFired))
	if r.Measured != nil {
		m.counts("cleaner_requests", "Mutating API requests of the cleaner.", "request", sortedCounts(r.Measured.Requests))
	}
}

func (m metricMaker) latency(l measure.Latency) {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "danm_chaos", Name: l.Name + "_seconds", Help: "Time of " + l.Name + ": " + l.Meaning + ".",
		ConstLabels: m.labels, Buckets: latencyBuckets(),
	})
	for _, v := range l.Values {
		h.Observe(v.Seconds())
	}
	m.registry.MustRegister(h)
}
