// Package engine talks to the container engine through its command line, as
// kind itself does. It keeps no state and decides nothing about clusters.
package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// program is the engine's command line.
const program = "docker"

// errorLinesMax bounds what an error repeats of the engine's words.
const errorLinesMax = 10

// ErrMissing is returned where there is no engine's command at all.
var ErrMissing = errors.New("there is no docker command in PATH")

// UnfitHostError is why something cannot be done on this machine, with the cure.
type UnfitHostError struct{ Detail, Cure string }

// Error implements error, in one line.
func (e *UnfitHostError) Error() string { return e.Detail + "; " + e.Cure }

// Run runs one command of the engine and returns what it printed.
func Run(ctx context.Context, args ...string) (string, error) {
	return RunInput(ctx, nil, args...)
}

// RunInput is Run with something to read for the command.
func RunInput(ctx context.Context, in io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	// The classic builder is there with every engine; BuildKit is a plugin.
	cmd.Env = append(os.Environ(), "DOCKER_BUILDKIT=0", "DOCKER_CLI_HINTS=false")
	var out, words bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &out, &words
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return "", ErrMissing
	}
	if err != nil {
		return "", fmt.Errorf("running %s %s: %w: %s", program, args[0], err, lastLines(withoutWarnings(words.String())))
	}
	return strings.TrimSpace(out.String()), nil
}

// Lines is Run for commands that list things, one a line.
func Lines(ctx context.Context, args ...string) ([]string, error) {
	out, err := Run(ctx, args...)
	if err != nil {
		return nil, err
	}
	return strings.Fields(out), nil
}

// HasImage tells whether the image is there without pulling it.
func HasImage(ctx context.Context, image string) bool {
	_, err := Run(ctx, "image", "inspect", "--format", "{{.Id}}", image)
	return err == nil
}

// withoutWarnings drops what the engine says before it comes to the point.
func withoutWarnings(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "WARNING") {
			kept.WriteString(line)
		}
	}
	if strings.TrimSpace(kept.String()) == "" {
		return text
	}
	return kept.String()
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-errorLinesMax):], "\n")
}
