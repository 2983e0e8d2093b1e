package fleet

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
	"github.com/danm-chaos/danm-chaos/clusters/existing"
)

// versionMin is the first Kubernetes whose Jobs count the failures of each index
// by itself without a feature gate.
const versionMin = "1.29.0"

// Preflight is what was found in a cluster before anything was done to it.
type Preflight struct {
	Findings []controlplane.Finding
	// Actions tell what a fleet does to which objects, one line each.
	Actions []string

	reached existing.Reached
}

// Examine asks the cluster for what a fleet needs. It changes nothing. The error
// is a Refusal where the fleet cannot be.
func Examine(ctx context.Context, o Options) (Preflight, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return Preflight{}, err
	}
	reached, err := existing.Reach(ctx, o.reach())
	if err != nil {
		return Preflight{}, err
	}
	p := Preflight{reached: reached, Actions: actions(o)}
	if refusal := p.examineVersion(); refusal != "" {
		return p, existing.Refuse(refusal)
	}
	return p, p.examineRights(ctx)
}

func (p *Preflight) examineVersion() string {
	v, err := version.ParseGeneric(p.reached.Version)
	if err != nil || v.LessThan(version.MustParseGeneric(versionMin)) {
		return fmt.Sprintf("API server: %s cannot count failures of Jobs for each index: a fleet needs Kubernetes %s", p.reached.Version, versionMin)
	}
	p.Findings = append(p.Findings, controlplane.Finding{Name: "API server", OK: true, Detail: p.reached.Version + " at " + p.reached.Config.Host})
	return ""
}

func (p *Preflight) examineRights(ctx context.Context) error {
	all := rights()
	missing, err := existing.MissingRights(ctx, p.reached.Core, all)
	if err != nil {
		return err
	}
	if len(missing) == 0 {
		p.Findings = append(p.Findings, controlplane.Finding{Name: "rights", OK: true, Detail: fmt.Sprintf("all %d that are needed", len(all))})
		return nil
	}
	var lines []string
	for _, r := range missing {
		lines = append(lines, fmt.Sprintf("right to %s: denied in all namespaces; %s: bind a ClusterRole that allows it", r, r.Why))
	}
	return existing.Refuse(lines...)
}

// rights lists what it takes to run a fleet.
func rights() []existing.Right {
	var all []existing.Right
	add := func(group, resource, why string, verbs ...string) {
		for _, verb := range verbs {
			all = append(all, existing.Right{Group: group, Resource: resource, Verb: verb, Why: why})
		}
	}
	add("", "namespaces", "the fleet has its own", "get", "list", "create", "delete")
	add("", "serviceaccounts", "its pods are nobody else", "create")
	add("rbac.authorization.k8s.io", "roles", "its pods may store results", "create")
	add("rbac.authorization.k8s.io", "rolebindings", "its pods may store results", "create")
	add("batch", "jobs", "it is one", "list", "create", "get", "delete")
	add("", "configmaps", "results are stored in them; nobody can give a right that they lack", "create", "get")
	add("", "pods", "why a shard waits or is lost is said by its pods", "list", "deletecollection")
	add("", "pods/log", "so is how far it got", "get")
	return all
}

// actions tells everything that a fleet does to this cluster.
func actions(o Options) []string {
	return []string{
		fmt.Sprintf("create a namespace %s*, labelled %s, and delete it with all that is in it at the end", namespacePrefix, clusters.RunLabel),
		fmt.Sprintf("run %d pods of image %s in it, each with one core and %s of memory; they may create ConfigMaps there and nothing else",
			len(o.Shards), o.Image, resources.Memory()),
		fmt.Sprintf("nothing else; after %s the pods end, and anybody's danm-chaos may remove what is left", o.Lifetime),
	}
}
