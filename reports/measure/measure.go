package measure

import (
	"math"
	"slices"
	"time"

	"github.com/danm-chaos/danm-chaos/harness"
)

// Latency is a time that was measured often in one run.
type Latency struct {
	Name    string
	Meaning string
	Values  []time.Duration // in no order that means anything
}

// Names of the latencies that are asked for by name.
const (
	Release   = "release"
	Iteration = "iteration"
)

// Latencies are the times of a run that a reader asks for, in the order in
// which they pass. What was never measured has no values.
func Latencies(r harness.Result) []Latency {
	of := func(get func(harness.Iteration) time.Duration) []time.Duration {
		var out []time.Duration
		for _, it := range r.Iterations {
			if d := get(it); d > 0 {
				out = append(out, d)
			}
		}
		return out
	}
	var releases []time.Duration
	if r.Measured != nil {
		releases = r.Measured.Releases
	}
	return []Latency{
		{"detection", "fault to the pods' deletion mark", of(func(it harness.Iteration) time.Duration { return it.Detected })},
		{"recreate", "last fault to all replicas Ready", of(func(it harness.Iteration) time.Duration { return it.Recreated })},
		{"settle", "until pods, DanmEps and bits agreed", of(func(it harness.Iteration) time.Duration { return it.Settled })},
		{Release, "owner gone to address free", releases},
		{Iteration, "all of it", of(func(it harness.Iteration) time.Duration { return it.Took })},
	}
}

// Sorted returns the values in ascending order and leaves the given ones alone.
func Sorted[T float64 | time.Duration](values []T) []T {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted
}

// Quantile returns the value below which that share of the sorted values lies,
// by the nearest rank, and 0 of no values.
func Quantile[T float64 | time.Duration](sorted []T, share float64) T {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(math.Round(share*float64(len(sorted)-1)))]
}
