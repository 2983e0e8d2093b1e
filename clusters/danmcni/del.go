package danmcni

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// Del detaches a sandbox: it lists the endpoints of the whole cluster and
// releases those that carry the container ID. There being none is success.
//
// Danm43 swallows every trouble with the API, as DANM does lest pods hang in
// Terminating, so what it could not release is leaked. Careful returns it, and
// may be called again. Both return an error when ctx ends or Delay fails.
func (p *Plugin) Del(ctx context.Context, containerID string) error {
	endpoints, err := p.endpointsOf(ctx, containerID)
	if err != nil {
		return p.outcome(ctx, fmt.Errorf("listing endpoints of sandbox %s: %w", containerID, err))
	}
	var troubles []error
	for _, ep := range endpoints {
		err := p.releaseEndpoint(ctx, ep)
		if isKilled(err) || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if err != nil {
			troubles = append(troubles, fmt.Errorf("releasing endpoint %s/%s: %w", ep.Namespace, ep.Name, err))
		}
	}
	return p.outcome(ctx, errors.Join(troubles...))
}

// outcome decides which errors of DEL a caller gets to see.
func (p *Plugin) outcome(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil || p.cfg.Variant == Careful {
		return err
	}
	p.report(err, "swallowed error of DEL")
	return nil
}

func (p *Plugin) report(err error, message string, keysAndValues ...any) {
	if err != nil {
		p.cfg.Logger.V(1).Info(message, append(keysAndValues, "err", err.Error())...)
	}
}

func (p *Plugin) endpointsOf(ctx context.Context, containerID string) ([]*danm.Endpoint, error) {
	var list *unstructured.UnstructuredList
	var err error
	for range listAttemptsMax {
		list, err = p.cfg.Client.Endpoints("").List(ctx, metav1.ListOptions{})
		if err == nil || !sleep(ctx, listRetryDelay) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	var out []*danm.Endpoint
	for i := range list.Items {
		// An endpoint that cannot be read is skipped: it says nothing of
		// whose it is.
		if ep, err := danm.ToEndpoint(&list.Items[i]); err == nil && ep.Spec.CID == containerID {
			out = append(out, ep)
		}
	}
	return out, nil
}

// sleep waits and tells whether the time passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (p *Plugin) releaseEndpoint(ctx context.Context, ep *danm.Endpoint) error {
	if p.cfg.Variant == Careful {
		return p.releaseCarefully(ctx, ep)
	}
	return p.releaseAsDanm(ctx, ep)
}

// releaseAsDanm clears the bits first and deletes the endpoint second. Dying
// in between leaves an endpoint whose address is free for others.
func (p *Plugin) releaseAsDanm(ctx context.Context, ep *danm.Endpoint) error {
	addrs, err := ep.Addresses()
	if err != nil {
		return err
	}
	n, err := p.readNetwork(ctx, ep.Network())
	if err != nil {
		return err
	}
	if err := p.pause(ctx, BeforeClear); err != nil {
		return err
	}
	for _, addr := range addrs {
		// Both families start from the same copy, so the second write of a
		// dual-stack endpoint always meets a conflict.
		if err := p.clearByAddress(ctx, n, addr); err != nil {
			return err
		}
	}
	if err := p.pause(ctx, BetweenClearAndDelete); err != nil {
		return err
	}
	err = p.cfg.Client.Endpoints(ep.Namespace).Delete(ctx, ep.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting endpoint: %w", err)
	}
	return nil
}

// clearByAddress clears the bit whoever owns it, after a conflict too. That is
// DANM's defect, and what a cleaner has to live with.
func (p *Plugin) clearByAddress(ctx context.Context, n network, addr netip.Addr) error {
	ref := n.parsed.Ref()
	for range conflictsMax {
		change, ok, err := release(n.parsed, addr)
		if err != nil || !ok {
			return err
		}
		err = p.write(ctx, n, []danm.AllocChange{change}, func(u *unstructured.Unstructured) error { return noteChange(u, change) })
		if err == nil {
			return nil
		}
		if !p.isChanged(err) {
			return fmt.Errorf("clearing %s in %s: %w", addr, ref, err)
		}
		if n, err = p.readNetwork(ctx, ref); err != nil {
			return err
		}
	}
	return fmt.Errorf("clearing %s in %s: %d conflicts in a row", addr, ref, conflictsMax)
}

// releaseCarefully deletes the endpoint first, exactly the one that was read,
// and clears bits only if it won. Dying in between leaks bits, which a cleaner
// finds; the other order could free an address that has a new owner.
func (p *Plugin) releaseCarefully(ctx context.Context, ep *danm.Endpoint) error {
	addrs, err := ep.Addresses()
	if err != nil {
		return err
	}
	if err := p.pause(ctx, BeforeClear); err != nil {
		return err
	}
	err = p.cfg.Client.DeleteEndpoint(ctx, ep)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // somebody else released it, or it is no longer what was read
	}
	if err != nil {
		return fmt.Errorf("deleting endpoint: %w", err)
	}
	if err := p.pause(ctx, BetweenClearAndDelete); err != nil {
		return err
	}
	for _, addr := range addrs {
		if err := p.clearUnclaimed(ctx, ep.Network(), addr); err != nil {
			return err
		}
	}
	return nil
}

// clearUnclaimed clears the bit if no endpoint claims the address. The network
// is read before the endpoints are listed and written only if it is still that
// version. That cannot see an ADD which took the address over before our read
// and has not created its endpoint yet; for that, somebody else must have
// cleared the bit of an endpoint that was still there.
func (p *Plugin) clearUnclaimed(ctx context.Context, ref danm.NetworkRef, addr netip.Addr) error {
	for range conflictsMax {
		n, err := p.readNetwork(ctx, ref)
		if err != nil {
			return err
		}
		change, ok, err := release(n.parsed, addr)
		if err != nil || !ok {
			return err
		}
		claimed, err := p.isClaimed(ctx, ref, addr)
		if err != nil || claimed {
			return err
		}
		_, err = p.cfg.Client.PatchAlloc(ctx, n.parsed, []danm.AllocChange{change})
		if err == nil || !p.isChanged(err) {
			return err
		}
	}
	return fmt.Errorf("clearing %s in %s: %d conflicts in a row", addr, ref, conflictsMax)
}

func (p *Plugin) isClaimed(ctx context.Context, ref danm.NetworkRef, addr netip.Addr) (bool, error) {
	list, err := p.cfg.Client.Endpoints(ref.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("listing endpoints that may claim %s: %w", addr, err)
	}
	for i := range list.Items {
		ep, err := danm.ToEndpoint(&list.Items[i])
		if err != nil {
			return true, err
		}
		addrs, err := ep.Addresses()
		if err != nil {
			return true, err
		}
		if ep.Network() == ref && slices.Contains(addrs, addr) {
			return true, nil
		}
	}
	return false, nil
}
