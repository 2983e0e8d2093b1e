package timeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// script writes a history whose records are one second apart.
type script struct {
	records []history.Record
	rv      uint64
}

func (s *script) add(r history.Record) uint64 {
	r.N = uint64(len(s.records)) + 1
	r.Time = time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC).Add(time.Duration(len(s.records)) * time.Second)
	s.records = append(s.records, r)
	return r.N
}

// open begins a run with one lane of the kind.
func open(kind string) *script {
	s := &script{rv: 10}
	s.add(history.Record{Run: &history.Run{SchemaVersion: 1, CleanerUser: "cleaner", CNIUserPrefix: "system:node:"}})
	s.add(history.Record{Lane: &history.Lane{Name: "lane-0", Generation: 1, Namespace: "ns", NetworkKind: kind, Network: "net", IPv4: true, Replicas: 1}})
	return s
}

// write records a write and, if somebody is named, its audit record.
func (s *script) write(kind history.WriteType, user, resource, namespace, name string, spec map[string]any) uint64 {
	s.rv++
	object, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		panic(err)
	}
	n := s.add(history.Record{Write: &history.Write{RV: s.rv, Type: kind, Resource: resource, Namespace: namespace, Name: name, UID: "uid-" + name, Object: object}})
	if user != "" {
		verb := map[history.WriteType]string{history.Added: "create", history.Modified: "patch", history.Deleted: "delete"}[kind]
		s.add(history.Record{Audit: &history.Audit{User: user, Verb: verb, Resource: resource, Namespace: namespace, Name: name, UID: "uid-" + name, RV: s.rv, Code: 200}})
	}
	return n
}

func (s *script) pod(kind history.WriteType, name string) uint64 {
	return s.write(kind, "", "pods", "ns", name, nil)
}

func (s *script) endpoint(kind history.WriteType, user, name, pod string, host int) uint64 {
	return s.write(kind, user, "danmeps", "ns", name, map[string]any{"NetworkName": "net", "Pod": pod, "PodUID": "uid-" + pod, "apiType": "DanmNet",
		"Interface": map[string]any{"Address": fmt.Sprintf("10.0.0.%d/24", host)}})
}

// network records the network with these hosts allocated. The first and last
// bit are reserved, as always.
func (s *script) network(kind history.WriteType, user, resource, namespace string, hosts ...int) uint64 {
	bits := make(ipam.Bitmap, 32)
	for _, h := range append(hosts, 0, 255) {
		bits.Set(h)
	}
	return s.write(kind, user, resource, namespace, "net", map[string]any{"Options": map[string]any{"cidr": "10.0.0.0/24", "alloc": bits.Encode()}})
}

func (s *script) op(kind history.OpType, step int, verb, target string, isFault bool) {
	s.add(history.Record{Op: &history.Op{Process: "lane-0", Lane: "lane-0", Type: kind, F: verb, Iteration: 1, Step: step, Target: target, Fault: isFault}})
}

func (s *script) build() *Timeline {
	b := NewBuilder()
	b.Add(s.records...)
	return b.Build()
}

// ordinary is one pod that comes and goes under a cleaner that does its work.
func ordinary() *script {
	s := open("DanmNet")
	s.network(history.Added, "harness", "danmnets", "ns")
	s.pod(history.Added, "p")
	s.network(history.Modified, "system:node:a", "danmnets", "ns", 5)
	s.endpoint(history.Added, "system:node:a", "ep", "p", 5)
	s.pod(history.Deleted, "p")
	s.endpoint(history.Deleted, "cleaner", "ep", "p", 5)
	s.network(history.Modified, "cleaner", "danmnets", "ns")
	s.add(history.Record{Snapshot: &history.Snapshot{Lane: "lane-0", Generation: 1, Iteration: 1, Settled: true}})
	return s
}

func valuesOf(c Curve) []int {
	var out []int
	for _, p := range c {
		out = append(out, p.Value)
	}
	return out
}

func TestCurvesFollowEveryWrite(t *testing.T) {
	timeline := ordinary().build()
	for _, l := range []Lane{timeline.All, timeline.Lanes[0]} {
		got := [][]int{valuesOf(l.Pods), valuesOf(l.Endpoints), valuesOf(l.Bits)}
		if diff := cmp.Diff([][]int{{0, 1, 0}, {0, 1, 0}, {0, 1, 0}}, got); diff != "" {
			t.Errorf("lane %q (-want +got):\n%s", l.Name, diff)
		}
		if l.Pods.Last() != 0 || l.Pods.Max() != 1 {
			t.Errorf("last %d, max %d", l.Pods.Last(), l.Pods.Max())
		}
	}
}

func TestAClusterNetworkBelongsToItsLaneWithoutNamespace(t *testing.T) {
	s := open("ClusterNetwork")
	s.network(history.Added, "harness", "clusternetworks", "", 5, 6)
	if got := s.build().Lanes[0].Bits.Last(); got != 2 {
		t.Errorf("%d bits, want 2", got)
	}
}

