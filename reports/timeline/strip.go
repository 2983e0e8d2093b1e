package timeline

import (
	"fmt"
	"time"

	"github.com/danm-chaos/danm-chaos/harness/check"
)

// stripRowsMax bounds how many holders of an address a strip shows.
const stripRowsMax = 8

// stripMargin is shown before the first event and after the last.
const stripMargin = 500 * time.Millisecond

// Strip shows who had one address when.
type Strip struct {
	Address     string
	From, Until time.Duration
	Rows        []StripRow
}

// StripRow is one thing that holds the address: the bit, an endpoint, or a
// living pod.
type StripRow struct {
	Kind     string // "bit", "DanmEp", "pod"
	Holder   string
	Segments []Segment
}

// Segment is a time during which a row holds the address.
type Segment struct{ From, Until time.Duration }

// strip shows the address of a violation for as long as its story goes on.
func (i *index) strip(v check.Violation, events []Event) *Strip {
	key, ok := holdingOf(v)
	if !ok || len(events) == 0 {
		return nil
	}
	s := &Strip{
		Address: key.address.String(),
		From:    max(0, events[0].At-stripMargin), Until: min(i.offset(i.last), events[len(events)-1].At+stripMargin),
	}
	s.add(StripRow{Kind: "bit", Holder: key.network.String(), Segments: i.bitSegments(key)})
	for _, c := range i.claims[key] {
		s.add(StripRow{Kind: "DanmEp", Holder: fmt.Sprintf("%s of %s (uid %s)", c.endpoint, c.pod, c.podUID), Segments: []Segment{i.segment(c.from, c.until)}})
	}
	for _, l := range i.lives {
		if l.holds(key) {
			s.add(StripRow{Kind: "pod", Holder: fmt.Sprintf("%s/%s (uid %s) on %s", l.Namespace, l.Pod, l.PodUID, l.Node), Segments: []Segment{i.segment(l.from, l.until)}})
		}
	}
	return s
}

// add keeps a row that shows anything in the time of the strip. The bit is
// shown also when it is clear, because that is what one looks for.
func (s *Strip) add(row StripRow) {
	var seen []Segment
	for _, g := range row.Segments {
		if g.Until >= s.From && g.From <= s.Until {
			seen = append(seen, Segment{max(g.From, s.From), min(g.Until, s.Until)})
		}
	}
	if (len(seen) > 0 || row.Kind == "bit") && len(s.Rows) < stripRowsMax {
		row.Segments = seen
		s.Rows = append(s.Rows, row)
	}
}

func (i *index) segment(from, until time.Time) Segment {
	if until.IsZero() {
		until = i.last
	}
	return Segment{i.offset(from), i.offset(until)}
}

func (i *index) bitSegments(key holding) []Segment {
	var out []Segment
	var since time.Time
	for _, f := range i.flips[key] {
		switch at := i.timeOf(f.record); {
		case f.set:
			since = at
		case !since.IsZero():
			out = append(out, i.segment(since, at))
			since = time.Time{}
		}
	}
	if !since.IsZero() {
		out = append(out, i.segment(since, time.Time{}))
	}
	return out
}

// holds tells whether the attachment has the address in that network.
func (l *life) holds(key holding) bool {
	for _, face := range l.Interfaces {
		if face.Network != key.network.Name || face.NetworkKind != string(key.network.Kind) {
			continue
		}
		if key.network.Namespace != "" && l.Namespace != key.network.Namespace {
			continue
		}
		for _, a := range face.Addresses {
			if a == key.address.String() {
				return true
			}
		}
	}
	return false
}
