package hollow

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// leaseDurationSeconds is what kubelets write; nobody reads it.
const leaseDurationSeconds int32 = 40

// hostAddress is the node's own. There is nothing behind it.
const hostAddress = "127.0.0.1"

// register makes the Node object or brings the one of an earlier boot up to
// date. It repeats on every error, as the API server may not be up yet.
func (p *power) register(ctx context.Context) error {
	for {
		err := p.registerOnce(ctx)
		if err == nil {
			return nil
		}
		p.node.cfg.Logger.V(1).Info("could not register the node yet", "node", p.node.cfg.Name, "err", err.Error())
		if sleep(ctx, registerRetryDelay) != nil {
			return err
		}
	}
}

func (p *power) registerOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestDuration)
	defer cancel()
	node := p.node.object(time.Now())
	_, err := p.node.core.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	labels := map[string]any{"metadata": map[string]any{"labels": node.Labels}}
	if err := p.node.patchNode(ctx, labels); err != nil {
		return fmt.Errorf("updating labels: %w", err)
	}
	return p.node.reportReady(ctx)
}

func (n *Node) object(now time.Time) *corev1.Node {
	labels := map[string]string{
		corev1.LabelHostname:   n.cfg.Name,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: "amd64",
	}
	maps.Copy(labels, n.cfg.Labels)
	resources := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("32"),
		corev1.ResourceMemory:           resource.MustParse("64Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
		corev1.ResourcePods:             resource.MustParse("250"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.cfg.Name, Labels: labels},
		Status: corev1.NodeStatus{
			Capacity: resources, Allocatable: resources,
			Conditions: conditions(now),
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: hostAddress},
				{Type: corev1.NodeHostName, Address: n.cfg.Name},
			},
			NodeInfo: corev1.NodeSystemInfo{
				BootID: n.dice.uuid(), OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: "v1.37.2-hollow",
			},
		},
	}
}

func conditions(now time.Time) []corev1.NodeCondition {
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		at := metav1.NewTime(now)
		return corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason, Message: "hollow node",
			LastHeartbeatTime: at, LastTransitionTime: at,
		}
	}
	return []corev1.NodeCondition{
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
		condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
		condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
	}
}

// reportReady writes the whole status, after which the node is Ready again.
func (n *Node) reportReady(ctx context.Context) error {
	status := map[string]any{"status": n.object(time.Now()).Status}
	if err := n.patchNode(ctx, status, "status"); err != nil {
		return fmt.Errorf("reporting status: %w", err)
	}
	return nil
}

func (n *Node) patchNode(ctx context.Context, change map[string]any, subresources ...string) error {
	data, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encoding patch: %w", err)
	}
	_, err = n.core.CoreV1().Nodes().Patch(ctx, n.cfg.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, subresources...)
	return err
}

// repeat calls f at once and then at every interval until the power is gone.
// Errors are told and tried again at the next turn.
func (p *power) repeat(interval time.Duration, what string, f func(ctx context.Context) error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for p.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(p.ctx, requestDuration)
		err := f(ctx)
		cancel()
		if err != nil && p.ctx.Err() == nil {
			p.node.cfg.Logger.V(1).Info("could not "+what, "node", p.node.cfg.Name, "err", err.Error())
		}
		select {
		case <-p.ctx.Done():
		case <-ticker.C:
		}
	}
}

// renewLease keeps the node alive in the eyes of the controller-manager. It
// writes the Lease as it came back from the last write, one request a turn.
func (p *power) renewLease() {
	var last *coordinationv1.Lease
	p.repeat(leaseRenewInterval, "renew the lease", func(ctx context.Context) (err error) {
		last, err = p.node.renew(ctx, last)
		return err
	})
}

func (n *Node) renew(ctx context.Context, last *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	leases := n.core.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	if last == nil {
		var err error
		last, err = leases.Get(ctx, n.cfg.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return present(leases.Create(ctx, n.newLease(now), metav1.CreateOptions{}))
		}
		if err != nil {
			return nil, err
		}
	}
	last.Spec.RenewTime = &now
	return present(leases.Update(ctx, last, metav1.UpdateOptions{}))
}

// present forgets the lease after an error, so that the next turn reads it.
func present(lease *coordinationv1.Lease, err error) (*coordinationv1.Lease, error) {
	if err != nil {
		return nil, err
	}
	return lease, nil
}

func (n *Node) newLease(now metav1.MicroTime) *coordinationv1.Lease {
	duration := leaseDurationSeconds
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: n.cfg.Name, Namespace: corev1.NamespaceNodeLease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &n.cfg.Name, LeaseDurationSeconds: &duration, RenewTime: &now,
		},
	}
}

// refreshStatus puts the status right when the controller-manager has taken
// the node for dead, which also happens when the machine is merely slow.
func (p *power) refreshStatus() {
	p.repeat(statusCheckInterval, "refresh the status", func(ctx context.Context) error {
		// The API server's cache is fresh enough for this and costs no etcd read.
		node, err := p.node.core.CoreV1().Nodes().Get(ctx, p.node.cfg.Name, metav1.GetOptions{ResourceVersion: "0"})
		if err != nil || isReady(node, time.Now()) {
			return err
		}
		return p.node.reportReady(ctx)
	})
}

// isReady tells whether the status says so and was reported recently.
func isReady(node *corev1.Node, now time.Time) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue && now.Sub(c.LastHeartbeatTime.Time) < statusReportInterval
		}
	}
	return false
}
