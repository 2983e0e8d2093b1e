package reports

import (
	"fmt"
	"time"

	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/reports/timeline"
)

// storyView is one violation, told.
type storyView struct {
	violationView
	Facts []fact
	Told  timeline.Story
	Strip *stripView
}

// stripView shows who had an address when.
type stripView struct {
	Address, From, Until string
	Rows                 []stripRowView
}

type stripRowView struct {
	Kind, Holder string
	Label        string // the times, for who cannot see the drawing
	Boxes        []box
	Moment       float64
}

type box struct{ X, Y, Width, Height float64 }

// addStories tells those violations that are to have a story.
func (v *runView) addStories() {
	var chosen []violationView
	var violations []check.Violation
	for _, row := range v.Violations {
		if row.Story {
			chosen, violations = append(chosen, row), append(violations, row.V)
		}
	}
	for i, told := range v.Run.builder.Stories(violations) {
		s := storyView{violationView: chosen[i], Told: told, Facts: factsOf(chosen[i].V)}
		if told.Strip != nil {
			s.Strip = newStripView(*told.Strip, told.At)
		}
		v.Stories = append(v.Stories, s)
	}
}

func factsOf(v check.Violation) []fact {
	var out []fact
	add := func(name, value string) {
		if value != "" {
			out = append(out, fact{name, value})
		}
	}
	add("pod", v.Pod)
	add("pod UID", v.PodUID)
	add("DanmEp", v.Endpoint)
	add("network", v.Network)
	add("address", v.Address)
	add("written by", v.Writer)
	add("revision", positive(v.RV))
	add("after step", v.Step)
	add("lane", v.Lane)
	add("record in the history", positive(v.Record))
	return out
}

// stripWidth is the width of a strip in its own coordinates.
const stripWidth = 1000

func newStripView(s timeline.Strip, moment time.Duration) *stripView {
	span := max(s.Until-s.From, time.Millisecond)
	x := func(at time.Duration) float64 { return toDecimal(stripWidth * float64(at-s.From) / float64(span)) }
	v := &stripView{Address: s.Address, From: offsetText(s.From), Until: offsetText(s.Until)}
	for _, row := range s.Rows {
		r := stripRowView{Kind: row.Kind, Holder: row.Holder, Moment: x(moment)}
		for _, g := range row.Segments {
			r.Boxes = append(r.Boxes, box{X: x(g.From), Width: max(2, toDecimal(x(g.Until)-x(g.From)))})
			if r.Label != "" {
				r.Label += ", "
			}
			r.Label += offsetText(g.From) + " to " + offsetText(g.Until)
		}
		if r.Label == "" {
			r.Label = "clear all the time"
		}
		v.Rows = append(v.Rows, r)
	}
	return v
}

// offsetText is a time since the run began: "1:02.345".
func offsetText(d time.Duration) string {
	d = d.Round(time.Millisecond)
	minutes := d / time.Minute
	return fmt.Sprintf("%d:%06.3f", minutes, (d - minutes*time.Minute).Seconds())
}
