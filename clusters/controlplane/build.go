package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// buildStopGrace is what the go command gets to remove its work folder.
	buildStopGrace = 5 * time.Second
	// buildTailLinesMax bounds what an error repeats of a failed build.
	buildTailLinesMax = 40
	// lockInterval is how often a build that another run does is looked at.
	lockInterval = 200 * time.Millisecond
)

// obtainPrograms returns all programs and builds those that are missing.
func obtainPrograms(ctx context.Context, progress io.Writer) (programs, error) {
	found, missing, err := findPrograms(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range missing {
		if err := r.build(ctx, progress); err != nil {
			return nil, err
		}
		if !found.addFrom(r.target, r.set) {
			return nil, fmt.Errorf("building %s: %s is not complete", r.set.name, r.target)
		}
	}
	return found, nil
}

// build makes the programs of the set in a folder beside the target and moves
// it there when all are done, so that the target is never incomplete.
func (r recipe) build(ctx context.Context, progress io.Writer) error {
	tools := filepath.Dir(r.target)
	if err := os.MkdirAll(tools, 0o755); err != nil {
		return fmt.Errorf("making the cache folder: %w", err)
	}
	unlock, err := lockFile(ctx, filepath.Join(tools, r.set.name+".lock"), progress)
	if err != nil {
		return fmt.Errorf("locking the cache of %s: %w", r.set.name, err)
	}
	defer unlock()
	if (programs{}).addFrom(r.target, r.set) {
		return nil // another run built it while we waited
	}
	// We hold the lock, so a folder that is there is of a build that was killed.
	if err := removeMatches(filepath.Join(tools, "."+r.set.name+"-*")); err != nil {
		return err
	}
	staging, err := os.MkdirTemp(tools, "."+r.set.name+"-*")
	if err != nil {
		return fmt.Errorf("making a build folder: %w", err)
	}
	err = r.buildIn(ctx, staging, progress)
	return errors.Join(err, os.RemoveAll(staging))
}

func (r recipe) buildIn(ctx context.Context, staging string, progress io.Writer) error {
	bin, work := filepath.Join(staging, "bin"), filepath.Join(staging, "work")
	if err := errors.Join(os.Mkdir(bin, 0o755), os.Mkdir(work, 0o755)); err != nil {
		return fmt.Errorf("making a build folder: %w", err)
	}
	for _, program := range r.set.programs {
		if err := r.compile(ctx, program, filepath.Join(bin, program.name), work, progress); err != nil {
			return err
		}
	}
	// What is there has the right name but lacks a program; it is of no use.
	if err := os.RemoveAll(r.target); err != nil {
		return fmt.Errorf("replacing built programs: %w", err)
	}
	if err := os.Rename(bin, r.target); err != nil {
		return fmt.Errorf("keeping built programs: %w", err)
	}
	return nil
}

func (r recipe) compile(ctx context.Context, program toolProgram, out, work string, progress io.Writer) error {
	argv := append([]string{"go", "build", "-v"}, r.buildFlags()...)
	watcher := newBuildWatcher(program.name+" "+r.version, progress)
	p, err := startProcess(command{
		name: "go build of " + program.name, argv: append(argv, "-o", out, program.pkg),
		env: buildVariables(work), dir: r.module, output: watcher,
	})
	if err != nil {
		return err
	}
	stopShowing := watcher.show()
	select {
	case <-p.done:
	case <-ctx.Done():
		// The go command removes its own work on an interrupt.
		p.signal(syscall.SIGINT)
		err = errors.Join(context.Cause(ctx), p.stop(context.WithoutCancel(ctx), buildStopGrace))
	}
	if err == nil {
		err = p.exitError()
	}
	stopShowing(err)
	if err != nil {
		return fmt.Errorf("building %s: %w; last lines of the build:\n%s", program.name, err, watcher.tail())
	}
	return nil
}

// buildVariables keep the build independent of the user's settings. With a
// work folder, nothing lands in the folder for temporary files.
func buildVariables(work string) []string {
	vars := []string{"CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=readonly"}
	if work != "" {
		vars = append(vars, "GOTMPDIR="+work)
	}
	return vars
}

func buildEnvironment(work string) []string { return append(os.Environ(), buildVariables(work)...) }

func removeMatches(pattern string) error {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return fmt.Errorf("listing %s: %w", pattern, err)
	}
	for _, p := range paths {
		if err := os.RemoveAll(p); err != nil {
			return fmt.Errorf("removing a dead build: %w", err)
		}
	}
	return nil
}

// lockFile takes the lock of the file; the kernel gives it back if we die.
func lockFile(ctx context.Context, path string, progress io.Writer) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	ticker := time.NewTicker(lockInterval)
	defer ticker.Stop()
	for waits := 0; ; waits++ {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(err, file.Close())
		}
		if waits == 0 {
			fmt.Fprintf(progress, "waiting for another run that builds the same programs\n")
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), file.Close())
		case <-ticker.C:
		}
	}
}

// buildWatcher takes the output of `go build -v`: one line for each package
// that was compiled, and whatever went wrong.
type buildWatcher struct {
	name     string
	progress progressLine
	started  time.Time

	mu       sync.Mutex
	partial  []byte
	packages int
	last     []string // the last lines
}

func newBuildWatcher(name string, progress io.Writer) *buildWatcher {
	return &buildWatcher{name: name, progress: newProgressLine(progress), started: time.Now()}
}

func (w *buildWatcher) Write(data []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.partial = append(w.partial, data...)
	for {
		line, rest, found := bytes.Cut(w.partial, []byte("\n"))
		if !found {
			return len(data), nil
		}
		w.take(string(line))
		w.partial = append([]byte(nil), rest...)
	}
}

func (w *buildWatcher) take(line string) {
	// A package path has no blank; messages of the compiler do.
	if line != "" && !strings.ContainsAny(line, " #") {
		w.packages++
	}
	w.last = append(w.last, line)
	w.last = w.last[max(0, len(w.last)-buildTailLinesMax):]
}

func (w *buildWatcher) tail() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(append(w.last[:len(w.last):len(w.last)], string(w.partial)), "\n")
}

func (w *buildWatcher) status() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("%s: %d packages compiled, %s", w.name, w.packages, time.Since(w.started).Round(time.Second))
}

// show keeps people informed until the function it returns is called.
func (w *buildWatcher) show() (stop func(error)) {
	w.progress.update("building " + w.name + ", once; it is kept for later runs")
	ended := make(chan struct{})
	var shower sync.WaitGroup
	shower.Go(func() {
		ticker := time.NewTicker(w.progress.interval())
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				w.progress.update("building " + w.status())
			}
		}
	})
	return func(err error) {
		close(ended)
		shower.Wait()
		if err != nil {
			w.progress.finish("failed " + w.status())
			return
		}
		w.progress.finish("built " + w.status())
	}
}
