package kind

import (
	"encoding/json"
	"fmt"

	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
)

// What is tuned so that a dead node counts as dead after about ten seconds, and
// its pods are deleted a second later. Kubernetes' own defaults are 40 to 50
// seconds and five minutes.
const (
	nodeMonitorPeriod      = "1s"
	nodeMonitorGracePeriod = "8s"
	nodeStatusFrequency    = "2s"
	// nodeLeaseSeconds makes kubelets renew every two seconds, a quarter of it.
	nodeLeaseSeconds  = 8
	tolerationSeconds = "1"
	// nodeEvictionRate is dead nodes per second. By default the controller
	// takes two dead nodes within ten seconds for a fault of its own network.
	nodeEvictionRate = "100"
)

// Where things are in a node.
const (
	nodeAuditFolder       = "/danm-chaos/audit"       // of the control plane only
	nodeAttachmentsFolder = "/danm-chaos/attachments" // one for all nodes
	nodeWrapper           = "/usr/local/bin/oci-wrapper"
)

// Names within the audit folder, on both sides.
const (
	auditPolicyFile = "policy.yaml"
	auditLogFile    = "audit.log"
)

// podSubnet is what nodes get their share from.
const podSubnet = "10.244.0.0/16"

// settings decide what the cluster is told.
type settings struct {
	name             string
	image            string
	workers          int
	auditFolder      string // on this machine, as are the next two
	attachments      string
	wrapper          string // empty: the host needs none
	cgroupV1         bool
	defaultDetection bool
}

// clusterConfig is what kind is given.
func clusterConfig(s settings) (*v1alpha4.Cluster, error) {
	patches, err := kubeadmPatches(s)
	if err != nil {
		return nil, err
	}
	kubelet, err := kubeletPatch(s)
	if err != nil {
		return nil, err
	}
	config := &v1alpha4.Cluster{
		TypeMeta: v1alpha4.TypeMeta{Kind: "Cluster", APIVersion: "kind.x-k8s.io/v1alpha4"},
		Name:     s.name,
		Nodes:    nodes(s),
		Networking: v1alpha4.Networking{
			IPFamily: v1alpha4.IPv4Family, APIServerAddress: "127.0.0.1",
			PodSubnet: podSubnet, DisableDefaultCNI: true,
		},
		KubeadmConfigPatches:         []string{kubelet},
		KubeadmConfigPatchesJSON6902: patches,
	}
	if s.wrapper != "" {
		config.ContainerdConfigPatches = []string{containerdPatch}
	}
	return config, nil
}

func nodes(s settings) []v1alpha4.Node {
	with := func(n v1alpha4.Node) v1alpha4.Node {
		n.Image = s.image
		n.ExtraMounts = append(n.ExtraMounts, v1alpha4.Mount{HostPath: s.attachments, ContainerPath: nodeAttachmentsFolder})
		if s.wrapper != "" {
			n.ExtraMounts = append(n.ExtraMounts, v1alpha4.Mount{HostPath: s.wrapper, ContainerPath: nodeWrapper, Readonly: true})
		}
		return n
	}
	out := []v1alpha4.Node{with(v1alpha4.Node{
		Role:        v1alpha4.ControlPlaneRole,
		ExtraMounts: []v1alpha4.Mount{{HostPath: s.auditFolder, ContainerPath: nodeAuditFolder}},
	})}
	for range s.workers {
		out = append(out, with(v1alpha4.Node{Role: v1alpha4.WorkerRole}))
	}
	return out
}

// containerdPatch has the containers in a node started by the wrapper, for a
// host whose bounding set lacks CAP_SYS_RESOURCE.
const containerdPatch = `[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  BinaryName = "` + nodeWrapper + `"
`

// object is a piece of configuration.
type object = map[string]any

func argument(name, value string) object { return object{"name": name, "value": value} }

// kubeadmPatches add to lists that kind fills, which a merge would replace.
func kubeadmPatches(s settings) ([]v1alpha4.PatchJSON6902, error) {
	server := []object{
		// Blocking mode writes a request down before the client hears that it
		// is complete; DrainAudit depends on it. Size 0: no rotation.
		argument("audit-policy-file", nodeAuditFolder+"/"+auditPolicyFile),
		argument("audit-log-path", nodeAuditFolder+"/"+auditLogFile),
		argument("audit-log-mode", "blocking"), argument("audit-log-maxsize", "0"),
	}
	var manager []object
	if !s.defaultDetection {
		server = append(server, argument("default-not-ready-toleration-seconds", tolerationSeconds),
			argument("default-unreachable-toleration-seconds", tolerationSeconds))
		manager = append(manager, argument("node-monitor-period", nodeMonitorPeriod),
			argument("node-monitor-grace-period", nodeMonitorGracePeriod),
			argument("node-eviction-rate", nodeEvictionRate), argument("secondary-node-eviction-rate", nodeEvictionRate),
			argument("unhealthy-zone-threshold", "1"))
	}
	operations := []object{{"op": "add", "path": "/apiServer/extraVolumes", "value": []object{{
		"name": "danm-chaos-audit", "hostPath": nodeAuditFolder, "mountPath": nodeAuditFolder, "pathType": "Directory",
	}}}}
	operations = append(operations, appendAll("/apiServer/extraArgs/-", server)...)
	operations = append(operations, appendAll("/controllerManager/extraArgs/-", manager)...)
	patch, err := json.MarshalIndent(operations, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding kubeadm patches: %w", err)
	}
	return []v1alpha4.PatchJSON6902{{Group: "kubeadm.k8s.io", Version: "v1beta4", Kind: "ClusterConfiguration", Patch: string(patch)}}, nil
}

func appendAll(path string, values []object) []object {
	var out []object
	for _, v := range values {
		out = append(out, object{"op": "add", "path": path, "value": v})
	}
	return out
}

// kubeletPatch is merged into the configuration of all kubelets.
func kubeletPatch(s settings) (string, error) {
	patch := object{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
	if s.cgroupV1 {
		patch["failCgroupV1"] = false // refused by default since 1.35
	}
	if !s.defaultDetection {
		patch["nodeStatusUpdateFrequency"] = nodeStatusFrequency
		patch["nodeLeaseDurationSeconds"] = nodeLeaseSeconds
	}
	out, err := json.MarshalIndent(patch, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encoding the kubelet patch: %w", err)
	}
	return string(out), nil
}
