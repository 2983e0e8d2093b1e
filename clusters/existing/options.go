package existing

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// Defaults of a cluster whose nodes are machines.
const (
	HookTimeoutDefault = 2 * time.Minute
	NodeTimeoutDefault = 5 * time.Minute
	LifetimeDefault    = 4 * time.Hour
)

// NodePlaceholder stands for the name of a node in the arguments of a hook.
const NodePlaceholder = "{{node}}"

// ProductionAnnotation on the namespace kube-system, with any value but
// "false", says that a cluster is no place for experiments.
const ProductionAnnotation = "chaos.danm/production"

// Options say which cluster to use, and how far a run may go in it.
type Options struct {
	RunID      string
	Kubeconfig string
	Context    string // must be named: whatever is current may be anything
	Group      danm.Group
	// Workers are the nodes that may be used; empty means every Ready worker
	// that takes pods.
	Workers []string
	Lanes   int // as many nodes as these take are touched
	// NodesPerLane is how many workers a lane needs.
	NodesPerLane int
	// Kinds are the networks that the scenario makes.
	Kinds []string
	// Network is the name of a ClusterNetwork to use; empty has lanes make their
	// own. ShareNetwork accepts that pods of others use it.
	Network      string
	ShareNetwork bool
	Addresses    int  // that the workload needs at most, old pods and new
	FailsNodes   bool // the scenario does
	// UsesChaosMesh tells whether the scenario wants faults of Chaos Mesh.
	UsesChaosMesh bool
	// NodeDown and NodeUp are programs with arguments that switch a node off
	// and on, with NodePlaceholder for its name. Both or none.
	NodeDown, NodeUp []string
	HookTimeout      time.Duration // of one run of a hook
	NodeTimeout      time.Duration // until the API shows what a hook did
	// Cleaner is namespace/name of the Deployment under test; empty means the
	// only one that looks like a cleaner.
	Cleaner string
	// CleanerManagers are field managers that the cleaner writes as, besides
	// those that follow from its image and command.
	CleanerManagers []string
	// Production is a pattern that neither context, cluster nor server may
	// match; nil means none.
	Production *regexp.Regexp
	// Lifetime is how long a run may take: what is left after it may be removed
	// by anybody.
	Lifetime time.Duration
	Image    string    // of the pod that Probe makes
	Progress io.Writer // for people; may be nil
}

func (o Options) withDefaults() Options {
	o.HookTimeout = cmp.Or(o.HookTimeout, HookTimeoutDefault)
	o.NodeTimeout = cmp.Or(o.NodeTimeout, NodeTimeoutDefault)
	o.Lifetime = cmp.Or(o.Lifetime, LifetimeDefault)
	o.Lanes, o.NodesPerLane = max(o.Lanes, 1), max(o.NodesPerLane, 1)
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	return o
}

// hasHooks tells whether nodes can be switched.
func (o Options) hasHooks() bool { return len(o.NodeDown) > 0 && len(o.NodeUp) > 0 }

// check finds what is wrong before the cluster is asked anything.
func (o Options) check() error {
	switch {
	case o.Kubeconfig == "":
		return Refuse("--kubeconfig is missing: name the file, nothing is looked for by itself")
	case o.Context == "":
		return Refuse("--context is missing: name it, the current one may be any cluster")
	case (len(o.NodeDown) == 0) != (len(o.NodeUp) == 0):
		return Refuse("--node-down and --node-up belong together: a node that is switched off must be switched on again")
	}
	for flag, argv := range map[string][]string{"--node-down": o.NodeDown, "--node-up": o.NodeUp} {
		if len(argv) > 0 && !strings.Contains(strings.Join(argv, " "), NodePlaceholder) {
			return Refuse(fmt.Sprintf("%s does not say which node: put %s where its name belongs", flag, NodePlaceholder))
		}
	}
	return nil
}

// Refusal is why nothing was done. Each reason is one line.
type Refusal struct{ Reasons []string }

// Refuse returns a refusal.
func Refuse(reasons ...string) error { return &Refusal{reasons} }

// Error joins the reasons.
func (r *Refusal) Error() string { return strings.Join(r.Reasons, "; ") }
