package harness

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danm-chaos/danm-chaos/clusters"
)

const (
	logTailLines       = 20
	logLineBytesMax    = 4 << 10
	cleanerStopTimeout = 20 * time.Second
	memoryInterval     = 2 * time.Second
)

// cleaner is the program under test while it runs.
type cleaner struct {
	run      *run
	process  clusters.CleanerProcess
	tail     *tail
	stopping chan struct{} // closed when we end it
	watched  chan struct{} // closed when nobody waits for it any more
}

// startCleaner starts the program under test. If it ends by itself, the run is
// cancelled with that as the cause.
func (r *run) startCleaner(ctx context.Context, cancel context.CancelCauseFunc) (*cleaner, error) {
	c := &cleaner{run: r, tail: &tail{}, stopping: make(chan struct{}), watched: make(chan struct{})}
	spec := r.config.Cleaner
	if spec.Logs == nil {
		spec.Logs = io.Discard
	}
	spec.Logs = io.MultiWriter(spec.Logs, c.tail)
	r.runPhase("starting the cleaner")
	process, err := r.config.Cluster.(clusters.CleanerRunner).StartCleaner(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("starting the cleaner: %w", err)
	}
	c.process = process
	go c.watch(cancel)
	return c, nil
}

func (c *cleaner) watch(cancel context.CancelCauseFunc) {
	defer close(c.watched)
	select {
	case <-c.process.Exited():
	case <-c.stopping:
		return
	}
	how := "with exit code 0"
	if err := c.process.ExitError(); err != nil {
		how = err.Error()
	}
	c.run.mu.Lock()
	c.run.result.CleanerLogTail = c.tail.lines()
	c.run.mu.Unlock()
	cancel(fmt.Errorf("%w: %s", errCleanerEnded, how))
}

// stop ends the cleaner. A cleaner that does not stop is no reason to lose the
// run: the cluster ends it when it closes.
func (c *cleaner) stop(ctx context.Context) {
	close(c.stopping)
	<-c.watched
	ctx, cancel := context.WithTimeout(ctx, cleanerStopTimeout)
	defer cancel()
	if err := c.process.Stop(ctx); err != nil {
		c.run.unknown("stopping the cleaner: %v", err)
	}
}

// tail keeps the last lines that the cleaner printed.
type tail struct {
	mu   sync.Mutex
	done []string
	rest []byte
}

// Write takes a piece of the log.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rest = append(t.rest, p...)
	for {
		line, rest, ok := bytes.Cut(t.rest, []byte("\n"))
		if !ok {
			break
		}
		t.done = append(t.done, string(line[:min(len(line), logLineBytesMax)]))
		t.rest = rest
	}
	t.rest = slices.Clone(t.rest[:min(len(t.rest), logLineBytesMax)])
	t.done = slices.Clone(t.done[max(0, len(t.done)-logTailLines):])
	return len(p), nil
}

func (t *tail) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := slices.Clone(t.done)
	if len(t.rest) > 0 {
		lines = append(lines, string(t.rest))
	}
	return lines
}

// sampleMemory notes the peak of all processes together until ctx ends.
func (r *run) sampleMemory(ctx context.Context) {
	user, ok := r.config.Cluster.(clusters.ResourceUser)
	if !ok {
		return
	}
	ticker := time.NewTicker(memoryInterval)
	defer ticker.Stop()
	for {
		r.noteMemory(user)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (r *run) noteMemory(user clusters.ResourceUser) {
	if bytes, err := user.ResidentBytes(); err == nil {
		r.peak = max(r.peak, bytes+ownResidentBytes())
	}
}

// ownResidentBytes returns this process's resident memory, or 0 where the
// system does not tell.
func ownResidentBytes() int64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident int64
	if _, err := fmt.Fscan(strings.NewReader(string(data)), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}
