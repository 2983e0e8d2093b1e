package nodeimage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// commandGrace is what a program gets to put things in order when the
	// build is interrupted: debootstrap has mounts to undo.
	commandGrace = 10 * time.Second
	// tailBytes bounds what an error repeats of a program's words.
	tailBytes = 2000
	// workName begins the name of every work folder.
	workName = "danm-chaos-nodeimage-"
)

// command runs a program of this machine; what it says on stderr is only
// repeated if it fails. When the context ends, the program and those that it
// started are asked to end.
func command(ctx context.Context, out io.Writer, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	var words bytes.Buffer
	cmd.Stdout, cmd.Stderr = &words, &words
	if out != nil {
		cmd.Stdout = out
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = commandGrace
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running %s: %w: %s", filepath.Base(argv[0]), err, tail(words.String()))
	}
	return nil
}

func tail(text string) string {
	text = strings.TrimSpace(text)
	return text[max(0, len(text)-tailBytes):]
}

func workPattern() string { return filepath.Join(os.TempDir(), workName+"*") }

// removeWork removes work folders. A build that was killed may have left file
// systems of the kernel mounted in one, and nothing of those may be removed.
func removeWork(pattern string) error {
	folders, err := filepath.Glob(pattern)
	if err != nil {
		return fmt.Errorf("listing work folders: %w", err)
	}
	var errs []error
	for _, folder := range folders {
		if err := unmountBelow(folder); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, os.RemoveAll(folder))
	}
	return errors.Join(errs...)
}

func unmountBelow(folder string) error {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("reading mounts: %w", err)
	}
	for _, point := range mountsBelow(string(table), folder) {
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmounting %s: %w", point, err)
		}
	}
	return nil
}

// mountsBelow returns the mount points below a folder, the latest first, which
// is the order in which they come off.
func mountsBelow(table, folder string) []string {
	const pointField = 4
	var points []string
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) > pointField && strings.HasPrefix(fields[pointField], folder+"/") {
			points = append([]string{fields[pointField]}, points...)
		}
	}
	return points
}
