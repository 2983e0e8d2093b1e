package reports

import (
	"slices"
	"time"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/reports/timeline"
)

// Measure is something that was measured often in one run.
type Measure struct {
	Name    string
	Meaning string
	Values  []time.Duration // in no order that means anything
}

// Latencies are the times of a run that a reader asks for, in the order in
// which they pass. What was never measured has no values.
func Latencies(r harness.Result) []Measure {
	of := func(get func(harness.Iteration) time.Duration) []time.Duration {
		var out []time.Duration
		for _, it := range r.Iterations {
			if d := get(it); d > 0 {
				out = append(out, d)
			}
		}
		return out
	}
	all := []Measure{
		{"detection", "fault to the pods' deletion mark", of(func(it harness.Iteration) time.Duration { return it.Detected })},
		{"recreate", "last fault to all replicas Ready", of(func(it harness.Iteration) time.Duration { return it.Recreated })},
		{"settle", "until pods, DanmEps and bits agreed", of(func(it harness.Iteration) time.Duration { return it.Settled })},
		{"release", "owner gone to address free", nil},
		{"iteration", "all of it", of(func(it harness.Iteration) time.Duration { return it.Took })},
	}
	if r.Measured != nil {
		all[3].Values = r.Measured.Releases
	}
	return all
}

func releaseTimes(t *timeline.Timeline) []time.Duration {
	out := []time.Duration{}
	for _, r := range t.Releases {
		if r.OwnerGone {
			out = append(out, r.After)
		}
	}
	return out
}

// quantile returns the value below which that share of the sorted values lies,
// by the nearest rank.
func quantile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(share*float64(len(sorted)-1) + 0.5)
	return sorted[rank]
}

func sortedDurations(values []time.Duration) []time.Duration {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted
}
