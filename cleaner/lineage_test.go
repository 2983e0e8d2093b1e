package cleaner

import (
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
)

// testNetwork returns a /28 network, 10.0.0.0 to 10.0.0.15, with the given
// addresses' bits set; dynamic pool .2 to .9.
func testNetwork(version string, set ...int) *danm.Network {
	alloc, err := ipam.Empty(ipam.Spec{CIDR: "10.0.0.0/28", Gateways: []string{"10.0.0.1"}})
	if err != nil {
		panic(err)
	}
	bitmap, err := ipam.Decode(alloc)
	if err != nil {
		panic(err)
	}
	for _, i := range set {
		bitmap.Set(i)
	}
	n := &danm.Network{
		TypeMeta:   metav1.TypeMeta{Kind: string(danm.DanmNet)},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "net", UID: "net-1", ResourceVersion: version},
	}
	n.Spec.Options = danm.NetworkOptions{
		CIDR: "10.0.0.0/28", Alloc: bitmap.Encode(), Routes: map[string]string{"0.0.0.0/0": "10.0.0.1"},
		Pool: danm.IPPool{Start: "10.0.0.2", End: "10.0.0.9"},
	}
	return n
}

var testRef = danm.NetworkRef{Kind: danm.DanmNet, Namespace: "ns", Name: "net"}

// tickingLineage observes one second after the other.
type tickingLineage struct {
	*lineage
	now time.Time
}

func newTickingLineage() *tickingLineage {
	t := &tickingLineage{now: time.Unix(1000, 0)}
	t.lineage = newLineage(func() time.Time { t.now = t.now.Add(time.Second); return t.now })
	return t
}

func second(n int) time.Time { return time.Unix(1000+int64(n), 0) }

func TestLineage(t *testing.T) {
	b5 := bit{danm.IPv4, 5}
	for _, tt := range []struct {
		name  string
		steps func(*tickingLineage)
		want  rise
		ok    bool
	}{
		{"set when the watch began: known since then, rise not watched", func(l *tickingLineage) {
			l.observe(testNetwork("9", 5))
		}, rise{since: second(1)}, true},
		{"set while watching: known since the rise", func(l *tickingLineage) {
			l.observe(testNetwork("1"))
			l.observe(testNetwork("9", 5))
		}, rise{since: second(2), watched: true}, true},
		{"other changes do not disturb", func(l *tickingLineage) {
			l.observe(testNetwork("1", 5))
			l.observe(testNetwork("2", 5, 6))
			l.observe(testNetwork("9", 5))
		}, rise{since: second(1)}, true},
		{"cleared and set again: known since the second rise", func(l *tickingLineage) {
			l.observe(testNetwork("1", 5))
			l.observe(testNetwork("2"))
			l.observe(testNetwork("9", 5))
		}, rise{since: second(3), watched: true}, true},
		{"a relist hides what was before it", func(l *tickingLineage) {
			l.observe(testNetwork("1", 5))
			l.breakOff(danm.DanmNet)
			l.observe(testNetwork("9", 5))
		}, rise{since: second(2)}, true},
		{"a relist that did not show the network yet: no answer", func(l *tickingLineage) {
			l.observe(testNetwork("9", 5))
			l.breakOff(danm.DanmNet)
		}, rise{}, false},
		{"a relist of another kind does not matter", func(l *tickingLineage) {
			l.observe(testNetwork("9", 5))
			l.breakOff(danm.ClusterNetwork)
		}, rise{since: second(1)}, true},
		{"the watch is behind the version asked for: no answer", func(l *tickingLineage) {
			l.observe(testNetwork("8", 5))
		}, rise{}, false},
		{"deleted: no answer", func(l *tickingLineage) {
			l.observe(testNetwork("9", 5))
			l.forget(testRef)
		}, rise{}, false},
		{"deleted and made anew under the same name: the old lineage is worth nothing", func(l *tickingLineage) {
			old := testNetwork("1", 5)
			old.UID = "net-0"
			l.observe(old)
			l.observe(testNetwork("9", 5))
		}, rise{since: second(2)}, true},
		{"clear: no rise", func(l *tickingLineage) {
			l.observe(testNetwork("1", 5))
			l.observe(testNetwork("9"))
		}, rise{}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newTickingLineage()
			tt.steps(l)
			rises, ok := l.at(testRef, "net-1", "9")
			if ok != tt.ok || rises[b5] != tt.want {
				t.Errorf("got %+v, %v; want %+v, %v", rises[b5], ok, tt.want, tt.ok)
			}
		})
	}
}

