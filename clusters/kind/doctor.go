package kind

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
	"github.com/danm-chaos/danm-chaos/clusters/kind/nodeimage"
)

// What a cluster of a control plane and three workers needs.
const (
	nodesDiskBytes   = 4 << 30
	buildDiskBytes   = 8 << 30
	nodesMemoryBytes = 3 << 30
)

// Doctor looks at everything that Start needs on this machine. It changes
// nothing and starts nothing but the engine's command line and the go command.
func Doctor(ctx context.Context, image string) []controlplane.Finding {
	h, err := examineHost(ctx)
	if err != nil {
		return []controlplane.Finding{unfit("container engine", err)}
	}
	findings := []controlplane.Finding{
		{Name: "container engine", OK: true, Detail: "version " + h.version},
		examineRuntime(h), examineCgroup(h), examineMemory(h),
		controlplane.ExamineDisk("disk space for nodes", h.folder, nodesDiskBytes),
	}
	plan := nodeimage.Find(ctx, nodeimage.Options{Image: image, CgroupV1: h.cgroupV1})
	findings = append(findings, examineImage(plan, image))
	if !plan.IsThere && image == "" {
		findings = append(findings, examineBuildDisk())
	}
	return append(findings, examineFaults("/proc", h)...)
}

// examineFaults says which faults this machine can do. Those that are left out
// need nothing but a node.
func examineFaults(proc string, h host) []controlplane.Finding {
	pause := controlplane.Finding{Name: "fault: a node hangs", OK: true, Optional: true, Detail: "docker pause"}
	if h.cgroupV1 && !hasFreezer(filepath.Join(proc, "cgroups")) {
		pause.OK, pause.Detail = false, "the kernel has no freezer controller"
		pause.Cure = "boot one with CONFIG_CGROUP_FREEZER, or do without"
	}
	partition := controlplane.Finding{Name: "fault: a node is cut off", OK: true, Optional: true, Detail: "iptables in the node"}
	if !exists(filepath.Join(proc, "net/ip_tables_names")) && !exists(filepath.Join(proc, "net/netfilter")) {
		partition.OK, partition.Detail = false, "the kernel has neither ip_tables nor nf_tables"
		partition.Cure = "load one of the modules, or do without"
	}
	return []controlplane.Finding{
		{Name: "fault: a node loses power", OK: true, Optional: true, Detail: "docker kill"}, pause,
		{Name: "fault: a node has no kubelet, or no runtime", OK: true, Optional: true, Detail: "systemctl in the node"}, partition,
		{Name: "fault: a Node is deleted, or fenced", OK: true, Optional: true, Detail: "the API"},
		{Name: "fault: a CNI plugin is missing, or slow", OK: true, Optional: true, Detail: "another file in its place"},
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// hasFreezer reads the list of controllers: name, hierarchy, groups, enabled.
func hasFreezer(path string) bool {
	text, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 4 && fields[0] == "freezer" {
			return fields[3] == "1"
		}
	}
	return false
}

// Prepare does what a first Start would do before it makes anything: it looks
// at the host, and finds, pulls or builds the node image, which may take minutes.
// If the host is at fault, the error is an UnfitHostError.
func Prepare(ctx context.Context, image string, progress io.Writer) error {
	h, err := examineHost(ctx)
	if err != nil {
		return err
	}
	if err := h.check(); err != nil {
		return err
	}
	o := nodeimage.Options{Image: image, CgroupV1: h.cgroupV1, Progress: progress}
	if image == "" && !nodeimage.Find(ctx, o).IsThere {
		if disk := examineBuildDisk(); !disk.OK {
			return &UnfitHostError{Detail: disk.Name + ": " + disk.Detail, Cure: disk.Cure}
		}
	}
	if _, err := nodeimage.Obtain(ctx, o); err != nil {
		return fmt.Errorf("getting a node image: %w", err)
	}
	return nil
}

func examineBuildDisk() controlplane.Finding {
	return controlplane.ExamineDisk("disk space for building a node image", os.TempDir(), buildDiskBytes)
}

func unfit(name string, err error) controlplane.Finding {
	f := controlplane.Finding{Name: name, Detail: err.Error()}
	if e := (*UnfitHostError)(nil); errors.As(err, &e) {
		f.Detail, f.Cure = e.Detail, e.Cure
	}
	return f
}

func examineRuntime(h host) controlplane.Finding {
	if err := h.checkRuntime(); err != nil {
		return unfit("privileged containers", err)
	}
	f := controlplane.Finding{Name: "privileged containers", OK: true, Detail: "started by " + h.runtime}
	if h.lacksCapability {
		f.Detail += ", because this host hands out no CAP_SYS_RESOURCE"
	}
	return f
}

func examineCgroup(h host) controlplane.Finding {
	if err := h.checkCgroups(); err != nil {
		return unfit("cgroups", err)
	}
	f := controlplane.Finding{Name: "cgroups", OK: true, Detail: "version 2"}
	if h.cgroupV1 {
		f.Detail = "version 1: kubelets are told not to refuse it, and the node image is built"
	}
	return f
}

func examineMemory(h host) controlplane.Finding {
	f := controlplane.Finding{Name: "memory", OK: h.memory >= nodesMemoryBytes, Detail: fmt.Sprintf("%.1f GiB", float64(h.memory)/(1<<30))}
	if !f.OK {
		f.Cure = fmt.Sprintf("a cluster of four nodes needs %d GiB", nodesMemoryBytes>>30)
	}
	return f
}

func examineImage(plan nodeimage.Plan, asked string) controlplane.Finding {
	f := controlplane.Finding{Name: "node image", OK: true, Detail: plan.Image}
	switch {
	case plan.IsThere:
	case asked != "":
		f.Detail += " is not there and would be pulled"
	case plan.Trouble != nil:
		f.OK, f.Detail = false, "none is there, and none can be built: "+plan.Trouble.Error()
		f.Cure = "see above, or name an image that is there with --node-image"
	default:
		f.Detail += " is not there; the public one is pulled, or this one is built, once"
	}
	return f
}
