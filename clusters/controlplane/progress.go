package controlplane

import (
	"fmt"
	"io"
	"time"

	"golang.org/x/term"
)

const (
	terminalInterval = 500 * time.Millisecond
	plainInterval    = 30 * time.Second
)

// progressLine is one line that changes in place on a terminal. Elsewhere, as
// in the log of a CI job, each update is a line of its own, and there are few.
type progressLine struct {
	out        io.Writer
	isTerminal bool
}

func newProgressLine(out io.Writer) progressLine {
	file, hasFd := out.(interface{ Fd() uintptr })
	return progressLine{out: out, isTerminal: hasFd && term.IsTerminal(int(file.Fd()))}
}

func (p progressLine) interval() time.Duration {
	if p.isTerminal {
		return terminalInterval
	}
	return plainInterval
}

// eraseLine goes to the start of the line and clears it.
const eraseLine = "\r\x1b[K"

func (p progressLine) update(text string) {
	if p.isTerminal {
		fmt.Fprint(p.out, eraseLine+text)
		return
	}
	fmt.Fprintln(p.out, text)
}

func (p progressLine) finish(text string) {
	if p.isTerminal {
		fmt.Fprint(p.out, eraseLine)
	}
	fmt.Fprintln(p.out, text)
}
