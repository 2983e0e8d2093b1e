package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Disk space that is asked for: by a first build with the go command's own
// cache, and by a run.
const (
	buildDiskBytes = 6 << 30
	runDiskBytes   = 1 << 30
)

// Finding is one thing that a control plane needs, and whether it is there.
type Finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Cure   string `json:"cure,omitempty"` // what to do, if not OK
	// Optional is what a run can do without.
	Optional bool `json:"optional,omitempty"`
}

// Doctor looks at everything that Start needs on this machine. It changes
// nothing and starts nothing but the go command.
func Doctor(ctx context.Context) []Finding {
	programsFinding, needsBuild := examinePrograms(ctx)
	findings := []Finding{programsFinding, examineCache(), examineLoopback(), examineProc()}
	if needsBuild {
		findings = append(findings, examineCompiler(ctx), examineDisk("disk space for the build", cacheDisk(), buildDiskBytes))
	}
	return append(findings, examineDisk("disk space for runs", os.TempDir(), runDiskBytes))
}

func examinePrograms(ctx context.Context) (f Finding, needsBuild bool) {
	f.Name = "programs"
	found, missing, err := findPrograms(ctx)
	if err != nil {
		f.Detail = err.Error()
		f.Cure = "run in a checkout of the project with Go in PATH, or set " + binDirVariable
		return f, os.Getenv(binDirVariable) == ""
	}
	f.OK = true
	if len(missing) == 0 {
		f.Detail = "found: " + strings.Join(sortedPaths(found), ", ")
		return f, false
	}
	var names []string
	for _, r := range missing {
		names = append(names, r.set.name+" "+r.version)
	}
	f.Detail = "built on first use, which takes some minutes: " + strings.Join(names, ", ")
	return f, true
}

func sortedPaths(p programs) []string {
	var paths []string
	for _, path := range p {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

func examineCompiler(ctx context.Context) Finding {
	out, err := exec.CommandContext(ctx, "go", "version").CombinedOutput()
	f := Finding{Name: "go command", OK: err == nil, Detail: strings.TrimSpace(string(out))}
	if err != nil {
		f.Detail = strings.TrimSpace(f.Detail + " " + err.Error())
		f.Cure = "install Go and put it in PATH, or set " + binDirVariable
	}
	return f
}

func examineCache() Finding {
	f := Finding{Name: "cache folder"}
	dir, err := cacheFolder()
	if err == nil {
		f.Detail = dir
		err = unix.Access(nearestFolder(dir), unix.W_OK|unix.X_OK)
	}
	f.OK = err == nil
	if err != nil {
		f.Detail = strings.TrimSpace(f.Detail + " " + err.Error())
		f.Cure = "set XDG_CACHE_HOME to a folder you may write to"
	}
	return f
}

// cacheDisk is a folder on the disk that a build fills.
func cacheDisk() string {
	dir, err := cacheFolder()
	if err != nil {
		return os.TempDir() // examineCache says what is wrong
	}
	return dir
}

// nearestFolder returns dir or the nearest folder above that exists.
func nearestFolder(dir string) string {
	for dir != filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

func examineLoopback() Finding {
	p, err := choosePorts()
	if err != nil {
		return Finding{Name: "loopback ports", Detail: err.Error(), Cure: "bring up the loopback interface and free some ports on " + loopback}
	}
	return Finding{Name: "loopback ports", OK: true, Detail: fmt.Sprintf("%d and others are free", p.apiserver)}
}

func examineProc() Finding {
	if _, err := newJournalData("doctor"); err != nil {
		return Finding{Name: "/proc", Detail: err.Error(), Cure: "mount /proc; processes cannot be told apart without it"}
	}
	return Finding{Name: "/proc", OK: true, Detail: "readable"}
}

func examineDisk(name, dir string, need uint64) Finding {
	var stat unix.Statfs_t
	dir = nearestFolder(dir)
	if err := unix.Statfs(dir, &stat); err != nil {
		return Finding{Name: name, Detail: err.Error(), Cure: "make " + dir + " readable"}
	}
	free := stat.Bavail * uint64(stat.Bsize)
	f := Finding{Name: name, OK: free >= need, Detail: fmt.Sprintf("%.1f GiB free in %s", gib(free), dir)}
	if !f.OK {
		f.Cure = fmt.Sprintf("free space, %.0f GiB are needed", gib(need))
	}
	return f
}

func gib(bytes uint64) float64 { return float64(bytes) / (1 << 30) }
