package existing

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
)

// controlPlaneLabels are on nodes that must not be failed.
var controlPlaneLabels = []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"}

// Preflight is what was found in a cluster before anything was done to it.
type Preflight struct {
	Findings []controlplane.Finding
	// Actions tell what a run does to which objects, one line each.
	Actions []string
	Workers []string // that a run would use
	Cleaner Deployed
	Version string // of the API server
	// Kinds are those that the API serves. DANM installs them in sets.
	Kinds []danm.NetworkKind
	// Network is the one that was named, nil if lanes make their own.
	Network *danm.Network
	// HasChaosMesh tells whether Chaos Mesh's API is served.
	HasChaosMesh bool

	access access
}

// Refusals lists what keeps a run from beginning, one line each.
func (p Preflight) Refusals() []string {
	var lines []string
	for _, f := range p.Findings {
		if f.OK || f.Optional {
			continue
		}
		line := f.Name + ": " + f.Detail
		if f.Cure != "" {
			line += ": " + f.Cure
		}
		lines = append(lines, line)
	}
	return lines
}

// Examine asks the cluster about everything that a run needs. It changes
// nothing. The error is a Refusal where there is no cluster to ask, or none
// that may be asked.
func Examine(ctx context.Context, o Options) (Preflight, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return Preflight{}, err
	}
	a, err := connect(o)
	if err != nil {
		return Preflight{}, err
	}
	p := Preflight{access: a}
	if err := p.examineVersion(ctx); err != nil {
		return p, err
	}
	if err := a.checkProduction(ctx, o); err != nil {
		return p, err
	}
	p.examineResources(o)
	p.examineChaosMesh()
	o.Kinds, o.UsesChaosMesh = p.usable(o.Kinds), o.UsesChaosMesh && p.HasChaosMesh
	if err := p.examineRights(ctx, o); err != nil {
		return p, err
	}
	p.examineCleaner(ctx, o)
	p.examineWorkers(ctx, o)
	p.examineNodeHooks(o)
	p.examineNetwork(ctx, o)
	p.Actions = p.actions(o)
	return p, nil
}

func (p *Preflight) add(name string, ok bool, detail, cure string) {
	f := controlplane.Finding{Name: name, OK: ok, Detail: detail}
	if !ok {
		f.Cure = cure
	}
	p.Findings = append(p.Findings, f)
}

// lacks notes what a run can do without.
func (p *Preflight) lacks(name, detail, cure string) {
	p.Findings = append(p.Findings, controlplane.Finding{Name: name, Detail: detail, Cure: cure, Optional: true})
}

func (p *Preflight) examineVersion(ctx context.Context) error {
	v, err := p.access.serverVersion(ctx)
	if err != nil {
		return err
	}
	p.Version = v.GitVersion
	p.add("API server", true, v.GitVersion+" at "+p.access.config.Host, "")
	return nil
}

func (a access) serverVersion(ctx context.Context) (*version.Info, error) {
	v, err := a.finder.ServerVersion()
	if err != nil {
		return nil, Refuse(fmt.Sprintf("the API server %s does not answer: %v", a.config.Host, err))
	}
	return v, ctx.Err()
}

// examineResources looks at what the API server serves of DANM.
func (p *Preflight) examineResources(o Options) {
	var served []danm.Group
	for _, g := range danm.Groups() {
		list, err := p.access.finder.ServerResourcesForGroupVersion(g.GroupVersion().String())
		if err != nil {
			continue
		}
		served = append(served, g)
		if g == o.Group {
			p.examineShapes(o, list)
		}
	}
	cure := "name the group that is used with --danm-api"
	switch {
	case len(served) == 0:
		p.add("DANM's API", false, "neither danm.io/v1 nor danm.k8s.io/v1 is served", "install DANM first")
	case !slices.Contains(served, o.Group):
		p.add("DANM's API", false, fmt.Sprintf("%s is not served, but %s is", o.Group, served[0]), cure)
	case len(served) > 1:
		p.add("DANM's API", true, fmt.Sprintf("%s/v1; %s is served too, as during a migration", o.Group, o.Group.Other()), "")
	default:
		p.add("DANM's API", true, string(o.Group)+"/v1", "")
	}
}

