package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni/internal/memoryapi"
)

type object = memoryapi.Object

// node is a namespace that stands for a node: a runtime, the plugin and the
// API on its loopback.
type node struct {
	t     *testing.T
	name  string
	api   *memoryapi.API
	group danm.Group
	dir   string // of its files
	cni   *libcni.CNIConfig
	list  *libcni.NetworkConfigList
}

// settings are the parts of the configuration that tests differ in.
type settings struct {
	version  string // of CNI; 1.0.0 if empty
	variant  string
	timeout  string
	attach   object
	delegate object
	group    danm.Group // danm.io if empty
}

// newNode makes a node, or skips the test.
func newNode(t *testing.T, s settings) *node {
	t.Helper()
	n := &node{t: t, name: newNetns(t), api: memoryapi.New(), group: s.group, dir: t.TempDir()}
	if n.group == "" {
		n.group = danm.GroupDanmIO
	}
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	n.useBin(bin)
	n.writeKubeconfig(serveAPI(t, n.name, n.api))
	n.configure(s)
	return n
}

// useBin makes the runtime take plugins from the folder. The executor is given,
// because libcni makes its own on first use, which is a race.
func (n *node) useBin(dir string) {
	n.cni = libcni.NewCNIConfigWithCacheDir([]string{dir}, n.file("runtime"), &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: os.Stderr}})
}

func (n *node) file(name string) string { return filepath.Join(n.dir, name) }

// secret is a token that nothing may print.
const secret = "s3cr3t-of-the-node"

func (n *node) writeKubeconfig(url string) {
	n.t.Helper()
	text := fmt.Sprintf(`{"kind":"Config","apiVersion":"v1","current-context":"c",
		"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
		"clusters":[{"name":"c","cluster":{"server":%q}}],"users":[{"name":"u","user":{"token":%q}}]}`, url, secret)
	if err := os.WriteFile(n.file("kubeconfig"), []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) configure(s settings) {
	n.t.Helper()
	if s.version == "" {
		s.version = "1.0.0"
	}
	plugin := object{
		"type": "danm-cni", "kubeconfig": n.file("kubeconfig"), "danmAPI": string(n.group), "nodeName": "node-a",
		"logFile": n.file("log"), "dataDir": n.file("danm"),
	}
	for key, value := range map[string]string{"variant": s.variant, "timeout": s.timeout} {
		if value != "" {
			plugin[key] = value
		}
	}
	for key, value := range map[string]object{"attach": s.attach, "delegate": s.delegate} {
		if value != nil {
			plugin[key] = value
		}
	}
	text, err := json.Marshal(object{"cniVersion": s.version, "name": "danm", "plugins": []object{plugin}})
	if err != nil {
		n.t.Fatal(err)
	}
	if n.list, err = libcni.NetworkConfFromBytes(text); err != nil {
		n.t.Fatal(err)
	}
}

// pod is a pod with a sandbox on the node.
type pod struct {
	node    *node
	name    string
	netns   string
	runtime *libcni.RuntimeConf
}

// newPod makes a pod in the API and its sandbox. No annotation, no DANM.
func (n *node) newPod(name, annotation string) *pod {
	n.t.Helper()
	annotations := object{}
	if annotation != "" {
		annotations[n.group.InterfacesAnnotation()] = annotation
	}
	n.store("/api/v1/namespaces/ns/pods/"+name, object{
		"kind": "Pod", "apiVersion": "v1",
		"metadata": object{"name": name, "namespace": "ns", "uid": "uid-of-" + name, "annotations": annotations},
	})
	p := &pod{node: n, name: name, netns: newNetns(n.t)}
	p.runtime = &libcni.RuntimeConf{
		ContainerID: "cid-of-" + name, NetNS: netnsPath(p.netns), IfName: "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "ns"}, {"K8S_POD_NAME", name},
			{"K8S_POD_INFRA_CONTAINER_ID", "cid-of-" + name}, {"K8S_POD_UID", "uid-of-" + name},
		},
	}
	return p
}

func (n *node) store(path string, o object) {
	n.api.Mu.Lock()
	defer n.api.Mu.Unlock()
	n.api.Store(path, o)
}

// run executes a command of CNI on the node, as a runtime there would.
func (n *node) run(do func(ctx context.Context) error) error {
	return inNetns(n.name, func() error { return do(context.Background()) })
}

func (p *pod) add() (*current.Result, error) {
	var result types.Result
	err := p.node.run(func(ctx context.Context) (err error) {
		result, err = p.node.cni.AddNetworkList(ctx, p.node.list, p.runtime)
		return err
	})
	if err != nil {
		return nil, err
	}
	return current.NewResultFromResult(result)
}

func (p *pod) mustAdd() *current.Result {
	p.node.t.Helper()
	result, err := p.add()
	if err != nil {
		p.node.t.Fatalf("ADD of %s: %v", p.name, err)
	}
	return result
}

func (p *pod) del() error {
	return p.node.run(func(ctx context.Context) error { return p.node.cni.DelNetworkList(ctx, p.node.list, p.runtime) })
}

func (p *pod) mustDel() {
	p.node.t.Helper()
	if err := p.del(); err != nil {
		p.node.t.Fatalf("DEL of %s: %v", p.name, err)
	}
}

func (p *pod) check() error {
	return p.node.run(func(ctx context.Context) error { return p.node.cni.CheckNetworkList(ctx, p.node.list, p.runtime) })
}

