package reports

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/reports/measure"
	"github.com/danm-chaos/danm-chaos/reports/timeline"
)

// Where the plot lies in its drawing. The page's script knows the plot's own
// attributes only.
const (
	plotTop, plotHeight = 6, 250 // pixels
	plotLeft, plotWidth = 6, 93  // percent
)

// Rows above and below the curves, as shares of the largest value.
const (
	ceilingShare   = 1.14
	violationShare = 1.08
	releaseShare   = -0.05
	faultRowFrom   = -0.12
	faultRowUntil  = -0.09
)

// marginShare is the part of the width that stays free at the end, where the
// last marks would be cut off.
const marginShare = 80

// chart is the drawing of one lane, or of all. X is milliseconds, y the count.
type chart struct {
	Lane, Label, Summary, Last string
	Hidden                     bool
	ViewBox                    string
	Floor, Ceiling, Height     float64
	Rows, Columns              []tick
	Grid, Bands, BandRow       string
	Pods, Endpoints, Bits      string
	Releases                   string
	Violations                 []chartMark
}

type tick struct {
	At            float64
	Label, Anchor string
}

type chartMark struct {
	Number int
	Story  bool
	Text   string
	Path   string
}

// chartData is what the script needs besides the drawing. Every entry begins
// with its lane.
type chartData struct {
	Bands [][4]any `json:"bands"` // lane, from, until, text
	Steps [][3]any `json:"steps"` // lane, at, text
	Marks [][3]any `json:"marks"` // the same
}

func (v *runView) addCharts(t *timeline.Timeline) {
	v.Data = chartData{Bands: [][4]any{}, Steps: [][3]any{}, Marks: [][3]any{}}
	all := t.All
	v.Charts = append(v.Charts, v.newChart(t, all, "all lanes together"))
	for _, l := range t.Lanes {
		c := v.newChart(t, l, l.Name)
		c.Hidden = true
		v.Charts = append(v.Charts, c)
		for _, s := range l.Steps {
			v.Data.Steps = append(v.Data.Steps, [3]any{l.Name, s.At.Milliseconds(), s.Text})
		}
	}
	for _, b := range t.All.Bands {
		v.Data.Bands = append(v.Data.Bands, [4]any{b.Lane, b.From.Milliseconds(), b.Until.Milliseconds(), strings.TrimSpace(b.Fault + " " + b.Target)})
	}
	for _, r := range t.Releases {
		v.Data.Marks = append(v.Data.Marks, [3]any{r.Lane, r.At.Milliseconds(), releaseText(r)})
	}
	for _, s := range v.Stories {
		v.Data.Marks = append(v.Data.Marks, [3]any{s.V.Lane, s.Told.At.Milliseconds(), fmt.Sprintf("violation %d, %s", s.Number, s.V.Invariant)})
	}
}

func releaseText(r timeline.Release) string {
	text := "released " + r.Address
	if r.Pod != "" {
		text += " of " + r.Pod
	}
	if r.OwnerGone {
		text += fmt.Sprintf(", %s after its owner was gone", rounded(r.After))
	}
	return text
}

func (v *runView) newChart(t *timeline.Timeline, l timeline.Lane, label string) chart {
	span := max(t.Span.Milliseconds(), 1)
	most := float64(max(l.Pods.Max(), l.Endpoints.Max(), l.Bits.Max(), 1))
	c := chart{
		Lane: l.Name, Label: label, Floor: toDecimal(faultRowFrom * most), Ceiling: toDecimal(ceilingShare * most),
		Pods: curvePath(l.Pods, span), Endpoints: curvePath(l.Endpoints, span), Bits: curvePath(l.Bits, span),
	}
	c.Last = fmt.Sprintf("pods=%d eps=%d bits=%d", l.Pods.Last(), l.Endpoints.Last(), l.Bits.Last())
	c.Summary = fmt.Sprintf("Pods, DanmEps and allocated bits of %s over %s, in the end %s", label, rounded(t.Span), c.Last)
	c.Height = toDecimal(c.Ceiling - c.Floor)
	view := span + max(1, span/marginShare)
	c.ViewBox = fmt.Sprintf("0 %s %d %s", number(-c.Ceiling), view, number(c.Height))
	c.addTicks(most, view)
	c.addBands(l.Bands, most)
	for _, r := range t.Releases {
		if l.Name == "" || r.Lane == l.Name {
			c.Releases += dot(r.At, releaseShare*most)
		}
	}
	for _, s := range v.Stories {
		if l.Name == "" || s.V.Lane == l.Name {
			c.Violations = append(c.Violations, chartMark{s.Number, s.Story, fmt.Sprintf("violation %d: %s", s.Number, s.V.Message), dot(s.Told.At, violationShare*most)})
		}
	}
	return c
}