func TestWhatBelongsToNoLaneIsNotCounted(t *testing.T) {
	s := open("DanmNet")
	s.write(history.Added, "", "pods", "elsewhere", "p", nil)
	s.write(history.Added, "", "danmeps", "elsewhere", "ep", nil)
	s.network(history.Added, "", "danmnets", "elsewhere", 7)
	b := NewBuilder()
	b.Add(s.records...)
	if got := b.Counts(); got != (Counts{}) {
		t.Errorf("counted %+v", got)
	}
}

func TestANetworkThatIsGoneOrUnreadableHasNoBits(t *testing.T) {
	s := open("DanmNet")
	s.network(history.Added, "", "danmnets", "ns", 5, 6)
	s.network(history.Deleted, "", "danmnets", "ns", 5, 6)
	if got := valuesOf(s.build().All.Bits); !slices.Equal(got, []int{2, 0}) {
		t.Errorf("bits %v", got)
	}
	s = open("DanmNet")
	s.write(history.Added, "", "danmnets", "ns", "net", map[string]any{"Options": "broken"})
	if got := s.build().All.Bits.Last(); got != 0 {
		t.Errorf("%d bits of what cannot be read", got)
	}
}

func TestACounterCountsTheSameAndKeepsNothing(t *testing.T) {
	s := ordinary()
	whole, counter := NewBuilder(), NewCounter()
	for i, r := range s.records {
		whole.Add(r)
		counter.Add(r)
		if whole.Counts() != counter.Counts() || whole.CountsOf("lane-0") != counter.CountsOf("lane-0") {
			t.Fatalf("after record %d: %+v and %+v", i+1, whole.Counts(), counter.Counts())
		}
	}
	if len(counter.records)+len(counter.flips)+len(counter.all.Pods) > 0 || counter.Len() != len(s.records) {
		t.Errorf("it keeps %d records and %d flips", len(counter.records), len(counter.flips))
	}
}

func TestAReleaseIsMeasuredFromTheEndOfItsOwner(t *testing.T) {
	s := ordinary()
	var gone, cleared time.Time
	for _, r := range s.records {
		switch w := r.Write; {
		case w == nil:
		case w.Resource == "pods" && w.Type == history.Deleted:
			gone = r.Time
		case w.Resource == "danmnets":
			cleared = r.Time
		}
	}
	timeline := s.build()
	if len(timeline.Releases) != 1 {
		t.Fatalf("releases %+v", timeline.Releases)
	}
	r := timeline.Releases[0]
	if r.Address != "10.0.0.5" || r.Pod != "ns/p" || r.Lane != "lane-0" || !r.OwnerGone || r.After != cleared.Sub(gone) {
		t.Errorf("release %+v, want %s after the pod was gone", r, cleared.Sub(gone))
	}
	if got := timeline.Requests; got["delete danmeps"] != 1 || got["patch danmnets"] != 1 {
		t.Errorf("requests %v", got)
	}
	if !slices.Equal(timeline.RequestsPerIteration, []int{2}) {
		t.Errorf("requests of each iteration: %v", timeline.RequestsPerIteration)
	}
}

func TestAReleaseOfALivingPodHasNoTime(t *testing.T) {
	s := open("DanmNet")
	s.pod(history.Added, "p")
	s.network(history.Added, "system:node:a", "danmnets", "ns", 5)
	s.endpoint(history.Added, "system:node:a", "ep", "p", 5)
	s.network(history.Modified, "cleaner", "danmnets", "ns")
	if got := s.build().Releases; len(got) != 1 || got[0].OwnerGone || got[0].Pod != "ns/p" {
		t.Errorf("releases %+v", got)
	}
}

func TestABitThatSomebodyElseClearsIsNoRelease(t *testing.T) {
	s := open("DanmNet")
	s.network(history.Added, "", "danmnets", "ns", 5)
	s.network(history.Modified, "system:node:a", "danmnets", "ns")
	if got := s.build().Releases; len(got) != 0 {
		t.Errorf("releases %+v", got)
	}
}

func TestAFaultIsInEffectUntilItIsHealed(t *testing.T) {
	tests := []struct {
		name  string
		steps func(*script)
		until int // record, from 0, at whose time the band ends
	}{
		{"a failed node until it is restored", func(s *script) {
			s.op(history.Invoke, 0, "fail-node", "n", true)
			s.op(history.OK, 0, "fail-node", "n", true)
			s.op(history.Invoke, 1, "restore-node", "n", false)
			s.op(history.OK, 1, "restore-node", "n", false)
		}, 5},
		{"restoring another node heals nothing", func(s *script) {
			s.op(history.Invoke, 0, "fail-node", "n", true)
			s.op(history.OK, 1, "restore-node", "other", false)
			s.op(history.Invoke, 2, "settle", "", false)
		}, 4},
		{"a failed node until the lane is built anew", func(s *script) {
			s.op(history.Invoke, 0, "fail-node", "n", true)
			s.add(history.Record{Lane: &history.Lane{Name: "lane-0", Generation: 2, Namespace: "ns2"}})
			s.op(history.Invoke, 1, "settle", "", false)
		}, 3},
		{"a force delete while it is done", func(s *script) {
			s.op(history.Invoke, 0, "force-delete", "ns/p", true)
			s.op(history.OK, 0, "force-delete", "ns/p", true)
			s.op(history.Invoke, 1, "settle", "", false)
		}, 3},
		{"a fault that nothing heals until the end", func(s *script) {
			s.op(history.Invoke, 0, "pause-node", "n", true)
			s.op(history.OK, 0, "pause-node", "n", true)
		}, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := open("DanmNet")
			tt.steps(s)
			bands := s.build().All.Bands
			if len(bands) != 1 || bands[0].Until != time.Duration(tt.until)*time.Second {
				t.Errorf("bands %+v, want one until %d s", bands, tt.until)
			}
		})
	}
}

