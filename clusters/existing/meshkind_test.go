package existing_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"

	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/harness/nemesis/chaosmesh"
)

// meshManifest is what the charts of Chaos Mesh deploy, without what is not
// tested: DNS, dashboard, webhooks and certificates between its parts. Nodes
// have its images under these names.
const meshManifest = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: chaos-mesh, namespace: chaos-mesh}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: chaos-mesh}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: chaos-mesh, namespace: chaos-mesh}]
---
apiVersion: v1
kind: Service
metadata: {name: chaos-daemon, namespace: chaos-mesh}
spec:
  clusterIP: None
  selector: {app: chaos-daemon}
  ports: [{name: grpc, port: 31767}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: chaos-daemon, namespace: chaos-mesh}
spec:
  selector: {matchLabels: {app: chaos-daemon}}
  template:
    metadata: {labels: {app: chaos-daemon}}
    spec:
      hostPID: true
      nodeSelector: {node-role.kubernetes.io/control-plane: ""}
      tolerations: [{operator: Exists}]
      containers:
        - name: chaos-daemon
          image: danm-chaos/chaos-daemon
          imagePullPolicy: Never
          command: [/usr/local/bin/chaos-daemon, --runtime=containerd, --runtime-socket-path=/host-run/containerd.sock, --grpc-port=31767, --http-port=31766]
          securityContext: {privileged: true}
          volumeMounts:
            - {name: run, mountPath: /host-run}
            - {name: sys, mountPath: /host-sys}
      volumes:
        - {name: run, hostPath: {path: /run/containerd}}
        - {name: sys, hostPath: {path: /sys}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: chaos-controller-manager, namespace: chaos-mesh}
spec:
  selector: {matchLabels: {app: chaos-controller-manager}}
  template:
    metadata: {labels: {app: chaos-controller-manager}}
    spec:
      serviceAccountName: chaos-mesh
      nodeSelector: {node-role.kubernetes.io/control-plane: ""}
      tolerations: [{operator: Exists}]
      containers:
        - name: chaos-controller-manager
          image: danm-chaos/chaos-controller-manager
          imagePullPolicy: Never
          command: [/chaos-controller-manager]
          env:
            - {name: NAMESPACE, value: chaos-mesh}
            - {name: CERTS_DIR, value: /certs}
            - {name: SECURITY_MODE, value: "false"}
            - {name: ENABLE_LEADER_ELECTION, value: "false"}
            - {name: CHAOS_DNS_SERVICE_PORT, value: "9288"}
          volumeMounts: [{name: certs, mountPath: /certs}]
      volumes:
        - {name: certs, secret: {secretName: chaos-mesh-certs}}
`

// managerDockerfile and daemonDockerfile make images of what lies beside them.
const (
	managerDockerfile = "FROM scratch\nCOPY chaos-controller-manager /\n"
	daemonDockerfile  = "FROM scratch\nADD root.tar /\nCOPY chaos-daemon nsexec pause iptables /usr/local/bin/\n"
)

// daemonScripts stand for programs of Chaos Mesh that are no Go. nsexec enters
// namespaces; pause waits to be woken before it becomes another program; the
// daemon understands what the older iptables says.
var daemonScripts = map[string]string{
	"nsexec": `#!/bin/sh
set -e
flags=
while [ "$1" != -- ]; do
	case $1 in
	-l) shift ;;
	-m) flags="$flags --mount=$2"; shift 2 ;;
	-n) flags="$flags --net=$2"; shift 2 ;;
	-i) flags="$flags --ipc=$2"; shift 2 ;;
	-p) flags="$flags --pid=$2"; shift 2 ;;
	*) echo "nsexec: unknown flag $1" >&2; exit 1 ;;
	esac
done
exec nsenter $flags "$@"
`,
	"pause": `#!/bin/sh
kill -STOP $$
exec "$@"
`,
	"iptables": `#!/bin/sh
