package canary

import (
	"context"
	"fmt"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
)

// clearAttemptsMax bounds the conflicts in a row that clearing a bit survives.
const clearAttemptsMax = 50

// listEndpoints reads every endpoint of a namespace, or of all with "". One
// that cannot be read is skipped.
func (c clients) listEndpoints(ctx context.Context, namespace string) ([]*danm.Endpoint, error) {
	list, err := c.danm.Endpoints(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing endpoints: %w", err)
	}
	var eps []*danm.Endpoint
	for i := range list.Items {
		if ep, err := danm.ToEndpoint(&list.Items[i]); err == nil {
			eps = append(eps, ep)
		}
	}
	return eps, nil
}

// clearBits frees the addresses of an endpoint, whoever holds them now.
func (c clients) clearBits(ctx context.Context, ep *danm.Endpoint) error {
	addrs, err := ep.Addresses()
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if err := c.clearBit(ctx, ep.Network(), a); err != nil {
			return err
		}
	}
	return nil
}

// clearBit frees one address and, as upstream does, frees it again after every
// conflict without asking who holds it now.
func (c clients) clearBit(ctx context.Context, ref danm.NetworkRef, a netip.Addr) error {
	for range clearAttemptsMax {
		network, err := c.danm.GetNetwork(ctx, ref)
		if err != nil {
			return fmt.Errorf("reading %s: %w", ref, err)
		}
		change, ok, err := clearing(network, a)
		if err != nil || !ok {
			return err
		}
		_, err = c.danm.PatchAlloc(ctx, network, []danm.AllocChange{change})
		if err == nil {
			c.log.Info("cleared bit", "network", ref.String(), "address", a.String())
			return nil
		}
		if !danm.IsChanged(err) {
			return fmt.Errorf("clearing %s in %s: %w", a, ref, err)
		}
	}
	return fmt.Errorf("clearing %s in %s: %d conflicts in a row", a, ref, clearAttemptsMax)
}

// clearing returns the change that clears the address, or false if there is
// nothing to clear.
func clearing(n *danm.Network, a netip.Addr) (danm.AllocChange, bool, error) {
	for _, spec := range n.Pools() {
		if spec.Family != danm.FamilyOf(a) {
			continue
		}
		pool, err := ipam.Open(ipam.Spec(spec.Fields))
		if err != nil {
			return danm.AllocChange{}, false, err
		}
		i, ok := pool.Index(a)
		if _, reserved := pool.Reserved(i); !ok || reserved || !pool.IsSet(i) {
			return danm.AllocChange{}, false, nil
		}
		before := pool.Encode()
		pool.Clear(i)
		return danm.AllocChange{Family: spec.Family, Old: before, New: pool.Encode()}, true, nil
	}
	return danm.AllocChange{}, false, nil
}

// deleteUnconditionally deletes whatever has the endpoint's name.
func (c clients) deleteUnconditionally(ctx context.Context, ep *danm.Endpoint) error {
	err := c.danm.Endpoints(ep.Namespace).Delete(ctx, ep.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting endpoint %s/%s: %w", ep.Namespace, ep.Name, err)
	}
	c.log.Info("deleted endpoint", "endpoint", ep.Namespace+"/"+ep.Name, "pod", ep.Spec.Pod, "podUID", ep.Spec.PodUID)
	return nil
}
