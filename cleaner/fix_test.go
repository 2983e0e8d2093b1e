package cleaner

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/audit"
)

// TestScopeKeepsTheControllerFromTheRest uses that no read can succeed here:
// an attempt to release is an error, to leave alone is none.
func TestScopeKeepsTheControllerFromTheRest(t *testing.T) {
	shown := audit.Report{Findings: []audit.Finding{{Kind: audit.LeakedEndpoint, Severity: audit.Fixable, EndpointUID: "ep-1"}}}
	for _, tt := range []struct {
		name  string
		scope *audit.Scope
		tries bool
	}{
		{"no scope: released", nil, true},
		{"shown: released", audit.ScopeOf(shown), true},
		{"not shown: left alone", audit.ScopeOf(audit.Report{}), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := testController(t)
			c.cfg.scope = tt.scope
			ep := endpointOf("old", "ss-0", "1")
			if err := c.caches.endpoints.store.Add(ep); err != nil {
				t.Fatal(err)
			}
			c.podCount.Store(1)
			c.state.suspect(ep.UID, true, c.clock.Now().Add(-time.Hour))
			_, err := c.reconcileEndpoint(t.Context(), "ns/old")
			if (err != nil) != tt.tries {
				t.Errorf("error %v, want an attempt: %v", err, tt.tries)
			}
		})
	}
}

func TestFixRefusesWhatTheBreakerWouldHoldForEver(t *testing.T) {
	for _, tt := range []struct {
		name   string
		report audit.Report
		want   string
	}{
		{"not everything was read", audit.Report{}, "not fixing: not everything could be read, so nothing may be released"},
		{"a migration", audit.Report{Complete: true, Migration: "both", Frozen: "both groups", Pods: 1}, "not fixing: both groups"},
		{"no pods at all", audit.Report{Complete: true, Frozen: "no pods at all", Endpoints: 3}, "not fixing: no pods at all"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Fix(t.Context(), testController(t).cfg, tt.report, func(Progress) { t.Error("started") })
			if err == nil || err.Error() != tt.want {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestStatedEndIsTheLatestMomentThatThePodNames(t *testing.T) {
	at := func(second int) metav1.Time { return metav1.Unix(int64(second), 0) }
	pod := &corev1.Pod{Status: corev1.PodStatus{
		Conditions:        []corev1.PodCondition{{LastTransitionTime: at(5)}, {LastTransitionTime: at(7)}},
		ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: at(6)}}}},
	}}
	if got := statedEnd(pod); !got.Equal(at(7).Time) {
		t.Errorf("got %s", got)
	}
	if got := statedEnd(&corev1.Pod{}); !got.IsZero() {
		t.Errorf("a pod that says nothing ended at %s", got)
	}
}