// usable keeps the kinds that are served.
func (p *Preflight) usable(kinds []string) []string {
	return slices.DeleteFunc(slices.Clone(kinds), func(k string) bool { return !slices.Contains(p.Kinds, danm.NetworkKind(k)) })
}

// examineShapes holds what is served against what a run relies on.
func (p *Preflight) examineShapes(o Options, list *metav1.APIResourceList) {
	byName := map[string]metav1.APIResource{}
	for _, r := range list.APIResources {
		byName[r.Name] = r
	}
	var found, wrong []string
	note := func(resource, trouble string) bool {
		if trouble != "" {
			wrong = append(wrong, trouble)
			return false
		}
		if _, hasStatus := byName[resource+"/status"]; hasStatus {
			resource += " with status"
		}
		found = append(found, resource)
		return true
	}
	note(danm.EndpointResource, misshape(byName, danm.EndpointResource, true))
	for _, kind := range danm.NetworkKinds() {
		if _, served := byName[kind.Resource()]; !served {
			continue
		}
		if note(kind.Resource(), misshape(byName, kind.Resource(), kind.IsNamespaced())) {
			p.Kinds = append(p.Kinds, kind)
		}
	}
	if len(o.Kinds) > 0 && len(p.usable(o.Kinds)) == 0 {
		wrong = append(wrong, "none of "+strings.Join(o.Kinds, ", ")+" is served")
	}
	p.add("resource definitions", len(wrong) == 0, strings.Join(append(wrong, found...), ", "), "install the definitions of this DANM release")
}

// misshape says in what a resource differs from DANM's, or nothing.
func misshape(byName map[string]metav1.APIResource, resource string, namespaced bool) string {
	r, ok := byName[resource]
	switch {
	case !ok:
		return resource + " is not served"
	case r.Namespaced != namespaced:
		return fmt.Sprintf("%s is namespaced: %v", resource, r.Namespaced)
	case !slices.Contains(r.Verbs, "watch") || !slices.Contains(r.Verbs, "patch"):
		return resource + " cannot be watched or patched"
	}
	return ""
}

func (p *Preflight) examineRights(ctx context.Context, o Options) error {
	rights := rightsFor(o, p.Kinds)
	missing, err := MissingRights(ctx, p.access.core, rights)
	if err != nil {
		return err
	}
	for _, r := range missing {
		p.add("right to "+r.String(), false, "denied in all namespaces; "+r.Why, "bind a ClusterRole that allows it")
	}
	if len(missing) == 0 {
		p.add("rights", true, fmt.Sprintf("all %d that are needed", len(rights)), "")
	}
	return nil
}

func (p *Preflight) examineCleaner(ctx context.Context, o Options) {
	d, err := p.access.findCleaner(ctx, o)
	switch {
	case apierrors.IsForbidden(err):
		return // the missing right is reported already
	case err != nil:
		p.add("cleaner", false, err.Error(), "name it with --cleaner-deployment NAMESPACE/NAME")
	default:
		p.Cleaner = d
		p.add("cleaner", d.Ready > 0, d.String(), "there is nothing to test until it runs")
	}
}

