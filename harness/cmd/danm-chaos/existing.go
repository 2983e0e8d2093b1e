package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
	"github.com/danm-chaos/danm-chaos/clusters/existing"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

const (
	existingCluster = "existing"
	// deployedCleaner is the only cleaner that an existing cluster can test.
	deployedCleaner   = "deployed"
	defaultProduction = "(?i)prod"
	defaultImage      = "registry.k8s.io/pause:3.10"
)

// Least budgets on machines: a node takes its time to be missed, images to be
// pulled, and the cleaner's quarantines come on top.
const (
	recreateBudgetMin = 5 * time.Minute
	settleMargin      = time.Minute
)

// existingFlags are the flags that only an existing cluster takes.
type existingFlags struct {
	kubeconfig, context string
	onWorkers           []string
	nodeDown, nodeUp    string
	hookTimeout         time.Duration
	nodeTimeout         time.Duration
	cleanerDeployment   string
	cleanerManagers     []string
	production          string
	lifetime            time.Duration
	image               string
	network             string
	shareNetwork        bool
	yes                 bool
}

func (f *existingFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.nodeDown, "node-down", "", "existing: program that switches a node off, "+existing.NodePlaceholder+" for its name")
	fs.StringVar(&f.nodeUp, "node-up", "", "existing: program that switches it on again")
	fs.DurationVar(&f.hookTimeout, "hook-timeout", existing.HookTimeoutDefault, "existing: of --node-down and --node-up")
	fs.StringVar(&f.network, "network", "", "existing: ClusterNetwork to use; empty has every lane make a network of its own")
	fs.BoolVar(&f.shareNetwork, "share-network", false, "existing: use --network although pods of others do")
	fs.BoolVar(&f.yes, "yes", false, "existing: begin without asking")
	f.registerReach(fs)
}

// registerReach adds the flags that doctor has too.
func (f *existingFlags) registerReach(fs *pflag.FlagSet) {
	fs.StringVar(&f.image, "image", defaultImage, "existing: image of pods that are made")
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "existing: kubeconfig; nothing is looked for by itself")
	fs.StringVar(&f.context, "context", "", "existing: context; the current one is never taken")
	fs.StringSliceVar(&f.onWorkers, "on-nodes", nil, "existing: nodes that may be touched; empty means Ready workers, as many as are needed")
	fs.DurationVar(&f.nodeTimeout, "node-timeout", existing.NodeTimeoutDefault, "existing: until the API shows that a node is down, or up")
	fs.StringVar(&f.cleanerDeployment, "cleaner-deployment", "", "existing: NAMESPACE/NAME of the cleaner under test; empty finds it")
	fs.StringSliceVar(&f.cleanerManagers, "cleaner-manager", nil, "existing: further field managers that it writes as")
	fs.StringVar(&f.production, "production-pattern", defaultProduction, "existing: refuse clusters whose context, name or server match; empty refuses none")
	fs.DurationVar(&f.lifetime, "lifetime", existing.LifetimeDefault, "existing: end the run by then; later anybody may remove what it left")
}

// isGiven tells whether any of the flags is not as by default.
func (f existingFlags) isGiven() bool {
	var unset existingFlags
	unset.register(pflag.NewFlagSet("", pflag.ContinueOnError))
	return f.text() != unset.text()
}

func (f existingFlags) text() string { return fmt.Sprintf("%+v", f) }

