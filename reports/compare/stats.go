package compare

import (
	"cmp"
	"math"
	"slices"

	"github.com/danm-chaos/danm-chaos/reports/measure"
)

// Summary is what many values amount to.
type Summary struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Low    float64 `json:"low"` // of the 95 % interval of the median
	High   float64 `json:"high"`
}

// summarise finds the median and its interval, which lies between two order
// statistics and supposes nothing about how the values are spread.
func summarise(values []float64) Summary {
	n := len(values)
	if n == 0 {
		return Summary{}
	}
	const z = 1.96
	sorted := measure.Sorted(values)
	half := z * math.Sqrt(float64(n)) / 2
	low := int(math.Floor(float64(n)/2 - half))
	high := int(math.Ceil(float64(n)/2+half)) - 1
	return Summary{n, measure.Quantile(sorted, 0.5), sorted[max(low, 0)], sorted[min(max(high, 0), n-1)]}
}

// rankTest returns the probability that values as far apart as these come from
// one distribution (Mann-Whitney, both sides, normal approximation with
// correction for ties). It is 1 when nothing can be told.
func rankTest(a, b []float64) float64 {
	n, m := float64(len(a)), float64(len(b))
	if n == 0 || m == 0 {
		return 1
	}
	rankSum, ties := ranks(a, b)
	u := rankSum - n*(n+1)/2
	total := n + m
	variance := n * m / 12 * (total + 1 - ties/(total*(total-1)))
	if variance <= 0 {
		return 1 // all values are the same
	}
	const continuity = 0.5
	z := max(0, math.Abs(u-n*m/2)-continuity) / math.Sqrt(variance)
	return math.Erfc(z / math.Sqrt2)
}

// ranks returns the sum of the ranks of a among all values, ties shared, and
// the sum of t^3-t over the sizes of the ties.
func ranks(a, b []float64) (rankSum, ties float64) {
	type entry struct {
		value float64
		ofA   bool
	}
	all := make([]entry, 0, len(a)+len(b))
	for _, v := range a {
		all = append(all, entry{v, true})
	}
	for _, v := range b {
		all = append(all, entry{v, false})
	}
	slices.SortFunc(all, func(x, y entry) int { return cmp.Compare(x.value, y.value) })
	for i := 0; i < len(all); {
		j := i
		for j < len(all) && all[j].value == all[i].value {
			j++
		}
		rank, size := float64(i+j+1)/2, float64(j-i)
		for _, e := range all[i:j] {
			if e.ofA {
				rankSum += rank
			}
		}
		ties += size*size*size - size
		i = j
	}
	return rankSum, ties
}

// adjust corrects probabilities for how many were looked at (Holm), in place of
// the given ones.
func adjust(ps []float64) []float64 {
	order := make([]int, len(ps))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(ps[a], ps[b]) })
	out := make([]float64, len(ps))
	least := 0.0
	for k, i := range order {
		least = max(least, min(1, ps[i]*float64(len(ps)-k)))
		out[i] = least
	}
	return out
}
