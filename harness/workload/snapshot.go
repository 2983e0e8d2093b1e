package workload

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// Snapshot reads the lane live. The reads are quorum reads, but three of them:
// what is written in between may be in one and not in another.
func (l *Lane) Snapshot(ctx context.Context) (history.Snapshot, error) {
	s := history.Snapshot{Lane: l.Spec.Name, Generation: l.Spec.Generation}
	for _, read := range []func(context.Context, *history.Snapshot) error{l.readPods, l.readEndpoints, l.readBits} {
		if err := read(ctx, &s); err != nil {
			return s, fmt.Errorf("reading %s live: %w", l.label(), err)
		}
	}
	return s, nil
}

func (l *Lane) readPods(ctx context.Context, s *history.Snapshot) error {
	list, err := l.access.Core.CoreV1().Pods(l.Namespace).List(ctx, metav1.ListOptions{LabelSelector: clusters.LaneLabel + "=" + l.label()})
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	for i := range list.Items {
		s.Pods = append(s.Pods, l.snapshotPod(&list.Items[i]))
	}
	return nil
}

func (l *Lane) snapshotPod(pod *corev1.Pod) history.SnapshotPod {
	return history.SnapshotPod{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Node: pod.Spec.NodeName,
		Phase: string(pod.Status.Phase), Ready: IsReady(pod), Terminating: pod.DeletionTimestamp != nil,
		Interfaces: l.Spec.Interfaces,
	}
}

func (l *Lane) readEndpoints(ctx context.Context, s *history.Snapshot) error {
	list, err := l.access.Danm.Endpoints(l.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing endpoints: %w", err)
	}
	for i := range list.Items {
		ep, err := danm.ToEndpoint(&list.Items[i])
		if err != nil {
			return err
		}
		addrs, err := ep.Addresses()
		if err != nil {
			return err
		}
		out := history.SnapshotEndpoint{
			Namespace: ep.Namespace, Name: ep.Name, UID: string(ep.UID), Pod: ep.Spec.Pod, PodUID: string(ep.Spec.PodUID),
			CID: ep.Spec.CID, Interface: ep.Spec.Interface.Name, Host: ep.Spec.Host,
		}
		for _, a := range addrs {
			out.Addresses = append(out.Addresses, a.String())
		}
		s.Endpoints = append(s.Endpoints, out)
	}
	slices.SortFunc(s.Endpoints, func(a, b history.SnapshotEndpoint) int {
		return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Name, b.Name))
	})
	return nil
}

func (l *Lane) readBits(ctx context.Context, s *history.Snapshot) error {
	network, err := l.access.Danm.GetNetwork(ctx, l.Network)
	if err != nil {
		return fmt.Errorf("reading %s: %w", l.Network, err)
	}
	foreign, err := l.foreign(ctx, s)
	if err != nil {
		return err
	}
	for _, spec := range network.Pools() {
		pool, err := ipam.Open(ipam.Spec(spec.Fields))
		if err != nil {
			return err
		}
		for i := range pool.Size() {
			if !pool.IsSet(i) {
				continue
			}
			if _, ok := pool.Reserved(i); ok || foreign[pool.Addr(i).String()] {
				s.Reserved = append(s.Reserved, pool.Addr(i).String())
				continue
			}
			s.Bits = append(s.Bits, history.SnapshotBit{Family: int(spec.Family), Index: i, Address: pool.Addr(i).String()})
		}
	}
	return nil
}