// checkExisting refuses what would be ignored, and names what is tested.
func (f runFlags) checkExisting() (runFlags, error) {
	if f.cluster != existingCluster {
		if f.existingFlags.isGiven() {
			return f, usagef("--kubeconfig, --context, --node-down and the others of an existing cluster are for --cluster %s", existingCluster)
		}
		if f.cleaner == deployedCleaner {
			return f, usagef("--cleaner %s: only --cluster %s has one", deployedCleaner, existingCluster)
		}
		return f, nil
	}
	if f.cleaner != defaultCleaner && f.cleaner != deployedCleaner {
		return f, usagef("--cleaner %s: an existing cluster tests the cleaner that is deployed in it: use --cleaner %s", f.cleaner, deployedCleaner)
	}
	f.cleaner = deployedCleaner
	if f.dryRun {
		return f, usagef("--dry-run: a deployed cleaner has its own arguments")
	}
	if _, err := regexp.Compile(f.production); err != nil {
		return f, usagef("--production-pattern %q: %w", f.production, err)
	}
	if f.network != "" && f.lanes > 1 {
		return f, usagef("--network %s: it is for one lane, not %d", f.network, f.lanes)
	}
	_, err := f.existingOptions(danm.Group(f.group))
	return f, err
}

// existingOptions are those that do not depend on the scenario.
func (f existingFlags) existingOptions(group danm.Group) (existing.Options, error) {
	o := existing.Options{
		Kubeconfig: f.kubeconfig, Context: f.context, Group: group, Workers: f.onWorkers,
		HookTimeout: f.hookTimeout, NodeTimeout: f.nodeTimeout, Cleaner: f.cleanerDeployment, CleanerManagers: f.cleanerManagers,
		Lifetime: f.lifetime,
	}
	if f.production != "" {
		pattern, err := regexp.Compile(f.production)
		if err != nil {
			return o, usagef("--production-pattern %q: %w", f.production, err)
		}
		o.Production = pattern
	}
	for _, hook := range []struct {
		flag, value string
		to          *[]string
	}{{"--node-down", f.nodeDown, &o.NodeDown}, {"--node-up", f.nodeUp, &o.NodeUp}} {
		argv, err := splitWords(hook.value)
		if err != nil {
			return o, usagef("%s %q: %w: quote it as for a shell", hook.flag, hook.value, err)
		}
		*hook.to = argv
	}
	return o, nil
}

// existingRun are the options of a run of the plan.
func (p plan) existingRun(id string, out io.Writer) (existing.Options, error) {
	o, err := p.existingOptions(p.group)
	o.RunID, o.Progress = id, out
	o.Lanes, o.NodesPerLane, o.Kinds = p.lanes, p.scenario.NodesPerLane, p.scenario.Kinds
	o.Network, o.ShareNetwork = p.network, p.shareNetwork
	if p.network != "" {
		o.Kinds = nil // none is made
	}
	// While old pods hold their addresses new ones need as many.
	o.Addresses = 2 * p.scenario.Replicas * p.scenario.Interfaces
	o.FailsNodes = p.scenario.Faults.NodeShutdown != nil
	o.UsesChaosMesh = slices.ContainsFunc(p.scenario.Faults.Acts(), schedule.Act.IsOfMesh)
	return o, err
}

// onExisting makes the plan fit a cluster that others made: what was found
// there decides how long things take and what cannot be done.
func (a *app) onExisting(ctx context.Context, p plan) (plan, error) {
	if p.cluster != existingCluster {
		return p, nil
	}
	p.lanes = cmp.Or(p.lanes, 1) // as few nodes of theirs as will do
	o, err := p.existingRun("", a.stdout)
	if err != nil {
		return p, err
	}
	found, err := existing.Examine(ctx, o)
	if err != nil {
		return p, a.refused(err)
	}
	if err := a.printFindings(found.Findings); err != nil {
		return p, err
	}
	if reasons := found.Refusals(); len(reasons) > 0 {
		return p, a.refused(existing.Refuse(reasons...))
	}
	if p, err = p.fitted(found); err != nil {
		return p, err
	}
	return p, a.confirm(p, found)
}

