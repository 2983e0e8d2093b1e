package cleaner

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
)

// When a roster is worth its list: at least rosterSuspectsMin suspects are ripe,
// and the list has at most rosterPodsPerSuspect pods for each; a page of 500
// pods costs about what 25 single reads cost. At most one list is made each
// rosterPeriod, so that suspects which ripen one after the other are read one
// by one in between. A roster serves for rosterAgeMax.
const (
	rosterSuspectsMin    = 32
	rosterPodsPerSuspect = 20
	rosterPeriod         = time.Second
	rosterAgeMax         = 15 * time.Second
)

// roster is one complete live list of all pods: a quorum read, as the GET of
// each single pod would be, that began at a known time.
//
// It stands in for those reads only to say that an owner is gone, and only for
// endpoints whose quarantine had ended when it began. It cannot grow stale in
// that: the owner's UID existed before its endpoint, and a UID that is gone
// never comes back. Everything else (a pod of the owner's UID, in whatever
// phase; mirror pods, whose UIDs mean little; endpoints that name no UID) is
// left to a GET.
type roster struct {
	began time.Time
	pods  map[string]listedPod // by namespace/name
}

type listedPod struct {
	uid      types.UID
	isMirror bool
}

// rosters makes and keeps the latest roster. Its turn is a channel and not a
// mutex, because it is held across a request: whoever waits for it would make
// the same list, and must be able to stop waiting.
type rosters struct {
	turn   chan struct{} // holds one token, which guards the rest
	latest *roster
	tried  time.Time // when it was last considered to make one
}

func newRosters() *rosters {
	r := &rosters{turn: make(chan struct{}, 1)}
	r.turn <- struct{}{}
	return r
}

// take waits for the turn, or returns the context's error.
func (r *rosters) take(ctx context.Context) error {
	select {
	case <-r.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *rosters) give() { r.turn <- struct{}{} }

// ownerFromRoster returns what a roster proves of the endpoint's owner, or false
// if there is none that does.
func (c *controller) ownerFromRoster(ctx context.Context, ep *danm.Endpoint) (ownership.Pod, bool, error) {
	st := c.state.get(ep.UID)
	if ep.Spec.PodUID == "" || ep.Spec.Pod == "" || st.owner.mirrorHash != "" || st.suspectSince.IsZero() {
		return ownership.Pod{}, false, nil
	}
	quarantined := st.suspectSince.Add(c.cfg.ReleaseQuarantine)
	if c.clock.Now().Before(quarantined) {
		return ownership.Pod{}, false, nil // the pod itself must say that it waits
	}
	r, err := c.rosterSince(ctx, quarantined)
	if err != nil || r == nil {
		return ownership.Pod{}, false, err
	}
	pod, ok := r.pods[storeKey(ep.Namespace, ep.Spec.Pod)]
	switch {
	case !ok:
		return ownership.Pod{Lookup: ownership.NotFound}, true, nil
	case pod.isMirror || pod.uid == ep.Spec.PodUID:
		return ownership.Pod{}, false, nil
	}
	return ownership.Pod{Lookup: ownership.Found, UID: pod.uid}, true, nil
}

// rosterSince returns a roster that began after t, nil if none is worth it.
func (c *controller) rosterSince(ctx context.Context, t time.Time) (*roster, error) {
	if err := c.rosters.take(ctx); err != nil {
		return nil, err
	}
	defer c.rosters.give()
	now := c.clock.Now()
	if r := c.rosters.latest; r != nil && r.began.After(t) && now.Sub(r.began) < rosterAgeMax {
		return r, nil
	}
	if now.Sub(c.rosters.tried) < rosterPeriod {
		return nil, nil
	}
	c.rosters.tried = now
	ripe := c.state.ripeCount(now.Add(-c.cfg.ReleaseQuarantine))
	if ripe < rosterSuspectsMin || ripe*rosterPodsPerSuspect < int(c.podCount.Load()) {
		return nil, nil
	}
	r, err := c.listRoster(ctx, now)
	if err != nil {
		return nil, err
	}
	c.rosters.latest = r
	return r, nil
}

func (c *controller) listRoster(ctx context.Context, now time.Time) (*roster, error) {
	r := &roster{began: now, pods: map[string]listedPod{}}
	list := c.core.CoreV1().Pods(metav1.NamespaceAll).List
	err := eachPage(ctx, list, func(pod *corev1.Pod) error {
		r.pods[storeKey(pod.Namespace, pod.Name)] = listedPod{uid: pod.UID, isMirror: mirrorHash(pod) != ""}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	if cached := int(c.podCount.Load()); len(r.pods)*2 < cached {
		return nil, fmt.Errorf("listing pods: the list has %d, the cache %d", len(r.pods), cached)
	}
	return r, nil
}

// expire drops a roster that serves no longer, unless one is being made.
func (r *rosters) expire(now time.Time) {
	select {
	case <-r.turn:
	default:
		return
	}
	defer r.give()
	if r.latest != nil && now.Sub(r.latest.began) >= rosterAgeMax {
		r.latest = nil
	}
}
