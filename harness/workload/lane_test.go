package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

func laneOf(n schedule.Network, v View) *Lane {
	access := Access{Danm: danm.NewClient(nil, danm.GroupDanmIO), RunID: "run", View: v}
	return newLane(access, Spec{Name: "lane-3", Generation: 2, Network: n, Replicas: 5, Nodes: 3, SpareNodes: 1, Interfaces: 2, GracePeriod: 10})
}

func everyNetwork() []schedule.Network {
	var all []schedule.Network
	for _, kind := range danm.NetworkKinds() {
		for _, family := range []string{schedule.IPv4, schedule.IPv6, schedule.Dual} {
			for _, gateway := range []bool{false, true} {
				all = append(all, schedule.Network{Kind: string(kind), Family: family, Gateway: gateway})
			}
		}
	}
	return all
}

// TestEveryNetworkHasEmptyPoolsOfItsFamilies reads the object back as DANM's
// clients do: all bits that are set belong to nobody, and a gateway's is one.
func TestEveryNetworkHasEmptyPoolsOfItsFamilies(t *testing.T) {
	for _, n := range everyNetwork() {
		t.Run(fmt.Sprintf("%s %v", n, n.Gateway), func(t *testing.T) {
			l := laneOf(n, nil)
			u, err := l.networkObject()
			if err != nil {
				t.Fatal(err)
			}
			network, err := danm.ToNetwork(u)
			if err != nil {
				t.Fatal(err)
			}
			if network.Ref() != l.Network || (network.Namespace == "") != (n.Kind == string(danm.ClusterNetwork)) {
				t.Errorf("the object is %s, the lane's network %s", network.Ref(), l.Network)
			}
			families := map[danm.Family]bool{}
			for _, spec := range network.Pools() {
				families[spec.Family] = true
				checkEmptyPool(t, spec, n.Gateway)
			}
			want := map[danm.Family]bool{}
			if n.HasIPv4() {
				want[danm.IPv4] = true
			}
			if n.HasIPv6() {
				want[danm.IPv6] = true
			}
			if diff := cmp.Diff(want, families); diff != "" {
				t.Errorf("families (-want +got):\n%s", diff)
			}
		})
	}
}

func checkEmptyPool(t *testing.T, spec danm.PoolSpec, hasGateway bool) {
	t.Helper()
	pool, err := ipam.Open(ipam.Spec(spec.Fields))
	if err != nil {
		t.Fatal(err)
	}
	set := 0
	for i := range pool.Size() {
		if pool.IsSet(i) {
			set++
		}
	}
	want := 2 // first and last
	if hasGateway {
		want = 3
	}
	if set != want || len(pool.Allocated()) != 0 {
		t.Errorf("IPv%d: %d bits are set, %d of them allocated; want %d and 0", spec.Family, set, len(pool.Allocated()), want)
	}
}

