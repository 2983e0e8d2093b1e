package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// errInterrupted is the cause of a context that Ctrl-C ended.
var errInterrupted = errors.New("interrupted")

// How long cleaning up may take, and how long once somebody pressed Ctrl-C
// again. Children are killed in both cases; the second only waits less for
// them to end by themselves.
const (
	cleanupTimeout = time.Minute
	hastyTimeout   = 3 * time.Second
)

// interrupts is the work of Ctrl-C and SIGTERM.
type interrupts struct {
	again chan struct{} // closed by the second signal
	stop  context.CancelCauseFunc
	ended chan struct{}
}

// catchInterrupts returns a context that the first signal cancels.
func catchInterrupts(ctx context.Context, say io.Writer) (context.Context, *interrupts) {
	ctx, cancel := context.WithCancelCause(ctx)
	caught := make(chan os.Signal, 2)
	signal.Notify(caught, os.Interrupt, syscall.SIGTERM)
	watching, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	i := &interrupts{again: make(chan struct{}), ended: make(chan struct{}), stop: stop}
	go func() {
		defer close(i.ended)
		defer cancel(nil)
		defer signal.Stop(caught)
		for n := 1; ; n++ {
			select {
			case <-watching.Done():
				return
			case <-caught:
			}
			switch n {
			case 1:
				fmt.Fprintln(say, "\ninterrupted: writing a partial report and cleaning up; again to hurry")
				cancel(errInterrupted)
			case 2:
				fmt.Fprintln(say, "\ninterrupted again: killing what is left")
				close(i.again)
			}
		}
	}()
	return ctx, i
}

// release gives the signals back.
func (i *interrupts) release() {
	i.stop(nil)
	<-i.ended
}

// cleanup returns a context for cleaning up, which goes on when ctx has ended.
// A second Ctrl-C shortens it.
func (i *interrupts) cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	go func() {
		select {
		case <-ctx.Done():
			return
		case <-i.again:
		}
		timer := time.NewTimer(hastyTimeout)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
			cancel()
		}
	}()
	return ctx, cancel
}
