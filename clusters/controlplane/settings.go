package controlplane

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
)

const (
	// NodeMonitorPeriod is how often the controller-manager looks at leases.
	NodeMonitorPeriod = 500 * time.Millisecond
	// NodeMonitorGracePeriod is how long a node may be silent before it counts
	// as dead. It is five renewals of a hollow node, so that a machine which is
	// busy for a second does not kill nodes that no fault was meant for.
	NodeMonitorGracePeriod = 3 * time.Second
	// nodeStartupGracePeriod is the same for a node that never reported yet.
	nodeStartupGracePeriod = 10 * time.Second
	// tolerationSeconds is how long pods stay on a dead node before they are
	// deleted; five minutes by default.
	tolerationSeconds = 1
	// unlimitedRate is for limits that would only slow the cluster down:
	// requests per second of its programs, nodes tainted per second.
	unlimitedRate = 5000
)

// Memory that the Go runtime of each program tries to stay below. Together
// with the cleaner and the harness they keep a long run under 2.5 GiB.
const (
	etcdMemory              = "400MiB"
	apiserverMemory         = "900MiB"
	controllerManagerMemory = "300MiB"
	schedulerMemory         = "250MiB"
)

// ports are the loopback ports of the programs.
type ports struct {
	etcdClient, etcdPeer, apiserver, controllerManager, scheduler int
}

func etcdArguments(files layout, p ports) []string {
	client, peer := httpAddress(p.etcdClient), httpAddress(p.etcdPeer)
	return []string{
		"--name=default", "--data-dir=" + files.etcdData(),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
		// Nothing has to survive a power loss: the data is thrown away.
		"--unsafe-no-fsync", "--snapshot-count=5000", "--log-level=warn",
	}
}

func httpAddress(port int) string { return fmt.Sprintf("http://%s:%d", loopback, port) }

func apiserverArguments(files layout, p ports) []string {
	return []string{
		"--etcd-servers=" + httpAddress(p.etcdClient),
		"--bind-address=" + loopback, "--advertise-address=" + loopback, fmt.Sprintf("--secure-port=%d", p.apiserver),
		"--tls-cert-file=" + files.servingCert(), "--tls-private-key-file=" + files.servingKey(),
		"--token-auth-file=" + files.tokens(), "--authorization-mode=RBAC", "--anonymous-auth=false",
		"--service-account-issuer=https://danm-chaos.invalid",
		"--service-account-key-file=" + files.signingKey(), "--service-account-signing-key-file=" + files.signingKey(),
		"--service-cluster-ip-range=10.96.0.0/16",
		// No pod of ours talks to the API, so none needs a service account.
		"--disable-admission-plugins=ServiceAccount",
		fmt.Sprintf("--default-not-ready-toleration-seconds=%d", tolerationSeconds),
		fmt.Sprintf("--default-unreachable-toleration-seconds=%d", tolerationSeconds),
		// Blocking mode writes a request down before the client hears that it
		// is complete; DrainAudit depends on it. Size 0: no rotation.
		"--audit-policy-file=" + files.auditPolicy(), "--audit-log-path=" + files.auditLog(),
		"--audit-log-mode=blocking", "--audit-log-maxsize=0",
		"--enable-priority-and-fairness=false", "--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000",
		"--endpoint-reconciler-type=none", "--feature-gates=OpenAPIEnums=false",
		"--event-ttl=5m", "--etcd-compaction-interval=2m", "--profiling=false",
		"--shutdown-delay-duration=0s",
	}
}

// controllers are those of Kubernetes' own that scenarios need.
var controllers = []string{
	"statefulset-controller", "node-lifecycle-controller", "taint-eviction-controller",
	"namespace-controller", "garbage-collector-controller", "pod-garbage-collector-controller",
}

