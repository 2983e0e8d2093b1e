package netplugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
)

// del detaches a sandbox. Whatever is gone already is no error: the namespace,
// the note, the objects of the API, even the plugin that made an interface.
func (c *call) del(ctx context.Context) error {
	a, err := c.config.stateDir().load(c.args.ContainerID, c.args.IfName)
	if err != nil {
		return err
	}
	if a == nil {
		return c.delUnknown(ctx)
	}
	return c.detach(ctx, a)
}

// delUnknown detaches a sandbox of which nothing is noted: ADD never began,
// ended before it had reserved anything or right after, or DEL was here before.
// Only the API and the ordinary plugin can know more.
func (c *call) delUnknown(ctx context.Context) error {
	a := c.newAttachment()
	if c.config.Delegate != nil {
		d, err := c.config.ordinary(c.args.IfName)
		if err != nil {
			return coded(types.ErrInternal, "detaching", err)
		}
		a.Delegations = []delegation{d}
	}
	return c.detach(ctx, a)
}

// detach removes the interfaces, last one first, has DANM release the
// addresses and forgets the attachment if all of that succeeded. An ordinary
// pod is detached without the API.
func (c *call) detach(ctx context.Context, a *attachment) error {
	if err := c.recordDetaching(a); err != nil {
		return coded(types.ErrIOFailure, "recording the end of sandbox "+a.ContainerID, err)
	}
	p := c.plugins
	p.containerID = a.ContainerID
	if _, err := os.Stat(p.netns); err != nil {
		p.netns = "" // the interfaces went with it
	}
	var troubles []error
	for _, d := range slices.Backward(a.Delegations) {
		if err := c.detachInterface(ctx, p, a, d); err != nil {
			troubles = append(troubles, err)
		}
	}
	if !a.IsOrdinary {
		troubles = append(troubles, c.release(ctx, a.ContainerID))
	}
	if err := errors.Join(troubles...); err != nil {
		return coded(codeOf(err, types.ErrInternal), "detaching sandbox "+a.ContainerID, err)
	}
	if err := c.config.stateDir().remove(a.ContainerID, a.IfName); err != nil {
		return coded(types.ErrIOFailure, "detaching sandbox "+a.ContainerID, err)
	}
	return nil
}

// detachInterface has the plugin that made an interface remove it. DANM reports
// no trouble of that to the runtime, lest pods hang in Terminating, so neither
// does the variant that does as DANM does.
func (c *call) detachInterface(ctx context.Context, p plugins, a *attachment, d delegation) error {
	err := p.run(ctx, "DEL", d)
	if err == nil {
		return nil
	}
	isSwallowed := errors.Is(err, errNoPlugin) || !a.IsOrdinary && c.config.Variant == danmcni.Danm43
	if isSwallowed {
		c.log.Error(err, "swallowed error of DEL", "containerID", a.ContainerID, "interface", d.IfName, "plugin", d.Plugin)
		return nil
	}
	return fmt.Errorf("removing %s by %s: %w", d.IfName, d.Plugin, err)
}

func (c *call) release(ctx context.Context, containerID string) error {
	k, err := openKube(c.config, c.log)
	if err != nil {
		return fmt.Errorf("connecting to the API: %w", err)
	}
	if err := k.plugin.Del(ctx, containerID); err != nil {
		return fmt.Errorf("releasing addresses: %w", err)
	}
	return nil
}

// gc detaches what the runtime no longer knows. The specification has it send
// no ADD meanwhile, so an attachment that it does not list is no new one.
func (c *call) gc(ctx context.Context) error {
	known, err := c.config.stateDir().all()
	if err != nil {
		return coded(types.ErrIOFailure, "collecting garbage", err)
	}
	var troubles []error
	for _, a := range known {
		if !slices.Contains(c.config.ValidAttachments, types.GCAttachment{ContainerID: a.ContainerID, IfName: a.IfName}) {
			troubles = append(troubles, c.detach(ctx, a))
		}
	}
	if err := errors.Join(troubles...); err != nil {
		return coded(types.ErrInternal, "collecting garbage", err)
	}
	return nil
}
