package kind

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
	"github.com/danm-chaos/danm-chaos/clusters/kind/engine"
)

// node is a node as the network needs to know it.
type node struct {
	name           string
	isControlPlane bool
	podCIDR        string
	address        string // in the engine's network
}

// Where the network configuration of a node is, and what it refers to.
// containerd takes a file without extension for none of its own.
const (
	cniFile       = "/etc/cni/net.d/10-danm-chaos.conflist"
	cniKubeconfig = "/etc/cni/net.d/danm-chaos.kubeconfig"
	pluginName    = "danm-cni"
	cniProgram    = "/opt/cni/bin/" + pluginName // a link to the next
	// cniProgramKept is where runtimes do not look.
	cniProgramKept = "/opt/cni/danm-chaos/" + pluginName
	cniLog         = "/var/log/danm-cni.log"
)

// Routes are of a node's memory. The script that makes them is kept in the node
// and run before its kubelet, so that a node which somebody else starts again,
// by the engine's command line, has them too.
const (
	routesScript = "/etc/danm-chaos-routes"
	routesUnit   = "/etc/systemd/system/kubelet.service.d/20-danm-chaos-routes.conf"
	// A kubelet that starts without routes is still better than none.
	routesUnitText = "[Service]\nExecStartPre=-/bin/sh -e " + routesScript + "\n"
)

// networkConfig configures the network of a node. Without DANM's plugin, every
// pod gets the ordinary network.
func networkConfig(n node, group danm.Group, variant danmcni.Variant) (string, error) {
	first := ordinaryNetwork(n.podCIDR)
	if variant != "" {
		first = object{
			"type": pluginName, "kubeconfig": cniKubeconfig, "danmAPI": string(group), "variant": string(variant),
			"nodeName": n.name, "logFile": cniLog, "delegate": first,
			"recordFile": nodeAttachmentsFolder + "/" + n.name + attachmentsSuffix,
		}
	}
	out, err := json.MarshalIndent(object{
		"cniVersion": "1.0.0", "name": "danm-chaos",
		"plugins": []object{first, {"type": "portmap", "capabilities": object{"portMappings": true}}},
	}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encoding the network configuration: %w", err)
	}
	return string(out), nil
}

// ordinaryNetwork is for pods that ask for nothing else: each node hands out
// addresses of its own range.
func ordinaryNetwork(podCIDR string) object {
	return object{"type": "ptp", "ipMasq": true, "ipam": object{
		"type": "host-local",
		// In memory, so that it is gone with the node's power as its pods are.
		"dataDir": "/run/cni-ipam-state",
		"ranges":  [][]object{{{"subnet": podCIDR}}},
		"routes":  []object{{"dst": "0.0.0.0/0"}},
	}}
}

// routesOf returns the commands that let the pods of a node reach those of the
// others, one a line.
func routesOf(self string, all []node) string {
	var script strings.Builder
	for _, n := range all {
		if n.name != self && n.podCIDR != "" && n.address != "" {
			fmt.Fprintf(&script, "ip route replace %s via %s\n", n.podCIDR, n.address)
		}
	}
	return script.String()
}

func setRoutes(ctx context.Context, self string, all []node) error {
	const keepAndRun = "cat >" + routesScript + " && sh -e " + routesScript
	if err := inNode(ctx, self, []byte(routesOf(self, all)), "sh", "-ec", keepAndRun); err != nil {
		return fmt.Errorf("setting routes in %s: %w", self, err)
	}
	return nil
}

// keepRoutes has the routes set whenever the node is started. systemd reads the
// file when it starts itself.
func keepRoutes(ctx context.Context, self string) error {
	if err := inNode(ctx, self, []byte(routesUnitText), "install", "-D", "-m", "0644", "/dev/stdin", routesUnit); err != nil {
		return fmt.Errorf("keeping the routes of %s: %w", self, err)
	}
	return nil
}

// createNetwork makes the network of the run's nodes. kind's own would be
// shared with clusters that are none of our business, and nobody would know
// when to remove it.
func createNetwork(ctx context.Context, data journalData) error {
	if _, err := engine.Run(ctx, "network", "create", "--label", runLabel+"="+data.RunID, data.Cluster); err != nil {
		return fmt.Errorf("making a network: %w", err)
	}
	return nil
}

// refreshAddresses asks the engine: a node that was started again may have got
// another address, and one without power has none.
func refreshAddresses(ctx context.Context, all []node) error {
	for i := range all {
		address, err := engine.Run(ctx, "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", all[i].name)
		if err != nil {
			return fmt.Errorf("asking for the address of %s: %w", all[i].name, err)
		}
		all[i].address = address
	}
	return nil
}
