package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// runVariable marks every process of a run, so that what it leaves behind
	// is recognised even when the process that we started is gone.
	runVariable = "DANM_CHAOS_RUN"
	// killTimeout bounds the wait for a process after SIGKILL. Only one that
	// hangs in the kernel needs longer.
	killTimeout = 10 * time.Second
	// outputTimeout bounds the wait for the output of a process that ended.
	outputTimeout = 2 * time.Second
	// tailLinesMax and tailBytesMax bound what an error repeats of a log.
	tailLinesMax = 15
	tailBytesMax = 16 << 10
)

// forks runs functions on one OS thread that lives as long as this program.
// The kernel sends the parent-death signal when the *thread* that forked ends,
// not when the process does, and Go ends threads as it likes: children forked
// from an ordinary goroutine would die at random.
var forks = sync.OnceValue(func() chan<- func() {
	requests := make(chan func())
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread must not be given back
		for f := range requests {
			f()
		}
	}()
	return requests
})

// StartDependent starts a child that the kernel kills when this program ends, in
// whatever way; what the child has started lives on. Errors are those of
// cmd.Start.
func StartDependent(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error, 1)
	forks() <- func() { started <- cmd.Start() }
	return <-started
}

// command says what to start.
type command struct {
	name   string // for people
	argv   []string
	env    []string // added to our own
	dir    string
	output io.Writer // of stdout and stderr
	log    string    // file that output goes to, for error messages; may be empty
}

// process is a child in a process group of its own. When it ends, for whatever
// reason, the rest of its group is killed.
type process struct {
	identity
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}

	mu   sync.Mutex
	gone bool  // its pid may belong to somebody else
	err  error // how it ended, valid once done is closed
}

// startProcess starts a child that dies with this program.
func startProcess(c command) (*process, error) {
	path, err := exec.LookPath(c.argv[0])
	if err != nil {
		return nil, fmt.Errorf("finding program %s: %w", c.argv[0], err)
	}
	cmd := exec.Command(path, c.argv[1:]...)
	cmd.Args[0] = c.argv[0]
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Dir = c.dir
	cmd.Stdout, cmd.Stderr = c.output, c.output
	cmd.WaitDelay = outputTimeout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := StartDependent(cmd); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.name, err)
	}
	p := &process{name: c.name, log: c.log, cmd: cmd, done: make(chan struct{})}
	// Our child cannot be reaped by anybody else, so its entry in /proc is there.
	p.identity, err = identify(cmd.Process.Pid)
	go p.reap()
	if err != nil {
		return nil, errors.Join(err, p.kill())
	}
	return p, nil
}

// startLogged starts a child whose output goes to a file.
func startLogged(c command) (*process, error) {
	file, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening log of %s: %w", c.name, err)
	}
	defer file.Close() // the child has its own copy
	c.output = file
	return startProcess(c)
}

// reap waits for the end. The group is killed while the child is still a
// zombie: until it is reaped, neither its pid nor its group can be given away.
func (p *process) reap() {
	pid := p.cmd.Process.Pid
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		continue // a signal to us says nothing about the child
	}
	p.mu.Lock()
	_ = syscall.Kill(-pid, syscall.SIGKILL) // fails if nobody is left, which is what we want
	p.gone = true
	p.mu.Unlock()
	err := p.cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it ended well, only its output was held open by a stranger
	}
	p.mu.Lock()
	p.err = err
	p.mu.Unlock()
	close(p.done)
}

func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		// The only possible failure is that the group has just ended.
		_ = syscall.Kill(-p.cmd.Process.Pid, s)
	}
}

func (p *process) hasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// exitError is nil while it runs and after exit code 0.
func (p *process) exitError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// stop asks politely, waits for the grace time and then kills. A context that
// is done shortens the grace time, never the kill.
func (p *process) stop(ctx context.Context, grace time.Duration) error {
	if p.hasEnded() {
		return nil
	}
	p.signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	return p.kill()
}

func (p *process) kill() error {
	p.signal(syscall.SIGKILL)
	timer := time.NewTimer(killTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("ending %s: process %d still runs %s after SIGKILL", p.name, p.PID, killTimeout)
	}
}

// endError describes an unexpected end together with the last lines of the log.
func (p *process) endError() error {
	how := "exit code 0"
	if err := p.exitError(); err != nil {
		how = err.Error()
	}
	lines := tailOfFile(p.log)
	err := fmt.Errorf("%s ended: %s; last lines of its log:\n%s", p.name, how, lines)
	if strings.Contains(lines, "address already in use") {
		return fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return err
}

// errPortTaken says that somebody took a port between our choice and its use.
var errPortTaken = errors.New("a port was taken in between")

// tailOfFile returns the last lines of a log, or why there are none.
func tailOfFile(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return "(" + err.Error() + ")"
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return "(" + err.Error() + ")"
	}
	from := max(0, size-tailBytesMax)
	data, err := io.ReadAll(io.NewSectionReader(file, from, size-from))
	if err != nil {
		return "(" + err.Error() + ")"
	}
	return lastLines(string(data), tailLinesMax)
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
