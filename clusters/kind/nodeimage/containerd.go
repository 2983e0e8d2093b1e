package nodeimage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
)

const (
	// containerdStart and containerdStop bound how long the containerd that
	// takes the images may need to come up and to end.
	containerdStart = 30 * time.Second
	containerdStop  = 10 * time.Second
	containerdPoll  = 100 * time.Millisecond
)

// containerdConfig is of a containerd that only stores images: no part of it
// that would touch this machine outside its folders is loaded.
func containerdConfig(store, state string) string {
	return fmt.Sprintf(`version = 3
root = %q
state = %q
disabled_plugins = [
  "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime",
  "io.containerd.podsandbox.controller.v1.cri", "io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt",
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.erofs",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
]
[grpc]
  address = %q
`, store, state, filepath.Join(state, "containerd.sock"))
}

// importImages lets the very containerd of the node put the images into the
// node's store, on this machine: a node has them before it ever started.
func (b *builder) importImages(ctx context.Context, archive string) (err error) {
	state := filepath.Join(b.work, "state")
	config := filepath.Join(b.work, "containerd.toml")
	text := containerdConfig(filepath.Join(b.root(), "var/lib/containerd"), state)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return fmt.Errorf("configuring containerd: %w", err)
	}
	var words bytes.Buffer
	server := exec.Command(b.programs["containerd"], "--config", config)
	server.Stdout, server.Stderr = &words, &words
	if err := controlplane.StartDependent(server); err != nil {
		return fmt.Errorf("starting containerd: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }() // ends with the process, which stop ends
	defer func() { err = errors.Join(err, stop(server.Process, ended)) }()

	ctr := []string{b.programs["ctr"], "--address", filepath.Join(state, "containerd.sock"), "--namespace", "k8s.io"}
	if err := awaitContainerd(ctx, ctr); err != nil {
		return fmt.Errorf("%w: %s", err, tail(words.String()))
	}
	// Unpacking is left to the node: it may have another snapshotter.
	return command(ctx, nil, append(ctr, "images", "import", "--all-platforms", "--no-unpack", archive)...)
}

func awaitContainerd(ctx context.Context, ctr []string) error {
	ctx, cancel := context.WithTimeout(ctx, containerdStart)
	defer cancel()
	ticker := time.NewTicker(containerdPoll)
	defer ticker.Stop()
	for {
		err := command(ctx, nil, append(ctr[:len(ctr):len(ctr)], "version")...)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for containerd: %w", err)
		case <-ticker.C:
		}
	}
}

// stop ends the process politely, so that its store is complete.
func stop(process *os.Process, ended <-chan error) error {
	if err := process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending containerd: %w", err)
	}
	select {
	case <-ended:
		return nil
	case <-time.After(containerdStop):
		return errors.Join(errors.New("ending containerd: it did not end by itself"), process.Kill())
	}
}
