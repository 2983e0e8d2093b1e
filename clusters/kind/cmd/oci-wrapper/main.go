// Command oci-wrapper stands in for runc on a host whose bounding set lacks
// CAP_SYS_RESOURCE: it takes out of the specification what cannot be had there
// and becomes runc. It supervises nothing and outlives nothing.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/danm-chaos/danm-chaos/clusters/kind/ocispec"
)

// runtimeFolders are looked in where PATH does not help: engines start their
// runtime with nearly no environment.
var runtimeFolders = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "oci-wrapper:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if edit, needed := ocispec.EditFor(args); needed {
		if err := apply(edit); err != nil {
			return err
		}
	}
	runtime, err := findRuntime()
	if err != nil {
		return err
	}
	return syscall.Exec(runtime, append([]string{runtime}, args...), os.Environ())
}

func apply(e ocispec.Edit) error {
	data, err := os.ReadFile(e.Path)
	if err != nil {
		return fmt.Errorf("reading the runtime's specification: %w", err)
	}
	if data, err = e.Relax(data); err != nil {
		return err
	}
	// In place: the engine may hold the file open, and its mode stays.
	if err := os.WriteFile(e.Path, data, 0o600); err != nil {
		return fmt.Errorf("writing the runtime's specification: %w", err)
	}
	return nil
}

func findRuntime() (string, error) {
	if path, err := exec.LookPath("runc"); err == nil {
		return path, nil
	}
	for _, folder := range runtimeFolders {
		path := filepath.Join(folder, "runc")
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("finding runc: it is neither in PATH nor in %v", runtimeFolders)
}
