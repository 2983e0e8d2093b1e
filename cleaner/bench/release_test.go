package bench_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/danm-chaos/danm-chaos/cleaner"
	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

const (
	leaked     = 1000
	bystanders = 1100 // more than the leaked: losing most of a cluster trips the breaker
)

// Bounds of issue 5.
const (
	releaseTimeMax    = 5 * time.Second
	writesPerEndpoint = 1.3
	readsPerEndpoint  = 1.5
	rateShareMin      = 0.6
)

// TestReleaseOfAThousandEndpoints measures how long it takes to release 1,000
// endpoints of one network whose quarantine is over, by how many requests, and
// compares the rate with plain DELETEs of the same apiserver.
func TestReleaseOfAThousandEndpoints(t *testing.T) {
	cluster := startCluster(t)
	w := newWorld(t, cluster)
	w.createNamespace("bench")
	ref := w.createNetwork("bench", "net", leaked+bystanders)
	raw := w.rawDeleteRate(ref)
	w.createEndpoints(ref, "victim", "eth0", w.createPods("bench", "victim", leaked), 0)
	w.createEndpoints(ref, "living", "eth0", w.createPods("bench", "living", bystanders), leaked)

	config, count := countingConfig(t, cluster)
	const quarantine = 4 * time.Second
	startCleaner(t, cleaner.Config{REST: config, ReleaseQuarantine: quarantine, OrphanQuarantine: time.Hour})
	awaitVouched(t, count, leaked+bystanders)

	// Under the pause all become suspects and outlast the quarantine; its end
	// is the moment at which all are ripe.
	w.patchNetwork(ref, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, danm.PauseAnnotation))
	w.forceDelete("bench", "victim")
	time.Sleep(quarantine + time.Second) // nothing is to happen, so nothing can be waited for
	if _, _, deleted, _ := count.get(); deleted > 0 {
		t.Fatalf("%d endpoints of a paused network were deleted", deleted)
	}
	count.reset()
	began := time.Now()
	w.patchNetwork(ref, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, danm.PauseAnnotation))
	eventually(t, "every leaked bit is clear", time.Minute, func() bool { return countSet(w.bitmap(ref), 0, leaked) == 0 })
	took := time.Since(began)
	reads, writes, deleted, last := count.get()
	rate := float64(deleted) / last.Sub(began).Seconds()

	t.Logf("released %d endpoints and their bits in %.2f s (bound %s)", deleted, took.Seconds(), releaseTimeMax)
	t.Logf("API requests per endpoint: %.3f writes (bound %.1f), %.3f reads (bound %.1f)",
		float64(writes)/leaked, writesPerEndpoint, float64(reads)/leaked, readsPerEndpoint)
	t.Logf("endpoints per second: %.0f, plain DELETEs %.0f, share %.0f %% (bound %.0f %%)", rate, raw, 100*rate/raw, 100*rateShareMin)
	if deleted != leaked || countSet(w.bitmap(ref), leaked, bystanders) != bystanders {
		t.Errorf("%d endpoints deleted, want %d, and every living pod's bit set", deleted, leaked)
	}
	if took > releaseTimeMax || float64(writes) > writesPerEndpoint*leaked || float64(reads) > readsPerEndpoint*leaked || rate < rateShareMin*raw {
		t.Error("a bound is missed")
	}
}

// rawDeleteRate deletes as many endpoints by plain requests, under the same
// preconditions and as many at once as the cleaner has workers.
func (w *world) rawDeleteRate(ref danm.NetworkRef) float64 {
	w.t.Helper()
	eps := w.createEndpoints(ref, "raw", "eth0", w.createPods(ref.Namespace, "raw", leaked), 0)
	w.forceDelete(ref.Namespace, "raw")
	began := time.Now()
	parallel(w.t, len(eps), func(ctx context.Context, i int) error { return w.danm.DeleteEndpoint(ctx, eps[i]) })
	return float64(len(eps)) / time.Since(began).Seconds()
}

// startCleaner runs the controller in this process until the test ends and
// returns once it works.
func startCleaner(t *testing.T, cfg cleaner.Config) {
	t.Helper()
	ready := make(chan struct{})
	var once sync.Once
	cfg.Ready = func() { once.Do(func() { close(ready) }) }
	cfg.Logger = funcr.New(func(prefix, args string) {
		if strings.Contains(args, "circuit breaker") || strings.Contains(args, "paused") {
			t.Log(args)
		}
	}, funcr.Options{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- cleaner.Run(ctx, cfg) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-ready
}

// awaitVouched waits for the list of all pods by which the cleaner sees every
// owner alive: without that it has no proof for any bit, and all go the slow way
// through the sweep.
func awaitVouched(t *testing.T, count *requests, pods int) {
	t.Helper()
	const page = 500
	eventually(t, "the cleaner has seen every owner alive", time.Minute, func() bool { return count.pages()*page >= pods })
}