// fitted restricts the scenario to what the cluster can do, and gives it time.
func (p plan) fitted(found existing.Preflight) (plan, error) {
	p.kinds = found.Kinds
	if found.Network != nil {
		p.shared, p.scenario.Families = found.Network, []string{familyOf(found.Network)}
		p.scenario.Kinds = []string{string(danm.ClusterNetwork)}
	}
	if !found.HasChaosMesh {
		p = p.leavingOut(schedule.Act.IsOfMesh, noMesh)
	}
	s := &p.scenario
	if s.Faults.Disturbance != nil && len(s.Faults.Disturbance.Acts) == 0 {
		return p, usagef("scenario %s: all its acts need Chaos Mesh, which is not installed", s.Name)
	}
	s.Kinds = slices.DeleteFunc(slices.Clone(s.Kinds), func(k string) bool {
		return !slices.Contains(found.Kinds, danm.NetworkKind(k))
	})
	if n := s.Faults.NodeShutdown; n != nil {
		if p.nodeDown == "" {
			return p, usagef("scenario %s: this cluster's nodes cannot be failed: name --node-down and --node-up", s.Name)
		}
		kept := *n
		kept.Outages = slices.DeleteFunc(slices.Clone(n.Outages), func(o schedule.Outage) bool { return o != schedule.PowerLoss })
		if len(n.Outages) > 0 && len(kept.Outages) == 0 {
			return p, usagef("scenario %s: hooks switch nodes off, they do not make them hang: use --cluster %s", s.Name, kindCluster)
		}
		if len(kept.Outages) < len(n.Outages) {
			p.skipped = append(p.skipped, "outages other than "+string(schedule.PowerLoss)+": hooks only switch nodes off")
		}
		kept.Returns = slices.DeleteFunc(slices.Clone(n.Returns), func(r schedule.Return) bool { return r == schedule.Never })
		if len(kept.Returns) == 0 {
			return p, usagef("scenario %s: every node is replaced for good, which an existing cluster's are not", s.Name)
		}
		if len(kept.Returns) < len(n.Returns) {
			p.skipped = append(p.skipped, string(schedule.ReplaceNode)+": the nodes of an existing cluster are not ours to replace")
		}
		s.Faults.NodeShutdown = &kept
	}
	b := &s.Budgets
	b.Terminating.Duration = max(b.Terminating.Duration, p.nodeTimeout)
	b.Recreate.Duration = max(b.Recreate.Duration, recreateBudgetMin, p.nodeTimeout)
	quarantines := found.Cleaner.ReleaseQuarantine + found.Cleaner.OrphanQuarantine
	b.Settle.Duration = max(b.Settle.Duration, quarantines+settleMargin)
	return p, nil
}

// familyOf is how a scenario calls the families of a network.
func familyOf(n *danm.Network) string {
	pools := n.Pools()
	switch {
	case len(pools) > 1:
		return schedule.Dual
	case pools[0].Family == danm.IPv6:
		return schedule.IPv6
	default:
		return schedule.IPv4
	}
}

// sharedNetwork is the network that lanes use, nil if they make their own.
func (p plan) sharedNetwork() *danm.NetworkRef {
	if p.shared == nil {
		return nil
	}
	ref := p.shared.Ref()
	return &ref
}

// confirm tells what will be done and lets somebody agree.
func (a *app) confirm(p plan, found existing.Preflight) error {
	fmt.Fprintf(a.stdout, "\nscenario %s will, in context %s:\n", p.scenario.Name, p.context)
	for _, line := range found.Actions {
		fmt.Fprintf(a.stdout, "  %s\n", line)
	}
	for _, line := range p.skipped {
		fmt.Fprintf(a.stdout, "  skip %s\n", line)
	}
	return a.agree(p.existingFlags)
}

