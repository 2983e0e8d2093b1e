package live

import (
	"fmt"
	"sync"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/reports"
	"github.com/danm-chaos/danm-chaos/reports/timeline"
)

// Options say what to follow.
type Options struct {
	Result  harness.Result // what is known before the run
	History string         // path of the history that is being written
	Flush   func() error   // hands what was recorded so far to the file
	// Whole keeps the history in memory, which a page needs and a terminal
	// does not.
	Whole bool
}

// Follower follows one run. It is a harness.Observer and safe for concurrent
// use.
type Follower struct {
	options Options

	mu      sync.Mutex
	tail    *history.Tail
	builder *timeline.Builder
	result  harness.Result
	phase   string
}

var _ harness.Observer = (*Follower)(nil)

// NewFollower returns a follower of a run that is about to begin.
func NewFollower(o Options) *Follower {
	f := &Follower{options: o, tail: history.NewTail(o.History), builder: timeline.NewCounter(), result: o.Result}
	if o.Whole {
		f.builder = timeline.NewBuilder()
	}
	return f
}

// LanePhase implements harness.Observer.
func (f *Follower) LanePhase(string, string) {}

// RunPhase implements harness.Observer.
func (f *Follower) RunPhase(phase string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.phase = phase
}

// IterationDone implements harness.Observer.
func (f *Follower) IterationDone(it harness.Iteration, _, planned int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.result.Iterations = append(f.result.Iterations, it)
	f.result.Planned = planned
}

// refresh reads what the run has recorded since the last time. What cannot be
// read now is of no weight: the run is judged by the whole history in the end.
func (f *Follower) refresh() {
	if f.options.Flush() != nil {
		return
	}
	records, _ := f.tail.Next()
	f.builder.Add(records...)
}

// Counts returns the present numbers of all lanes together.
func (f *Follower) Counts() timeline.Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refresh()
	return f.builder.Counts()
}

// CountsOf returns the numbers of one lane as of the last refresh.
func (f *Follower) CountsOf(lane string) timeline.Counts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.builder.CountsOf(lane)
}

// state changes whenever there is something new to show.
func (f *Follower) state() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refresh()
	return fmt.Sprintf("%d-%d", len(f.result.Iterations), f.builder.Len())
}

// page renders the report as far as the run got.
func (f *Follower) page() ([]byte, error) {
	state := f.state()
	f.mu.Lock()
	defer f.mu.Unlock()
	return reports.LivePage(reports.Follow(f.result, f.builder), state)
}

// snapshot returns what is known of the run now.
func (f *Follower) snapshot() (harness.Result, timeline.Counts) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refresh()
	return f.result, f.builder.Counts()
}
