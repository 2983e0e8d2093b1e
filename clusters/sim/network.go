package sim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/sim/apiserver"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// The address plan, as in every lane of the harness. The pool of a small world
// is small, so that what is freed is soon given to somebody else.
const (
	networkName         = "test-net1"
	cidr                = "10.10.10.0/24"
	poolStart           = "10.10.10.10"
	gateway             = "10.10.10.12"
	net6                = "2001:db8:10::/64"
	cidr6               = "2001:db8:10::/120"
	pool6Start          = "2001:db8:10::10"
	gateway6            = "2001:db8:10::12"
	routeTo, routeTo6   = "10.20.0.0/16", "2001:db8:20::/64"
	optionsOfSpec       = "Options"
	fieldCIDR, fieldNet = "cidr", "net6"
)

// furnish makes what is there before the play begins.
func (w *world) furnish(group danm.Group) error {
	w.record.add(w.runHeader())
	w.network = danm.NetworkRef{Kind: danm.NetworkKind(w.plan.World.Network.Kind), Name: networkName}
	if w.network.Kind.IsNamespaced() {
		w.network.Namespace = namespaceName
	}
	w.record.add(history.Record{Lane: w.lane()})
	w.do(clusters.UserHarness, http.MethodPost, "/api/v1/namespaces", &corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: namespaceName},
	})
	u, err := w.networkObject(group)
	if err != nil {
		return err
	}
	w.do(clusters.UserHarness, http.MethodPost, w.networksPath(), u)
	for i := range w.plan.World.Nodes {
		w.addNode(fmt.Sprintf("node-%d", i))
	}
	return w.trouble
}

func (w *world) lane() *history.Lane {
	l := &history.Lane{
		Name: namespaceName, Namespace: namespaceName, NetworkKind: string(w.network.Kind), Network: networkName,
		IPv4: w.plan.World.Network.HasIPv4(), IPv6: w.plan.World.Network.HasIPv6(),
		StatefulSet: setName, Replicas: w.plan.World.Pods + w.plan.World.StaticPods,
	}
	for i := range w.plan.World.Nodes {
		l.Nodes = append(l.Nodes, fmt.Sprintf("node-%d", i))
	}
	return l
}

// networksPath is the collection that the network is in.
func (w *world) networksPath() string {
	return pathOf(w.ownGroup(), w.network.Namespace, w.network.Kind.Resource())
}

// pathOf is where objects of DANM's are; those of the whole cluster have no
// namespace.
func pathOf(group danm.Group, namespace, resource string) string {
	path := "/apis/" + string(group) + "/" + danm.Version
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + resource
}

func (w *world) networkObject(group danm.Group) (*unstructured.Unstructured, error) {
	shape, options := w.plan.World.Network, map[string]any{"host_device": "ens4", "container_prefix": "eth"}
	if shape.HasIPv4() {
		options[fieldCIDR] = cidr
		options["allocation_pool"] = map[string]any{"start": poolStart, "end": w.poolEnd(poolStart)}
		if err := w.addBits(options, ipam.Spec{CIDR: cidr}, danm.IPv4, "routes", routeTo, gateway); err != nil {
			return nil, err
		}
	}
	if shape.HasIPv6() {
		options[fieldNet] = net6
		options["allocation_pool_v6"] = map[string]any{"start": pool6Start, "end": w.poolEnd(pool6Start), "cidr": cidr6}
		if err := w.addBits(options, ipam.Spec{CIDR: cidr6, IPv6: true}, danm.IPv6, "routes6", routeTo6, gateway6); err != nil {
			return nil, err
		}
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"NetworkID": networkName, "NetworkType": "ipvlan", optionsOfSpec: options},
	}}
	u.SetGroupVersionKind(group.GroupVersion().WithKind(string(w.network.Kind)))
	u.SetNamespace(w.network.Namespace)
	u.SetName(networkName)
	return u, nil
}

// poolEnd is far enough for the pods, their predecessors, and a few more.
func (w *world) poolEnd(start string) string {
	end := netip.MustParseAddr(start)
	for range 3*w.plan.World.Pods*w.interfaces() + 5 {
		end = end.Next()
	}
	return end.String()
}

