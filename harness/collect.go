package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/klog/v2"

	"github.com/danm-chaos/danm-chaos/harness/history"
)

// Bounds of what a collector waits for.
const (
	relistsMax       = 100                    // of one collector in a run
	completeTimeout  = 15 * time.Second       // for having seen all that a live list shows
	completeInterval = 200 * time.Millisecond // between those lists
)

// collector records every committed write of one resource. What it may have
// missed it records as a gap.
type collector struct {
	source   source
	recorder history.Recorder
	view     *view

	mu   sync.Mutex
	seen map[types.UID]string // resourceVersion of what exists
	last map[types.UID][]byte // what was recorded last, for resources that repeat themselves
}

func newCollector(s source, recorder history.Recorder, v *view) *collector {
	return &collector{source: s, recorder: recorder, view: v, seen: map[types.UID]string{}, last: map[types.UID][]byte{}}
}

// start lists once and returns, so that everything after it is seen. follow
// goes on from there.
func (c *collector) start(ctx context.Context) (resourceVersion string, err error) {
	objects, resourceVersion, err := c.source.list(ctx)
	if err != nil {
		return "", fmt.Errorf("listing %s: %w", c.source.resource, err)
	}
	c.mu.Lock()
	c.seen = map[types.UID]string{}
	c.mu.Unlock()
	for _, o := range objects {
		if err := c.record(watch.Added, o, true); err != nil {
			return "", err
		}
	}
	c.view.retain(c.source.resource, c.versions())
	return resourceVersion, nil
}

// follow watches until ctx ends. A watch that cannot go on where it was is a
// gap; then it lists again, because waiting steps still need the view.
func (c *collector) follow(ctx context.Context, resourceVersion string) error {
	for range relistsMax {
		reason, err := c.watch(ctx, resourceVersion)
		if ctx.Err() != nil || err != nil {
			return err
		}
		c.recorder.Record(history.Record{Gap: &history.Gap{Source: "watch " + c.source.resource, Reason: reason}})
		if resourceVersion, err = c.start(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("watching %s: %d gaps", c.source.resource, relistsMax)
}

// watch records events until the watch is lost, and says how.
func (c *collector) watch(ctx context.Context, resourceVersion string) (reason string, err error) {
	// The watcher logs every reconnect, which is not news: what it cannot
	// bridge becomes a gap.
	w, err := watchtools.NewRetryWatcherWithContext(klog.NewContext(ctx, logr.Discard()), resourceVersion, c.source.watcher)
	if err != nil {
		return "", fmt.Errorf("watching %s: %w", c.source.resource, err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object).Error(), nil
		}
		if err := c.record(event.Type, event.Object, false); err != nil {
			return "", err
		}
	}
	return "the watch ended", nil
}

func (c *collector) record(event watch.EventType, object runtime.Object, isInitial bool) error {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return fmt.Errorf("reading %s: %w", c.source.resource, err)
	}
	rv, err := strconv.ParseUint(accessor.GetResourceVersion(), 10, 64)
	if err != nil {
		return fmt.Errorf("%s %s: resourceVersion %q is not a number", c.source.resource, accessor.GetName(), accessor.GetResourceVersion())
	}
	text, err := json.Marshal(c.source.trim(object))
	if err != nil {
		return fmt.Errorf("encoding %s %s: %w", c.source.resource, accessor.GetName(), err)
	}
	if c.isNews(event, accessor, text) {
		w := &history.Write{
			RV: rv, Type: history.WriteType(event), Initial: isInitial, Resource: c.source.resource,
			Namespace: accessor.GetNamespace(), Name: accessor.GetName(), UID: string(accessor.GetUID()), Object: text,
		}
		if c.source.owned != nil && event != watch.Deleted {
			w.Managers = owners(accessor.GetManagedFields(), c.source.owned)
		}
		c.recorder.Record(history.Record{Write: w})
	}
	c.view.apply(event, object)
	return nil
}

// isNews notes what was seen and tells whether it is to be recorded.
func (c *collector) isNews(event watch.EventType, object metav1.Object, text []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	uid := object.GetUID()
	if event == watch.Deleted {
		delete(c.seen, uid)
		delete(c.last, uid)
		return true
	}
	c.seen[uid] = object.GetResourceVersion()
	if !c.source.repeats {
		return true
	}
	isNews := !bytes.Equal(c.last[uid], text)
	c.last[uid] = text
	return isNews
}

// versions returns a copy of what exists as far as was seen.
func (c *collector) versions() map[types.UID]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.seen)
}

// awaitComplete waits until everything that a live list shows was seen, and
// records a gap if that takes too long.
func (c *collector) awaitComplete(ctx context.Context) {
	if c.source.repeats {
		return // its objects change all the time, and no verdict depends on them
	}
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	ticker := time.NewTicker(completeInterval)
	defer ticker.Stop()
	for {
		reason := c.missing(ctx)
		if reason == "" {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			c.recorder.Record(history.Record{Gap: &history.Gap{Source: "watch " + c.source.resource, Reason: reason}})
			return
		}
	}
}

// missing compares what was seen with a live list.
func (c *collector) missing(ctx context.Context) string {
	objects, _, err := c.source.list(ctx)
	if err != nil {
		return fmt.Sprintf("the final list failed: %v", err)
	}
	live := map[types.UID]string{}
	for _, o := range objects {
		accessor, err := meta.Accessor(o)
		if err != nil {
			return fmt.Sprintf("the final list failed: %v", err)
		}
		live[accessor.GetUID()] = accessor.GetResourceVersion()
	}
	if maps.Equal(live, c.versions()) {
		return ""
	}
	return "the watch did not show what the final list shows"
}
