package existing

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/danm-chaos/danm-chaos/harness/nemesis/chaosmesh"
)

func TestTheReasonWhyAFaultDoesNotComeIsTheLastThatChaosMeshSaid(t *testing.T) {
	failed := func(message string) chaosmesh.Event { return chaosmesh.Event{Message: message} }
	long := strings.Repeat("word ", probeReasonMax) + "controller is not supported"
	for _, c := range []struct {
		name   string
		events []chaosmesh.Event
		want   string
	}{
		{"it said nothing", nil, "no success after 20s"},
		{"it failed twice", []chaosmesh.Event{failed("a"), failed("b\n  c")}, "b c"},
		{"it failed, and then hit", []chaosmesh.Event{failed("a"), {OK: true, Message: "fine"}}, "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := reasonOf(c.events, errors.New("no success after 20s")); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	got := reasonOf([]chaosmesh.Event{failed(long)}, errors.New("late"))
	if len(got) > probeReasonMax || !strings.HasPrefix(got, "word ") || !strings.HasSuffix(got, " controller is not supported") {
		t.Errorf("of a long reason whole words of the end are wanted, got %q", got)
	}
}

func TestPodsThatNoControllerTakesAwayAreDeleted(t *testing.T) {
	isController := true
	kept := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "of-a-set",
		OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "s", Controller: &isController}}}}
	core := fake.NewClientset(kept, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "lone"}})
	if err := (undoing{access: access{core: core}}).deleteLonePods(t.Context(), "ns"); err != nil {
		t.Fatal(err)
	}
	left, err := core.CoreV1().Pods("ns").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 1 || left.Items[0].Name != kept.Name {
		t.Errorf("left are %+v, %v", left, err)
	}
}