// addBits writes the empty bitmap of a family, and the gateway if there is one.
func (w *world) addBits(options map[string]any, spec ipam.Spec, family danm.Family, routes, to, via string) error {
	spec.Object = w.network.String()
	if w.plan.World.Network.Gateway {
		options[routes] = map[string]any{to: via}
		spec.Gateways = []string{via}
	}
	bits, err := ipam.Empty(spec)
	if err != nil {
		return fmt.Errorf("making an empty bitmap: %w", err)
	}
	options[family.Field()] = bits
	return nil
}

// annotation asks for one interface, as a user of DANM would.
func (w *world) annotation() string {
	key := map[danm.NetworkKind]string{
		danm.DanmNet: "network", danm.TenantNetwork: "tenantNetwork", danm.ClusterNetwork: "clusterNetwork",
	}[w.network.Kind]
	text := `{"` + key + `":"` + networkName + `"`
	if w.plan.World.Network.HasIPv4() {
		text += `,"ip":"dynamic"`
	}
	if w.plan.World.Network.HasIPv6() {
		text += `,"ip6":"dynamic"`
	}
	return "[" + strings.Repeat(text+"},", w.interfaces()-1) + text + "}]"
}

// interfaces is how many each pod has.
func (w *world) interfaces() int { return max(1, w.plan.World.Interfaces) }

func (w *world) observeEndpoint(c apiserver.Commit) {
	if c.New == nil {
		delete(w.endpoints, c.Name)
		return
	}
	ep, err := danm.ToEndpoint(c.New.(*unstructured.Unstructured))
	if err != nil {
		w.fail(err)
		return
	}
	if owner := w.sandboxOwner[ep.Spec.CID]; c.Old == nil && ep.Spec.PodUID != "" && owner != "" && owner != ep.Spec.PodUID && w.static(ep.Spec.Pod) == nil {
		w.reach(isMisnamed)
	}
	w.endpoints[c.Name] = ep
	w.noteAddresses(ep)
}

// noteAddresses notes addresses that had another owner before.
func (w *world) noteAddresses(ep *danm.Endpoint) {
	addrs, _ := ep.Addresses() // the emulated CNI writes nothing else
	for _, a := range addrs {
		if before, ok := w.holders[a]; ok && before != w.ownerOf(ep) {
			w.reach(movesOn)
		}
		w.holders[a] = w.ownerOf(ep)
	}
}

func (w *world) observeNetwork(c apiserver.Commit) {
	if c.New == nil {
		w.bits = nil
		return
	}
	n, err := danm.ToNetwork(c.New.(*unstructured.Unstructured))
	if err != nil {
		w.fail(err)
		return
	}
	n.Kind = string(w.network.Kind)
	w.bits = n
}

// snapshot is what quorum reads would return now.
func (w *world) snapshot() *history.Snapshot {
	s := &history.Snapshot{Lane: namespaceName, Iteration: 1, Settled: true}
	for _, pod := range w.sortedPods() {
		s.Pods = append(s.Pods, history.SnapshotPod{
			Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Node: pod.Spec.NodeName, Interfaces: w.interfaces(),
			Phase: string(pod.Status.Phase), Ready: isRunning(pod), Terminating: pod.DeletionTimestamp != nil,
		})
	}
	for _, ep := range w.endpoints {
		s.Endpoints = append(s.Endpoints, w.toSnapshot(ep))
	}
	slices.SortFunc(s.Endpoints, func(a, b history.SnapshotEndpoint) int { return cmp.Compare(a.Name, b.Name) })
	w.readBits(s)
	s.Pending = pending(s, w.podsWanted())
	s.Settled = s.Pending == ""
	return s
}

// isSettled tells whether everything agrees. It is asked at every step, and the
// answer changes only with a record or with how many pods there are to be.
func (w *world) isSettled() bool {
	if now := (settledAsOf{len(w.record.records), w.podsWanted()}); w.settledAsOf != now {
		w.settledAsOf, w.settled = now, w.countsAgree() && w.snapshot().Settled
	}
	return w.settled
}

// settledAsOf is what the answer to isSettled depends on.
type settledAsOf struct{ records, pods int }

// countsAgree tells whether there are as many pods and endpoints as there should
// be, which costs less to find out than whether they are the right ones.
func (w *world) countsAgree() bool {
	return len(w.pods) == w.podsWanted() && len(w.endpoints) == w.podsWanted()*w.interfaces()
}

