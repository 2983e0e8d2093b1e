package sim

import (
	"runtime"
	"sync"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// Isolate prepares a process for simulations and makes it useless for anything
// else. Kubernetes' libraries keep an error handler that sleeps by a clock of
// its own, which would carry time from one bubble into the next, and a log that
// writes to the standard error.
//
// Nobody reads a profile of the memory, which costs a hundredth of the time.
func Isolate() {
	runtime.MemProfileRate = 0
	utilruntime.ErrorHandlers = nil
	klog.SetLogger(logr.Discard())
	raiseStacks()
}

// Goroutines that hold deep stacks for good. What they hold together is what the
// hundreds of goroutines of a world would need on average.
const (
	deepStacks   = 4
	deepStackKiB = 600
)

var raiseStacks = sync.OnceFunc(func() {
	var deep sync.WaitGroup
	deep.Add(deepStacks)
	for range deepStacks {
		go holdStack(deepStackKiB, deep.Done)
	}
	deep.Wait()
	runtime.GC()
})

// holdStack goes down so many KiB, says so and stays there for ever.
//
// The runtime lets goroutines begin with a stack of the size that stacks have on
// average when garbage is collected. Most of a world's goroutines wait high up in
// theirs then, and so each new one, of which a simulation has hundreds, would
// begin with too little and be moved to a larger one twice or three times: an
// eighth of all time. Deep stacks raise the average.
//
//go:noinline
func holdStack(kib int, isThere func()) byte {
	var frame [1 << 10]byte
	if kib > 0 {
		frame[kib] = holdStack(kib-1, isThere)
		return frame[0]
	}
	isThere()
	select {}
}
