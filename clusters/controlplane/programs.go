package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// binDirVariable names a folder with prebuilt programs.
const binDirVariable = "KUBERNETES_BIN_DIR"

// Names of the programs.
const (
	etcdProgram              = "etcd"
	apiserverProgram         = "kube-apiserver"
	controllerManagerProgram = "kube-controller-manager"
	schedulerProgram         = "kube-scheduler"
)

// toolSet is a module in clusters/tools and the programs that are built there.
type toolSet struct {
	name       string // folder in clusters/tools
	module     string // the module whose version is the programs' version
	programs   []toolProgram
	kubernetes bool // needs its version linked in
}

type toolProgram struct{ name, pkg string }

// toolSets lists all sets; the quick one first, so that a missing compiler
// shows after seconds.
func toolSets() []toolSet {
	return []toolSet{
		{name: "etcd", module: "go.etcd.io/etcd/server/v3", programs: []toolProgram{
			{etcdProgram, "go.etcd.io/etcd/server/v3"},
		}},
		{name: "kubernetes", module: "k8s.io/kubernetes", kubernetes: true, programs: []toolProgram{
			{apiserverProgram, "k8s.io/kubernetes/cmd/kube-apiserver"},
			{controllerManagerProgram, "k8s.io/kubernetes/cmd/kube-controller-manager"},
			{schedulerProgram, "k8s.io/kubernetes/cmd/kube-scheduler"},
		}},
	}
}

// programs maps the name of a program to its path.
type programs map[string]string

// findPrograms returns the programs from KUBERNETES_BIN_DIR or from the cache,
// without building any. missing lists the sets that would have to be built.
func findPrograms(ctx context.Context) (found programs, missing []recipe, err error) {
	if dir := os.Getenv(binDirVariable); dir != "" {
		found, err = prebuiltPrograms(dir)
		return found, nil, err
	}
	root, err := findProjectRoot()
	if err != nil {
		return nil, nil, err
	}
	cache, err := cacheFolder()
	if err != nil {
		return nil, nil, err
	}
	found = programs{}
	for _, set := range toolSets() {
		r, err := newRecipe(ctx, root, cache, set)
		if err != nil {
			return nil, nil, err
		}
		if !found.addFrom(r.target, set) {
			missing = append(missing, r)
		}
	}
	return found, missing, nil
}

// LinkPrograms builds the programs, if need be, and links them into dir, which
// then serves as KUBERNETES_BIN_DIR. Links that are there already are renewed.
func LinkPrograms(ctx context.Context, dir string, progress io.Writer) error {
	found, err := obtainPrograms(ctx, progress)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("linking programs: %w", err)
	}
	for name, path := range found {
		link := filepath.Join(dir, name)
		if sameFile(link, path) {
			continue // dir is where the programs were found, or was linked before
		}
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("linking programs: %w", err)
		}
		if err := os.Symlink(path, link); err != nil {
			return fmt.Errorf("linking programs: %w", err)
		}
	}
	return nil
}

func sameFile(a, b string) bool {
	left, leftErr := os.Stat(a)
	right, rightErr := os.Stat(b)
	return leftErr == nil && rightErr == nil && os.SameFile(left, right)
}

// addFrom adds the programs of a set if the folder holds them all.
func (p programs) addFrom(dir string, set toolSet) bool {
	for _, program := range set.programs {
		if !isExecutable(filepath.Join(dir, program.name)) {
			return false
		}
	}
	for _, program := range set.programs {
		p[program.name] = filepath.Join(dir, program.name)
	}
	return true
}

func prebuiltPrograms(dir string) (programs, error) {
	found := programs{}
	var missing []string
	for _, set := range toolSets() {
		for _, program := range set.programs {
			path := filepath.Join(dir, program.name)
			if !isExecutable(path) {
				missing = append(missing, program.name)
			}
			found[program.name] = path
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("finding programs: %s=%s has no executable %s", binDirVariable, dir, strings.Join(missing, ", "))
	}
	return found, nil
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// cacheFolder is where built programs and run journals are kept.
func cacheFolder() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache folder (set XDG_CACHE_HOME): %w", err)
	}
	return filepath.Join(dir, "danm-chaos"), nil
}

