package search

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Session keeps workers for questions that depend on earlier answers.
type Session struct{ workers []*worker }

// Open starts the workers of a session. Close ends them.
func (p Pool) Open(ctx context.Context) (*Session, error) {
	s := &Session{}
	for range p.Workers {
		w, err := p.start(ctx)
		if err != nil {
			s.Close()
			return nil, err
		}
		s.workers = append(s.workers, w)
	}
	return s, nil
}

// Close ends the workers and waits for them.
func (s *Session) Close() {
	for _, w := range s.workers {
		w.close()
	}
}

// First plays jobs side by side and returns the answer to the first of them that
// is wanted, by its place among the jobs, or false if none is. Jobs after it
// may not have been played. Every job must be a single simulation.
func (s *Session) First(ctx context.Context, jobs []Job, isWanted func(Played) bool) (Played, int, bool, error) {
	d := &deal{jobs: jobs, found: len(jobs)}
	group, ctx := errgroup.WithContext(ctx)
	for _, w := range s.workers {
		group.Go(func() error { return d.work(ctx, w, isWanted) })
	}
	err := group.Wait()
	return d.answer, d.found, d.found < len(jobs), err
}

// deal hands out jobs in order.
type deal struct {
	jobs []Job

	mu     sync.Mutex
	next   int
	found  int // place of the first wanted answer so far
	answer Played
}

// take returns the next job that still matters.
func (d *deal) take() (int, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next >= d.found {
		return 0, false
	}
	d.next++
	return d.next - 1, true
}

func (d *deal) put(place int, a Played) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if place < d.found {
		d.found, d.answer = place, a
	}
}

func (d *deal) work(ctx context.Context, w *worker, isWanted func(Played) bool) error {
	answers := make(chan Played, 1)
	for {
		place, ok := d.take()
		if !ok || ctx.Err() != nil {
			return ctx.Err()
		}
		if err := w.do(ctx, d.jobs[place], answers); err != nil {
			return err
		}
		if a := <-answers; isWanted(a) {
			d.put(place, a)
		}
	}
}