exec iptables-legacy "$@"
`,
}

// deployChaosMesh runs Chaos Mesh as its users do: the controller-manager in a
// pod and the daemon on the node of the cleaner.
func (w *kindWorld) deployChaosMesh() {
	w.t.Helper()
	w.installMeshCRDs()
	w.giveImage("danm-chaos/"+meshManager, managerDockerfile, map[string]string{meshManager: w.builtMesh(meshManager)}, nil)
	w.giveImage("danm-chaos/chaos-daemon", daemonDockerfile,
		map[string]string{"chaos-daemon": w.builtMesh("chaos-daemon"), "root.tar": w.builtMesh("chaos-daemon-root.tar")}, daemonScripts)
	ctx, core := w.t.Context(), w.core.CoreV1()
	if _, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: meshSpace}}, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "chaos-mesh-certs"}, Data: map[string][]byte{}}
	folder := w.meshCertificates()
	for _, name := range []string{"tls.crt", "tls.key", "ca.crt"} {
		data, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			w.t.Fatal(err)
		}
		secret.Data[name] = data
	}
	if _, err := core.Secrets(meshSpace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.apply(meshManifest)
	w.await("Chaos Mesh to run", w.areAllSettled)
}

// apply creates objects.
func (w *kindWorld) apply(manifest string) {
	w.t.Helper()
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(w.core.Discovery()))
	for _, text := range strings.Split(manifest, "\n---\n") {
		data, err := yaml.ToJSON([]byte(text))
		if err != nil {
			w.t.Fatal(err)
		}
		var o unstructured.Unstructured
		if err := json.Unmarshal(data, &o.Object); err != nil {
			w.t.Fatal(err)
		}
		mapping, err := mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
		if err != nil {
			w.t.Fatal(err)
		}
		if _, err := w.dynamic.Resource(mapping.Resource).Namespace(o.GetNamespace()).Create(w.t.Context(), &o, metav1.CreateOptions{}); err != nil {
			w.t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// giveImage builds an image of files and scripts and gives it to the node of
// the control plane. The engine does not keep it.
func (w *kindWorld) giveImage(name, dockerfile string, files, scripts map[string]string) {
	w.t.Helper()
	folder := w.t.TempDir()
	for to, from := range files {
		w.do(exec.Command("cp", "--reflink=auto", from, filepath.Join(folder, to)), nil)
	}
	for to, text := range scripts {
		if err := os.WriteFile(filepath.Join(folder, to), []byte(text), 0o755); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "Dockerfile"), []byte(dockerfile), 0o644); err != nil {
		w.t.Fatal(err)
	}
	build := exec.Command(engine, "build", "--quiet", "--tag", name, folder)
	build.Env = append(os.Environ(), "DOCKER_BUILDKIT=0")
	w.do(build, nil)
	defer w.do(exec.Command(engine, "rmi", "--force", name), nil)
	archive := w.do(exec.Command(engine, "save", name), nil)
	w.do(exec.Command(engine, "exec", "--interactive", w.controlPlane(), "ctr", "--namespace", "k8s.io", "images", "import", "--all-platforms", "-"), archive)
}

// do runs a program and returns what it prints.
func (w *kindWorld) do(cmd *exec.Cmd, in []byte) []byte {
	w.t.Helper()
	var words bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &words
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("%s: %v: %s", strings.Join(cmd.Args, " "), err, words.String())
	}
	return out
}

func (w *kindWorld) controlPlane() string {
	w.t.Helper()
	nodes, err := w.core.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{LabelSelector: controlPlaneLabel})
	if err != nil || len(nodes.Items) != 1 {
		w.t.Fatalf("control planes: %v, %v", nodes, err)
	}
	return nodes.Items[0].Name
}

func TestChaosMeshOnKind(t *testing.T) {
	(&world{t: t}).builtMesh("chaos-daemon-root.tar") // or no cluster is needed
	w := newKindWorld(t, "mesh")
	w.deployChaosMesh()
	t.Run("doctor tries every fault and says which work", func(t *testing.T) {
		w := w.in(t)
		before := w.objects()
		w.expectProbed()
		w.expectGivenBack(before)
	})
	t.Run("a leading cleaner that is cut off from the API server is replaced, and nothing is lost", func(t *testing.T) {
		w := w.in(t)
		w.runFault("mesh-cleaner-partition", 2)
		for i, f := range w.meshFaults() {
			if f.holder == "" || f.holder == f.before || !strings.HasPrefix(f.before, f.victim+"_") || !f.isRecorded {
				t.Errorf("fault %d: want the leader hit, at a time that Chaos Mesh recorded, and another holder of the Lease before it was healed; have %+v", i+1, f)
			}
		}
	})
	t.Run("a leading cleaner whose clock jumps back goes on", func(t *testing.T) {
		w := w.in(t)
		if jump := w.largestJump(func() { w.runFault("mesh-cleaner-time", 1) }); jump < jumpMin {
			t.Errorf("the Lease was never renewed more than %s ago by its holder's clock: the fault did nothing", jump)
		}
	})
}

// jumpMin is less than Chaos Mesh is told to turn the clock back, and more than
// a Lease is old before another takes it.
const jumpMin = 5 * time.Minute

// largestJump is how old the cleaner's Lease was at most, by the time that is
// written in it, while something was done.
func (w *kindWorld) largestJump(during func()) time.Duration {
	ctx, cancel := context.WithCancel(w.t.Context())
	largest := make(chan time.Duration)
	go func() {
		var most time.Duration
		for ticker := time.NewTicker(waitInterval); ; {
			lease, err := w.core.CoordinationV1().Leases(kindCleanerSpace).Get(ctx, cleanerName, metav1.GetOptions{})
			if err == nil && lease.Spec.RenewTime != nil {
				most = max(most, time.Since(lease.Spec.RenewTime.Time))
			}
			select {
			case <-ctx.Done():
				ticker.Stop()
				largest <- most
				return
			case <-ticker.C:
			}
		}
	}()
	during()
	cancel()
	return <-largest
}

// expectProbed has doctor try every fault. Those that need the API and the
// kernel's iptables alone work everywhere; of the others it must know why not.
func (w *kindWorld) expectProbed() {
	w.t.Helper()
	code, text := w.chaos("doctor", "--cluster", "existing", "--kubeconfig", w.kubeconfig, "--context", w.context, "--probe").ends(w.t)
	if code != 0 {
		w.t.Errorf("doctor ended with %d", code)
	}
	for _, action := range chaosmesh.Actions() {
		line := regexp.MustCompile(`(?m)^(ok|without) +Chaos Mesh ` + string(action) + ` +(.*)$`).FindStringSubmatch(text)
		mustWork := slices.Contains([]chaosmesh.Action{chaosmesh.PodKill, chaosmesh.PodFailure, chaosmesh.ContainerKill, chaosmesh.NetworkPartition}, action)
		switch {
		case line == nil:
			w.t.Errorf("doctor does not say whether %s works", action)
		case line[1] == "without" && (mustWork || !strings.HasPrefix(line[2], "unavailable: ") || !strings.Contains(line[2], "cure: it takes ")):
			w.t.Errorf("%s: %s", action, line[2])
		}
	}
}

// runFault shuts nodes down while Chaos Mesh does one thing to the cleaner.
func (w *kindWorld) runFault(act string, iterations int) {
	w.t.Helper()
	path := w.scenario(act, "{nodeShutdown: {target: busiest-node, returns: [after-recreate], meanwhile: ["+act+"]}}")
	code, text := w.chaos(w.args("-f", path, "--iterations", fmt.Sprint(iterations), "--seed", "5")...).ends(w.t)
	if code != 0 || !strings.Contains(text, "verdict: Valid") || !strings.Contains(text, fmt.Sprintf("mesh-inject %d of %d fired", iterations, iterations)) {
		w.t.Errorf("exit code %d, want a Valid run with %d faults of Chaos Mesh", code, iterations)
	}
}

// meshFault is what the history says of a fault from its injection until it was
// about to be healed.
type meshFault struct {
	victim         string // pod of the cleaner
	before, holder string // of the Lease when it began, and the last one
	isRecorded     bool   // with Chaos Mesh's time
}

func (w *kindWorld) meshFaults() []meshFault {
	w.t.Helper()
	records, err := history.Read(filepath.Join(w.folder, "out", "latest", "history.jsonl"))
	if err != nil {
		w.t.Fatal(err)
	}
	recorded := regexp.MustCompile(`Apply \S+ succeeded at 20\d\d-`)
	var found []meshFault
	var now meshFault
	holder := ""
	for _, r := range records {
		if r.Write != nil && r.Write.Resource == "leases" {
			if match := leaseHolder.FindSubmatch(r.Write.Object); match != nil {
				holder = string(match[1])
			}
		}
		switch {
		case r.Op == nil:
		case r.Op.F == "mesh-inject" && r.Op.Type == history.Invoke:
			now = meshFault{victim: strings.TrimPrefix(r.Op.Target, kindCleanerSpace+"/"), before: holder}
		case r.Op.F == "mesh-inject":
			now.isRecorded = r.Op.Type == history.OK && recorded.MatchString(r.Op.Note)
		case r.Op.F == "mesh-heal" && r.Op.Type == history.Invoke:
			now.holder = holder
			found = append(found, now)
		}
	}
	return found
}
