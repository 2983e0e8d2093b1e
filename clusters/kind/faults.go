package kind

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/kind/engine"
)

var (
	_ clusters.NodePauser      = (*Cluster)(nil)
	_ clusters.KubeletStopper  = (*Cluster)(nil)
	_ clusters.RuntimeKiller   = (*Cluster)(nil)
	_ clusters.NodePartitioner = (*Cluster)(nil)
	_ clusters.SandboxLister   = (*Cluster)(nil)
)

// pauseAttemptsMax bounds how often a freeze is tried. With cgroup v1 it fails
// while any process of the node is in the kernel and cannot be interrupted.
const pauseAttemptsMax = 5

// PauseNode implements clusters.NodePauser.
func (c *Cluster) PauseNode(ctx context.Context, name string) error {
	var err error
	for range pauseAttemptsMax {
		if err = c.onWorker(ctx, "pausing", name, "pause", name); err == nil || !isUnfreezable(err) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func isUnfreezable(err error) bool { return strings.Contains(err.Error(), "unable to freeze") }

// ResumeNode implements clusters.NodePauser.
func (c *Cluster) ResumeNode(ctx context.Context, name string) error {
	return c.onWorker(ctx, "resuming", name, "unpause", name)
}

// StopKubelet implements clusters.KubeletStopper.
func (c *Cluster) StopKubelet(ctx context.Context, name string) error {
	return c.onWorker(ctx, "stopping the kubelet of", name, "exec", name, "systemctl", "stop", "kubelet")
}

// StartKubelet implements clusters.KubeletStopper.
func (c *Cluster) StartKubelet(ctx context.Context, name string) error {
	return c.onWorker(ctx, "starting the kubelet of", name, "exec", name, "systemctl", "start", "kubelet")
}

// KillRuntime implements clusters.RuntimeKiller. Only the main process is hit:
// what holds the containers is in the same unit and must live on.
func (c *Cluster) KillRuntime(ctx context.Context, name string) error {
	return c.onWorker(ctx, "killing the runtime of", name,
		"exec", name, "systemctl", "kill", "--kill-whom=main", "--signal=KILL", "containerd")
}

// PartitionNode implements clusters.NodePartitioner.
func (c *Cluster) PartitionNode(ctx context.Context, name string) error {
	return c.onWorker(ctx, "cutting off", name, "exec", name, "sh", "-c", cutScript(c.controlPlaneAddress()))
}

// HealNode implements clusters.NodePartitioner.
func (c *Cluster) HealNode(ctx context.Context, name string) error {
	return c.onWorker(ctx, "healing", name, "exec", name, "sh", "-c", mendScript(c.controlPlaneAddress()))
}

// onWorker runs one command of the engine for a worker.
func (c *Cluster) onWorker(ctx context.Context, doing, name string, args ...string) error {
	if err := c.checkWorker(name); err != nil {
		return fmt.Errorf("%s node: %w", doing, err)
	}
	if _, err := engine.Run(ctx, args...); err != nil {
		return fmt.Errorf("%s node %s: %w", doing, name, err)
	}
	return nil
}

// controlPlaneAddress is fixed, as that node is never without power.
func (c *Cluster) controlPlaneAddress() string {
	for _, n := range c.nodes {
		if n.isControlPlane {
			return n.address
		}
	}
	return ""
}

// lockWait is how long iptables waits for others that change the same rules.
const lockWait = "5"

// cutScript puts its rules before all others. Cutting twice is cutting once.
func cutScript(address string) string {
	return eachRule(address, func(rule string) string {
		return fmt.Sprintf("iptables -w %s -C %s || iptables -w %s -I %s\n", lockWait, rule, lockWait, rule)
	})
}

func mendScript(address string) string {
	return eachRule(address, func(rule string) string {
		return fmt.Sprintf("if iptables -w %s -C %s; then iptables -w %s -D %s; fi\n", lockWait, rule, lockWait, rule)
	})
}

func eachRule(address string, line func(rule string) string) string {
	return "set -e\n" +
		line("INPUT -s "+address+" -j DROP") +
		line("OUTPUT -d "+address+" -j DROP")
}

// Sandboxes implements clusters.SandboxLister.
func (c *Cluster) Sandboxes(ctx context.Context, name string) ([]clusters.Sandbox, error) {
	hasPower, err := hasPower(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("listing sandboxes of %s: %w", name, err)
	}
	if !hasPower {
		return nil, nil
	}
	text, err := engine.Run(ctx, "exec", name, "crictl", "pods", "--state", "ready", "--output", "json")
	if err != nil {
		return nil, fmt.Errorf("listing sandboxes of %s: %w", name, err)
	}
	list, err := parseSandboxes(text)
	if err != nil {
		return nil, fmt.Errorf("listing sandboxes of %s: %w", name, err)
	}
	return list, nil
}

func parseSandboxes(text string) ([]clusters.Sandbox, error) {
	var answer struct {
		Items []struct {
			ID       string
			Metadata struct{ Name, Namespace, UID string }
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		return nil, fmt.Errorf("decoding what the runtime says: %w", err)
	}
	var list []clusters.Sandbox
	for _, item := range answer.Items {
		list = append(list, clusters.Sandbox{
			ID: item.ID, Namespace: item.Metadata.Namespace, Pod: item.Metadata.Name, PodUID: item.Metadata.UID,
		})
	}
	slices.SortFunc(list, func(a, b clusters.Sandbox) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}
