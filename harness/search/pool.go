package search

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// patience is how long a worker may be silent. A simulation takes milliseconds;
// a machine under load may need seconds.
const patience = 2 * time.Minute

// stderrMax bounds what is kept of what a worker says when it dies.
const stderrMax = 64 << 10

// Pool is a set of worker processes.
type Pool struct {
	// Command makes the process of a worker.
	Command func(ctx context.Context) *exec.Cmd
	Workers int
	// Patience is how long a worker may be silent before it is made to show its
	// goroutines and counts as dead; two minutes if 0.
	Patience time.Duration
}

// Run hands out jobs until next has no more, and calls took with every answer,
// one at a time. It returns when all workers have ended. A worker that dies or
// hangs is an error that holds what it said last, its goroutines included.
func (p Pool) Run(ctx context.Context, next func() (Job, bool), took func(Played) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	jobs, answers := make(chan Job), make(chan Played)
	group, ctx := errgroup.WithContext(ctx)
	for range p.Workers {
		group.Go(func() error { return p.work(ctx, jobs, answers) })
	}
	var failed error
	collect := func(a Played) {
		if err := took(a); err != nil && failed == nil {
			failed = err
			cancel()
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- group.Wait(); close(answers) }()
	p.feed(ctx, next, jobs, answers, collect)
	close(jobs)
	for a := range answers {
		collect(a)
	}
	err := <-ended
	if failed != nil {
		return failed
	}
	return err
}

// feed hands out jobs and takes answers meanwhile.
func (p Pool) feed(ctx context.Context, next func() (Job, bool), jobs chan<- Job, answers <-chan Played, collect func(Played)) {
	j, more := next()
	for more {
		select {
		case jobs <- j:
			j, more = next()
		case a, ok := <-answers:
			if !ok {
				return
			}
			collect(a)
		case <-ctx.Done():
			return
		}
	}
}

// work runs one worker process.
func (p Pool) work(ctx context.Context, jobs <-chan Job, answers chan<- Played) error {
	w, err := p.start(ctx)
	if err != nil {
		return err
	}
	defer w.close()
	for j := range jobs {
		if err := w.do(ctx, j, answers); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
	return nil
}

// worker is one process.
type worker struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr *tail
	// patience as in Pool.
	patience time.Duration
}

func (p Pool) start(ctx context.Context) (*worker, error) {
	w := &worker{cmd: p.Command(ctx), stderr: &tail{}, patience: cmp.Or(p.Patience, patience)}
	w.cmd.Stderr = w.stderr
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	w.out = json.NewDecoder(out)
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	return w, nil
}

// do sends a job and passes its answers on. A worker that is silent for too
// long is made to show its goroutines.
func (w *worker) do(ctx context.Context, j Job, answers chan<- Played) error {
	if err := json.NewEncoder(w.in).Encode(j); err != nil {
		return w.died(j, 0, err)
	}
	for done := 0; ; done++ {
		watchdog := time.AfterFunc(w.patience, func() { _ = w.cmd.Process.Signal(syscall.SIGQUIT) })
		var a Played
		err := w.out.Decode(&a)
		watchdog.Stop()
		if err != nil {
			return w.died(j, done, err)
		}
		select {
		case answers <- a:
		case <-ctx.Done():
			return ctx.Err()
		}
		if a.IsLast {
			return nil
		}
	}
}

func (w *worker) died(j Job, done int, cause error) error {
	_ = w.cmd.Wait() // its own words say more
	return &Death{Job: j, Done: done, Words: w.stderr.String(), cause: cause}
}

// Death is the end of a worker in the middle of a job.
type Death struct {
	Job   Job
	Done  int    // simulations of the job that were answered
	Words string // what it said last
	cause error
}

// Error implements error.
func (d *Death) Error() string {
	return fmt.Sprintf("a worker died in job %d, seed %d: %v\n%s", d.Job.Number, d.Seed(), d.cause, d.Words)
}

// Unwrap returns what was noticed of it.
func (d *Death) Unwrap() error { return d.cause }

// Seed is the one that the worker played when it died.
func (d *Death) Seed() uint64 {
	switch {
	case d.Job.Simulation != nil:
		return d.Job.Simulation.Seed
	case d.Job.Shape != nil:
		return d.Job.Shape.Seed + uint64(d.Done)
	}
	return 0
}

func (w *worker) close() {
	_ = w.in.Close() // the worker ends with its input
	var exit *exec.ExitError
	if err := w.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		_ = w.cmd.Process.Kill()
	}
}

// tail keeps the begin of what a dying process says, which names the cause.
type tail struct{ bytes.Buffer }

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	if room := stderrMax - t.Len(); room > 0 {
		t.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
