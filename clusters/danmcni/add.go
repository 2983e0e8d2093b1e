package danmcni

import (
	"cmp"
	"context"
	"fmt"
	"maps"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// Add attaches a sandbox: it reads the pod by name, removes endpoints of the
// same pod UID that an earlier sandbox left, and then for each interface, side
// by side, reserves addresses, creates the endpoint and reads the network
// again. A pod that asks for no interface gets none.
//
// On failure it rolls back as the variant does: Danm43 leaves a bit set whose
// endpoint could not be created, as DANM does. When ctx ends or Delay fails,
// nothing is rolled back, and a request under way may or may not take effect.
//
// One weakness of DANM is left out on purpose. DANM compares its refreshed copy
// after a conflict with the first one it read and may then return an address
// without writing its bit. Here every attempt allocates anew from the object
// that it writes back.
func (p *Plugin) Add(ctx context.Context, r Request) ([]Interface, error) {
	pod, err := p.cfg.Pods.Pods(r.Namespace).Get(ctx, r.Pod, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading pod %s/%s: %w", r.Namespace, r.Pod, err)
	}
	if p.cfg.Variant == Careful && r.PodUID != "" && !hasUID(pod, r.PodUID) {
		return nil, fmt.Errorf("pod %s/%s has UID %s, but the sandbox belongs to %s", r.Namespace, r.Pod, pod.UID, r.PodUID)
	}
	requests, err := p.cfg.Requests(p.cfg.Client.Group, pod)
	if err != nil || len(requests) == 0 {
		return nil, err
	}
	if err := p.removeOutdated(ctx, pod, r.ContainerID); err != nil {
		return nil, err
	}
	made, err := p.addInterfaces(ctx, pod, r, requests)
	if err == nil {
		return made, nil
	}
	if ctx.Err() == nil && !isKilled(err) {
		p.report(p.Del(ctx, r.ContainerID), "rolling back ADD", "pod", r.Namespace+"/"+r.Pod)
	}
	return nil, fmt.Errorf("attaching pod %s/%s: %w", r.Namespace, r.Pod, err)
}

// hasUID tells whether a sandbox of that UID is the pod's. The kubelet runs a
// static pod under the hash of its manifest; what the API has is a mirror of it
// with a UID of its own.
func hasUID(pod *corev1.Pod, uid types.UID) bool {
	return pod.UID == uid || pod.Annotations["kubernetes.io/config.hash"] == string(uid)
}

// removeOutdated releases what an earlier sandbox of the same pod UID left.
// DANM ignores every error of it, so only an end of the plugin is returned.
func (p *Plugin) removeOutdated(ctx context.Context, pod *corev1.Pod, cid string) error {
	list, err := p.cfg.Client.Endpoints(pod.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		p.report(err, "listing outdated endpoints", "namespace", pod.Namespace)
		return ctx.Err()
	}
	for i := range list.Items {
		ep, err := danm.ToEndpoint(&list.Items[i])
		if err != nil || ep.Spec.PodUID != pod.UID || p.cfg.Variant == Careful && ep.Spec.CID == cid {
			continue
		}
		if err := p.releaseEndpoint(ctx, ep); isKilled(err) {
			return err
		} else if err != nil {
			p.report(err, "removing outdated endpoint", "endpoint", ep.Namespace+"/"+ep.Name)
		}
	}
	return ctx.Err()
}

// addInterfaces makes the interfaces side by side. The first failure does not
// stop the others, as in DANM; the time limit and a killed plugin do.
func (p *Plugin) addInterfaces(ctx context.Context, pod *corev1.Pod, r Request, requests []danm.InterfaceRequest) ([]Interface, error) {
	ctx, release := context.WithTimeout(ctx, addDuration)
	defer release()
	ctx, kill := context.WithCancelCause(ctx)
	defer kill(nil)
	made := make([]Interface, len(requests))
	var group errgroup.Group
	for i, request := range requests {
		job := attachment{
			pod: pod, cid: r.ContainerID, netns: r.Netns, request: request,
			id: p.cfg.NewID(), name: fmt.Sprintf("eth%d", i),
		}
		group.Go(func() (err error) {
			made[i], err = p.addInterface(ctx, job)
			if isKilled(err) {
				kill(err)
			}
			return err
		})
	}
	err := group.Wait()
	if cause := context.Cause(ctx); isKilled(cause) {
		return nil, cause
	}
	return made, err
}

// attachment is one interface to be made.
type attachment struct {
	pod     *corev1.Pod
	cid     string
	netns   string
	request danm.InterfaceRequest
	id      string // UUID and name of the endpoint
	name    string // eth0
}

func (p *Plugin) addInterface(ctx context.Context, a attachment) (Interface, error) {
	n, grants, err := p.reserve(ctx, a.request)
	if err != nil {
		return Interface{}, err
	}
	if err := p.pause(ctx, BetweenReserveAndCreate); err != nil {
		return Interface{}, err
	}
	ep, err := p.createEndpoint(ctx, a, n, grants)
	if err != nil {
		return Interface{}, err
	}
	if err := p.pause(ctx, AfterCreate); err != nil {
		return Interface{}, err
	}
	if n, err = p.readNetwork(ctx, a.request.Network); err != nil {
		p.report(p.releaseEndpoint(ctx, ep), "rolling back endpoint", "endpoint", ep.Namespace+"/"+ep.Name)
		return Interface{}, err
	}
	return interfaceOf(a, n.parsed, grants, ep), nil
}

func interfaceOf(a attachment, n *danm.Network, grants []grant, ep *danm.Endpoint) Interface {
	made := Interface{
		Name: a.name, Endpoint: ep.Name, EndpointUID: ep.UID, Network: a.request.Network,
		Routes: map[string]string{}, HostDevice: n.Spec.Options.HostDev,
	}
	for _, g := range grants {
		made.Addresses = append(made.Addresses, g.addr)
		made.Prefixes = append(made.Prefixes, g.prefix)
	}
	maps.Copy(made.Routes, n.Spec.Options.Routes)
	maps.Copy(made.Routes, n.Spec.Options.Routes6)
	return made
}

// reserve sets the bits of an interface in one write of the network, and
// starts again from a fresh read after every conflict.
func (p *Plugin) reserve(ctx context.Context, r danm.InterfaceRequest) (network, []grant, error) {
	n, err := p.readNetwork(ctx, r.Network)
	if err != nil {
		return network{}, nil, err
	}
	if err := p.pause(ctx, BeforeReserve); err != nil {
		return network{}, nil, err
	}
	for range conflictsMax {
		grants, err := allocate(n.parsed, r)
		if err != nil {
			return network{}, nil, fmt.Errorf("reserving an address: %w", err)
		}
		changes := changesOf(grants)
		if len(changes) == 0 {
			return n, grants, nil
		}
		err = p.write(ctx, n, changes, func(u *unstructured.Unstructured) error { return noteGrants(u, grants) })
		if err == nil {
			return n, grants, nil
		}
		if !p.isChanged(err) {
			return network{}, nil, fmt.Errorf("reserving an address of %s: %w", r.Network, err)
		}
		if n, err = p.readNetwork(ctx, r.Network); err != nil {
			return network{}, nil, err
		}
	}
	return network{}, nil, fmt.Errorf("reserving an address of %s: %d conflicts in a row", r.Network, conflictsMax)
}

func changesOf(grants []grant) []danm.AllocChange {
	var changes []danm.AllocChange
	for _, g := range grants {
		if g.hasBit {
			changes = append(changes, g.change)
		}
	}
	return changes
}

// createEndpoint writes the DanmEp. If that fails, DANM has nothing in hand to
// undo the reservation with and leaks the bit. Careful undoes it when the
// server refused for certain; after a lost answer the endpoint may exist.
func (p *Plugin) createEndpoint(ctx context.Context, a attachment, n network, grants []grant) (*danm.Endpoint, error) {
	u, err := endpointOf(a, n.parsed, grants, p.cfg.Host).ToUnstructured(p.cfg.Client.Group)
	if err != nil {
		return nil, err
	}
	created, err := p.cfg.Client.Endpoints(a.pod.Namespace).Create(ctx, u, metav1.CreateOptions{})
	if err == nil {
		return danm.ToEndpoint(created)
	}
	if p.cfg.Variant == Careful && isRefusal(err) {
		for _, g := range grants {
			p.report(p.clearUnclaimed(ctx, a.request.Network, g.addr), "rolling back reservation", "address", g.addr)
		}
	}
	return nil, fmt.Errorf("creating endpoint %s/%s: %w", a.pod.Namespace, a.id, err)
}

// isRefusal tells whether the server has certainly not done what was asked.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsTooManyRequests(err)
}

