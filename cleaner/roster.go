package cleaner

import (
	"context"
	"fmt"
	"sync"
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
	// made is closed when the list is there, or has failed; then pods is nil.
	made chan struct{}
	pods map[string]listedPod // by namespace/name
}

type listedPod struct {
	uid      types.UID
	isMirror bool
}

// isFailed tells whether the list was tried and there is none.
func (r *roster) isFailed() bool {
	select {
	case <-r.made:
		return r.pods == nil
	default:
		return false
	}
}

// serves tells whether the roster is, or will be, of use to an endpoint whose
// quarantine ended at t.
func (r *roster) serves(t, now time.Time) bool {
	return r != nil && !r.began.Before(t) && now.Sub(r.began) < rosterAgeMax && !r.isFailed()
}

// rosters keeps the latest roster. Who finds one that is being made waits for
// it. Whoever makes it is treated as all who wait, so it does not matter which
// of several workers came first. The lock is never held across a request.
type rosters struct {
	mu     sync.Mutex
	latest *roster   // nil if there is none
	tried  time.Time // when it was last considered to make one
}

// join returns the roster that serves, nil if none does and none is worth it,
// and whether it is the caller's to make.
func (r *rosters) join(t, now time.Time, isWorth func() bool) (found *roster, isMine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.latest.serves(t, now) {
		return r.latest, false
	}
	if now.Sub(r.tried) < rosterPeriod {
		return nil, false
	}
	r.tried = now
	if !isWorth() {
		return nil, false
	}
	r.latest = &roster{began: now, made: make(chan struct{})}
	return r.latest, true
}

// expire drops a roster that serves no longer.
func (r *rosters) expire(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.latest != nil && now.Sub(r.latest.began) >= rosterAgeMax {
		r.latest = nil
	}
}

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

// rosterSince returns a roster that began at t or later, nil if none is worth it
// or it cannot be made: then the pod itself has to be read.
func (c *controller) rosterSince(ctx context.Context, t time.Time) (*roster, error) {
	now := c.clock.Now()
	r, isMine := c.rosters.join(t, now, func() bool {
		ripe := c.state.ripeCount(now.Add(-c.cfg.ReleaseQuarantine))
		return ripe >= rosterSuspectsMin && ripe*rosterPodsPerSuspect >= int(c.podCount.Load())
	})
	if r == nil {
		return nil, nil
	}
	if isMine {
		c.makeRoster(ctx, r)
	}
	select {
	case <-r.made:
	case <-ctx.Done():
	}
	if ctx.Err() != nil || r.pods == nil {
		return nil, ctx.Err()
	}
	return r, nil
}

// makeRoster lists the pods for everybody who waits for that.
func (c *controller) makeRoster(ctx context.Context, r *roster) {
	defer close(r.made)
	pods, err := c.listAllPods(ctx)
	if err != nil {
		c.log.V(1).Info("no list of all pods, reading each", "cause", err.Error())
		return
	}
	r.pods = pods
}

func (c *controller) listAllPods(ctx context.Context) (map[string]listedPod, error) {
	pods := map[string]listedPod{}
	list := c.core.CoreV1().Pods(metav1.NamespaceAll).List
	err := eachPage(ctx, list, func(pod *corev1.Pod) error {
		pods[storeKey(pod.Namespace, pod.Name)] = listedPod{uid: pod.UID, isMirror: mirrorHash(pod) != ""}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	if cached := int(c.podCount.Load()); len(pods)*2 < cached {
		return nil, fmt.Errorf("listing pods: the list has %d, the cache %d", len(pods), cached)
	}
	return pods, nil
}
