package cleaner

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// eventWriter is what a controller needs of client-go's recorders.
type eventWriter interface {
	Eventf(object runtime.Object, eventType, reason, message string, args ...any)
}

// lateEvents starts a broadcaster when the first Event is written. It comes with
// goroutines and with queues for a thousand Events, and where all is well no
// Event is written at all.
type lateEvents struct {
	ctx  context.Context // ends the broadcaster
	core coreAPI

	mu          sync.Mutex
	broadcaster record.EventBroadcaster // nil before the first Event
	recorder    record.EventRecorder
}

// Eventf implements eventWriter.
func (e *lateEvents) Eventf(object runtime.Object, eventType, reason, message string, args ...any) {
	e.start().Eventf(object, eventType, reason, message, args...)
}

func (e *lateEvents) start() record.EventRecorder {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broadcaster == nil {
		e.broadcaster = record.NewBroadcaster(record.WithContext(e.ctx))
		e.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: e.core.CoreV1().Events("")})
		e.recorder = e.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: LeaseName})
	}
	return e.recorder
}

// close ends the broadcaster. No Event may be written after it.
func (e *lateEvents) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broadcaster != nil {
		e.broadcaster.Shutdown()
	}
}
