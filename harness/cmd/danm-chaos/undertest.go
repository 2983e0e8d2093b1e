package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/canary"
)

// kubeconfigPlace is replaced by the cluster with the path of a kubeconfig.
const kubeconfigPlace = "{{kubeconfig}}"

const cleanerProgram = "danm-cleaner"

// cleanerFlags are what the harness tells the fixed cleaner.
type cleanerFlags struct {
	group             danm.Group
	releaseQuarantine time.Duration
	orphanQuarantine  time.Duration
	dryRun            bool
	isDeployed        bool // in pods, by its manifests
}

// cleanerArgv resolves --cleaner to a program and its arguments.
func cleanerArgv(value string, f cleanerFlags) ([]string, error) {
	kind, rest, _ := strings.Cut(value, ":")
	switch kind {
	case "fixed":
		return fixedArgv(f)
	case "canary":
		return canaryArgv(rest, f)
	case "exec":
		return execArgv(rest)
	case "image":
		return nil, usagef("--cleaner %s: this release runs no images: build the program and use exec:", value)
	default:
		return nil, usagef("--cleaner %q: unknown kind of cleaner: use fixed, canary:NAME or 'exec:/path/to/program -flag %s'", value, kubeconfigPlace)
	}
}

// fixedArgv finds the cleaner of this project, which is built beside us.
func fixedArgv(f cleanerFlags) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(filepath.Dir(self), cleanerProgram)
	if err := checkExecutable(path); err != nil {
		return nil, usagef("--cleaner fixed: %s: %w: run `make build`", path, err)
	}
	argv := []string{path}
	if !f.isDeployed {
		argv = append(argv, "run", "--kubeconfig", kubeconfigPlace, "--danm-api", string(f.group),
			"--leader-elect=false", "--metrics-bind-address", "0", "--health-probe-bind-address", "0")
	}
	argv = append(argv, "--release-quarantine", f.releaseQuarantine.String(), "--orphan-quarantine", f.orphanQuarantine.String(), "-v", "1")
	if f.dryRun {
		argv = append(argv, "--dry-run")
	}
	return argv, nil
}

// canaryArgv makes us run the canary in a process of its own.
func canaryArgv(name string, f cleanerFlags) ([]string, error) {
	if err := canary.Validate(name); err != nil {
		return nil, usagef("--cleaner canary:%s: %w", name, err)
	}
	if f.dryRun {
		return nil, usagef("--dry-run: a canary has no such mode: use it with --cleaner fixed")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return []string{self, "canary", name, "--kubeconfig", kubeconfigPlace, "--danm-api", string(f.group)}, nil
}

func execArgv(command string) ([]string, error) {
	argv, err := splitWords(command)
	if err != nil {
		return nil, usagef("--cleaner 'exec:%s': %w: quote it as for a shell", command, err)
	}
	if len(argv) == 0 {
		return nil, usagef("--cleaner exec: names no program: use 'exec:/path/to/program -flag %s'", kubeconfigPlace)
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return nil, usagef("--cleaner 'exec:%s': %s: %w: give the path of an executable file", command, argv[0], lookupReason(err))
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	argv[0] = path
	return argv, nil
}

// lookupReason drops the name that exec.Error repeats.
func lookupReason(err error) error {
	var lookup *exec.Error
	if errors.As(err, &lookup) {
		err = lookup.Err
	}
	return pathReason(err)
}

// pathReason drops the operation and path that fs.PathError repeats.
func pathReason(err error) error {
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

func checkExecutable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return pathReason(err)
	case info.IsDir() || info.Mode()&0o111 == 0:
		return errors.New("not an executable file")
	}
	return nil
}
