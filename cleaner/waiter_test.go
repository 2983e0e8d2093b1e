package cleaner

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
)

// A pod with a static address cannot start while its dead predecessor has it.
func TestASuccessorThatWaitsForItsAddressShortensTheQuarantine(t *testing.T) {
	const address = "10.0.0.5"
	annotated := func(ip string) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ss-0", UID: "2"}}
		pod.Status.Phase = corev1.PodPending
		pod.Annotations = map[string]string{"danm.io/interfaces": fmt.Sprintf(`[{"network":"net","ip":%q}]`, ip)}
		return pod
	}
	running := annotated(address)
	running.Status.Phase = corev1.PodRunning
	ending := annotated(address)
	ending.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	for _, tt := range []struct {
		name      string
		successor *corev1.Pod
		ready     bool // the node of the predecessor
		gap       bool // in the watch of the network
		unseen    bool // nobody saw the predecessor alive
		want      ownership.Action
	}{
		{"it asks for the address: released at once", annotated(address + "/24"), false, false, false, ownership.Release},
		{"it asks for another address: quarantine", annotated("10.0.0.6"), false, false, false, ownership.Wait},
		{"it takes any address: quarantine", annotated("dynamic"), false, false, false, ownership.Wait},
		{"its annotation cannot be read: quarantine", annotated("10.0.0"), false, false, false, ownership.Wait},
		{"it runs already: quarantine", running, false, false, false, ownership.Wait},
		{"it is about to end: quarantine", ending, false, false, false, ownership.Wait},
		{"the node works: quarantine", annotated(address), true, false, false, ownership.Wait},
		{"the watch of the network had a gap: quarantine", annotated(address), false, true, false, ownership.Wait},
		{"nobody saw the predecessor alive: quarantine", annotated(address), false, false, true, ownership.Wait},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := testController(t)
			network := networkWith(t, address)
			c.lineage.observe(network)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
			if tt.ready {
				node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			}
			ep := endpointOf("old", "ss-0", "1")
			ep.Spec.NetworkName, ep.Spec.Host, ep.Spec.Interface.Address = "net", "node", address+"/24"
			for store, object := range map[cache.Store]any{
				c.caches.pods.store: trimmed(t, tt.successor), c.caches.nodes.store: node, c.caches.networks[danm.DanmNet].store: opened(network),
			} {
				if err := store.Add(object); err != nil {
					t.Fatal(err)
				}
			}
			predecessor := &corev1.Pod{}
			predecessor.Spec.NodeName = "node"
			if !tt.unseen {
				c.noteAlive(ep, predecessor, c.clock.Now().Add(time.Second))
			}
			if tt.gap {
				c.lineage.breakOff(danm.DanmNet)
			}
			got := ownership.Decide(c.cachedEvidence(ep), c.cfg.policy(), c.clock.Now())
			if got.Action != tt.want {
				t.Errorf("got %s (%s), want %s", got.Action, got.Reason, tt.want)
			}
		})
	}
}

func trimmed(t *testing.T, pod *corev1.Pod) any {
	t.Helper()
	out, err := trimPod(pod)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// networkWith returns ns/net with one allocated address.
func networkWith(t *testing.T, address string) *danm.Network {
	t.Helper()
	n := &danm.Network{TypeMeta: metav1.TypeMeta{Kind: string(danm.DanmNet)}, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "net", UID: "net", ResourceVersion: "1"}}
	n.Spec.Options.CIDR = "10.0.0.0/24"
	empty, err := ipam.Empty(ipam.Spec{CIDR: n.Spec.Options.CIDR})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := ipam.Open(ipam.Spec{CIDR: n.Spec.Options.CIDR, Alloc: empty})
	if err != nil {
		t.Fatal(err)
	}
	bitmap, err := ipam.Decode(empty)
	if err != nil {
		t.Fatal(err)
	}
	addr, _, err := danm.ParseAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	index, _ := pool.Index(addr)
	bitmap.Set(index)
	n.Spec.Options.Alloc = bitmap.Encode()
	return n
}
