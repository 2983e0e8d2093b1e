package nodeimage

import (
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
)

// toolSets lists every set of programs that a node holds.
func toolSets() []controlplane.ToolSet {
	return append(controlplane.ToolSets(), []controlplane.ToolSet{
		{Name: "kubenode", Module: "k8s.io/kubernetes", Kubernetes: true, Programs: packagesOf("k8s.io/kubernetes/cmd/",
			"kubelet", "kubeadm", "kube-proxy", "kubectl")},
		{Name: "containerd", Module: "github.com/containerd/containerd/v2", Programs: packagesOf("github.com/containerd/containerd/v2/cmd/",
			"containerd", "ctr", "containerd-shim-runc-v2")},
		{Name: "cni-plugins", Module: "github.com/containernetworking/plugins", Programs: append(append(
			packagesOf("github.com/containernetworking/plugins/plugins/main/", "ptp", "bridge", "macvlan", "loopback"),
			packagesOf("github.com/containernetworking/plugins/plugins/ipam/", "host-local", "static")...),
			packagesOf("github.com/containernetworking/plugins/plugins/meta/", "portmap")...)},
		{Name: "critools", Module: "sigs.k8s.io/cri-tools", Programs: packagesOf("sigs.k8s.io/cri-tools/cmd/", "crictl")},
		{Name: "coredns", Module: "github.com/coredns/coredns", Programs: packagesOf("github.com/coredns/", "coredns")},
	}...)
}

func packagesOf(prefix string, names ...string) []controlplane.ToolProgram {
	var out []controlplane.ToolProgram
	for _, name := range names {
		out = append(out, controlplane.ToolProgram{Name: name, Package: prefix + name})
	}
	return out
}

// placement says where programs are in a node, by folder.
var placement = map[string][]string{
	"usr/bin":       {"kubelet", "kubeadm", "kubectl"},
	"usr/local/bin": {"containerd", "ctr", "containerd-shim-runc-v2", "crictl"},
	"opt/cni/bin":   {"ptp", "bridge", "macvlan", "loopback", "host-local", "static", "portmap"},
}
