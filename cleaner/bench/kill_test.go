package bench_test

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// What the addresses of the world of killed cleaners are.
const (
	livingAt = iota // of a living pod
	robbedAt        // of a living pod, its bit cleared by somebody
	leakedAt        // of an endpoint without pod
	orphanAt        // a bit without endpoint
)

// killEvery kills the cleaner at every n-th request; 1 means at each.
const killEvery = "BENCH_KILL_EVERY"

// TestKilledAtEachRequest kills the cleaner at each of its API requests in turn,
// before the request arrives and after it took effect. Its successor must find
// the rest of the work, and no living pod may lose anything at any time.
func TestKilledAtEachRequest(t *testing.T) {
	cluster := startCluster(t)
	program := buildCleaner(t)
	w := newWorld(t, cluster)
	w.createNamespace("bench")
	ref := w.createNetwork("bench", "net", 2)
	uids := w.createPods("bench", "living", 2)
	living := w.createEndpoints(ref, "living", "eth0", uids, livingAt)
	never := w.watchLiving(ref)

	args := []string{"--leader-elect=false", "--release-quarantine", "300ms", "--orphan-quarantine", "1s"}
	run := func(killAt int, before bool) (requests int, killed bool) {
		p := newProxy(t, cluster)
		defer p.Close()
		defer p.CloseClientConnections()
		p.killAt, p.killBefore = killAt, before
		v := startVictim(t, program, p, args...)
		defer v.stop()
		deadline := time.Now().Add(time.Minute)
		for !w.isSettled(ref, living) {
			select {
			case <-v.ended:
				return killAt, true
			case <-time.After(50 * time.Millisecond):
			}
			if time.Now().After(deadline) {
				t.Fatalf("not settled, to be killed at request %d:\n%s", killAt, v.log)
			}
		}
		total, _ := p.requests()
		return total, false
	}
	w.spoil(ref)
	total, _ := run(0, false)
	step, kills := number(t, killEvery, 1), 0
	began := time.Now()
	for _, before := range []bool{true, false} {
		for n := 1; n <= total; n += step {
			w.spoil(ref)
			if _, killed := run(n, before); killed {
				kills++
				run(0, false) // the successor
			}
		}
	}
	t.Logf("killed %d times at %d requests in %.0f s, each time the successor finished", kills, total, time.Since(began).Seconds())
	if lost := never(); lost > 0 {
		t.Errorf("the network was seen %d times without the bit of a living pod", lost)
	}
}

// spoil makes the leftovers, as far as they are not there any more.
func (w *world) spoil(ref danm.NetworkRef) {
	w.t.Helper()
	_, err := w.create(w.t.Context(), endpoint(ref, "leaked", "gone", "uid-of-nobody", "eth0", address(leakedAt)))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		w.t.Fatal(err)
	}
	w.editBits(ref, func(set func(i int, to bool)) {
		set(robbedAt, false)
		set(leakedAt, true)
		set(orphanAt, true)
	})
}

// editBits changes bits as another writer would.
func (w *world) editBits(ref danm.NetworkRef, edit func(set func(i int, to bool))) {
	w.t.Helper()
	for range 100 {
		n, err := w.danm.GetNetwork(w.t.Context(), ref)
		if err != nil {
			w.t.Fatal(err)
		}
		b := w.decode(n)
		edit(func(i int, to bool) {
			if to {
				b.Set(i + 1)
			} else {
				b.Clear(i + 1)
			}
		})
		_, err = w.danm.PatchAlloc(w.t.Context(), n, []danm.AllocChange{{Family: danm.IPv4, Old: n.Spec.Options.Alloc, New: b.Encode()}})
		if err == nil {
			return
		}
		if !danm.IsChanged(err) {
			w.t.Fatal(err)
		}
	}
	w.t.Fatal("100 conflicts in a row")
}

func (w *world) isSettled(ref danm.NetworkRef, living []*danm.Endpoint) bool {
	w.t.Helper()
	for _, ep := range living {
		now, err := w.danm.GetEndpoint(w.t.Context(), ep.Namespace, ep.Name)
		if err != nil || now.UID != ep.UID {
			w.t.Fatalf("the endpoint %s of a living pod is gone: %v", ep.Name, err)
		}
	}
	_, err := w.danm.GetEndpoint(w.t.Context(), ref.Namespace, "leaked")
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
	b := w.bitmap(ref)
	return err != nil && b.IsSet(robbedAt+1) && !b.IsSet(leakedAt+1) && !b.IsSet(orphanAt+1)
}

// watchLiving counts the versions of the network that lack the bit of the
// living pod which nobody robs. The returned function ends it.
func (w *world) watchLiving(ref danm.NetworkRef) func() int {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	watch, err := w.danm.Networks(ref.Kind, ref.Namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	lost, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		for e := range watch.ResultChan() {
			u, ok := e.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			if n, err := danm.ToNetwork(u); err != nil || !w.decode(n).IsSet(livingAt+1) {
				lost++
			}
		}
	}()
	return func() int {
		stop()
		watch.Stop()
		<-done
		return lost
	}
}
