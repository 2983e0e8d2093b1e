package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"

	"github.com/spf13/pflag"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/reports"
	"github.com/danm-chaos/danm-chaos/reports/live"
)

// reportFlags say what becomes of a run's result, and who may look on.
type reportFlags struct {
	format string
	serve  string
	push   string
}

func (f *reportFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.format, "format", "all", "what to render into the run directory besides run.json: all, or some of json,html,junit,markdown,prometheus")
	fs.StringVar(&f.serve, "serve", "", "address for the growing report and /metrics while the run goes on, such as :8080; without a host this machine only")
	fs.StringVar(&f.push, "push", "", "URL of a Pushgateway that gets the metrics of the finished run")
}

func (f reportFlags) check() error {
	if _, err := reports.ParseFormats(f.format); err != nil {
		return usagef("--format: %w", err)
	}
	if f.serve != "" {
		if _, _, err := net.SplitHostPort(f.serve); err != nil {
			return usagef("--serve %s: %w: give, for example, :8080", f.serve, err)
		}
	}
	if f.push != "" {
		if u, err := url.Parse(f.push); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return usagef("--push %s: no URL: give, for example, http://localhost:9091", f.push)
		}
	}
	return nil
}

// formats are those asked for; run.json is always written, because everything
// else is made from it.
func (f reportFlags) formats() []reports.Format {
	formats, err := reports.ParseFormats(f.format)
	if err != nil {
		return reports.Formats() // check has refused it before
	}
	return append(formats, reports.JSON)
}

// Bounds of what happens after the run.
const (
	pushTimeout       = 10 * time.Second
	serverStopTimeout = 5 * time.Second
)

// pushMetrics sends the metrics of a run. That it fails says nothing about the
// run, so it is told and no more.
func (a *app) pushMetrics(ctx context.Context, f reportFlags, r harness.Result) {
	if f.push == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pushTimeout)
	defer cancel()
	if err := live.Push(ctx, f.push, r); err != nil {
		fmt.Fprintf(a.stderr, "danm-chaos: %v\n", err)
	}
}

// onlookers are those who hear how a run goes.
type onlookers struct {
	progress *reports.Progress
	follower *live.Follower
	server   *live.Server
}

var _ harness.Observer = (*onlookers)(nil)

// lookOn starts the display and, if asked for, the server.
func (a *app) lookOn(p plan, o outcome, records *history.File) (*onlookers, error) {
	known := o.result
	known.Unknowns, known.Planned = nil, p.iterations
	l := &onlookers{follower: live.NewFollower(live.Options{
		Result: known, History: o.dir.join(historyFile), Flush: records.Flush, Whole: p.serve != "",
	})}
	if p.serve != "" {
		server, err := live.Serve(p.serve, l.follower)
		if err != nil {
			return nil, err
		}
		l.server = server
		fmt.Fprintf(a.stdout, "report: %s\n", server.URL())
	}
	return l, nil
}

// display begins to show the run on the terminal.
func (l *onlookers) display(out io.Writer, budget time.Duration) {
	d := display(out, budget)
	if d.Terminal {
		d.Counts = l.follower
	}
	l.progress = reports.NewProgress(out, d)
}

// LanePhase implements harness.Observer.
func (l *onlookers) LanePhase(lane, phase string) {
	l.follower.LanePhase(lane, phase)
	l.progress.LanePhase(lane, phase)
}

// IterationDone implements harness.Observer.
func (l *onlookers) IterationDone(it harness.Iteration, done, planned int) {
	l.follower.IterationDone(it, done, planned)
	l.progress.IterationDone(it, done, planned)
}

// RunPhase implements harness.Observer.
func (l *onlookers) RunPhase(phase string) {
	l.follower.RunPhase(phase)
	l.progress.RunPhase(phase)
}

// endLookingOn ends the server. Whoever still looks at the page keeps what it
// shows, and an onlooker who does not let go changes no verdict.
func (a *app) endLookingOn(ctx context.Context, l *onlookers) {
	if l.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), serverStopTimeout)
	defer cancel()
	if err := l.server.Close(ctx); err != nil {
		fmt.Fprintf(a.stderr, "danm-chaos: %v\n", err)
	}
}
