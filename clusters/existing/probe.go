package existing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
	"github.com/danm-chaos/danm-chaos/harness/nemesis/chaosmesh"
)

const (
	// probeReadyTimeout bounds how long a pod may take to run.
	probeReadyTimeout = time.Minute
	// probeActionTimeout bounds how long Chaos Mesh may take to hit one pod, and
	// probeRecoveryTimeout how long to undo that.
	probeActionTimeout   = 20 * time.Second
	probeRecoveryTimeout = 10 * time.Second
)

// needs is what an action takes that may be missing on a node.
var needs = map[chaosmesh.Action]string{
	chaosmesh.NetworkPartition: "it takes iptables and ipset in the node's kernel",
	chaosmesh.NetworkDelay:     "it takes the queueing discipline netem in the node's kernel",
	chaosmesh.NetworkLoss:      "it takes the queueing discipline netem in the node's kernel",
	chaosmesh.TimeOffset:       "it takes a daemon that may trace processes",
	chaosmesh.StressCPU:        "it takes stress-ng in the daemon's image, and control groups that it knows",
	chaosmesh.StressMemory:     "it takes memStress in the daemon's image, and control groups that it knows",
}

// Probe has Chaos Mesh break pods that are made for it, one in each way, and
// tells which come about: what a kernel lacks, or a daemon, no API tells. The
// pods are on the node of the leading cleaner, in a namespace of their own, which
// goes at the end, as after any run.
func Probe(ctx context.Context, o Options, now time.Time) (findings []controlplane.Finding, err error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	a, err := connect(o)
	if err != nil {
		return nil, err
	}
	if err := a.checkProduction(ctx, o); err != nil {
		return nil, err
	}
	if err := a.checkProbeRights(ctx); err != nil {
		return nil, err
	}
	data, err := newJournalData(o, a.config.Host, now.Add(o.Lifetime))
	if err != nil {
		return nil, err
	}
	journal, err := writeJournal(data)
	if err != nil {
		return nil, err
	}
	p := probe{access: a, options: o, expires: data.Expires}
	defer func() { err = errors.Join(err, p.close(context.WithoutCancel(ctx), journal)) }()
	if err := p.open(ctx); err != nil {
		return nil, fmt.Errorf("making a place to break pods: %w", err)
	}
	actions := chaosmesh.Actions()
	findings = make([]controlplane.Finding, len(actions))
	var group errgroup.Group
	for i, action := range actions {
		group.Go(func() error {
			findings[i] = p.try(ctx, action)
			return nil
		})
	}
	return findings, errors.Join(group.Wait(), ctx.Err())
}

// checkProbeRights refuses what would fail halfway.
func (a access) checkProbeRights(ctx context.Context) error {
	rights := append(meshRights(), Right{"", "pods", "create", "a pod is made to be broken"})
	for _, verb := range []string{"list", "create", "delete"} {
		rights = append(rights, Right{"", "namespaces", verb, "it has a namespace of its own"})
	}
	missing, err := MissingRights(ctx, a.core, rights)
	if err != nil {
		return err
	}
	var reasons []string
	for _, r := range missing {
		reasons = append(reasons, fmt.Sprintf("right to %s: denied in all namespaces; %s", r, r.Why))
	}
	if len(reasons) > 0 {
		return Refuse(reasons...)
	}
	return nil
}

// probe is a namespace with pods that are there to be broken.
type probe struct {
	access    access
	options   Options
	expires   time.Time
	node      string
	addresses []string // of the API server
}

func (p *probe) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: p.namespace(), Name: name,
		Labels:      map[string]string{clusters.RunLabel: p.run()},
		Annotations: map[string]string{clusters.ExpiresAnnotation: p.expires.UTC().Format(time.RFC3339)},
	}
}

func (p *probe) run() string { return clusters.RunLabelValue(p.options.RunID) }

func (p *probe) namespace() string { return "chaos-probe-" + p.run() }