func controllerManagerArguments(files layout, p ports, more []string) []string {
	return []string{
		"--kubeconfig=" + files.kubeconfig(userControllerManager),
		"--bind-address=" + loopback, fmt.Sprintf("--secure-port=%d", p.controllerManager),
		"--tls-cert-file=" + files.servingCert(), "--tls-private-key-file=" + files.servingKey(),
		"--authentication-skip-lookup", "--leader-elect=false", "--profiling=false",
		"--controllers=" + strings.Join(slices.Concat(controllers, more), ","),
		"--node-monitor-period=" + NodeMonitorPeriod.String(),
		"--node-monitor-grace-period=" + NodeMonitorGracePeriod.String(),
		"--node-startup-grace-period=" + nodeStartupGracePeriod.String(),
		// Lanes fail side by side. Without these the controller would take many
		// dead nodes for a fault of its own network and slow down on purpose.
		fmt.Sprintf("--node-eviction-rate=%d", unlimitedRate), fmt.Sprintf("--secondary-node-eviction-rate=%d", unlimitedRate),
		"--unhealthy-zone-threshold=1",
		"--concurrent-statefulset-syncs=20", "--concurrent-namespace-syncs=20",
		fmt.Sprintf("--kube-api-qps=%d", unlimitedRate), fmt.Sprintf("--kube-api-burst=%d", unlimitedRate),
	}
}

func schedulerArguments(files layout, p ports) []string {
	return []string{
		"--config=" + files.schedulerConfig(),
		"--bind-address=" + loopback, fmt.Sprintf("--secure-port=%d", p.scheduler),
		"--tls-cert-file=" + files.servingCert(), "--tls-private-key-file=" + files.servingKey(),
		"--authentication-skip-lookup", "--leader-elect=false",
	}
}

// object is a configuration file of Kubernetes. JSON is YAML, so it is written
// as JSON.
type object = map[string]any

// schedulerSettings keep a pod that found no node from waiting for long.
func schedulerSettings(files layout) object {
	return object{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"leaderElection":            object{"leaderElect": false},
		"enableProfiling":           false,
		"podInitialBackoffSeconds":  1,
		"podMaxBackoffSeconds":      2,
		"clientConnection":          object{"kubeconfig": files.kubeconfig(userScheduler), "qps": unlimitedRate, "burst": unlimitedRate},
		"percentageOfNodesToScore":  100,
		"enableContentionProfiling": false,
	}
}

// auditPolicy keeps every change to DANM's objects with the answer, whoever
// makes it and in whichever group, and that the cleaner changed anything else.
func auditPolicy() object {
	changes := []string{"create", "update", "patch", "delete", "deletecollection"}
	var danmObjects []object
	for _, g := range danm.Groups() {
		danmObjects = append(danmObjects, object{"group": string(g)})
	}
	return object{
		"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
		"omitStages":        []string{"RequestReceived", "ResponseStarted"},
		"omitManagedFields": true,
		"rules": []object{
			{"level": "RequestResponse", "verbs": changes, "resources": danmObjects},
			// Who deleted which pod, and when, bounds the life of its interfaces.
			{"level": "RequestResponse", "verbs": []string{"delete"}, "resources": []object{{"group": "", "resources": []string{"pods"}}}},
			{"level": "Metadata", "verbs": changes, "users": []string{clusters.UserCleaner}},
			{"level": "None"},
		},
	}
}

// writeSettings writes the configuration files. The audit log is made here so
// that it can be followed before the first request.
func writeSettings(files layout) error {
	for path, content := range map[string]object{
		files.auditPolicy():     auditPolicy(),
		files.schedulerConfig(): schedulerSettings(files),
	} {
		data, err := json.Marshal(content)
		if err != nil {
			return fmt.Errorf("encoding settings: %w", err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return fmt.Errorf("writing settings: %w", err)
		}
	}
	if err := os.WriteFile(files.auditLog(), nil, 0o600); err != nil {
		return fmt.Errorf("making the audit log: %w", err)
	}
	return nil
}
