package existing

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
)

// examineNetwork looks for spare addresses, and for others who use the network.
func (p *Preflight) examineNetwork(ctx context.Context, o Options) {
	if o.Network == "" {
		p.add("network", true, fmt.Sprintf("a run makes its own (%s), which nobody else uses and all of whose addresses are spare", strings.Join(o.Kinds, ", ")), "")
		return
	}
	ref := danm.NetworkRef{Kind: danm.ClusterNetwork, Name: o.Network}
	network, err := p.access.danm.GetNetwork(ctx, ref)
	if apierrors.IsForbidden(err) {
		return // the missing right is reported already
	}
	if err != nil {
		p.add("network", false, fmt.Sprintf("%s: %v", ref, err), "name a ClusterNetwork with --network")
		return
	}
	p.Network = network
	p.examineSpare(network, o)
	p.examineUsers(ctx, network, o)
}

func (p *Preflight) examineSpare(network *danm.Network, o Options) {
	pools := network.Pools()
	if len(pools) == 0 {
		p.add("network", false, network.Ref().String()+" has no addresses of its own", "name one with a cidr")
		return
	}
	for _, spec := range pools {
		pool, err := ipam.Open(ipam.Spec(spec.Fields))
		if err != nil {
			p.add("network", false, err.Error(), "name another")
			return
		}
		spare := pool.Usage().Free
		detail := fmt.Sprintf("%s has %d spare addresses of %s, %d are needed at most", network.Ref(), spare, spec.Fields.CIDR, o.Addresses)
		p.add("network", spare >= o.Addresses, detail, "name a larger one, or run fewer lanes")
	}
}

func (p *Preflight) examineUsers(ctx context.Context, network *danm.Network, o Options) {
	list, err := p.access.danm.Endpoints("").List(ctx, metav1.ListOptions{})
	if err != nil {
		if !apierrors.IsForbidden(err) {
			p.add("others in the network", false, err.Error(), "try again")
		}
		return
	}
	users := 0
	for i := range list.Items {
		if ep, err := danm.ToEndpoint(&list.Items[i]); err == nil && ep.Network() == network.Ref() {
			users++
		}
	}
	switch {
	case users == 0:
		p.add("others in the network", true, "none", "")
	case o.ShareNetwork:
		p.add("others in the network", true, fmt.Sprintf("%d endpoints, and --share-network says to use it all the same", users), "")
	default:
		p.add("others in the network", false, fmt.Sprintf("%d endpoints of pods that are not ours", users), "name another one, or give --share-network")
	}
}
