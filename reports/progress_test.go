package reports

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/danm-chaos/danm-chaos/harness/check"
)

// script plays a short run into a progress whose clock stands at one minute.
func script(out *bytes.Buffer, d Display) {
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
	script(&b, Display{})
	golden(t, "progress_plain.txt", b.Bytes())
	if strings.ContainsAny(b.String(), "\r\x1b") {
		t.Errorf("control characters in %q", b.String())
	}
}

func TestProgressOnATerminalRewritesItsStatus(t *testing.T) {
	var b bytes.Buffer
	script(&b, Display{Terminal: true, Color: true})
	visible := strings.NewReplacer("\r", "<CR>", "\x1b", "<ESC>").Replace(b.String())
	golden(t, "progress_terminal.txt", []byte(visible))
}

// TestProgressNeverWrapsItsStatus: a status that wraps is not overwritten and
// leaves a trail.
func TestProgressNeverWrapsItsStatus(t *testing.T) {
	for _, width := range []int{0, 1, 12, 40} {
		var b bytes.Buffer
		script(&b, Display{Terminal: true, Width: func() int { return width }})
		for _, line := range strings.Split(b.String(), "\n") {
			status, isStatus := strings.CutSuffix(line[strings.LastIndex(line, "\r")+1:], "\x1b[K")
			if isStatus && !strings.Contains(status, "moved") && len(status) > max(width-1, 0) {
				t.Errorf("width %d: status of %d columns: %q", width, len(status), status)
			}
		}
	}
}

func TestProgressOfATimedRunCountsDown(t *testing.T) {
	var b bytes.Buffer
	script(&b, Display{Terminal: true, Budget: 3 * time.Minute, Width: func() int { return 120 }})
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
