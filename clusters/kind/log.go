package kind

import (
	"fmt"
	"io"
	"sync"

	kindexec "sigs.k8s.io/kind/pkg/exec"
	"sigs.k8s.io/kind/pkg/log"
)

// detailMax is the level up to which kind's own words are written down.
const detailMax = 3

// logger writes kind's words to one place, a line each.
type logger struct {
	mu  sync.Mutex
	out io.Writer
}

var _ log.Logger = (*logger)(nil)

func (l *logger) write(level, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(l.out, level, text)
}

func (l *logger) Warn(message string)              { l.write("warning:", message) }
func (l *logger) Warnf(format string, args ...any) { l.Warn(fmt.Sprintf(format, args...)) }
func (l *logger) Error(message string)             { l.write("error:", message) }
func (l *logger) Errorf(format string, args ...any) {
	l.Error(fmt.Sprintf(format, args...))
}
func (l *logger) V(level log.Level) log.InfoLogger { return infoLogger{l, level <= detailMax} }

type infoLogger struct {
	*logger
	enabled bool
}

func (l infoLogger) Enabled() bool { return l.enabled }
func (l infoLogger) Info(message string) {
	if l.enabled {
		l.write("info:", message)
	}
}
func (l infoLogger) Infof(format string, args ...any) { l.Info(fmt.Sprintf(format, args...)) }

// logFailure writes down what a failed command of kind's said; its error only
// names the command.
func (l *logger) logFailure(err error) {
	if failed := kindexec.RunErrorForError(err); failed != nil {
		l.Error(fmt.Sprintf("%v\n%s", failed.Command, failed.Output))
	}
}
