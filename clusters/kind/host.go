package kind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
	"github.com/danm-chaos/danm-chaos/clusters/kind/engine"
)

// wrapperName is the program that stands in for runc on a host that lacks a
// capability.
const wrapperName = "oci-wrapper"

// capSysResource is the number of CAP_SYS_RESOURCE.
const capSysResource = 24

// host is what there is to know about this machine and its engine.
type host struct {
	version  string
	cgroupV1 bool
	folder   string // where the engine keeps everything
	memory   uint64
	// runtime is the program that the engine starts containers with.
	runtime string
	// lacksCapability is a host that hands out no CAP_SYS_RESOURCE, as inside
	// many sandboxes: then a privileged container does not start.
	lacksCapability bool
	// hasFixedCgroups is a host whose cgroups nobody can change, as inside many
	// containers: then no container is started in this one.
	hasFixedCgroups bool
}

// engineInfo is what we read of `docker info`.
type engineInfo struct {
	ServerVersion  string
	CgroupVersion  string
	DockerRootDir  string
	MemTotal       uint64
	DefaultRuntime string
	Runtimes       map[string]struct{ Path string }
}

// UnfitHostError is why no cluster can be started here, with the cure.
type UnfitHostError = engine.UnfitHostError

// examineHost asks the engine. It changes nothing.
func examineHost(ctx context.Context) (host, error) {
	text, err := engine.Run(ctx, "info", "--format", "{{json .}}")
	if errors.Is(err, engine.ErrMissing) {
		return host{}, &UnfitHostError{Detail: err.Error(), Cure: "install an engine (apt-get install docker.io)"}
	}
	if err != nil {
		return host{}, &UnfitHostError{
			Detail: "the container engine does not answer: " + firstLine(err.Error()),
			Cure:   "start it (dockerd, or systemctl start docker), or get the right to use it",
		}
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return host{}, fmt.Errorf("reading capabilities: %w", err)
	}
	h, err := parseHost(text, string(status))
	h.hasFixedCgroups = isReadOnly(h.cgroupFolder())
	return h, err
}

// cgroupFolder is one whose mount tells of all.
func (h host) cgroupFolder() string {
	if h.cgroupV1 {
		return "/sys/fs/cgroup/memory"
	}
	return "/sys/fs/cgroup"
}

// isReadOnly tells whether the folder's file system surely is. One that is not
// here says nothing.
func isReadOnly(folder string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(folder, &stat) == nil && stat.Flags&unix.ST_RDONLY != 0
}

func parseHost(info, status string) (host, error) {
	var i engineInfo
	if err := json.Unmarshal([]byte(info), &i); err != nil {
		return host{}, fmt.Errorf("decoding what the engine says about itself: %w", err)
	}
	has, err := hasCapability(status, capSysResource)
	if err != nil {
		return host{}, err
	}
	return host{
		version: i.ServerVersion, cgroupV1: i.CgroupVersion == "1", folder: i.DockerRootDir, memory: i.MemTotal,
		runtime: i.Runtimes[i.DefaultRuntime].Path, lacksCapability: !has,
	}, nil
}

// hasCapability reads the bounding set: what is not in it, nobody gets.
func hasCapability(status string, number uint) (bool, error) {
	for line := range strings.Lines(status) {
		if value, found := strings.CutPrefix(line, "CapBnd:"); found {
			set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			if err != nil {
				return false, fmt.Errorf("reading capabilities: %w", err)
			}
			return set&(1<<number) != 0, nil
		}
	}
	return false, errors.New("reading capabilities: there is no bounding set")
}

// isWrapped tells whether the engine starts containers through the wrapper.
func (h host) isWrapped() bool { return filepath.Base(h.runtime) == wrapperName }

// check says whether the host can run nodes at all.
func (h host) check() error {
	for _, check := range []func() error{h.checkRuntime, h.checkCgroups} {
		if err := check(); err != nil {
			return err
		}
	}
	disk := controlplane.ExamineDisk("disk space for nodes", h.folder, nodesDiskBytes)
	if !disk.OK {
		return &UnfitHostError{Detail: disk.Name + ": " + disk.Detail, Cure: disk.Cure}
	}
	return nil
}

// checkRuntime says whether privileged containers can be started.
func (h host) checkRuntime() error {
	if h.lacksCapability && !h.isWrapped() {
		return &UnfitHostError{
			Detail: "this host hands out no CAP_SYS_RESOURCE, so the engine cannot start a node",
			Cure: "go build -o bin/" + wrapperName + " ./clusters/kind/cmd/" + wrapperName +
				" and start dockerd with --add-runtime relaxed=$PWD/bin/" + wrapperName + " --default-runtime relaxed",
		}
	}
	return nil
}

func (h host) checkCgroups() error {
	if h.hasFixedCgroups {
		return &UnfitHostError{Detail: h.cgroupFolder() + " is mounted read-only, so no container starts in this one", Cure: "run on the host, or in a privileged container"}
	}
	return nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
