package harness

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/danm-chaos/danm-chaos/harness/history"
)

// podAPI is a list and a watch of pods that the test plays.
type podAPI struct {
	listed  []runtime.Object
	version string
	events  *watch.RaceFreeFakeWatcher
}

func (a *podAPI) source(trim func(runtime.Object) any) source {
	return source{
		resource: podResource, trim: trim,
		list: func(context.Context) ([]runtime.Object, string, error) { return a.listed, a.version, nil },
		watcher: watchFunc(func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			a.events = watch.NewRaceFreeFake()
			return a.events, nil
		}),
	}
}

func watchedPod(name, uid, rv string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), ResourceVersion: rv}}
}

// told renders what a history says, one line for each record.
func told(m *history.Memory) []string {
	var lines []string
	for _, r := range m.Records() {
		switch {
		case r.Write != nil:
			lines = append(lines, fmt.Sprintf("%s %s %s rv %d initial %v", r.Write.Type, r.Write.Name, r.Write.UID, r.Write.RV, r.Write.Initial))
		case r.Gap != nil:
			lines = append(lines, "gap in "+r.Gap.Source)
		}
	}
	return lines
}

// collected runs a collector while play changes the API.
func collected(t *testing.T, api *podAPI, s source, play func(c *collector)) []string {
	t.Helper()
	var memory history.Memory
	c := newCollector(s, &memory, newView())
	ctx, cancel := context.WithCancel(t.Context())
	version, err := c.start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.follow(ctx, version) }()
	synctest.Wait()
	play(c)
	synctest.Wait()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	return told(&memory)
}

func TestEveryWriteIsRecordedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &podAPI{listed: []runtime.Object{watchedPod("a", "1", "5")}, version: "7"}
		got := collected(t, api, api.source(trimPod), func(c *collector) {
			api.events.Modify(watchedPod("a", "1", "8"))
			api.events.Delete(watchedPod("a", "1", "9"))
			api.events.Add(watchedPod("a", "2", "10"))
			synctest.Wait()
			if pods := c.view.Pods("ns"); len(pods) != 1 || pods[0].UID != "2" {
				t.Errorf("the view shows %v", pods)
			}
		})
		want := []string{
			"ADDED a 1 rv 5 initial true", "MODIFIED a 1 rv 8 initial false",
			"DELETED a 1 rv 9 initial false", "ADDED a 2 rv 10 initial false",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestALostWatchIsAGap: what was deleted meanwhile leaves no event, so the view
// has to forget it and the history has to say that something is missing.
func TestALostWatchIsAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &podAPI{listed: []runtime.Object{watchedPod("a", "1", "5"), watchedPod("b", "2", "6")}, version: "7"}
		got := collected(t, api, api.source(trimPod), func(c *collector) {
			api.listed, api.version = []runtime.Object{watchedPod("b", "2", "6")}, "20"
			api.events.Error(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired})
			synctest.Wait()
			if pods := c.view.Pods("ns"); len(pods) != 1 || pods[0].Name != "b" {
				t.Errorf("the view shows %v", pods)
			}
		})
		want := []string{
			"ADDED a 1 rv 5 initial true", "ADDED b 2 rv 6 initial true", "gap in watch pods", "ADDED b 2 rv 6 initial true",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestHeartbeatsAreNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &podAPI{listed: []runtime.Object{watchedPod("a", "1", "5")}, version: "7"}
		s := api.source(func(o runtime.Object) any { return o.(*corev1.Pod).Status.Phase })
		s.repeats = true
		got := collected(t, api, s, func(*collector) {
			api.events.Modify(watchedPod("a", "1", "8"))
			changed := watchedPod("a", "1", "9")
			changed.Status.Phase = corev1.PodRunning
			api.events.Modify(changed)
		})
		if diff := cmp.Diff([]string{"ADDED a 1 rv 5 initial true", "MODIFIED a 1 rv 9 initial false"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestAHistoryIsCompleteWhenTheWatchSawTheFinalList(t *testing.T) {
	tests := []struct {
		name   string
		listed []runtime.Object
		want   []string
	}{
		{"it saw all", []runtime.Object{watchedPod("a", "1", "8")}, nil},
		{"it missed a write", []runtime.Object{watchedPod("a", "1", "9")}, []string{"gap in watch pods"}},
		{"it missed an object", []runtime.Object{watchedPod("a", "1", "8"), watchedPod("b", "2", "9")}, []string{"gap in watch pods"}},
		{"it missed a deletion", nil, []string{"gap in watch pods"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &podAPI{listed: []runtime.Object{watchedPod("a", "1", "5")}, version: "7"}
				got := collected(t, api, api.source(trimPod), func(c *collector) {
					api.events.Modify(watchedPod("a", "1", "8"))
					synctest.Wait()
					api.listed = tt.listed
					c.awaitComplete(t.Context())
				})
				if diff := cmp.Diff(tt.want, got[2:], cmp.Transformer("empty", func(s []string) string { return fmt.Sprint(s) })); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}