// agree lets somebody type the name of what will be worked on.
func (a *app) agree(f existingFlags) error {
	if f.yes {
		return nil
	}
	fmt.Fprintf(a.stdout, "type %s to go on: ", f.context)
	answer, err := bufio.NewReader(a.stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if strings.TrimSpace(answer) != f.context {
		return usagef("not confirmed, nothing was done: type the name of the context, or give --yes")
	}
	return nil
}

// refused prints a refusal, one line for each reason.
func (a *app) refused(err error) error {
	var refusal *existing.Refusal
	if !errors.As(err, &refusal) {
		return err
	}
	for _, reason := range refusal.Reasons {
		fmt.Fprintf(a.stderr, "danm-chaos: %s\n", reason)
	}
	return exitError(exitUsage)
}

// expiring bounds a run by the time from which anybody may remove its things.
func (p plan) expiring(ctx context.Context, started time.Time) (context.Context, context.CancelFunc) {
	if p.cluster != existingCluster {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, started.Add(p.lifetime), fmt.Errorf("the run's lifetime of %s is over", p.lifetime))
}

func openExisting(ctx context.Context, p plan, d runDir, out io.Writer) (clusters.Cluster, error) {
	o, err := p.existingRun(d.id, out)
	if err != nil {
		return nil, err
	}
	return existing.Open(ctx, o, time.Now())
}

// expiryOf is when what a run leaves may be removed; zero where nothing stays.
func expiryOf(c clusters.Cluster) time.Time {
	if e, ok := c.(interface{ Expires() time.Time }); ok {
		return e.Expires()
	}
	return time.Time{}
}

// workloadImage is the image of the workload, or nothing for our own.
func (p plan) workloadImage() string {
	if p.cluster != existingCluster {
		return ""
	}
	return p.image
}

// existingMisses are the flags of an existing cluster that the harness does not
// know of. Whoever runs it again has to confirm again.
func (p plan) existingMisses() string {
	if p.cluster != existingCluster {
		return ""
	}
	return changed([]setting{
		{"--kubeconfig", p.kubeconfig, ""},
		{"--context", p.context, ""},
		{"--on-nodes", strings.Join(p.onWorkers, ","), ""},
		{"--node-down", p.nodeDown, ""},
		{"--node-up", p.nodeUp, ""},
		{"--hook-timeout", p.hookTimeout.String(), existing.HookTimeoutDefault.String()},
		{"--node-timeout", p.nodeTimeout.String(), existing.NodeTimeoutDefault.String()},
		{"--cleaner-deployment", p.cleanerDeployment, ""},
		{"--cleaner-manager", strings.Join(p.cleanerManagers, ","), ""},
		{"--production-pattern", p.production, defaultProduction},
		{"--lifetime", p.lifetime.String(), existing.LifetimeDefault.String()},
		{"--image", p.image, defaultImage},
		{"--network", p.network, ""},
		{"--share-network", fmt.Sprint(p.shareNetwork), "false"},
	})
}

// examineExisting is what doctor says of a cluster.
func (a *app) examineExisting(ctx context.Context, f existingFlags, group string) ([]controlplane.Finding, error) {
	g, err := danm.ParseGroup(group)
	if err != nil {
		return nil, usagef("--danm-api: %w", err)
	}
	o, err := f.existingOptions(g)
	if err != nil {
		return nil, err
	}
	for _, kind := range danm.NetworkKinds() {
		o.Kinds = append(o.Kinds, string(kind))
	}
	found, err := existing.Examine(ctx, o)
	if err != nil {
		return nil, a.refused(err)
	}
	return found.Findings, nil
}

// probeExisting adds what Chaos Mesh can do there to what was found, if it is
// there at all and nothing else is missing.
func (a *app) probeExisting(ctx context.Context, cluster string, findings []controlplane.Finding, f existingFlags, group string) ([]controlplane.Finding, error) {
	if cluster != existingCluster {
		return nil, usagef("--probe: it is for --cluster %s", existingCluster)
	}
	isInstalled := slices.ContainsFunc(findings, func(f controlplane.Finding) bool { return f.Name == existing.ChaosMeshFinding && f.OK })
	if !isInstalled || healthCode(findings) != exitValid {
		return findings, nil
	}
	g, err := danm.ParseGroup(group)
	if err != nil {
		return nil, usagef("--danm-api: %w", err)
	}
	o, err := f.existingOptions(g)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	o.RunID, o.Image = fmt.Sprintf("probe-%s-%d", now.UTC().Format("20060102-150405"), os.Getpid()), f.image
	found, err := existing.Probe(ctx, o, now)
	if err != nil {
		return nil, a.refused(err)
	}
	return append(findings, found...), nil
}