func TestWhatTheClusterCannotDoIsTold(t *testing.T) {
	s := open("DanmNet")
	s.add(history.Record{Op: &history.Op{Process: "lane-0", Lane: "lane-0", Type: history.Info, F: "pause-node", Note: "skipped: cluster x cannot pause nodes"}})
	if got := s.build().Skipped; !slices.Equal(got, []string{"pause-node: cluster x cannot pause nodes"}) {
		t.Errorf("skipped %q", got)
	}
}

func TestAStoryTellsWhoBrokeWhat(t *testing.T) {
	s := open("DanmNet")
	s.pod(history.Added, "p")
	s.network(history.Added, "system:node:a", "danmnets", "ns", 5)
	s.endpoint(history.Added, "system:node:a", "ep", "p", 5)
	s.add(history.Record{Attachment: &history.Attachment{Event: history.Attached, ID: "c", Node: "a", Namespace: "ns", Pod: "p", PodUID: "uid-p",
		Interfaces: []history.AttachedInterface{{NetworkKind: "DanmNet", Network: "net", Addresses: []string{"10.0.0.5"}}}}})
	broke := s.network(history.Modified, "cleaner", "danmnets", "ns")
	b := NewBuilder()
	b.Add(s.records...)
	story := b.Stories([]check.Violation{{Pod: "ns/p", Network: "DanmNet ns/net", Address: "10.0.0.5", Lane: "lane-0", Record: broke}})[0]

	var told []string
	for _, e := range story.Events {
		line := e.Actor + ": " + e.Text
		if e.Breaks {
			line = "BREAKS " + line
		}
		told = append(told, line)
	}
	want := []string{
		": pod p (uid uid-p) created",
		"system:node:a: bit of 10.0.0.5 set in DanmNet ns/net",
		"system:node:a: DanmEp ep created, of pod p (uid uid-p), 10.0.0.5",
		"a: CNI ADD succeeded for p (uid uid-p)",
		"BREAKS cleaner: bit of 10.0.0.5 cleared in DanmNet ns/net",
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if c := story.Change; c == nil || c.Writer != "cleaner" || !slices.Equal(c.Cleared, []string{"10.0.0.5"}) || len(c.Set) > 0 {
		t.Errorf("change %+v", story.Change)
	}
	var kinds []string
	for _, row := range story.Strip.Rows {
		kinds = append(kinds, fmt.Sprintf("%s %d", row.Kind, len(row.Segments)))
	}
	if !slices.Equal(kinds, []string{"bit 1", "DanmEp 1", "pod 1"}) {
		t.Errorf("strip %q", kinds)
	}
}

func TestAStoryWithoutItsRecordSaysSo(t *testing.T) {
	b := NewBuilder()
	b.Add(open("DanmNet").records...)
	if story := b.Stories([]check.Violation{{Record: 99}})[0]; story.Missing == "" || story.Change != nil || story.Strip != nil {
		t.Errorf("story %+v", story)
	}
	if story := NewBuilder().Stories([]check.Violation{{Pod: "a/b", Address: "10.0.0.1", Network: "DanmNet a/n", Lane: "l"}})[0]; len(story.Events) > 0 {
		t.Errorf("a story of nothing: %+v", story)
	}
}

func TestALongStoryKeepsWhatIsNextToTheBreak(t *testing.T) {
	var events []Event
	for i := range 100 {
		events = append(events, Event{Record: uint64(i), Breaks: i == 60})
	}
	got := around(events)
	if len(got) != eventsBefore+1+eventsAfter || got[0].Record != 60-eventsBefore || got[len(got)-1].Record != 60+eventsAfter {
		t.Errorf("%d events, %d to %d", len(got), got[0].Record, got[len(got)-1].Record)
	}
}

func TestDiffMarksOnlyWhatDiffers(t *testing.T) {
	tests := []struct {
		name          string
		before, after []string
		want          string
	}{
		{"the same", []string{"a", "b"}, []string{"a", "b"}, " a b"},
		{"a line changed", []string{"a", "b", "c"}, []string{"a", "x", "c"}, " a-b+x c"},
		{"all gone", []string{"a", "b"}, nil, "-a-b"},
		{"all new", nil, []string{"a"}, "+a"},
		{"moved", []string{"a", "b"}, []string{"b", "a"}, "-a b+a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			for _, l := range diff(tt.before, tt.after) {
				got += string(l.Mark) + l.Text
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
