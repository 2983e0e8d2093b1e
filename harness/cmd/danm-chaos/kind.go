package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
	"github.com/danm-chaos/danm-chaos/clusters/existing"
	"github.com/danm-chaos/danm-chaos/clusters/existing/fleet"
	"github.com/danm-chaos/danm-chaos/clusters/kind"
	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/scenarios"
)

const kindCluster = "kind"

// defaultDetectionBudget is how long a dead node's pods may take to become
// Terminating where Kubernetes' own settings decide that it is dead.
const defaultDetectionBudget = 3 * time.Minute

// kindFlags are the flags that only a kind cluster takes.
type kindFlags struct {
	workers          int
	nodeImage        string
	defaultDetection bool
	keep             bool
}

func (f *kindFlags) register(fs *pflag.FlagSet) {
	fs.IntVar(&f.workers, "nodes", kind.WorkersDefault, "kind: how many workers; each lane takes as many as the scenario says")
	fs.StringVar(&f.nodeImage, "node-image", "", "kind: node image; empty takes one that is there, pulls the public one, or builds one")
	fs.BoolVar(&f.defaultDetection, "default-detection", false, "kind: leave it to Kubernetes' own settings when a node counts as dead")
	fs.BoolVar(&f.keep, "keep", false, "kind: leave the cluster when the run is over; danm-chaos clean removes it")
}

// check refuses what would be ignored.
func (f kindFlags) check(cluster string) error {
	if f.workers < 1 {
		return usagef("--nodes %d: give at least 1, and 2 if nodes are shut down", f.workers)
	}
	if cluster != kindCluster && f != (kindFlags{workers: kind.WorkersDefault}) {
		return usagef("--nodes, --node-image, --default-detection and --keep are for --cluster %s", kindCluster)
	}
	return nil
}

// checkNodes refuses a scenario whose faults the cluster's nodes cannot have.
func checkNodes(s harness.Scenario, cluster string) error {
	if s.NeedsRealNodes() && cluster != kindCluster {
		return usagef("scenario %s: its nodes hang, are cut off or lose their kubelet, which only real ones do: use --cluster %s", s.Name, kindCluster)
	}
	if s.Disturbs() && cluster == simCluster {
		return usagef("scenario %s: it evicts, drains, scales, taints or kills the cleaner's pods, which the simulator does not play from a scenario: use another --cluster", s.Name)
	}
	return nil
}

// simulated returns the scenarios that the simulator is to run: those named, or
// all that it has the faults of.
func simulated(names []string) ([]string, error) {
	for _, name := range names {
		s, err := namedScenario(name)
		if err == nil {
			err = checkNodes(s, simCluster)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(names) > 0 {
		return names, nil
	}
	for _, s := range scenarios.All() {
		if checkNodes(s, simCluster) == nil {
			names = append(names, s.Name)
		}
	}
	return names, nil
}

// deploysCleaner tells whether the cleaner runs in pods. Canaries and programs
// of others have no image.
func (p plan) deploysCleaner() bool { return p.cluster == kindCluster && p.cleaner == defaultCleaner }

// kindMisses are the flags of a kind cluster that the harness does not know of.
// Whether it was kept changes nothing of what happened.
func (p plan) kindMisses() string {
	if p.cluster != kindCluster {
		return ""
	}
	return changed([]setting{
		{"--nodes", fmt.Sprint(p.workers), fmt.Sprint(kind.WorkersDefault)},
		{"--node-image", p.nodeImage, ""},
		{"--default-detection", fmt.Sprint(p.defaultDetection), "false"},
	})
}

// prepareMachine finds out before anything of the run is made whether the
// machine can run the cluster at all.
func (p plan) prepareMachine(ctx context.Context, out io.Writer) error {
	if p.cluster != kindCluster {
		return nil
	}
	err := kind.Prepare(ctx, p.nodeImage, out)
	if unfit := (*kind.UnfitHostError)(nil); errors.As(err, &unfit) {
		return usagef("--cluster %s: %w", kindCluster, unfit)
	}
	return err
}

// patient gives the scenario the time that slow detection takes.
func (p plan) patient() plan {
	if p.defaultDetection {
		terminating := &p.scenario.Budgets.Terminating
		terminating.Duration = max(terminating.Duration, defaultDetectionBudget)
	}
	return p
}

func startKind(ctx context.Context, p plan, d runDir, records history.Recorder, out io.Writer) (clusters.Cluster, error) {
	c, err := kind.Start(ctx, kind.Options{
		RunID: d.id, Group: p.group, Workers: p.workers, Image: p.nodeImage, CNI: p.variant,
		DefaultDetection: p.defaultDetection, Recorder: records, Progress: out, KeepLogs: d.join(logsDir),
	})
	if err != nil {
		return nil, err // not c, which would be a non-nil interface around nil
	}
	return c, nil
}

// examine looks at what a kind of cluster needs.
func examine(ctx context.Context, cluster, image string) []controlplane.Finding {
	switch cluster {
	case kindCluster:
		return kind.Doctor(ctx, image)
	case simCluster:
		return examineSim(ctx)
	}
	return controlplane.Doctor(ctx)
}

// cleanRuns cleans what clusters of every kind left. A run has one of them, so
// that an ID is known to one only.
func cleanRuns(ctx context.Context, id string, out io.Writer) error {
	said := &noticing{out: out}
	err := errors.Join(controlplane.Clean(ctx, id, said), kind.Clean(ctx, id, said), existing.Clean(ctx, id, said), fleet.Clean(ctx, id, said))
	if err == nil && !said.anything {
		fmt.Fprintln(out, "nothing to clean")
	}
	return err
}

// noticing notices whether something is written.
type noticing struct {
	out      io.Writer
	anything bool
}

// Write passes the text on.
func (n *noticing) Write(p []byte) (int, error) {
	n.anything = true
	return n.out.Write(p)
}

// end closes the cluster, or leaves it if it is to be kept.
func (p plan) end(ctx context.Context, cluster clusters.Cluster, id string, out io.Writer) error {
	k, isKind := cluster.(*kind.Cluster)
	if !isKind || !p.keep {
		return cluster.Close(ctx)
	}
	fmt.Fprintf(out, "\nthe cluster is kept: export KUBECONFIG=%s\nto remove it: %s\n", k.Kubeconfig(), commandLine(programName(), "clean", id))
	return k.Leave(ctx)
}
