package sim

import (
	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// Isolate prepares a process for simulations and makes it useless for anything
// else. Kubernetes' libraries keep an error handler that sleeps by a clock of
// its own, which would carry time from one bubble into the next, and a log that
// writes to the standard error.
func Isolate() {
	utilruntime.ErrorHandlers = nil
	klog.SetLogger(logr.Discard())
}
