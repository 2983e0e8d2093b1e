package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pretend puts a script in place of the engine's command.
func pretend(t *testing.T, script string) {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, program), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
}

func TestLinesAreWhatTheEnginePrints(t *testing.T) {
	pretend(t, `echo "$@" | tr ' ' '\n'`)
	got, err := Lines(t.Context(), "ps", "--all")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"ps", "--all"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestInputReachesTheEngine(t *testing.T) {
	pretend(t, "cat")
	got, err := RunInput(t.Context(), strings.NewReader("text"), "build", "-")
	if err != nil || got != "text" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestAFailureRepeatsTheLastWords(t *testing.T) {
	pretend(t, "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo word$i >&2; done; exit 3")
	_, err := Run(t.Context(), "pull", "x")
	if err == nil || !strings.Contains(err.Error(), "running docker pull") || !strings.Contains(err.Error(), "word12") || strings.Contains(err.Error(), "word2\n") {
		t.Errorf("got %v", err)
	}
	if HasImage(t.Context(), "x") {
		t.Error("an image is there that cannot be inspected")
	}
}

func TestNoEngineIsSaidAsSuch(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Run(t.Context(), "ps"); !errors.Is(err, ErrMissing) {
		t.Errorf("got %v", err)
	}
}

func TestAFailureSkipsTheWarningsBeforeIt(t *testing.T) {
	for name, test := range map[string]struct{ script, want string }{
		"the reason comes after a warning": {"echo WARNING: config >&2; echo permission denied >&2; exit 1", "exit status 1: permission denied"},
		"a warning is all there is":        {"echo WARNING: config >&2; exit 1", "exit status 1: WARNING: config"},
	} {
		t.Run(name, func(t *testing.T) {
			pretend(t, test.script)
			if _, err := Run(t.Context(), "info"); err == nil || err.Error() != "running docker info: "+test.want {
				t.Errorf("got %v", err)
			}
		})
	}
}