func TestWhyNotClear(t *testing.T) {
	b := bit{danm.IPv4, 5}
	alive := second(10)
	request := func(aliveAt time.Time) clearRequest {
		return clearRequest{endpoint: &danm.Endpoint{}, addr: netip.MustParseAddr("10.0.0.5"), aliveAt: aliveAt}
	}
	for _, tt := range []struct {
		name    string
		network *danm.Network
		bit     bit
		request clearRequest
		rises   map[bit]rise
		clear   bool
	}{
		{"set since before the owner was seen alive: clear", testNetwork("1", 5), b, request(alive), map[bit]rise{b: {since: second(9)}}, true},
		{"set at the very moment: cannot tell which was first", testNetwork("1", 5), b, request(alive), map[bit]rise{b: {since: alive}}, false},
		{"cleared by a CNI DEL and set again by another ADD", testNetwork("1", 5), b, request(alive), map[bit]rise{b: {since: second(11), watched: true}}, false},
		{"nobody vouched for the owner", testNetwork("1", 5), b, request(time.Time{}), map[bit]rise{b: {since: second(9)}}, false},
		{"already clear", testNetwork("1"), b, request(alive), nil, false},
		{"a gateway", testNetwork("1", 1), bit{danm.IPv4, 1}, request(alive), map[bit]rise{{danm.IPv4, 1}: {since: second(9)}}, false},
		{"a family without pool", testNetwork("1", 5), bit{danm.IPv6, 5}, request(alive), map[bit]rise{{danm.IPv6, 5}: {since: second(9)}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := testController(t)
			why := c.whyNotClear(tt.network, openPools(tt.network), tt.bit, tt.request, tt.rises, func(danm.NetworkRef, netip.Addr) bool { return false })
			if (why == "") != tt.clear {
				t.Errorf("got %q, want clear = %v", why, tt.clear)
			}
		})
	}
}

func TestABitIsLonelyByClockAndSweeps(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before lonely
		rise   time.Time
		want   lonely
	}{
		{"first look: the quarantine begins now", lonely{}, second(1), lonely{second(9), 1}},
		{"unclaimed since long, set before that", lonely{second(3), 4}, second(1), lonely{second(3), 5}},
		{"set again since: the quarantine begins anew", lonely{second(3), 4}, second(5), lonely{second(5), 1}},
	} {
		if got := tt.before.seenAgain(tt.rise, second(9)); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestAClockThatJumpsEndsNoOrphanQuarantine(t *testing.T) {
	c := testController(t)
	b := bit{danm.IPv4, 5}
	sweeps := c.cfg.sweepsOfQuarantine()
	for _, tt := range []struct {
		name   string
		lonely lonely
		want   bool
	}{
		{"the clock was set forward between two sweeps", lonely{c.clock.Now().Add(-2 * c.cfg.OrphanQuarantine), 2}, false},
		{"sweeps followed each other too soon", lonely{c.clock.Now(), sweeps + 1}, false},
		{"clock and sweeps agree", lonely{c.clock.Now().Add(-c.cfg.OrphanQuarantine), sweeps + 1}, true},
	} {
		c.orphans.replace(testRef, map[bit]lonely{b: tt.lonely}, nil)
		if _, isRipe := c.ripe(testRef)[b]; isRipe != tt.want {
			t.Errorf("%s: ripe %v", tt.name, isRipe)
		}
	}
}