// isLegacy tells whether the CNI plugins are still those of an old DANM: until
// the pods run, and a little longer.
func (w *world) isLegacy() bool { return w.plan.World.LegacyEndpoints && w.user.next < 2 }

// ownerOf returns the pod that an endpoint belongs to. What an old DANM wrote
// does not say so; then it is the pod that its sandbox was made for. That of a
// static pod belongs to whatever mirror there is.
func (w *world) ownerOf(ep *danm.Endpoint) types.UID {
	if s := w.static(ep.Spec.Pod); s != nil && s.hash == w.sandboxOwner[ep.Spec.CID] {
		if mirror, ok := w.pods[s.name]; ok {
			return mirror.UID
		}
	}
	return cmp.Or(ep.Spec.PodUID, w.sandboxOwner[ep.Spec.CID])
}

func (w *world) toSnapshot(ep *danm.Endpoint) history.SnapshotEndpoint {
	out := history.SnapshotEndpoint{
		Namespace: ep.Namespace, Name: ep.Name, UID: string(ep.UID), Pod: ep.Spec.Pod, PodUID: string(ep.Spec.PodUID),
		CID: ep.Spec.CID, Interface: ep.Spec.Interface.Name, Host: ep.Spec.Host,
	}
	if owner := w.ownerOf(ep); owner != ep.Spec.PodUID {
		out.Owner = string(owner)
	}
	addrs, _ := ep.Addresses() // the emulated CNI writes nothing else
	for _, a := range addrs {
		out.Addresses = append(out.Addresses, a.String())
	}
	return out
}

func (w *world) readBits(s *history.Snapshot) {
	if w.bits == nil {
		return
	}
	for _, spec := range w.bits.Pools() {
		pool, err := ipam.Open(ipam.Spec(spec.Fields))
		if err != nil {
			w.fail(err)
			return
		}
		for i := range pool.Size() {
			if !pool.IsSet(i) {
				continue
			}
			addr := pool.Addr(i).String()
			if _, reserved := pool.Reserved(i); reserved || w.isSetAside(pool.Addr(i)) {
				s.Reserved = append(s.Reserved, addr)
			} else {
				s.Bits = append(s.Bits, history.SnapshotBit{Family: int(spec.Family), Index: i, Address: addr})
			}
		}
	}
}

// pending says in which way pods, endpoints and bits do not agree yet, or "".
// It only decides when to stop waiting; what it means is for the checkers.
func pending(s *history.Snapshot, pods int) string {
	missing, claimed := map[string]int{}, map[string]int{} // endpoints by pod UID, claims by address
	running := 0
	for _, p := range s.Pods {
		missing[p.UID] = p.Interfaces
		if p.Ready && !p.Terminating {
			running++
		}
	}
	for _, ep := range s.Endpoints {
		missing[ep.OwnerUID()]--
		for _, a := range ep.Addresses {
			claimed[a]++
		}
	}
	bits := 0
	for _, b := range s.Bits {
		if claimed[b.Address] == 1 {
			bits++
		}
	}
	// Totals that agree say nothing: an endpoint too many may hide one too few.
	isOwned := !slices.ContainsFunc(slices.Collect(maps.Values(missing)), func(n int) bool { return n != 0 })
	isAgreed := running == pods && len(s.Pods) == running && isOwned && bits == len(claimed) && bits == len(s.Bits)
	if isAgreed {
		return ""
	}
	return counts(s)
}

// counts is what a reader sees first.
func counts(s *history.Snapshot) string {
	return fmt.Sprintf("pods=%d eps=%d bits=%d", len(s.Pods), len(s.Endpoints), len(s.Bits))
}

// mergePatch changes one field of the network, as a person would.
func (w *world) mergePatch(fields map[string]any) {
	w.patchObject(w.networksPath()+"/"+networkName, fields)
}

// patchObject changes fields of an object, as a person would.
func (w *world) patchObject(path string, fields map[string]any) {
	data, err := json.Marshal(fields)
	if err != nil {
		w.fail(err)
		return
	}
	w.do(userAdmin, http.MethodPatch, path, json.RawMessage(data))
}