// network makes a DanmNet with a dual-stack pool from which .10 is first.
func (n *node) network(name string, third int) {
	n.t.Helper()
	v4, v6, net6 := fmt.Sprintf("10.10.%d.0/24", third), fmt.Sprintf("2001:db8:%d::/120", third), fmt.Sprintf("2001:db8:%d::/64", third)
	n.store(n.networkPath(name), object{
		"kind": "DanmNet", "apiVersion": string(n.group) + "/v1",
		"metadata": object{"name": name, "namespace": "ns", "uid": "uid-of-" + name},
		"spec": object{"NetworkID": name, "Options": object{
			"cidr": v4, "alloc": n.emptyBitmap(v4), "allocation_pool": object{"start": fmt.Sprintf("10.10.%d.10", third)},
			"net6": net6, "alloc6": n.emptyBitmap(v6),
			"allocation_pool_v6": object{"cidr": v6, "start": fmt.Sprintf("2001:db8:%d::10", third)},
			"routes":             object{fmt.Sprintf("10.20.%d.0/24", third): fmt.Sprintf("10.10.%d.1", third)},
		}},
	})
}

func (n *node) networkPath(name string) string {
	return fmt.Sprintf("/apis/%s/v1/namespaces/ns/danmnets/%s", n.group, name)
}

func (n *node) emptyBitmap(cidr string) string {
	n.t.Helper()
	empty, err := ipam.Empty(ipam.Spec{CIDR: cidr, IPv6: strings.Contains(cidr, ":")})
	if err != nil {
		n.t.Fatal(err)
	}
	return empty
}

// endpoints returns the addresses of each endpoint of the pod, by interface.
func (p *pod) endpoints() map[string][]netip.Addr {
	p.node.t.Helper()
	p.node.api.Mu.Lock()
	defer p.node.api.Mu.Unlock()
	found := map[string][]netip.Addr{}
	for key, o := range p.node.api.Objects {
		if path.Base(path.Dir(key)) != danm.EndpointResource {
			continue
		}
		spec := o["spec"].(object)
		if spec["CID"] != p.runtime.ContainerID {
			continue
		}
		i := spec["Interface"].(object)
		for _, field := range []string{"Address", "AddressIPv6"} {
			addr, ok, err := danm.ParseAddress(i[field].(string))
			if err != nil {
				p.node.t.Fatal(err)
			}
			if ok {
				found[i["Name"].(string)] = append(found[i["Name"].(string)], addr)
			}
		}
	}
	return found
}

// wantClear fails if anything of any pod is left: an endpoint, a bit, a veth or
// a note.
func (n *node) wantClear() {
	n.t.Helper()
	n.api.Mu.Lock()
	for key, o := range n.api.Objects {
		if path.Base(path.Dir(key)) == danm.EndpointResource {
			n.t.Errorf("endpoint %s is left", key)
		}
		if o["kind"] == "DanmNet" {
			options := o["spec"].(object)["Options"].(object)
			if options["alloc"] != n.emptyBitmap(options["cidr"].(string)) {
				n.t.Errorf("%s has alloc %s", key, options["alloc"])
			}
			if options["alloc6"] != n.emptyBitmap(options["allocation_pool_v6"].(object)["cidr"].(string)) {
				n.t.Errorf("%s has alloc6 %s", key, options["alloc6"])
			}
		}
	}
	n.api.Mu.Unlock()
	if veths := n.remainingVeths(); veths != "" {
		n.t.Errorf("links are left on the node:\n%s", veths)
	}
	if notes, _ := filepath.Glob(n.file("danm/danm/*")); len(notes) > 0 {
		n.t.Errorf("notes are left: %v", notes)
	}
}

// Limits of waiting for the kernel, which takes the links of a namespace away
// some time after it is gone.
const (
	vethDuration = 30 * time.Second
	vethInterval = 20 * time.Millisecond
)

// remainingVeths returns the links to pods that do not go by themselves.
func (n *node) remainingVeths() string {
	n.t.Helper()
	deadline := time.After(vethDuration)
	ticker := time.NewTicker(vethInterval)
	defer ticker.Stop()
	for {
		veths := ip(n.t, "-n", n.name, "-o", "link", "show", "type", "veth")
		if veths == "" {
			return ""
		}
		select {
		case <-deadline:
			return veths
		case <-ticker.C:
		}
	}
}

func (n *node) log() string {
	data, err := os.ReadFile(n.file("log"))
	if err != nil {
		n.t.Fatal(err)
	}
	return string(data)
}

func addressesOf(r *current.Result) []netip.Addr {
	var addrs []netip.Addr
	for _, c := range r.IPs {
		addr, _ := netip.AddrFromSlice(c.Address.IP)
		addrs = append(addrs, addr.Unmap())
	}
	return addrs
}

// wantEndpointAddresses compares a result with the endpoints; the first address
// must be that of the first interface, which the kubelet reports.
func (p *pod) wantEndpointAddresses(r *current.Result, interfaces ...string) {
	p.node.t.Helper()
	var want []netip.Addr
	endpoints := p.endpoints()
	for _, name := range interfaces {
		want = append(want, endpoints[name]...)
	}
	if got := addressesOf(r); !slices.Equal(got, want) || len(got) == 0 {
		p.node.t.Errorf("%s: the result has %v, the endpoints %v", p.name, got, want)
	}
	for _, c := range r.IPs {
		i := r.Interfaces[*c.Interface]
		if i.Sandbox != p.runtime.NetNS || !slices.Contains(interfaces, i.Name) {
			p.node.t.Errorf("%s: %s is on interface %+v", p.name, c.Address.String(), i)
		}
	}
}
