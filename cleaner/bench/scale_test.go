package bench_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Bounds of issue 5.
const (
	startTimeMax       = 30 * time.Second
	residentMiBMax     = 250
	idlePerMinuteMax   = 10
	soakGrowthMax      = 0.05
	networks           = 40
	interfacesPerPod   = 2
	smallPods          = 500
	eventsPerStep      = 5000
	idleTime           = time.Minute
	sizeVariable       = "BENCH_PODS"
	soakVariable       = "BENCH_SOAK"
	eventSettleTimeout = 30 * time.Second
)

// TestScale measures start, memory, idle requests and the cost of a pod event
// with many pods, then keeps pod events coming and watches the memory.
func TestScale(t *testing.T) {
	cluster := startCluster(t)
	w := newWorld(t, cluster)
	program := buildCleaner(t)
	pods, soak := number(t, sizeVariable, 20_000), number(t, soakVariable, 200_000)

	w.populate("small", smallPods, 1)
	small := startVictim(t, program, newProxy(t, cluster))
	<-small.ready
	smallCost := w.costPerEvent(small, "small", smallPods)
	small.stop()

	began := time.Now()
	w.populate("large", pods-smallPods, networks-1)
	t.Logf("made %d pods and %d endpoints in %.0f s", pods, pods*interfacesPerPod, time.Since(began).Seconds())
	p := newProxy(t, cluster)
	began = time.Now()
	v := startVictim(t, program, p)
	<-v.ready
	startTime := time.Since(began)
	t.Logf("start to ready: %.1f s (bound %s)", startTime.Seconds(), startTimeMax)

	// The first sweep lists the pods once, and the garbage of the start goes.
	time.Sleep(idleTime) // the measurement itself
	before, beforeSeen := p.requests()
	time.Sleep(idleTime)
	after, afterSeen := p.requests()
	leases := 0
	for what, n := range afterSeen {
		if what == "PUT leases" || what == "GET leases" {
			leases += n - beforeSeen[what]
		}
	}
	idle := float64(after-before-leases) / idleTime.Minutes()
	peak, now := v.residentMiB(t, "VmHWM"), v.residentMiB(t, "VmRSS")
	t.Logf("idle API requests: %.1f a minute (bound %d), besides %d of the lease", idle, idlePerMinuteMax, leases)
	t.Logf("resident memory: %.0f MiB, at most %.0f MiB so far (bound %d MiB)", now, peak, residentMiBMax)

	largeCost := w.costPerEvent(v, "large", pods-smallPods)
	t.Logf("processor time per pod event: %s with %d endpoints, %s with %d: ratio %.2f", smallCost, smallPods*interfacesPerPod,
		largeCost, pods*interfacesPerPod, float64(largeCost)/float64(smallCost))
	growth := w.soak(v, "large", pods-smallPods, soak)
	peak = v.residentMiB(t, "VmHWM")
	if startTime > startTimeMax || peak > residentMiBMax || idle > idlePerMinuteMax || growth > soakGrowthMax {
		t.Errorf("a bound is missed; peak memory %.0f MiB", peak)
	}
}

// populate makes pods with two endpoints each, spread over n networks.
func (w *world) populate(namespace string, pods, n int) {
	w.t.Helper()
	w.createNamespace(namespace)
	uids := w.createPods(namespace, "pod", pods)
	each := (pods + n - 1) / n
	for i := range n {
		ref := w.createNetwork(namespace, fmt.Sprintf("net-%d", i), each*interfacesPerPod)
		from, to := i*each, min((i+1)*each, pods)
		parallel(w.t, (to-from)*interfacesPerPod, func(ctx context.Context, k int) error {
			pod, iface := from+k/interfacesPerPod, fmt.Sprintf("eth%d", k%interfacesPerPod)
			_, err := w.create(ctx, endpoint(ref, podName("pod", pod)+"-"+iface, podName("pod", pod), uids[pod], iface, address(k)))
			return err
		})
	}
}

// touch makes pod events by changing an annotation.
func (w *world) touch(namespace string, pods, from, n int) {
	w.t.Helper()
	parallel(w.t, n, func(ctx context.Context, i int) error {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"bench":"%d"}}}`, from+i)
		_, err := w.core.CoreV1().Pods(namespace).Patch(ctx, podName("pod", (from+i)%pods), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
}

// costPerEvent is the processor time that the cleaner spends on one pod event.
func (w *world) costPerEvent(v *victim, namespace string, pods int) time.Duration {
	w.t.Helper()
	w.awaitQuiet(v)
	before := v.cpu(w.t)
	w.touch(namespace, pods, 0, eventsPerStep)
	w.awaitQuiet(v)
	return (v.cpu(w.t) - before) / eventsPerStep
}

// awaitQuiet waits until the cleaner spends no more than a twentieth of a
// processor.
func (w *world) awaitQuiet(v *victim) {
	w.t.Helper()
	deadline := time.Now().Add(eventSettleTimeout)
	for last := v.cpu(w.t); time.Now().Before(deadline); {
		time.Sleep(time.Second) // the measurement itself
		now := v.cpu(w.t)
		if now-last <= 50*time.Millisecond {
			return
		}
		last = now
	}
}

// soak keeps pod events coming and returns by what share the resident memory of
// the last quarter exceeds that of the second.
func (w *world) soak(v *victim, namespace string, pods, events int) float64 {
	w.t.Helper()
	const samplesPerQuarter = 10
	var quarter [4]float64
	began := time.Now()
	for q := range quarter {
		for s := range samplesPerQuarter {
			step := events / len(quarter) / samplesPerQuarter
			w.touch(namespace, pods, (q*samplesPerQuarter+s)*step, step)
			quarter[q] += v.residentMiB(w.t, "VmRSS") / samplesPerQuarter
		}
	}
	growth := quarter[3]/quarter[1] - 1
	w.t.Logf("soak of %d pod events in %.0f s: %.0f, %.0f, %.0f, %.0f MiB by quarter; the last exceeds the second by %.1f %% (bound %.0f %%)",
		events, time.Since(began).Seconds(), quarter[0], quarter[1], quarter[2], quarter[3], 100*growth, 100*soakGrowthMax)
	return growth
}
