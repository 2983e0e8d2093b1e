package nemesis

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// plainCluster can do nothing.
type plainCluster struct{ clusters.Cluster }

func (plainCluster) Name() string { return "plain" }

// failingCluster can fail nodes, with that error.
type failingCluster struct {
	plainCluster
	err error
}

func (c failingCluster) FailNode(context.Context, string) error    { return c.err }
func (c failingCluster) RestoreNode(context.Context, string) error { return c.err }

func TestWhatAClusterCannotDoIsSkipped(t *testing.T) {
	n := New(plainCluster{}, nil)
	for _, o := range append(schedule.Outages(), "") {
		for _, do := range []func(context.Context, string, schedule.Outage) Outcome{n.FailNode, n.RestoreNode} {
			got := do(t.Context(), "n1", o)
			if got.Type != history.Info || !strings.HasPrefix(got.Note, "skipped: cluster plain cannot ") {
				t.Errorf("%s: got %+v", o, got)
			}
		}
	}
}

func TestAnErrorOfTheClusterLeavesTheOutcomeUnknown(t *testing.T) {
	cause := errors.New("timeout")
	n := New(failingCluster{err: cause}, nil)
	for _, do := range []func(context.Context, string, schedule.Outage) Outcome{n.FailNode, n.RestoreNode} {
		if got := do(t.Context(), "n1", ""); got.Type != history.Info || !errors.Is(got.Err, cause) {
			t.Errorf("got %+v", got)
		}
	}
	if got := New(failingCluster{}, nil).FailNode(t.Context(), "n1", schedule.PowerLoss); got.Type != history.OK {
		t.Errorf("got %+v", got)
	}
}

func pods(names ...string) []*corev1.Pod {
	var out []*corev1.Pod
	for _, name := range names {
		out = append(out, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}})
	}
	return out
}

// api answers deletes by pod name and notes them, with the time since it was
// made. What is not in answers is deleted.
type api struct {
	answers map[string]error
	began   time.Time
	deletes []metav1.DeleteOptions
	names   []string
	times   []time.Duration
}

func (a *api) nemesis() *Nemesis {
	a.began = time.Now()
	core := fake.NewClientset()
	core.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		d := action.(clienttesting.DeleteActionImpl)
		a.deletes = append(a.deletes, d.DeleteOptions)
		a.names = append(a.names, d.Name)
		a.times = append(a.times, time.Since(a.began))
		return true, nil, a.answers[d.Name]
	})
	return New(plainCluster{}, core)
}

func TestForceDelete(t *testing.T) {
	gone := apierrors.NewNotFound(corev1.Resource("pods"), "x")
	other := apierrors.NewConflict(corev1.Resource("pods"), "x", errors.New("the UID in the precondition does not match"))
	broken := errors.New("connection reset")
	tests := []struct {
		name     string
		answers  map[string]error
		want     history.OpType
		wantNote string
	}{
		{"all are deleted", nil, history.OK, "deleted 3 of 3 pods"},
		{"pods that are gone or recreated are left alone", map[string]error{"a": gone, "b": other}, history.OK, "deleted 1 of 3 pods"},
		{"nothing was left to delete", map[string]error{"a": gone, "b": gone, "c": gone}, history.Fail, "deleted 0 of 3 pods"},
		{"a lost connection is no proof of anything", map[string]error{"b": broken}, history.Info, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := &api{answers: tt.answers}
			got := a.nemesis().ForceDelete(t.Context(), pods("a", "b", "c"), 0)
			if got.Type != tt.want || got.Note != tt.wantNote {
				t.Errorf("got %+v", got)
			}
			for i, d := range a.deletes {
				if *d.GracePeriodSeconds != 0 || string(*d.Preconditions.UID) != "uid-"+a.names[i] {
					t.Errorf("pod %s was deleted with %+v", a.names[i], d)
				}
			}
		})
	}
}

func TestForceDeletesAreSpreadInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{}
		if got := a.nemesis().ForceDelete(t.Context(), pods("c", "a", "b"), time.Second); got.Type != history.OK {
			t.Fatalf("got %+v", got)
		}
		for i, want := range []string{"c", "a", "b"} {
			if a.names[i] != want || a.times[i] != time.Duration(i)*time.Second {
				t.Errorf("delete %d: %s after %s, want %s after %d s", i, a.names[i], a.times[i], want, i)
			}
		}
	})
}

func TestAPauseEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if Pause(ctx, time.Hour) {
		t.Error("the pause was waited out")
	}
	if !Pause(t.Context(), 0) {
		t.Error("no pause is waited out at once")
	}
}

// silentCluster notes what is done to its nodes.
type silentCluster struct {
	plainCluster
	calls []string
}

func (c *silentCluster) note(what string) error {
	c.calls = append(c.calls, what)
	return nil
}

func (c *silentCluster) FailNode(context.Context, string) error      { return c.note("fail") }
func (c *silentCluster) RestoreNode(context.Context, string) error   { return c.note("restore") }
func (c *silentCluster) PauseNode(context.Context, string) error     { return c.note("pause") }
func (c *silentCluster) ResumeNode(context.Context, string) error    { return c.note("resume") }
func (c *silentCluster) PartitionNode(context.Context, string) error { return c.note("cut") }
func (c *silentCluster) HealNode(context.Context, string) error      { return c.note("mend") }
func (c *silentCluster) StopKubelet(context.Context, string) error   { return c.note("stop kubelet") }
func (c *silentCluster) StartKubelet(context.Context, string) error  { return c.note("start kubelet") }

func TestEveryOutageIsUndoneByItsOpposite(t *testing.T) {
	want := map[schedule.Outage]string{
		"": "fail, restore", schedule.PowerLoss: "fail, restore", schedule.Hang: "pause, resume",
		schedule.CutOff: "cut, mend", schedule.NoKubelet: "stop kubelet, start kubelet",
	}
	for _, o := range append(schedule.Outages(), "") {
		c := &silentCluster{}
		n := New(c, nil)
		for _, got := range []Outcome{n.FailNode(t.Context(), "n1", o), n.RestoreNode(t.Context(), "n1", o)} {
			if got.Type != history.OK {
				t.Errorf("%s: %+v", o, got)
			}
		}
		if got := strings.Join(c.calls, ", "); got != want[o] {
			t.Errorf("%s: %s, want %s", o, got, want[o])
		}
	}
}
