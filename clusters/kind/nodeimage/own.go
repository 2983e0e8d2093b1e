package nodeimage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
)

// ownPrograms are mains of this project that nodes need, with their packages.
// Only pause is part of the image: the others are given to the nodes of a
// cluster, so that a change of them needs no new image.
var ownPrograms = map[string]string{
	"pause":       "./clusters/kind/cmd/pause",
	"oci-wrapper": "./clusters/kind/cmd/oci-wrapper",
	"danm-cni":    "./clusters/danmcni/cmd/danm-cni",
}

// BuildOwn builds the mains of this project that a node needs into the folder
// and returns their paths by name.
func BuildOwn(ctx context.Context, folder string) (map[string]string, error) {
	root, err := controlplane.ProjectRoot()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("making a folder for programs: %w", err)
	}
	paths := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(ownPrograms)) {
		paths[name] = filepath.Join(folder, name)
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w",
			"-o", paths[name], ownPrograms[name])
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building %s: %w: %s", name, err, tail(string(out)))
		}
	}
	return paths, nil
}

// WorkloadImage is what the pods of a workload run. Nodes know it under its
// full name; the workload calls it pause.
const WorkloadImage = "pause:latest"

// WriteWorkloadArchive writes an archive with WorkloadImage to a file, for
// containerd to import. pause is the program.
func WriteWorkloadArchive(file, pause string) error {
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("packing the workload image: %w", err)
	}
	image := containerImage{tag: WorkloadImage, program: pause, path: "pause"}
	return errors.Join(writeArchive(out, filepath.Dir(file), []containerImage{image}), out.Close())
}

// versionKey is one short name for all that goes into an image.
func versionKey(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		// The length keeps apart what would be the same when put together.
		fmt.Fprintf(h, "%d\n%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}