func (p *probe) open(ctx context.Context) (err error) {
	if p.node, err = p.nodeOfCleaner(ctx); err != nil {
		return err
	}
	if p.addresses, err = chaosmesh.APIServerAddresses(ctx, p.access.core); err != nil {
		return err
	}
	space := &corev1.Namespace{ObjectMeta: p.meta(p.namespace())}
	space.Namespace = ""
	_, err = p.access.core.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{})
	return err
}

// makePod returns when it is Ready.
func (p *probe) makePod(ctx context.Context, name string) error {
	none, noToken := int64(0), false
	pods := p.access.core.CoreV1().Pods(p.namespace())
	pod := &corev1.Pod{ObjectMeta: p.meta(name), Spec: corev1.PodSpec{
		NodeName: p.node, TerminationGracePeriodSeconds: &none, AutomountServiceAccountToken: &noToken,
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers:  []corev1.Container{{Name: name, Image: p.options.Image, ImagePullPolicy: corev1.PullIfNotPresent}},
	}}
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, probeReadyTimeout, fmt.Errorf("not Ready after %s", probeReadyTimeout))
	defer cancel()
	return poll(ctx, undoPollInterval, func(ctx context.Context) (bool, error) {
		pod, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, ignoreBusy(err)
		}
		return isPodReady(pod), nil
	})
}

// nodeOfCleaner is where it leads: there its faults have to work.
func (p *probe) nodeOfCleaner(ctx context.Context) (string, error) {
	d, err := p.access.findCleaner(ctx, p.options)
	if err != nil {
		return "", err
	}
	pods, err := clusters.ListCleanerPods(ctx, p.access.core, d.Namespace, d.Selector)
	if err != nil {
		return "", err
	}
	if len(pods) == 0 {
		return "", fmt.Errorf("no pod of the cleaner %s/%s runs", d.Namespace, d.Name)
	}
	chosen := pods[0]
	for _, pod := range pods {
		if pod.Leads {
			chosen = pod
		}
	}
	pod, err := p.access.core.CoreV1().Pods(chosen.Namespace).Get(ctx, chosen.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return pod.Spec.NodeName, nil
}

func isPodReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// try breaks a pod in one way and has that undone.
func (p *probe) try(ctx context.Context, action chaosmesh.Action) controlplane.Finding {
	finding := controlplane.Finding{Name: ChaosMeshFinding + " " + string(action), Optional: true}
	name := string(action)
	if err := p.makePod(ctx, name); err != nil {
		finding.Detail = fmt.Sprintf("not tried: the pod that was to be broken: %v", err)
		return finding
	}
	fault := chaosmesh.Fault{Action: action, Namespace: p.namespace(), Pods: []string{name}, Container: name, Addresses: p.addresses}
	mesh := chaosmesh.New(p.access.dynamic, p.meta("")).RecoveringWithin(probeRecoveryTimeout)
	hitting, cancel := context.WithTimeoutCause(ctx, probeActionTimeout, fmt.Errorf("no success after %s", probeActionTimeout))
	defer cancel()
	began := time.Now()
	injected, events, err := mesh.Inject(hitting, name, fault)
	took := time.Since(began)
	var healed error
	if injected != nil {
		_, healed = injected.Heal(context.WithoutCancel(ctx))
	}
	switch {
	case err != nil:
		finding.Detail, finding.Cure = "unavailable: "+cmp.Or(chaosmesh.LastFailure(events), err.Error()), needs[action]
	case healed != nil:
		finding.Detail = fmt.Sprintf("comes, but does not go: %v", healed)
	default:
		finding.OK, finding.Detail = true, fmt.Sprintf("works, hits after %.1f s", took.Seconds())
	}
	return finding
}

// close removes everything; a journal stays where that fails.
func (p *probe) close(ctx context.Context, journal string) error {
	u := undoing{access: p.access, options: p.options, run: p.run(), out: io.Discard}
	if err := u.all(ctx); err != nil {
		return fmt.Errorf("removing the probe: %w", err)
	}
	return controlplane.RemoveJournal(journal)
}
