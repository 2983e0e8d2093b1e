package netplugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	ktypes "k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
)

const (
	// firstIfName is what DANM calls the first interface of a pod in its
	// endpoint, and what a kubelet's runtime asks for.
	firstIfName = "eth0"
	// rollbackDuration is for undoing an ADD whose own time may be up.
	rollbackDuration = 10 * time.Second
)

// add attaches a sandbox and prints the result.
func (c *call) add(ctx context.Context) error {
	if err := c.checkAdd(); err != nil {
		return err
	}
	k, err := openKube(c.config, c.log)
	if err != nil {
		return coded(types.ErrInvalidNetworkConfig, "connecting to the API", err)
	}
	made, err := k.plugin.Add(ctx, danmcni.Request{
		Namespace: c.pod.namespace, Pod: c.pod.pod, PodUID: ktypes.UID(c.pod.uid),
		ContainerID: c.args.ContainerID, Netns: c.args.Netns,
	})
	if err != nil {
		return coded(codeOf(err, codeNotReserved), "reserving the addresses of pod "+c.pod.name(), err)
	}
	a := c.newAttachment()
	results, err := c.attach(ctx, a, made)
	if err != nil {
		return c.rollBack(a, err)
	}
	if err := c.recordAttached(a, made); err != nil {
		return c.rollBack(a, coded(types.ErrIOFailure, "recording the attachment", err))
	}
	return c.print(c.resultOf(a, results))
}

func (c *call) print(result *current.Result) error {
	versioned, err := result.GetAsVersion(c.config.CNIVersion)
	if err != nil {
		return coded(types.ErrIncompatibleCNIVersion, "printing the result", err)
	}
	if err := versioned.PrintTo(c.out); err != nil {
		return coded(types.ErrIOFailure, "printing the result", err)
	}
	return nil
}

// checkAdd refuses what would be found out only after DANM's bits are set.
func (c *call) checkAdd() error {
	if c.pod.namespace == "" || c.pod.pod == "" {
		return types.NewError(types.ErrInvalidEnvironmentVariables, "reading CNI_ARGS", "K8S_POD_NAMESPACE and K8S_POD_NAME are needed")
	}
	if len(c.config.PrevResult) > 0 {
		return types.NewError(types.ErrInvalidNetworkConfig, "reading the network configuration", "danm-cni must be the first plugin of its list")
	}
	if _, err := os.Stat(c.args.Netns); err != nil {
		return types.NewError(types.ErrInvalidNetNS, "looking for the network namespace", err.Error())
	}
	known, err := c.config.stateDir().load(c.args.ContainerID, c.args.IfName)
	if err != nil {
		return err
	}
	if known != nil {
		// Going on would end in an error and its rollback would take the
		// interfaces away that are in use.
		return types.NewError(codeAttached, "adding an attachment", "it exists already; DEL comes first")
	}
	return nil
}

func (c *call) newAttachment() *attachment {
	return &attachment{ContainerID: c.args.ContainerID, IfName: c.args.IfName, Namespace: c.pod.namespace, Pod: c.pod.pod}
}

// attach makes the interfaces that DANM reserved, or the ordinary one if it
// reserved none.
func (c *call) attach(ctx context.Context, a *attachment, made []danmcni.Interface) ([]*current.Result, error) {
	if err := c.plan(a, made); err != nil {
		return nil, err
	}
	if err := c.config.stateDir().save(a); err != nil {
		return nil, coded(types.ErrIOFailure, "noting the attachment", err)
	}
	var results []*current.Result
	for i := range a.Delegations {
		d := &a.Delegations[i]
		result, err := c.plugins.add(ctx, d)
		if err == nil && !a.IsOrdinary {
			err = checkAddresses(result, d.Addresses)
		}
		if err != nil {
			return nil, delegateError(fmt.Sprintf("attaching %s of pod %s by %s", d.IfName, c.pod.name(), d.Plugin), err)
		}
		results = append(results, result)
	}
	// Again with the results, which CHECK and DEL have to hand back.
	if err := c.config.stateDir().save(a); err != nil {
		return nil, coded(types.ErrIOFailure, "noting the attachment", err)
	}
	return results, nil
}

// plan fills in the delegations.
func (c *call) plan(a *attachment, made []danmcni.Interface) error {
	if len(made) == 0 {
		a.IsOrdinary = true
		if c.config.Delegate == nil {
			return types.NewError(types.ErrInvalidNetworkConfig, "attaching pod "+c.pod.name(),
				"it asks for no DANM interface, and the configuration has no delegate for such pods")
		}
		d, err := c.config.ordinary(c.args.IfName)
		if err != nil {
			return coded(types.ErrInternal, "attaching pod "+c.pod.name(), err)
		}
		a.Delegations = []delegation{d}
		return nil
	}
	if c.args.IfName != firstIfName {
		return types.NewError(types.ErrInvalidEnvironmentVariables, "attaching pod "+c.pod.name(),
			fmt.Sprintf("CNI_IFNAME is %s, but DANM calls the first interface %s", c.args.IfName, firstIfName))
	}
	var err error
	if a.Delegations, err = planInterfaces(c.config, made); err != nil {
		return coded(codeNotReserved, "attaching pod "+c.pod.name(), err)
	}
	return nil
}

func delegateError(doing string, err error) *types.Error {
	if errors.Is(err, errNoPlugin) {
		return coded(codeNoPlugin, doing, err)
	}
	return coded(codeOf(err, types.ErrInternal), doing, err)
}

// rollBack undoes a failed ADD and returns its cause. What could not be undone
// stays noted for the DEL that the runtime sends after a failure.
func (c *call) rollBack(a *attachment, cause error) error {
	ctx, cancel := context.WithTimeout(context.Background(), rollbackDuration)
	defer cancel()
	if err := c.detach(ctx, a); err != nil {
		c.log.Error(err, "rolling back ADD failed", "containerID", a.ContainerID, "pod", c.pod.name())
	}
	return cause
}

// resultOf merges the results of a pod's interfaces. That of the ordinary
// network is passed on as it is.
func (c *call) resultOf(a *attachment, results []*current.Result) *current.Result {
	if a.IsOrdinary {
		return results[0]
	}
	return mergeResults(results, c.config.DNS)
}