// findProjectRoot walks up from the working directory, then from this program,
// to the checkout that holds the modules the programs are built from.
func findProjectRoot() (string, error) {
	var starts []string
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	if exe, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(exe))
	}
	for _, start := range starts {
		for dir := start; ; dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(toolModule(dir, "kubernetes"), "go.mod")); err == nil {
				return dir, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", fmt.Errorf("finding programs: no checkout of this project above %s; run inside one or set %s to a folder with prebuilt programs",
		strings.Join(starts, " or "), binDirVariable)
}

func toolModule(root, set string) string { return filepath.Join(root, "clusters", "tools", set) }

// recipe is everything that decides what the programs of a set will be.
type recipe struct {
	set     toolSet
	module  string // folder to build in
	version string // of the set's main module, "v1.37.2"
	ldflags string
	target  string // folder for the finished programs
}

func newRecipe(ctx context.Context, root, cache string, set toolSet) (recipe, error) {
	r := recipe{set: set, module: toolModule(root, set.name)}
	goMod, err := os.ReadFile(filepath.Join(r.module, "go.mod"))
	if err != nil {
		return r, fmt.Errorf("reading the module of %s: %w", set.name, err)
	}
	goSum, err := os.ReadFile(filepath.Join(r.module, "go.sum"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("reading the sums of %s: %w", set.name, err)
	}
	if r.version, err = requiredVersion(goMod, set.module); err != nil {
		return r, fmt.Errorf("reading the module of %s: %w", set.name, err)
	}
	if r.ldflags, err = linkerFlags(set, r.version); err != nil {
		return r, err
	}
	compiler, err := compilerVersion(ctx, r.module)
	if err != nil {
		return r, err
	}
	key := cacheKey(goMod, goSum, []byte(strings.Join(r.buildFlags(), " ")), compiler)
	r.target = filepath.Join(cache, "tools", fmt.Sprintf("%s-%s-%s", set.name, r.version, key))
	return r, nil
}

func (r recipe) buildFlags() []string { return []string{"-trimpath", "-ldflags", r.ldflags} }

// cacheKey is one short name for all that goes into a program.
func cacheKey(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		// The length keeps apart what would be the same when put together.
		fmt.Fprintf(h, "%d\n", len(p))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// requiredVersion returns the version in which go.mod requires the module.
func requiredVersion(goMod []byte, module string) (string, error) {
	lines := bufio.NewScanner(bytes.NewReader(goMod))
	for lines.Scan() {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(lines.Text()), "require "))
		if len(fields) >= 2 && fields[0] == module && strings.HasPrefix(fields[1], "v") {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("%s is not required", module)
}

// linkerFlags drop symbols and, for Kubernetes, put in the version that its
// programs report and negotiate by.
func linkerFlags(set toolSet, version string) (string, error) {
	const small = "-s -w"
	if !set.kubernetes {
		return small, nil
	}
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) != 3 {
		return "", fmt.Errorf("reading the version of %s: %q is not of three parts", set.module, version)
	}
	const v = "k8s.io/component-base/version."
	return fmt.Sprintf("%s -X %sgitVersion=%s -X %sgitMajor=%s -X %sgitMinor=%s", small, v, version, v, parts[0], v, parts[1]), nil
}

// compilerVersion returns what the go command in that module compiles with
// and for.
func compilerVersion(ctx context.Context, module string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOOS", "GOARCH")
	cmd.Dir = module
	cmd.Env = buildEnvironment("")
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("finding programs: there is no go command in PATH to build them; install Go or set %s to a folder with prebuilt programs", binDirVariable)
	}
	if err != nil {
		return nil, fmt.Errorf("asking the go command for its version: %w", err)
	}
	return out, nil
}
