package reports

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/reports/timeline"
)

// play plays a short run into a progress whose clock stands at one minute.
func play(out io.Writer, d Display) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now := start
	d.Now = func() time.Time { return now }
	p := NewProgress(out, d)
	p.RunPhase("building lanes")
	for _, lane := range []string{"lane-0", "lane-1", "lane-2"} {
		p.LanePhase(lane, "await-ready")
	}
	p.LanePhase("lane-1", "settle")
	now = start.Add(time.Minute)
	p.RunPhase("iterating")
	p.IterationDone(iteration(1, check.Valid), 1, 4)
	bad := iteration(2, check.Invalid)
	bad.Bits, bad.Note = 4, "no bit for 10.10.10.15"
	p.IterationDone(bad, 2, 4)
	p.Close()
	p.Close()
}

func TestProgressWithoutTerminalIsPlainLines(t *testing.T) {
	var b bytes.Buffer
	play(&b, Display{})
	golden(t, "progress_plain.txt", b.Bytes())
	if strings.ContainsAny(b.String(), "\r\x1b") {
		t.Errorf("control characters in %q", b.String())
	}
}

func TestProgressOnATerminalRewritesItsStatus(t *testing.T) {
	var b bytes.Buffer
	play(&b, Display{Terminal: true, Color: true})
	visible := strings.NewReplacer("\r", "<CR>", "\x1b", "<ESC>").Replace(b.String())
	golden(t, "progress_terminal.txt", []byte(visible))
}

// screen is a terminal that understands what Progress sends. It keeps every
// state that a reader could see.
type screen struct {
	t      *testing.T
	lines  []string
	row    int
	column int
	widest int // line that was ever in the status
	states []string
}

// Write takes what belongs together: a state is seen only between writes.
func (s *screen) Write(p []byte) (int, error) {
	text := string(p)
	for text != "" {
		switch {
		case strings.HasPrefix(text, "\r"):
			s.column = 0
			text = text[1:]
		case strings.HasPrefix(text, "\n"):
			s.row, s.column = s.row+1, 0
			text = text[1:]
		case strings.HasPrefix(text, "\x1b["):
			text = s.obey(text[2:])
		default:
			end := strings.IndexAny(text, "\r\n\x1b")
			if end < 0 {
				end = len(text)
			}
			s.put(text[:end])
			text = text[end:]
		}
	}
	s.states = append(s.states, strings.Join(s.lines, "\n"))
	return len(p), nil
}

// put overwrites the line where the cursor is. Progress always begins a line
// at its left.
func (s *screen) put(text string) {
	for len(s.lines) <= s.row {
		s.lines = append(s.lines, "")
	}
	s.lines[s.row] = text + string([]rune(s.lines[s.row])[min(len([]rune(s.lines[s.row])), len([]rune(text))):])
	s.column = len([]rune(text))
	if !strings.Contains(text, "moved") {
		s.widest = max(s.widest, len([]rune(text)))
	}
}

func (s *screen) obey(text string) string {
	number := 0
	for text[0] >= '0' && text[0] <= '9' {
		number = number*10 + int(text[0]-'0')
		text = text[1:]
	}
	switch text[0] {
	case 'A':
		if s.row -= max(1, number); s.row < 0 {
			s.t.Fatal("the cursor leaves the screen")
		}
	case 'K':
		for len(s.lines) <= s.row {
			s.lines = append(s.lines, "")
		}
		line := []rune(s.lines[s.row])
		s.lines[s.row] = string(line[:min(len(line), s.column)])
	case 'J':
		s.lines = s.lines[:min(len(s.lines), s.row+1)]
	default:
		s.t.Fatalf("unknown order %q", text[0])
	}
	return text[1:]
}

// TestProgressNeverWrapsItsStatus: a status that wraps is not overwritten and
// leaves a trail.
func TestProgressNeverWrapsItsStatus(t *testing.T) {
	for _, width := range []int{0, 1, 12, 40} {
		s := &screen{t: t}
		play(s, Display{Terminal: true, Size: func() (int, int) { return width, 24 }})
		if s.widest > max(width-1, 0) {
			t.Errorf("width %d: a status line of %d columns", width, s.widest)
		}
	}
}

