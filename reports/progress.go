package reports

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/reports/timeline"
)

// Display says what the output can do and what the run was promised.
type Display struct {
	// Terminal makes a status line that is rewritten in place. Without it
	// there are only plain lines.
	Terminal bool
	// Color allows ANSI colours. NO_COLOR is the caller's to read.
	Color bool
	// Size returns the present columns and rows; nil means 80 and 24.
	Size func() (columns, rows int)
	// Counts are the numbers of the run now; nil means that nobody knows.
	Counts Counter
	// Budget is how long the run may take at most; 0 means that the number of
	// iterations ends it.
	Budget time.Duration
	// Now returns the time; nil means time.Now.
	Now func() time.Time
}

// Counter tells the three numbers that must agree while the run goes on.
type Counter interface {
	Counts() timeline.Counts // of all lanes, read anew
	CountsOf(lane string) timeline.Counts
}

// repaintPeriod is the pace of the status line between events, so that its
// clock is seen to run.
const repaintPeriod = time.Second

// Size of a terminal that does not tell it.
const columnsDefault, rowsDefault = 80, 24

// rowsKept are left to what was printed before: a status that fills the screen
// hides what it is about.
const rowsKept = 8

// Progress shows a run while it goes on. It is a harness.Observer and safe for
// concurrent use.
type Progress struct {
	out     io.Writer
	display Display

	mu      sync.Mutex
	started time.Time // of the first phase
	phase   string    // of the run
	lanes   map[string]string
	latest  map[string]harness.Iteration // the last finished of each lane
	shown   int                          // lines of the status on the screen
	done    int
	planned int
	bad     int
	closed  bool
	stop    chan struct{}
	stopped chan struct{}
}

var _ harness.Observer = (*Progress)(nil)

// NewProgress returns a progress that writes to out. Close ends it.
func NewProgress(out io.Writer, d Display) *Progress {
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Size == nil {
		d.Size = func() (int, int) { return columnsDefault, rowsDefault }
	}
	p := &Progress{out: out, display: d, lanes: map[string]string{}, latest: map[string]harness.Iteration{}, started: d.Now(),
		stop: make(chan struct{}), stopped: make(chan struct{})}
	go p.repaint()
	return p
}

// Close removes the status line and ends the repainting. It may be called more
// than once.
func (p *Progress) Close() {
	p.mu.Lock()
	select {
	case <-p.stop:
	default:
		close(p.stop)
		p.closed = true
		p.write("")
	}
	p.mu.Unlock()
	<-p.stopped
}

func (p *Progress) repaint() {
	defer close(p.stopped)
	if !p.display.Terminal {
		return
	}
	tick := time.NewTicker(repaintPeriod)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
			p.mu.Lock()
			p.write("")
			p.mu.Unlock()
		}
	}
}

// RunPhase implements harness.Observer. Without a terminal it is a line.
func (p *Progress) RunPhase(phase string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phase = phase
	if p.display.Terminal {
		p.write("")
	} else {
		p.write(phase)
	}
}

// LanePhase implements harness.Observer. It shows in the status line only.
func (p *Progress) LanePhase(lane, phase string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lanes[lane], p.phase = phase, "" // once lanes work, they are what goes on
	if p.display.Terminal {
		p.write("")
	}
}

// IterationDone implements harness.Observer.
func (p *Progress) IterationDone(it harness.Iteration, done, planned int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.planned = done, planned
	p.latest[it.Lane] = it
	if it.Verdict != check.Valid {
		p.bad++
	}
	p.write(p.colored(Line(it), it.Verdict))
}

// write puts a finished line, if any, above the status. All of it goes out in
// one Write, and each old line is overwritten before its rest is erased; that
// is why nothing flickers.
func (p *Progress) write(line string) {
	if !p.display.Terminal {
		if line != "" {
			io.WriteString(p.out, line+"\n") // an output that is gone must not end the run
		}
		return
	}
	const eraseLine, eraseBelow = "\x1b[K", "\x1b[J"
	var b strings.Builder
	b.WriteString("\r")
	if p.shown > 1 {
		fmt.Fprintf(&b, "\x1b[%dA", p.shown-1)
	}
	if line != "" {
		b.WriteString(line + eraseLine + "\n")
	}
	status := p.block()
	for i, l := range status {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(l + eraseLine)
	}
	b.WriteString(eraseBelow)
	p.shown = len(status)
	io.WriteString(p.out, b.String())
}

// block is the status and under it a line for each lane, as many as fit.
func (p *Progress) block() []string {
	if p.closed {
		return []string{""}
	}
	columns, rows := p.display.Size()
	out := []string{p.status()}
	names := slices.SortedFunc(maps.Keys(p.lanes), naturally)
	room := rows - rowsKept
	if len(names) > room {
		names = names[:max(0, room-1)]
	}
	if len(p.lanes) > 1 && room > 0 { // the status itself tells of a single lane
		for _, name := range names {
			out = append(out, p.laneLine(name))
		}
		if more := len(p.lanes) - len(names); more > 0 {
			out = append(out, fmt.Sprintf("  and %d more %s", more, plural(more, "lane")))
		}
	}
	for i := range out {
		out[i] = clip(out[i], columns-1)
	}
	return out
}

