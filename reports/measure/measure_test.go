package measure

import (
	"testing"
	"time"

	"github.com/danm-chaos/danm-chaos/harness"
)

func TestQuantileIsAValueThatWasMeasured(t *testing.T) {
	tests := []struct {
		name   string
		values []float64
		share  float64
		want   float64
	}{
		{"of nothing", nil, 0.5, 0},
		{"of one", []float64{7}, 0.99, 7},
		{"the least", []float64{1, 2, 3, 4}, 0, 1},
		{"the most", []float64{1, 2, 3, 4}, 1, 4},
		{"the median of five", []float64{1, 2, 3, 4, 5}, 0.5, 3},
		{"p90 of eleven", []float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0.9, 9},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Quantile(tt.values, tt.share); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestWhatWasNotMeasuredIsNoZero(t *testing.T) {
	r := harness.Result{Iterations: []harness.Iteration{{Detected: time.Second}, {Took: 2 * time.Second}}}
	want := map[string]int{"detection": 1, "recreate": 0, "settle": 0, Release: 0, Iteration: 1}
	for _, l := range Latencies(r) {
		if len(l.Values) != want[l.Name] {
			t.Errorf("%s has %d values, want %d", l.Name, len(l.Values), want[l.Name])
		}
	}
	r.Measured = &harness.Measured{Releases: []time.Duration{0, time.Second}}
	for _, l := range Latencies(r) {
		if l.Name == Release && len(l.Values) != 2 {
			t.Errorf("%d releases, want 2: one at once took no time and still counts", len(l.Values))
		}
	}
}

func TestSortedLeavesTheGivenValuesAlone(t *testing.T) {
	given := []time.Duration{3, 1, 2}
	if sorted := Sorted(given); sorted[0] != 1 || sorted[2] != 3 || given[0] != 3 {
		t.Errorf("sorted %v, given %v", sorted, given)
	}
}
