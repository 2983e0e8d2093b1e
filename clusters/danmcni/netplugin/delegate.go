package netplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/invoke"
	current "github.com/containernetworking/cni/pkg/types/100"
)

// plugins executes the plugins in CNI_PATH for one sandbox.
type plugins struct {
	exec        invoke.Exec
	path        string // CNI_PATH
	containerID string
	netns       string
	// args is the CNI_ARGS for the ordinary network. Those of DANM's
	// interfaces get none, lest an "IP=" in them overrule DANM.
	args string
}

// errNoPlugin says that a plugin is not in CNI_PATH.
var errNoPlugin = errors.New("no such plugin in CNI_PATH")

func (p plugins) find(plugin string) (string, error) {
	path, err := p.exec.FindInPath(plugin, filepath.SplitList(p.path))
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoPlugin, err)
	}
	return path, nil
}

// add executes ADD and notes the result in d.
func (p plugins) add(ctx context.Context, d *delegation) (*current.Result, error) {
	path, err := p.find(d.Plugin)
	if err != nil {
		return nil, err
	}
	result, err := invoke.ExecPluginWithResult(ctx, path, d.Config, p.arguments("ADD", *d), p.exec)
	if err != nil {
		return nil, p.explain(ctx, err)
	}
	converted, err := current.NewResultFromResult(result)
	if err != nil {
		return nil, fmt.Errorf("reading the result of %s: %w", d.Plugin, err)
	}
	if d.Result, err = noteOf(d.Plugin, converted, result.Version()); err != nil {
		return nil, fmt.Errorf("noting the result of %s: %w", d.Plugin, err)
	}
	return converted, nil
}

// noteOf is a result as CHECK and DEL hand it back. A bridge without address
// takes over the hardware address of one port or another as pods come and go,
// so CHECK by that of the day of ADD would fail for sound pods.
func noteOf(plugin string, result *current.Result, version string) (json.RawMessage, error) {
	noted := *result
	noted.Interfaces = nil
	for _, i := range result.Interfaces {
		i = i.Copy()
		if plugin == bridgeType && i.Sandbox == "" {
			i.Mac = ""
		}
		noted.Interfaces = append(noted.Interfaces, i)
	}
	versioned, err := noted.GetAsVersion(version)
	if err != nil {
		return nil, err
	}
	return json.Marshal(versioned)
}

// run executes a command that has no result: DEL, CHECK or STATUS.
func (p plugins) run(ctx context.Context, command string, d delegation) error {
	path, err := p.find(d.Plugin)
	if err != nil {
		return err
	}
	config, err := withPrevResult(d.Config, d.Result)
	if err != nil {
		return err
	}
	return p.explain(ctx, invoke.ExecPluginWithoutResult(ctx, path, config, p.arguments(command, d), p.exec))
}

// explain adds that the time was up to what a killed plugin says, which is
// only that it was killed.
func (p plugins) explain(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

func (p plugins) arguments(command string, d delegation) *invoke.Args {
	args := p.args
	if d.Endpoint != "" || args == "" {
		args = "IgnoreUnknown=1"
	}
	return &invoke.Args{
		Command: command, ContainerID: p.containerID, NetNS: p.netns, IfName: d.IfName, PluginArgsStr: args, Path: p.path,
	}
}

// withPrevResult puts the plugin's own result into its configuration, as the
// specification has it for DEL and CHECK.
func withPrevResult(config, result json.RawMessage) (json.RawMessage, error) {
	if len(result) == 0 {
		return config, nil
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(config, &keys); err != nil {
		return nil, fmt.Errorf("reading a noted configuration: %w", err)
	}
	keys["prevResult"] = result
	data, err := json.Marshal(keys)
	if err != nil {
		return nil, fmt.Errorf("encoding a configuration: %w", err)
	}
	return data, nil
}

// ordinary is the call for pods that are not DANM's.
func (c Config) ordinary(ifName string) (delegation, error) {
	config := template{}
	for key, value := range c.Delegate {
		config[key] = value
	}
	config["cniVersion"], config["name"] = c.CNIVersion, c.Name
	if len(c.RuntimeConfig) > 0 {
		config["runtimeConfig"] = c.RuntimeConfig
	}
	data, err := json.Marshal(config)
	if err != nil {
		return delegation{}, fmt.Errorf("encoding the configuration of %s: %w", c.Delegate.pluginType(), err)
	}
	return delegation{Plugin: c.Delegate.pluginType(), IfName: ifName, Config: data}, nil
}
