package netplugin

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// statusDuration bounds STATUS, which a runtime asks for every few seconds.
const statusDuration = 5 * time.Second

// check compares an attachment with what ADD left: the result that the runtime
// kept, the interfaces, and the endpoints in the API.
func (c *call) check(ctx context.Context) error {
	prev, err := c.prevResult()
	if err != nil {
		return err
	}
	a, err := c.config.stateDir().load(c.args.ContainerID, c.args.IfName)
	if err != nil {
		return err
	}
	if a == nil {
		return types.NewError(types.ErrUnknownContainer, "checking sandbox "+c.args.ContainerID, "no ADD of it is noted")
	}
	if err := checkPrevResult(a, prev); err != nil {
		return coded(codeNotAsAdded, "checking sandbox "+c.args.ContainerID, err)
	}
	for _, d := range a.Delegations {
		if err := c.plugins.run(ctx, "CHECK", d); err != nil {
			return delegateError(fmt.Sprintf("checking %s of pod %s by %s", d.IfName, c.pod.name(), d.Plugin), err)
		}
	}
	return c.checkEndpoints(ctx, a)
}

func (c *call) prevResult() (*current.Result, error) {
	if len(c.config.PrevResult) == 0 {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "reading prevResult", "CHECK needs the result of ADD")
	}
	// The runtime has put the version of the configuration into the result.
	raw, err := create.Create(c.config.CNIVersion, c.config.PrevResult)
	if err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "reading prevResult", err.Error())
	}
	result, err := current.NewResultFromResult(raw)
	if err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "reading prevResult", err.Error())
	}
	return result, nil
}

// checkPrevResult looks for every reserved address in the result. Plugins after
// us in the list may have added others.
func checkPrevResult(a *attachment, prev *current.Result) error {
	for _, d := range a.Delegations {
		for _, p := range d.Addresses {
			if !slices.ContainsFunc(prev.IPs, func(ip *current.IPConfig) bool { return ip.Address.String() == p.String() }) {
				return fmt.Errorf("prevResult lacks %s of %s", p, d.IfName)
			}
		}
	}
	return nil
}

// checkEndpoints looks for every endpoint, which must still be the sandbox's
// and hold its addresses.
func (c *call) checkEndpoints(ctx context.Context, a *attachment) error {
	if a.IsOrdinary {
		return nil
	}
	k, err := openKube(c.config, c.log)
	if err != nil {
		return coded(types.ErrInvalidNetworkConfig, "connecting to the API", err)
	}
	for _, d := range a.Delegations {
		if err := checkEndpoint(ctx, k, a, d); err != nil {
			return coded(codeOf(err, codeNotAsAdded), fmt.Sprintf("checking endpoint %s/%s", a.Namespace, d.Endpoint), err)
		}
	}
	return nil
}

func checkEndpoint(ctx context.Context, k kube, a *attachment, d delegation) error {
	ep, err := k.danm.GetEndpoint(ctx, a.Namespace, d.Endpoint)
	if err != nil {
		return fmt.Errorf("reading it: %w", err)
	}
	if ep.Spec.CID != a.ContainerID {
		return fmt.Errorf("it belongs to sandbox %s", ep.Spec.CID)
	}
	addrs, err := ep.Addresses()
	if err != nil {
		return err
	}
	var want []netip.Addr
	for _, p := range d.Addresses {
		want = append(want, p.Addr())
	}
	if !slices.Equal(addrs, want) {
		return fmt.Errorf("it holds %v, but %s was given %v", addrs, d.IfName, want)
	}
	return nil
}

// status tells whether an ADD could succeed: the plugins that it executes are
// there, and the API answers the node.
func (c *call) status(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statusDuration)
	defer cancel()
	needed := []string{c.config.Attach.pluginType(), "static"}
	if c.config.Delegate != nil {
		needed = append(needed, c.config.Delegate.pluginType())
	}
	for _, plugin := range needed {
		if _, err := c.plugins.find(plugin); err != nil {
			return types.NewError(types.ErrPluginNotAvailable, "looking for plugin "+plugin, err.Error())
		}
	}
	k, err := openKube(c.config, c.log)
	if err != nil {
		return types.NewError(types.ErrPluginNotAvailable, "connecting to the API", err.Error())
	}
	// The cheapest request that shows the way, the rights and DANM's CRDs.
	if _, err := k.danm.Endpoints("").List(ctx, metav1.ListOptions{Limit: 1, ResourceVersion: "0"}); err != nil {
		return types.NewError(types.ErrPluginNotAvailable, "asking the API for endpoints", err.Error())
	}
	return c.delegateStatus(ctx)
}

func (c *call) delegateStatus(ctx context.Context) error {
	if c.config.Delegate == nil {
		return nil
	}
	d, err := c.config.ordinary("")
	if err != nil {
		return coded(types.ErrInternal, "asking the delegate for its status", err)
	}
	if err := c.plugins.run(ctx, "STATUS", d); err != nil {
		return types.NewError(types.ErrPluginNotAvailable, "asking the delegate for its status", err.Error())
	}
	return nil
}