// naturally orders names by length first, so that lane-10 follows lane-9.
func naturally(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

// laneLine says what a lane does, what it has, and how it did last.
func (p *Progress) laneLine(name string) string {
	line := fmt.Sprintf("  %-8s %-17s", plain(name), p.lanes[name])
	if p.display.Counts != nil {
		line += " " + countsText(p.display.Counts.CountsOf(name))
	}
	if it, ok := p.latest[name]; ok {
		line += fmt.Sprintf("  iteration %d %s", it.Number, verdictWord(it.Verdict))
	}
	return line
}

func countsText(c timeline.Counts) string {
	return fmt.Sprintf("pods=%d eps=%d bits=%d", c.Pods, c.Endpoints, c.Bits)
}

// clip keeps the line within the width: a status that wraps cannot be
// overwritten.
func clip(s string, width int) string {
	runes := []rune(s)
	if len(runes) <= max(width, 0) {
		return s
	}
	return string(runes[:max(width, 0)])
}

// status is most important first, because a narrow terminal cuts its end.
func (p *Progress) status() string {
	if p.closed {
		return ""
	}
	elapsed := p.display.Now().Sub(p.started)
	parts := []string{p.count()}
	if p.bad > 0 {
		parts = append(parts, fmt.Sprintf("%d not ok", p.bad))
	}
	if p.display.Counts != nil && len(p.lanes) > 0 {
		parts = append(parts, countsText(p.display.Counts.Counts()))
	}
	if left := p.left(elapsed); left > 0 {
		parts = append(parts, "ETA "+left.Round(time.Second).String())
	}
	if p.phase != "" || p.planned > 0 || len(p.lanes) > 0 {
		parts = append(parts, "elapsed "+elapsed.Round(time.Second).String())
	}
	if p.done > 0 && p.planned > 0 && elapsed > 0 {
		parts = append(parts, fmt.Sprintf("%.1f/min", float64(p.done)/elapsed.Minutes()))
	}
	parts = append(parts, p.laneCounts(), p.phase)
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "  ")
}

// count leaves out the plan of a run that time ends: it is only a bound.
func (p *Progress) count() string {
	switch {
	case p.planned == 0:
		return ""
	case p.display.Budget > 0:
		return fmt.Sprintf("%d done", p.done)
	default:
		return fmt.Sprintf("%d/%d", p.done, p.planned)
	}
}

func (p *Progress) left(elapsed time.Duration) time.Duration {
	switch {
	case p.display.Budget > 0:
		return p.display.Budget - elapsed
	case p.done == 0:
		return 0
	default:
		return elapsed * time.Duration(p.planned-p.done) / time.Duration(p.done)
	}
}

// laneCounts says how many lanes do what: "3 lanes: 2 settle, 1 await-ready".
func (p *Progress) laneCounts() string {
	if len(p.lanes) == 0 {
		return ""
	}
	byPhase := map[string]int{}
	for _, phase := range p.lanes {
		byPhase[phase]++
	}
	var parts []string
	for _, phase := range slices.Sorted(maps.Keys(byPhase)) {
		parts = append(parts, fmt.Sprintf("%d %s", byPhase[phase], phase))
	}
	return fmt.Sprintf("%d %s: %s", len(p.lanes), plural(len(p.lanes), "lane"), strings.Join(parts, ", "))
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

func (p *Progress) colored(line string, v check.Verdict) string {
	if !p.display.Color {
		return line
	}
	word := verdictWord(v)
	color := map[check.Verdict]string{check.Valid: "\x1b[32m", check.Invalid: "\x1b[31m"}[v]
	if color == "" {
		color = "\x1b[33m"
	}
	return strings.Replace(line, "  "+word+"  ", "  "+color+word+"\x1b[0m  ", 1)
}

// Line is one finished iteration in one line: where, what was done, the three
// counts that must agree, and the outcome.
func Line(it harness.Iteration) string {
	text := fmt.Sprintf("iteration %d %s %s %s: %d %s moved  pods=%d eps=%d bits=%d", it.Number, it.Lane, it.Network,
		verbs(it.Faults), it.Moved, plural(it.Moved, "pod"), it.Pods, it.Endpoints, it.Bits)
	if bits := expectedBits(it); it.Endpoints != it.Expected || it.Bits != bits {
		text += fmt.Sprintf(" expected eps=%d bits=%d", it.Expected, bits)
	}
	text += fmt.Sprintf("  %s  %s", verdictWord(it.Verdict), rounded(it.Took))
	if it.Note != "" {
		text += "  " + it.Note
	}
	return plain(text)
}

// expectedBits is one for each endpoint and family of the network.
func expectedBits(it harness.Iteration) int {
	return it.Expected * (1 + strings.Count(it.Network, "+"))
}

// verbs leaves out what the faults hit, which run.json tells.
func verbs(faults []string) string {
	var out []string
	for _, f := range faults {
		verb, _, _ := strings.Cut(f, " ")
		if !slices.Contains(out, verb) {
			out = append(out, verb)
		}
	}
	if len(out) == 0 {
		return "no fault"
	}
	return strings.Join(out, "+")
}

func verdictWord(v check.Verdict) string {
	switch v {
	case check.Valid:
		return "ok"
	case check.Invalid:
		return "INVALID"
	default:
		return "unknown"
	}
}
