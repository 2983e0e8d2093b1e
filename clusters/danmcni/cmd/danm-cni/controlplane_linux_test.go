package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
)

// closeTimeout is for ending the control plane when the test is over.
const closeTimeout = time.Minute

// realAPI is the embedded control plane, with access for a test.
type realAPI struct {
	cluster *controlplane.Cluster
	core    kubernetes.Interface
	danm    *danm.Client
}

// TestARealAPIServerTakesWhatThePluginSends is for what the small API of the
// other tests does not know: schemas, authentication, patches, consistency.
func TestARealAPIServerTakesWhatThePluginSends(t *testing.T) {
	if os.Getenv("KUBERNETES_BIN_DIR") == "" {
		t.Skip("skipped: KUBERNETES_BIN_DIR names no folder with a control plane")
	}
	for _, s := range []settings{
		{version: "1.1.0", group: danm.GroupDanmIO, variant: "danm-4.3"},
		{version: "1.1.0", group: danm.GroupDanmK8sIO, variant: "careful"},
	} {
		t.Run(string(s.group)+", "+s.variant, func(t *testing.T) {
			n := newNode(t, s)
			n.network("a", 1)
			api := startAPI(t, s.group)
			api.create(t, n)
			n.useAPI(api)
			if err := n.run(func(ctx context.Context) error { return n.cni.GetStatusNetworkList(ctx, n.list) }); err != nil {
				t.Errorf("STATUS: %v", err)
			}
			a, b := n.newPod("web-0", oneDual), n.newPod("web-1", oneDual)
			api.createPods(t, n, a, b)
			first := addressesOf(a.mustAdd())
			b.mustAdd()
			if got := api.addresses(t, "web-0"); got != first[0].String()+" "+first[1].String() {
				t.Errorf("the endpoint holds %q, the pod %v", got, first)
			}
			for _, addr := range first {
				wantReachable(t, b.netns, a.netns, addr)
			}
			if err := a.check(); err != nil {
				t.Errorf("CHECK: %v", err)
			}
			for _, p := range []*pod{a, b, b} {
				p.mustDel()
			}
			api.wantClear(t, n)
		})
	}
}

func startAPI(t *testing.T, group danm.Group) *realAPI {
	t.Helper()
	cluster, err := controlplane.Start(t.Context(), controlplane.Options{RunID: fmt.Sprintf("danm-cni-%d-%s", os.Getpid(), group), Group: group})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := cluster.Close(ctx); err != nil {
			t.Errorf("ending the control plane: %v", err)
		}
	})
	rc, err := cluster.RESTConfig(clusters.UserHarness)
	if err != nil {
		t.Fatal(err)
	}
	d, err := dynamic.NewForConfig(rc)
	if err != nil {
		t.Fatal(err)
	}
	core, err := kubernetes.NewForConfig(rc)
	if err != nil {
		t.Fatal(err)
	}
	return &realAPI{cluster: cluster, core: core, danm: danm.NewClient(d, group)}
}

// create makes the namespace and the networks that the node's small API has.
func (a *realAPI) create(t *testing.T, n *node) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}
	if _, err := a.core.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: n.api.Objects[n.networkPath("a")]}
	u.SetUID("")
	u.SetResourceVersion("")
	if _, err := a.danm.Networks(danm.DanmNet, "ns").Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// createPods makes the pods and tells their sandboxes the UIDs.
func (a *realAPI) createPods(t *testing.T, n *node, pods ...*pod) {
	t.Helper()
	for _, p := range pods {
		object := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: p.name, Annotations: map[string]string{n.group.InterfacesAnnotation(): oneDual}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "pause", Image: "pause"}}},
		}
		created, err := a.core.CoreV1().Pods("ns").Create(t.Context(), object, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p.runtime.Args[len(p.runtime.Args)-1] = [2]string{"K8S_POD_UID", string(created.UID)}
	}
}

func (a *realAPI) endpoints(t *testing.T) []*danm.Endpoint {
	t.Helper()
	list, err := a.danm.Endpoints("ns").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all []*danm.Endpoint
	for i := range list.Items {
		ep, err := danm.ToEndpoint(&list.Items[i])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ep)
	}
	return all
}

func (a *realAPI) addresses(t *testing.T, pod string) string {
	t.Helper()
	var found []string
	for _, ep := range a.endpoints(t) {
		if ep.Spec.Pod != pod {
			continue
		}
		addrs, err := ep.Addresses()
		if err != nil {
			t.Fatal(err)
		}
		for _, addr := range addrs {
			found = append(found, addr.String())
		}
	}
	return strings.Join(found, " ")
}

func (a *realAPI) wantClear(t *testing.T, n *node) {
	t.Helper()
	if left := a.endpoints(t); len(left) > 0 {
		t.Errorf("%d endpoints are left", len(left))
	}
	network, err := a.danm.GetNetwork(t.Context(), danm.NetworkRef{Kind: danm.DanmNet, Namespace: "ns", Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	for _, pool := range network.Pools() {
		if pool.Fields.Alloc != n.emptyBitmap(pool.Fields.CIDR) {
			t.Errorf("bits are left in %s: %s", pool.Fields.CIDR, pool.Fields.Alloc)
		}
	}
}

// useAPI gives the node a way to the API, which listens outside of the node's
// namespace, and a kubeconfig of its own user.
func (n *node) useAPI(a *realAPI) {
	n.t.Helper()
	rc, err := a.cluster.RESTConfig(clusters.UserNodePrefix + "node-a")
	if err != nil {
		n.t.Fatal(err)
	}
	l := listenIn(n.t, n.name, "127.0.0.1:0")
	forward(n.t, l, strings.TrimPrefix(rc.Host, "https://"))
	if err := clientcmd.WriteToFile(kubeconfigOf(rc, "https://"+l.Addr().String()), n.file("kubeconfig")); err != nil {
		n.t.Fatal(err)
	}
}

func kubeconfigOf(rc *rest.Config, server string) clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: rc.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{
		Token: rc.BearerToken, Impersonate: rc.Impersonate.UserName, ImpersonateGroups: rc.Impersonate.Groups,
	}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	return *config
}

// forward copies what comes to the listener to the address and back, until the
// listener closes and those who called have hung up.
func forward(t *testing.T, l net.Listener, to string) {
	t.Helper()
	var copying sync.WaitGroup
	copying.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			copying.Go(func() { pipe(near, far) })
			copying.Go(func() { pipe(far, near) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		copying.Wait()
	})
}

// pipe closes both ends when one is done; a plugin's process ends at once.
func pipe(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	to.Close()
	from.Close()
}