func TestProgressLeavesOnlyTheFinishedLines(t *testing.T) {
	s := &screen{t: t}
	play(s, Display{Terminal: true})
	var left []string
	for _, l := range s.lines {
		if l != "" {
			left = append(left, l)
		}
	}
	if len(left) != 2 || !strings.HasPrefix(left[0], "iteration 1 ") || !strings.HasPrefix(left[1], "iteration 2 ") {
		t.Errorf("left on the screen: %q", left)
	}
}

// TestProgressDoesNotFlicker: once there is a status, no state of the screen is
// without it until the end.
func TestProgressDoesNotFlicker(t *testing.T) {
	s := &screen{t: t}
	play(s, Display{Terminal: true})
	for i, state := range s.states[:len(s.states)-1] {
		if !strings.Contains(state, "elapsed") {
			t.Errorf("state %d has no status: %q", i, state)
		}
	}
}

// fixedCounts are the same whenever they are asked for.
type fixedCounts timeline.Counts

func (c fixedCounts) Counts() timeline.Counts              { return timeline.Counts(c) }
func (c fixedCounts) CountsOf(lane string) timeline.Counts { return timeline.Counts(c) }

func TestProgressShowsEachLaneAndTheThreeCounts(t *testing.T) {
	s := &screen{t: t}
	play(s, Display{Terminal: true, Counts: fixedCounts{Pods: 5, Endpoints: 4, Bits: 3}, Size: func() (int, int) { return 120, 24 }})
	last := s.states[len(s.states)-2]
	for _, want := range []string{"2/4  1 not ok  pods=5 eps=4 bits=3", "  lane-1   settle            pods=5 eps=4 bits=3"} {
		if !strings.Contains(last, want) {
			t.Errorf("no %q on the screen:\n%s", want, last)
		}
	}
}

func TestProgressLeavesRoomOnALowTerminal(t *testing.T) {
	s := &screen{t: t}
	play(s, Display{Terminal: true, Size: func() (int, int) { return 80, rowsKept + 2 }})
	last := s.states[len(s.states)-2]
	if !strings.Contains(last, "and 2 more lanes") || strings.Contains(last, "lane-2 ") {
		t.Errorf("on the screen:\n%s", last)
	}
}

func TestProgressOfATimedRunCountsDown(t *testing.T) {
	var b bytes.Buffer
	play(&b, Display{Terminal: true, Budget: 3 * time.Minute, Size: func() (int, int) { return 120, 24 }})
	if want := "2 done  1 not ok  ETA 2m0s  elapsed 1m0s  2.0/min  3 lanes: 2 await-ready, 1 settle  iterating"; !strings.Contains(b.String(), want) {
		t.Errorf("no status %q in %q", want, b.String())
	}
}

func TestLineTellsWhatWasExpectedOnlyWhenCountsDiffer(t *testing.T) {
	it := iteration(17, check.Valid)
	if got, want := Line(it), "iteration 17 lane-3 DanmNet v4 fail-node: 2 pods moved  pods=5 eps=5 bits=5  ok  8.1s"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	it.Network, it.Bits = "DanmNet v4+v6", 10
	if got, want := Line(it), "iteration 17 lane-3 DanmNet v4+v6 fail-node: 2 pods moved  pods=5 eps=5 bits=10  ok  8.1s"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	it.Network = "DanmNet v4"
	it.Bits, it.Verdict, it.Moved = 4, check.Unknown, 1
	it.Faults = append(it.Faults, "force-delete a/ss-0", "force-delete a/ss-1")
	if got, want := Line(it), "iteration 17 lane-3 DanmNet v4 fail-node+force-delete: 1 pod moved  pods=5 eps=5 bits=4 expected eps=5 bits=5  unknown  8.1s"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