// curvePath draws a curve as steps, up to the end of the run.
func curvePath(c timeline.Curve, span int64) string {
	var b strings.Builder
	b.WriteString("M0 0")
	for _, p := range c {
		fmt.Fprintf(&b, "H%dV%d", p.At.Milliseconds(), p.Value)
	}
	fmt.Fprintf(&b, "H%d", span)
	return b.String()
}

// dot is a line of no length, which a round end makes a point of one size at
// every zoom.
func dot(at time.Duration, y float64) string {
	return fmt.Sprintf("M%d %sh0", at.Milliseconds(), number(y))
}

func (c *chart) addTicks(most float64, span int64) {
	for _, value := range []float64{0, math.Floor(most / 2), most} {
		y := plotTop + (c.Ceiling-value)/c.Height*plotHeight
		c.Rows = append(c.Rows, tick{At: toDecimal(y + 4), Label: number(value)})
		c.Grid += fmt.Sprintf("M0 %sH%d", number(value), span)
	}
	const columns = 4
	for i := range columns + 1 {
		share := float64(i) / columns
		anchor := "middle"
		switch i {
		case 0:
			anchor = "start"
		case columns:
			anchor = "end"
		}
		c.Columns = append(c.Columns, tick{toDecimal(plotLeft + plotWidth*share), axisText(time.Duration(share*float64(span)) * time.Millisecond), anchor})
	}
}

// axisText is a time on the axis. The page's script writes the same.
func axisText(d time.Duration) string {
	switch s := d.Seconds(); {
	case s < 10:
		return fmt.Sprintf("%.1f s", s)
	case s < 60:
		return fmt.Sprintf("%.0f s", s)
	default:
		whole := int(s)
		return fmt.Sprintf("%d:%02d", whole/60, whole%60)
	}
}

// addBands draws all faults as one shape, so that those of many lanes do not
// darken each other.
func (c *chart) addBands(bands []timeline.Band, most float64) {
	rectangle := func(b timeline.Band, low, high float64) string {
		until := max(b.Until.Milliseconds(), b.From.Milliseconds()+1)
		return fmt.Sprintf("M%d %sH%dV%sH%dZ", b.From.Milliseconds(), number(low), until, number(high), b.From.Milliseconds())
	}
	for _, b := range bands {
		c.Bands += rectangle(b, 0, most)
		c.BandRow += rectangle(b, faultRowFrom*most, faultRowUntil*most)
	}
}

// toDecimal keeps three digits after the point.
func toDecimal(f float64) float64 { return math.Round(f*1000) / 1000 }

func number(f float64) string { return strconv.FormatFloat(toDecimal(f), 'f', -1, 64) }

// latencyView is a row of the table of latencies.
type latencyView struct {
	Name, Meaning string
	N             int
	Quantiles     []time.Duration // least, median, p90, p99, most
	Bars          []box
	Counts        string
}

// histogramBars is how many classes a small histogram has.
const histogramBars = 20

func latencyViews(r harness.Result) []latencyView {
	var out []latencyView
	for _, m := range measure.Latencies(r) {
		v := latencyView{Name: m.Name, Meaning: m.Meaning, N: len(m.Values)}
		sorted := measure.Sorted(m.Values)
		if len(sorted) > 0 {
			for _, share := range []float64{0, 0.5, 0.9, 0.99, 1} {
				v.Quantiles = append(v.Quantiles, measure.Quantile(sorted, share))
			}
			v.Bars, v.Counts = histogram(sorted)
		} else {
			v.Quantiles = make([]time.Duration, 5)
		}
		out = append(out, v)
	}
	return out
}

// histogram draws sorted values in equal classes from the least to the most.
func histogram(sorted []time.Duration) ([]box, string) {
	const height, pitch = 28, 6
	least, width := sorted[0], sorted[len(sorted)-1]-sorted[0]+1
	var counts [histogramBars]int
	for _, v := range sorted {
		counts[int(int64(v-least)*histogramBars/int64(width))]++
	}
	most := 0
	for _, n := range counts {
		most = max(most, n)
	}
	var bars []box
	for i, n := range counts {
		if n > 0 {
			h := toDecimal(max(1, height*float64(n)/float64(most)))
			bars = append(bars, box{X: float64(i * pitch), Y: toDecimal(height - h), Height: h})
		}
	}
	return bars, fmt.Sprintf("histogram of %d values in %d classes: %v", len(sorted), histogramBars, counts)
}
