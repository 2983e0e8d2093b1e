package nemesis

import (
	"context"
	"fmt"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// outage is one way to silence a node, and what undoes it.
type outage struct {
	what         string // that the cluster can do, for people
	inject, heal func(context.Context, string) error
}

// outageOf returns how the cluster does it; inject is nil if it cannot.
func outageOf(cluster clusters.Cluster, o schedule.Outage) outage {
	switch o {
	case schedule.Hang:
		c, ok := cluster.(clusters.NodePauser)
		if ok {
			return outage{"make nodes hang", c.PauseNode, c.ResumeNode}
		}
		return outage{what: "make nodes hang"}
	case schedule.CutOff:
		c, ok := cluster.(clusters.NodePartitioner)
		if ok {
			return outage{"cut nodes off", c.PartitionNode, c.HealNode}
		}
		return outage{what: "cut nodes off"}
	case schedule.NoKubelet:
		c, ok := cluster.(clusters.KubeletStopper)
		if ok {
			return outage{"stop kubelets", c.StopKubelet, c.StartKubelet}
		}
		return outage{what: "stop kubelets"}
	default:
		c, ok := cluster.(clusters.NodeFailer)
		if ok {
			return outage{"fail nodes", c.FailNode, c.RestoreNode}
		}
		return outage{what: "fail nodes"}
	}
}

// CannotDo says why an outage would be skipped, or nothing.
func CannotDo(cluster clusters.Cluster, o schedule.Outage) string {
	if how := outageOf(cluster, o); how.inject == nil {
		return fmt.Sprintf("cluster %s cannot %s", cluster.Name(), how.what)
	}
	return ""
}

// FailNode silences a node.
func (n *Nemesis) FailNode(ctx context.Context, node string, o schedule.Outage) Outcome {
	if why := CannotDo(n.cluster, o); why != "" {
		return Skipped(why)
	}
	if err := outageOf(n.cluster, o).inject(ctx, node); err != nil {
		return Unclear(fmt.Errorf("failing node %s: %w", node, err))
	}
	return OK("")
}

// RestoreNode undoes the outage of a node.
func (n *Nemesis) RestoreNode(ctx context.Context, node string, o schedule.Outage) Outcome {
	if why := CannotDo(n.cluster, o); why != "" {
		return Skipped(why)
	}
	if err := outageOf(n.cluster, o).heal(ctx, node); err != nil {
		return Unclear(fmt.Errorf("restoring node %s: %w", node, err))
	}
	return OK("")
}
