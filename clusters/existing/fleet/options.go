package fleet

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
	"github.com/danm-chaos/danm-chaos/clusters/existing"
)

// Defaults of a fleet.
const (
	AttemptsDefault = 4
	LifetimeDefault = 4 * time.Hour
)

// shardsMax bounds a Job. Its status lists indexes, and its pods' arguments the
// shards, so that neither may grow without end.
const shardsMax = 1000

// Options say what is run where.
type Options struct {
	RunID      string
	Kubeconfig string
	Context    string // must be named: whatever is current may be anything
	// Production is a pattern that neither context, cluster nor server may
	// match; nil means none.
	Production *regexp.Regexp
	Image      string
	// Args are those of the program. What says which shard a pod is to do comes
	// after them.
	Args []string
	// Shards are those to do, one pod each. Their names become parts of names of
	// objects.
	Shards []string
	// Attempts is how often a shard is tried before it counts as lost.
	Attempts int
	// Lifetime is how long the Job may take: then its pods end, and what is left
	// may be removed by anybody.
	Lifetime time.Duration
	// Resume goes on with what an earlier program of this run left.
	Resume   bool
	Progress io.Writer // for people; may be nil
}

func (o Options) withDefaults() Options {
	o.Attempts = cmp.Or(o.Attempts, AttemptsDefault)
	o.Lifetime = cmp.Or(o.Lifetime, LifetimeDefault)
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	return o
}

// shardName is what both the command line of a pod and a name of an object take.
var shardName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// check finds what is wrong before the cluster is asked anything.
func (o Options) check() error {
	switch {
	case o.Image == "":
		return existing.Refuse("--image is missing: name an image of danm-chaos that the cluster's nodes have or can pull (make image)")
	case len(o.Shards) > shardsMax:
		return existing.Refuse(fmt.Sprintf("--shards: %d are more than %d", len(o.Shards), shardsMax))
	case o.Attempts < 1:
		return existing.Refuse(fmt.Sprintf("--attempts %d: give at least 1", o.Attempts))
	case o.Lifetime < time.Second:
		return existing.Refuse(fmt.Sprintf("--lifetime %s: give, for example, %s", o.Lifetime, LifetimeDefault))
	}
	for _, name := range o.Shards {
		if !shardName.MatchString(name) {
			return fmt.Errorf("naming shards: %q cannot be part of the name of an object", name)
		}
	}
	return nil
}

// reach are the options that choose the cluster.
func (o Options) reach() existing.Options {
	return existing.Options{RunID: o.RunID, Kubeconfig: o.Kubeconfig, Context: o.Context, Production: o.Production}
}

// journalVersion is the version of the file format. Clean refuses others.
const journalVersion = 1

// journalData says how to reach a cluster in which a fleet may be.
type journalData struct {
	Version int    `json:"version"`
	RunID   string `json:"runId"`
	// Owner is the program that gathers. While it lives, nobody else removes the
	// fleet.
	Owner      controlplane.Process `json:"owner"`
	Kubeconfig string               `json:"kubeconfig"`
	Context    string               `json:"context"`
	Server     string               `json:"server"`
	Expires    time.Time            `json:"expires"`
}

// Head implements controlplane.Journal.
func (d journalData) Head() (string, controlplane.Process) { return d.RunID, d.Owner }
