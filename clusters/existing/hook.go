package existing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
)

const (
	// hookOutputMax bounds what an error repeats of a hook's output.
	hookOutputMax = 2 << 10
	// hookKillGrace is what a hook's pipes get to close after it was killed.
	hookKillGrace = 2 * time.Second
)

// runHook runs a program of the user for a node. It ends with all its children
// when its time is over. If danm-chaos itself is killed, the kernel ends the
// program: one that switches a node off must not do so after clean switched it
// on.
func runHook(ctx context.Context, argv []string, node string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not through after %s", timeout))
	defer cancel()
	args := make([]string, len(argv))
	for i, arg := range argv {
		args[i] = strings.ReplaceAll(arg, NodePlaceholder, node)
	}
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = hookKillGrace
	err := controlplane.StartDependent(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = errors.Join(cause, err)
	}
	said := bytes.TrimSpace(output.Bytes())
	said = said[max(0, len(said)-hookOutputMax):]
	return fmt.Errorf("running %q: %w: %s", strings.Join(args, " "), err, said)
}
