package chaosmesh

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

const (
	injectedStatus = `{"conditions":[{"type":"Selected","status":"True"},{"type":"AllInjected","status":"True"}],
		"experiment":{"containerRecords":[{"id":"ns/p-0","selectorKey":".","phase":"Injected","injectedCount":1,"recoveredCount":0,
		"events":[{"type":"Failed","operation":"Apply","message":"no daemon","timestamp":"2026-03-01T08:54:28Z"},
		{"type":"Succeeded","operation":"Apply","timestamp":"2026-03-01T08:54:29Z"}]}]}}`
	nobodySelected = `{"conditions":[{"type":"AllInjected","status":"True"}],"experiment":{}}`
)

// fakeMesh is a cluster whose Chaos Mesh gives every object a status. Objects
// whose finalizer holds are gone only when they are forced.
func fakeMesh(t *testing.T, status string, holds func(patches []string) bool) (dynamic.Interface, *[]string) {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{
		faultOf(PodKill).resource(): "PodChaosList", faultOf(NetworkLoss).resource(): "NetworkChaosList", faultOf(TimeOffset).resource(): "TimeChaosList",
		faultOf(StressCPU).resource(): "StressChaosList",
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	patches := &[]string{}
	deleting := false
	client.PrependReactor("get", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if deleting && !holds(*patches) {
			return false, nil, client.Tracker().Delete(a.GetResource(), a.GetNamespace(), a.(clienttesting.GetAction).GetName())
		}
		o, err := client.Tracker().Get(a.GetResource(), a.GetNamespace(), a.(clienttesting.GetAction).GetName())
		if err != nil {
			return true, nil, err
		}
		u := o.(*unstructured.Unstructured).DeepCopy()
		var content map[string]any
		if err := json.Unmarshal([]byte(status), &content); err != nil {
			t.Fatal(err)
		}
		u.Object["status"] = content
		return true, u, nil
	})
	client.PrependReactor("delete", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		deleting = true
		return true, nil, nil
	})
	client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		*patches = append(*patches, string(a.(clienttesting.PatchAction).GetPatch()))
		return true, &unstructured.Unstructured{Object: map[string]any{}}, nil
	})
	return client, patches
}

func inject(t *testing.T, d dynamic.Interface) (*Injected, []Event) {
	t.Helper()
	m := New(d, metav1.ObjectMeta{Namespace: "chaos-lane-0", Labels: map[string]string{"run": "r"}})
	m.recover, m.forced = 2*pollInterval, 2*pollInterval
	in, events, err := m.Inject(t.Context(), "x", Fault{Action: PodKill, Namespace: "ns", Pods: []string{"p-0"}})
	if err != nil {
		t.Fatal(err)
	}
	return in, events
}

func TestWhatChaosMeshRecordedIsTold(t *testing.T) {
	d, _ := fakeMesh(t, injectedStatus, func([]string) bool { return false })
	in, events := inject(t, d)
	var got []string
	for _, e := range events {
		got = append(got, e.String())
	}
	want := []string{
		"Apply ns/p-0 failed: no daemon at 2026-03-01T08:54:28Z",
		"Apply ns/p-0 succeeded at 2026-03-01T08:54:29Z",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if more, err := in.Heal(t.Context()); err != nil || len(more) > 0 {
		t.Errorf("healing told %v, %v: want nothing that was told already", more, err)
	}
}

func TestAFaultThatHitNobodyIsNotInjected(t *testing.T) {
	d, _ := fakeMesh(t, nobodySelected, func([]string) bool { return false })
	ctx, cancel := context.WithTimeout(t.Context(), 2*pollInterval)
	defer cancel()
	in, _, err := New(d, metav1.ObjectMeta{Namespace: "chaos-lane-0"}).Inject(ctx, "x", Fault{Action: PodKill, Namespace: "ns", Pods: []string{"p-0"}})
	if err == nil || !strings.Contains(err.Error(), "0 of 1 victims selected") || in == nil {
		t.Errorf("got %v, %v: want something to heal, and an error that says that nobody was selected", in, err)
	}
}

func TestTheLastFailureIsTold(t *testing.T) {
	failed := func(message string) Event { return Event{Message: message} }
	for _, c := range []struct {
		name   string
		events []Event
		want   string
	}{
		{"it said nothing", nil, ""},
		{"it failed twice", []Event{failed("a"), failed("b\n  c")}, "b c"},
		{"it failed, and then hit", []Event{failed("a"), {OK: true, Message: "fine"}}, "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := LastFailure(c.events); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	got := LastFailure([]Event{failed(strings.Repeat("word ", reasonMax) + "controller is not supported")})
	if len(got) > reasonMax || !strings.HasPrefix(got, "word ") || !strings.HasSuffix(got, " controller is not supported") {
		t.Errorf("of a long reason whole words of the end are wanted, got %q", got)
	}
}

func TestWhomAnObjectNamesCanBeReadFromIt(t *testing.T) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(faultOf(NetworkPartition).object(metav1.ObjectMeta{Name: "x"}))
	if err != nil {
		t.Fatal(err)
	}
	got := victimsOf(&unstructured.Unstructured{Object: content})
	if want := faultOf(NetworkPartition); got.Namespace != want.Namespace || !cmp.Equal(got.Pods, want.Pods) {
		t.Errorf("got %+v, want pods %v of %s", got, want.Pods, want.Namespace)
	}
}

func TestOfAPodsNetworkOnlyOurOwnIsWithdrawn(t *testing.T) {
	rule := func(source string) any { return map[string]any{"source": source, "name": "r"} }
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"iptables": []any{rule("ns/ours"), rule("ns/theirs")}, "tcs": []any{rule("ns/ours")}, "ipsets": []any{},
	}}}
	if !without(u, "ns/ours") || without(u, "ns/ours") {
		t.Error("there was something of ours to remove, once")
	}
	want := map[string]any{"iptables": []any{rule("ns/theirs")}, "tcs": []any{}, "ipsets": []any{}}
	if diff := cmp.Diff(want, u.Object["spec"]); diff != "" {
		t.Errorf("what is left differs (-want +got):\n%s", diff)
	}
}

func TestAStuckFinalizerIsForcedAwayAndReported(t *testing.T) {
	for _, c := range []struct {
		name  string
		holds func(patches []string) bool
		want  int
	}{
		{"Chaos Mesh lives and drops its finalizer when told", func(p []string) bool { return len(p) < 1 }, 1},
		{"Chaos Mesh is dead, so we drop it", func(p []string) bool { return len(p) < 2 }, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, patches := fakeMesh(t, injectedStatus, c.holds)
			in, _ := inject(t, d)
			began := time.Now()
			if _, err := in.Heal(t.Context()); !errors.Is(err, ErrLeftInPlace) {
				t.Errorf("got %v after %s, want %v", err, time.Since(began), ErrLeftInPlace)
			}
			if len(*patches) != c.want || !strings.Contains((*patches)[0], forceAnnotation) {
				t.Errorf("patches are %q, want %d", *patches, c.want)
			}
		})
	}
}
