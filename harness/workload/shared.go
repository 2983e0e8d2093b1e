package workload

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// rememberOthers notes what is taken of a network that is not the lane's own.
func (l *Lane) rememberOthers(ctx context.Context) error {
	network, err := l.access.Danm.GetNetwork(ctx, l.Network)
	if err != nil {
		return fmt.Errorf("reading %s: %w", l.Network, err)
	}
	l.others = map[string]bool{}
	for _, spec := range network.Pools() {
		pool, err := ipam.Open(ipam.Spec(spec.Fields))
		if err != nil {
			return err
		}
		for _, i := range pool.Allocated() {
			l.others[pool.Addr(i).String()] = true
		}
	}
	return nil
}

// foreign returns the addresses of a shared network that are none of the lane's
// business: those that others' endpoints have, and those that were taken before
// the lane and that no endpoint of it has now.
func (l *Lane) foreign(ctx context.Context, s *history.Snapshot) (map[string]bool, error) {
	if l.Spec.Shared == nil {
		return nil, nil
	}
	found := map[string]bool{}
	for address := range l.others {
		found[address] = true
	}
	list, err := l.access.Danm.Endpoints("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing endpoints: %w", err)
	}
	for i := range list.Items {
		ep, err := danm.ToEndpoint(&list.Items[i])
		if err != nil || ep.Namespace == l.Namespace || ep.Network() != l.Network {
			continue // one of others that cannot be read hides nothing of ours
		}
		addresses, _ := ep.Addresses()
		for _, a := range addresses {
			found[a.String()] = true
		}
	}
	for _, ep := range s.Endpoints {
		for _, address := range ep.Addresses {
			delete(found, address)
		}
	}
	return found, nil
}