// examineWorkers finds the nodes that a run would use.
func (p *Preflight) examineWorkers(ctx context.Context, o Options) {
	list, err := p.access.core.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		if !apierrors.IsForbidden(err) {
			p.add("workers", false, err.Error(), "try again")
		}
		return
	}
	byName := map[string]*corev1.Node{}
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	var fit, unfit []string
	if len(o.Workers) > 0 {
		for _, name := range o.Workers {
			if reason := unfitness(byName[name]); reason != "" {
				unfit = append(unfit, name+" "+reason)
				continue
			}
			fit = append(fit, name)
		}
	} else {
		for i := range list.Items {
			if unfitness(&list.Items[i]) == "" {
				fit = append(fit, list.Items[i].Name)
			}
		}
	}
	slices.Sort(fit)
	need := o.Lanes * o.NodesPerLane
	p.Workers = fit[:min(len(fit), need)]
	detail := strings.Join(append([]string{fmt.Sprintf("%d fit, %d needed", len(fit), need)}, unfit...), ", ")
	p.add("workers", len(unfit) == 0 && len(fit) >= min(need, o.NodesPerLane), detail, "name Ready workers with --on-nodes")
}

// unfitness says why a node cannot be used, or nothing.
func unfitness(n *corev1.Node) string {
	switch {
	case n == nil:
		return "does not exist"
	case !isReady(n):
		return "is not Ready"
	case n.Spec.Unschedulable:
		return "is cordoned"
	case n.Labels[clusters.RunLabel] != "":
		return "is used by run " + n.Labels[clusters.RunLabel]
	}
	for _, label := range controlPlaneLabels {
		if _, ok := n.Labels[label]; ok {
			return "is of the control plane"
		}
	}
	for _, t := range n.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule {
			return "is tainted " + t.Key
		}
	}
	return ""
}

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (p *Preflight) examineNodeHooks(o Options) {
	if o.hasHooks() {
		p.add("node hooks", true, fmt.Sprintf("down %q, up %q", strings.Join(o.NodeDown, " "), strings.Join(o.NodeUp, " ")), "")
		return
	}
	p.lacks("node hooks", "none: nodes cannot be failed", "name --node-down and --node-up")
}

func (p *Preflight) examineChaosMesh() {
	_, err := p.access.finder.ServerResourcesForGroupVersion(chaosMeshGroupVersion)
	p.HasChaosMesh = err == nil
	if p.HasChaosMesh {
		p.add(ChaosMeshFinding, true, chaosMeshGroupVersion+" is served; which faults work, doctor --probe tells", "")
		return
	}
	p.lacks(ChaosMeshFinding, "not found: its faults are skipped", "install it, if they are wanted")
}

// ChaosMeshFinding is the finding that tells whether Chaos Mesh is there.
const ChaosMeshFinding = "Chaos Mesh"

const chaosMeshGroupVersion = "chaos-mesh.org/v1alpha1"

// actions tells everything that a run does to this cluster.
func (p *Preflight) actions(o Options) []string {
	network := "a network of its own"
	if o.Network != "" {
		network = fmt.Sprintf("pods that take up to %d addresses of ClusterNetwork %s", o.Addresses, o.Network)
	}
	lines := []string{
		fmt.Sprintf("create namespaces chaos-lane-*, each with a StatefulSet and %s, labelled %s; delete them at the end", network, clusters.RunLabel),
		fmt.Sprintf("label and annotate nodes %s; take both back at the end", strings.Join(p.Workers, ", ")),
		"delete, force delete and evict pods in these namespaces only",
	}
	if o.FailsNodes && o.hasHooks() {
		lines = append(lines, fmt.Sprintf("switch off and on, one after the other in each lane, nodes %s with all pods that run on them", strings.Join(p.Workers, ", ")))
	}
	if o.UsesChaosMesh {
		lines = append(lines, "have Chaos Mesh break pods of these namespaces and of the cleaner, each by name, through objects in these namespaces")
	}
	if p.Cleaner.Name != "" {
		lines = append(lines, fmt.Sprintf("test the cleaner %s/%s as it is; its pods are deleted only by faults that say so", p.Cleaner.Namespace, p.Cleaner.Name))
	}
	return append(lines, fmt.Sprintf("nothing else; after %s anybody's danm-chaos may remove what is left", o.Lifetime))
}
