package kind

import (
	"context"
	"errors"
	"fmt"
	"os"

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
		findings = append(findings, controlplane.ExamineDisk("disk space for building a node image", os.TempDir(), buildDiskBytes))
	}
	return findings
}

// CheckHost says whether Start can get as far as making something. If the host
// is at fault, the error is an UnfitHostError.
func CheckHost(ctx context.Context, image string) error {
	h, err := examineHost(ctx)
	if err != nil {
		return err
	}
	if err := h.check(); err != nil {
		return err
	}
	plan := nodeimage.Find(ctx, nodeimage.Options{Image: image, CgroupV1: h.cgroupV1})
	if plan.IsThere || image != "" || !h.cgroupV1 { // else it can be pulled, perhaps
		return nil
	}
	if plan.Trouble != nil {
		return plan.Trouble
	}
	disk := controlplane.ExamineDisk("disk space for building a node image", os.TempDir(), buildDiskBytes)
	if !disk.OK {
		return &UnfitHostError{Detail: disk.Name + ": " + disk.Detail, Cure: disk.Cure}
	}
	return nil
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
