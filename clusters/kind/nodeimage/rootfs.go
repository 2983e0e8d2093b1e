package nodeimage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// suite is the Debian release of a built node. Its systemd still runs on hosts
// with cgroup v1; that of the release after it refuses to.
const suite = "bookworm"

// packages are what kind's own node has, but for network file systems.
var packages = []string{
	"systemd", "systemd-sysv", "dbus", "conntrack", "iptables", "nftables", "iproute2", "ethtool",
	"util-linux", "mount", "kmod", "libseccomp2", "pigz", "e2fsprogs", "bash", "ca-certificates",
	"curl", "jq", "procps", "runc",
}

// unwanted are units that make no sense in a container; the list is that of
// kind's own image.
var unwanted = []string{
	"lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service",
	"lib/systemd/system/multi-user.target.wants/*",
	"etc/systemd/system/*.wants/*",
	"lib/systemd/system/local-fs.target.wants/*",
	"lib/systemd/system/sockets.target.wants/*udev*",
	"lib/systemd/system/sockets.target.wants/*initctl*",
	"lib/systemd/system/basic.target.wants/*",
}

// units are started with the node.
var units = []string{"kubelet.service", "containerd.service", "undo-mount-hacks.service"}

// manifests are what kind applies to a new cluster. The real ones would need
// images from elsewhere, and empty ones are an error.
var manifests = map[string]string{
	"kind/manifests/default-cni.yaml":     harmlessManifest("danm-chaos-no-cni"),
	"kind/manifests/default-storage.yaml": harmlessManifest("danm-chaos-no-storage"),
}

func harmlessManifest(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: kube-system}\n"
}

// dressRoot makes a node's root of Debian's: kind's files, units and programs.
func dressRoot(root, kindFiles, version string, programs map[string]string) error {
	if err := copyKindFiles(root, kindFiles); err != nil {
		return err
	}
	if err := arrangeUnits(root); err != nil {
		return fmt.Errorf("arranging units: %w", err)
	}
	for folder, names := range placement {
		for _, name := range names {
			if err := install(programs[name], filepath.Join(root, folder, name), 0o755); err != nil {
				return fmt.Errorf("installing %s: %w", name, err)
			}
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "etc/kubernetes/manifests"), 0o755); err != nil {
		return err
	}
	for name, text := range manifests {
		if err := writeFile(root, name, text); err != nil {
			return err
		}
	}
	return writeFile(root, "kind/version", version)
}

// copyKindFiles copies the files of kind's base image with the modes that its
// Dockerfile gives them: programs may be run, the rest may be read.
func copyKindFiles(root, kindFiles string) error {
	err := filepath.WalkDir(kindFiles, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(kindFiles, path)
		if err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if isProgramFolder(filepath.ToSlash(filepath.Dir(name))) {
			mode = 0o755
		}
		return install(path, filepath.Join(root, name), mode)
	})
	if err != nil {
		return fmt.Errorf("copying kind's files: %w", err)
	}
	return nil
}

func isProgramFolder(name string) bool { return name == "kind/bin" || name == "usr/local/bin" }

func arrangeUnits(root string) error {
	for _, pattern := range unwanted {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		for _, path := range paths {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	wants := filepath.Join(root, "etc/systemd/system/multi-user.target.wants")
	if err := os.MkdirAll(wants, 0o755); err != nil {
		return err
	}
	var errs []error
	for _, unit := range units {
		errs = append(errs, os.Symlink("/etc/systemd/system/"+unit, filepath.Join(wants, unit)))
	}
	// That unit would register things in the kernel of the host.
	errs = append(errs, os.Symlink("/dev/null", filepath.Join(root, "etc/systemd/system/systemd-binfmt.service")))
	return errors.Join(append(errs, appendFile(filepath.Join(root, "etc/systemd/journald.conf"), "ReadKMsg=no\n"))...)
}

func appendFile(path, text string) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.WriteString(file, text)
	return errors.Join(err, file.Close())
}

func writeFile(root, name, text string) error {
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

func install(from, to string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	return errors.Join(copyFile(file, from), file.Chmod(mode), file.Close())
}

// baseSpec is what every container of the node starts from: containerd's own
// with kind's hook, which hides the host's product files, and without limits.
func baseSpec(spec map[string]any) map[string]any {
	hooks, _ := spec["hooks"].(map[string]any)
	if hooks == nil {
		hooks = map[string]any{}
		spec["hooks"] = hooks
	}
	before, _ := hooks["createContainer"].([]any)
	hooks["createContainer"] = append(before, map[string]any{"path": "/kind/bin/mount-product-files.sh"})
	if process, ok := spec["process"].(map[string]any); ok {
		delete(process, "rlimits")
	}
	return spec
}

// sandboxImage returns the image of pod sandboxes that a configuration of
// containerd names.
func sandboxImage(config string) (string, error) {
	for line := range strings.Lines(config) {
		name, value, found := strings.Cut(line, "=")
		if found && strings.TrimSpace(name) == "sandbox_image" {
			return strings.Trim(strings.TrimSpace(value), `"`), nil
		}
	}
	return "", errors.New("reading containerd's configuration: it names no sandbox_image")
}
