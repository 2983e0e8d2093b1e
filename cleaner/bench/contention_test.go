package bench_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/danm-chaos/danm-chaos/cleaner"
	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

const (
	contended      = 500 // endpoints to release
	others         = 600 // more than are released: losing most of a cluster trips the breaker
	allocations    = 500
	allocatePeriod = time.Second / 50
	// allocateTries bounds the conflicts of one allocation in a row. DANM has no
	// bound at all.
	allocateTries = 200
)

// TestContention allocates 50 addresses a second on a network from which 500 are
// released at the same time. Every allocation must succeed and be there in the
// end, with bit and endpoint.
func TestContention(t *testing.T) {
	cluster := startCluster(t)
	w := newWorld(t, cluster)
	w.createNamespace("bench")
	ref := w.createNetwork("bench", "net", contended+others)
	w.createEndpoints(ref, "victim", "eth0", w.createPods("bench", "victim", contended), 0)
	w.createEndpoints(ref, "other", "eth0", w.createPods("bench", "other", others), contended)
	living := w.createPods("bench", "living", allocations)

	config, count := countingConfig(t, cluster)
	const quarantine = 4 * time.Second
	startCleaner(t, cleaner.Config{REST: config, ReleaseQuarantine: quarantine, OrphanQuarantine: time.Minute})
	awaitVouched(t, count, contended+others+allocations)
	w.patchNetwork(ref, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, danm.PauseAnnotation))
	w.forceDelete("bench", "victim")
	time.Sleep(quarantine + time.Second) // nothing is to happen, so nothing can be waited for

	began := time.Now()
	w.patchNetwork(ref, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, danm.PauseAnnotation))
	got, conflicts, slowest := w.allocateSteadily(ref, living)
	eventually(t, "every leaked endpoint is gone", time.Minute, func() bool { _, _, n, _ := count.get(); return n >= contended })
	// An address that was free in between may have been handed out again.
	taken := map[int]bool{}
	for _, i := range got {
		if taken[i] {
			t.Errorf("address %s was given to two pods", address(i))
		}
		taken[i] = true
	}
	took := eventually(t, "every leaked bit is clear or in use again", 3*time.Minute, func() bool {
		b := w.bitmap(ref)
		for i := range contended {
			if b.IsSet(i+1) && !taken[i] {
				return false
			}
		}
		return true
	})
	b := w.bitmap(ref)
	lost := 0
	for i := range taken {
		if !b.IsSet(i + 1) {
			lost++
		}
	}
	t.Logf("%d allocations at 50 a second while %d endpoints were released: 0 failed, %d lost, %d conflicts, slowest %.0f ms; all bits clear %.1f s after the end of the quarantine (%.1f s after the last allocation)",
		len(got), contended, lost, conflicts, slowest.Seconds()*1000, time.Since(began).Seconds(), took.Seconds())
	if lost > 0 || len(taken) != allocations {
		t.Error("an allocation was lost")
	}
}

// allocateSteadily gives each pod an address, bit first and endpoint second as
// DANM does, and returns which.
func (w *world) allocateSteadily(ref danm.NetworkRef, uids []types.UID) (got []int, conflicts int64, slowest time.Duration) {
	w.t.Helper()
	got = make([]int, len(uids))
	var tries atomic.Int64
	var mu sync.Mutex
	var group sync.WaitGroup
	ticker := time.NewTicker(allocatePeriod)
	defer ticker.Stop()
	for i, uid := range uids {
		<-ticker.C
		group.Go(func() {
			began := time.Now()
			index, err := w.allocate(w.t.Context(), ref, i, uid, &tries)
			if err != nil {
				w.t.Errorf("allocation %d failed: %v", i, err)
			}
			mu.Lock()
			defer mu.Unlock()
			got[i], slowest = index, max(slowest, time.Since(began))
		})
	}
	group.Wait()
	return got, tries.Load(), slowest
}

// allocate takes the first free address from the begin of the pool, so that
// what was just released is the first to be used again. After a conflict it
// backs off with jitter: on a node each try is a part of a process of its own,
// and hundreds that repeat in step would only measure each other.
func (w *world) allocate(ctx context.Context, ref danm.NetworkRef, i int, uid types.UID, conflicts *atomic.Int64) (int, error) {
	backoff := wait.Backoff{Duration: 5 * time.Millisecond, Factor: 1.5, Jitter: 1, Steps: allocateTries, Cap: 500 * time.Millisecond}
	for range allocateTries {
		n, err := w.danm.GetNetwork(ctx, ref)
		if err != nil {
			return 0, err
		}
		b, index := w.decode(n), 0
		for b.IsSet(index + 1) {
			index++
		}
		b.Set(index + 1)
		_, err = w.danm.PatchAlloc(ctx, n, []danm.AllocChange{{Family: danm.IPv4, Old: n.Spec.Options.Alloc, New: b.Encode()}})
		if danm.IsChanged(err) {
			conflicts.Add(1)
			time.Sleep(backoff.Step()) // the emulation itself
			continue
		}
		if err == nil {
			pod := podName("living", i)
			_, err = w.create(ctx, endpoint(ref, pod, pod, uid, "eth0", address(index)))
		}
		return index, err
	}
	return 0, fmt.Errorf("%d conflicts in a row", allocateTries)
}