func endpointOf(a attachment, n *danm.Network, grants []grant, host string) *danm.Endpoint {
	ep := &danm.Endpoint{
		ObjectMeta: metav1.ObjectMeta{Name: a.id, Namespace: a.pod.Namespace, Labels: maps.Clone(a.pod.Labels)},
		Spec: danm.EndpointSpec{
			NetworkName: n.Name,
			NetworkType: n.Spec.NetworkType,
			EndpointID:  a.id,
			Interface: danm.EndpointInterface{
				Name:        a.name,
				Address:     addressText(a.request.IPv4, grants, danm.IPv4),
				AddressIPv6: addressText(a.request.IPv6, grants, danm.IPv6),
			},
			Host:    host,
			Pod:     a.pod.Name,
			PodUID:  a.pod.UID,
			CID:     a.cid,
			Netns:   cmp.Or(a.netns, "/var/run/netns/"+a.cid),
			APIType: string(n.Ref().Kind),
		},
	}
	if ep.Spec.NetworkType == "" {
		ep.Spec.NetworkType = networkType
	}
	return ep
}

// addressText is the address as DANM writes it: with the prefix length of the
// network, "none", or nothing.
func addressText(r danm.AddressRequest, grants []grant, family danm.Family) string {
	if r.Kind == danm.LayerTwo {
		return "none"
	}
	for _, g := range grants {
		if g.family == family {
			return g.prefix.String()
		}
	}
	return ""
}