func TestPodsAskForTheLanesInterfaces(t *testing.T) {
	tests := []struct {
		network schedule.Network
		want    map[string]string
	}{
		{schedule.Network{Kind: "DanmNet", Family: "v4"}, map[string]string{"network": "test-net1", "ip": "dynamic"}},
		{schedule.Network{Kind: "TenantNetwork", Family: "v6"}, map[string]string{"tenantNetwork": "test-net1", "ip6": "dynamic"}},
		{schedule.Network{Kind: "ClusterNetwork", Family: "dual"},
			map[string]string{"clusterNetwork": "test-net1-chaos-lane-3-g2-" + clusters.RunLabelValue("run"), "ip": "dynamic", "ip6": "dynamic"}},
	}
	for _, tt := range tests {
		t.Run(tt.network.String(), func(t *testing.T) {
			set, err := laneOf(tt.network, nil).statefulSet()
			if err != nil {
				t.Fatal(err)
			}
			var got []map[string]string
			if err := json.Unmarshal([]byte(set.Spec.Template.Annotations["danm.io/interfaces"]), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]map[string]string{tt.want, tt.want}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// fixedView is a view that changes only when it is told to.
type fixedView struct {
	mu      sync.Mutex
	pods    []*corev1.Pod
	looks   int
	changed chan struct{}
}

func (v *fixedView) Pods(string) []*corev1.Pod {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.pods
}

func (v *fixedView) Node(string) *corev1.Node { return nil }

func (v *fixedView) Changed() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.looks++
	return v.changed
}

func (v *fixedView) become(pods ...*corev1.Pod) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pods = pods
	close(v.changed)
	v.changed = make(chan struct{})
}

func watched(pods ...*corev1.Pod) (*Lane, *fixedView) {
	v := &fixedView{pods: pods, changed: make(chan struct{})}
	return laneOf(schedule.Network{Kind: "DanmNet", Family: "v4"}, v), v
}

func pod(name, uid, node string, edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}
	p.Spec.NodeName = node
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
func pending(p *corev1.Pod)     { p.Status = corev1.PodStatus{Phase: corev1.PodPending} }

// ended is a context that gives every wait exactly one look.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestWaitsSayWhatIsPending(t *testing.T) {
	old := pod("a", "old", "n1")
	tests := []struct {
		name string
		pods []*corev1.Pod
		wait func(*Lane, context.Context) error
		want string
	}{
		{"a Terminating pod is not back", []*corev1.Pod{pod("a", "1", "n1"), pod("b", "2", "n1", terminating)}, (*Lane).AwaitReady, "1 of 5 pods are Ready"},
		{"a pod that starts is not back", []*corev1.Pod{pod("a", "1", "n1", pending)}, (*Lane).AwaitReady, "0 of 5 pods are Ready"},
		{"one pod is not marked yet", []*corev1.Pod{pod("a", "1", "n1", terminating), pod("b", "2", "n1"), pod("c", "3", "n2")},
			func(l *Lane, ctx context.Context) error { return l.AwaitTerminating(ctx, "n1") }, "1 pods on n1 are not Terminating"},
		{"other nodes do not matter", []*corev1.Pod{pod("a", "1", "n1", terminating), pod("c", "3", "n2")},
			func(l *Lane, ctx context.Context) error { return l.AwaitTerminating(ctx, "n1") }, ""},
		{"the old pod is still there", []*corev1.Pod{old},
			func(l *Lane, ctx context.Context) error { return l.AwaitRecreated(ctx, []*corev1.Pod{old}) }, "pod a is not recreated"},
		{"the new pod has no node yet", []*corev1.Pod{pod("a", "new", "", pending)},
			func(l *Lane, ctx context.Context) error { return l.AwaitRecreated(ctx, []*corev1.Pod{old}) }, "pod a is not recreated"},
		{"the new pod may be in its ADD", []*corev1.Pod{pod("a", "new", "n2", pending)},
			func(l *Lane, ctx context.Context) error { return l.AwaitRecreated(ctx, []*corev1.Pod{old}) }, ""},
		{"a pod of the same name is another pod", []*corev1.Pod{pod("a", "new", "n2")},
			func(l *Lane, ctx context.Context) error { return l.AwaitGone(ctx, []*corev1.Pod{old}) }, ""},
		{"the deleted pod is still shown", []*corev1.Pod{old},
			func(l *Lane, ctx context.Context) error { return l.AwaitGone(ctx, []*corev1.Pod{old}) }, "pod a is not gone"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, _ := watched(tt.pods...)
			err := tt.wait(l, ended())
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || err.Error() != tt.want+": context canceled") {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if tt.want != "" && !errors.Is(err, context.Canceled) {
				t.Errorf("%v hides why the wait ended", err)
			}
		})
	}
}

func TestAWaitEndsWithTheChangeItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := pod("a", "old", "n1")
		l, v := watched(old)
		done := make(chan error, 1)
		go func() { done <- l.AwaitGone(t.Context(), []*corev1.Pod{old}) }()
		synctest.Wait()
		if len(done) > 0 || v.looks != 1 {
			t.Fatalf("after %d looks the wait is over", v.looks)
		}
		v.become(pod("a", "new", "n1"))
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestANodeCountsAsReadyOnlyWithoutItsTaints(t *testing.T) {
	node := func(status corev1.ConditionStatus, taints ...corev1.Taint) *corev1.Node {
		return &corev1.Node{Spec: corev1.NodeSpec{Taints: taints}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}}}
	}
	tests := []struct {
		name string
		node *corev1.Node
		want bool
	}{
		{"a node that nobody saw", nil, false},
		{"Ready", node(corev1.ConditionTrue), true},
		{"Unknown", node(corev1.ConditionUnknown), false},
		{"Ready, but still tainted", node(corev1.ConditionTrue, corev1.Taint{Key: corev1.TaintNodeUnreachable}), false},
		{"Ready, with a taint of other meaning", node(corev1.ConditionTrue, corev1.Taint{Key: "x"}), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := IsNodeReady(tt.node); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
