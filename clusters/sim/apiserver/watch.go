package apiserver

import (
	"net/http"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Event says what a frame of a watch is about, without its bytes.
type Event struct {
	Type            watch.EventType
	Namespace, Name string
	RV              int64
}

// Frame is an event on its way: as bytes, or without them where the client takes
// the object itself.
type Frame struct {
	Type   watch.EventType
	Object runtime.Object
	Bytes  []byte
}

// event is a frame that has not been delivered.
type event struct {
	Event
	version *version // what the frame shows; nil for bookmarks and errors
	frame   Frame    // of bookmarks and errors
}

// Watch is one open watch. It hands out frames as they go over the wire; when,
// and whether at all, is up to the caller.
type Watch struct {
	server      *Server
	table       *table
	selector    selector
	encoding    encoding
	next        int     // first change of the table that has not been queued
	since       int64   // changes up to this one are not shown
	queue       []event // in the order of delivery
	bookmarks   bool
	isFailing   bool // an error is the last frame
	isClosed    bool
	ContentType string
}

// Watch opens a watch. The response is nil unless the watch is refused.
func (s *Server) Watch(r Request) (*Watch, *Response) {
	c := &call{Server: s, request: r}
	w, err := c.watch()
	if err != nil {
		refused := c.refuse(err)
		return nil, &refused
	}
	return w, nil
}

func (c *call) watch() (*Watch, error) {
	if err := c.prepare(); err != nil {
		return nil, err
	}
	o, err := c.listOptions()
	if err != nil {
		return nil, err
	}
	w := &Watch{
		server: c.Server, table: c.target.table, selector: c.selector(o), encoding: c.encoding, bookmarks: o.AllowWatchBookmarks,
		ContentType: c.encoding.contentType(),
	}
	if c.encoding == inProtobuf {
		w.ContentType += ";stream=watch"
	}
	if c.target.name != "" {
		return nil, notImplemented("a watch of a single object by its path")
	}
	return w, w.begin(c, o)
}

// begin puts the watch where it starts: after a resourceVersion, or at the
// present state, which is then shown first.
func (w *Watch) begin(c *call, o internalversion.ListOptions) error {
	wantsState := o.SendInitialEvents != nil && *o.SendInitialEvents
	skipsState := o.SendInitialEvents != nil && !*o.SendInitialEvents
	if rv, err := parseInt(o.ResourceVersion); err == nil && rv > 0 && !wantsState {
		w.since = rv
		if c.refuseCompacted(rv) != nil {
			w.Expire()
		}
		return nil
	}
	at, err := c.readAt(o.ResourceVersion, "")
	if err != nil {
		return err
	}
	w.since = at
	if skipsState {
		return nil
	}
	items, _ := w.table.page(page{at: at}, w.selector)
	for _, v := range items {
		w.queue = append(w.queue, w.eventOf(watch.Added, v))
	}
	if wantsState {
		w.queue = append(w.queue, w.bookmark(at, map[string]string{metav1.InitialEventsAnnotationKey: "true"}))
	}
	return nil
}

func (w *Watch) eventOf(t watch.EventType, v *version) event {
	return event{Event: Event{Type: t, Namespace: v.object.GetNamespace(), Name: v.object.GetName(), RV: v.rv}, version: v}
}

// pull moves what was committed since the last look into the queue.
func (w *Watch) pull() {
	for ; w.next < len(w.table.changes) && !w.isFailing; w.next++ {
		change := &w.table.changes[w.next]
		if change.rv <= w.since {
			continue
		}
		if e, ok := w.seen(change); ok {
			w.queue = append(w.queue, e)
		}
	}
}

// seen returns what a change looks like from a watch that selects: an object
// that begins to match is added, one that ceases to match is deleted.
func (w *Watch) seen(c *change) (event, bool) {
	did := c.old != nil && w.selector.matches(c.old.object)
	does := c.new != nil && w.selector.matches(c.new.object)
	switch {
	case did && does:
		return w.eventOf(watch.Modified, c.new), true
	case does:
		return w.eventOf(watch.Added, c.new), true
	case did && c.gone != nil:
		return w.eventOf(watch.Deleted, c.gone), true
	case did:
		last := copyForWrite(c.old.object)
		last.SetResourceVersion(strconv.FormatInt(c.rv, 10))
		return w.eventOf(watch.Deleted, &version{rv: c.rv, object: last}), true
	}
	return event{}, false
}

// Pending returns how many frames wait to be delivered.
func (w *Watch) Pending() int {
	if w.isClosed {
		return 0
	}
	w.pull()
	return len(w.queue)
}

// Peek returns what the next frame is about.
func (w *Watch) Peek() (Event, bool) {
	if w.Pending() == 0 {
		return Event{}, false
	}
	return w.queue[0].Event, true
}

// Next takes the next frame, or returns false if nothing waits.
func (w *Watch) Next() (Frame, bool) {
	if w.Pending() == 0 {
		return Frame{}, false
	}
	e := w.queue[0]
	w.queue = w.queue[1:]
	if e.Type == watch.Error {
		w.Close()
	}
	if e.version == nil {
		return e.frame, true
	}
	return w.frame(e.Type, e.version.object, w.table.kind.encodeVersion(e.version, w.encoding)), true
}

func (w *Watch) frame(t watch.EventType, o runtime.Object, encoded []byte) Frame {
	return Frame{t, o, encodeFrame(string(t), encoded, w.encoding)}
}

// Close ends the watch; nothing of it is delivered any more.
func (w *Watch) Close() { w.isClosed, w.queue = true, nil }

// IsClosed tells whether the watch has ended: by Close, or by an error frame.
func (w *Watch) IsClosed() bool { return w.isClosed }

// Skip loses the next frame, which no healthy API server does.
func (w *Watch) Skip() {
	if w.Pending() > 0 {
		w.queue = w.queue[1:]
	}
}

// Coalesce merges all waiting frames of one object into one, at the place of
// the last: deleted and added again, perhaps under another UID, looks like
// modified. It returns how many frames went.
func (w *Watch) Coalesce(namespace, name string) int {
	w.pull()
	first, last, kept := -1, -1, w.queue[:0:0]
	for i, e := range w.queue {
		if e.version != nil && e.Namespace == namespace && e.Name == name {
			last = i
			if first < 0 {
				first = i
			}
		}
	}
	if first == last {
		return 0
	}
	for i, e := range w.queue {
		isOther := e.version == nil || e.Namespace != namespace || e.Name != name
		if !isOther && i == last {
			merged, ok := mergedType(w.queue[first].Type, e.Type)
			if !ok {
				continue
			}
			e.Type, isOther = merged, true
		}
		if isOther {
			kept = append(kept, e)
		}
	}
	gone := len(w.queue) - len(kept)
	w.queue = kept
	return gone
}

// mergedType is what frames from first to last amount to; false is nothing.
func mergedType(first, last watch.EventType) (watch.EventType, bool) {
	wasThere := first != watch.Added
	switch {
	case last == watch.Deleted && !wasThere:
		return "", false
	case last == watch.Deleted:
		return watch.Deleted, true
	case wasThere:
		return watch.Modified, true
	}
	return watch.Added, true
}

// Bookmark queues a bookmark of the latest resourceVersion, if the client
// allows bookmarks. The real server sends one a minute.
func (w *Watch) Bookmark() {
	if !w.bookmarks || w.isClosed || w.isFailing {
		return
	}
	w.pull()
	w.queue = append(w.queue, w.bookmark(w.server.revision, nil))
}

// bookmark is an empty object of the watched kind with a resourceVersion.
func (w *Watch) bookmark(rv int64, annotations map[string]string) event {
	k := w.table.kind
	o := k.emptyObject()
	o.SetResourceVersion(strconv.FormatInt(rv, 10))
	o.SetAnnotations(annotations)
	k.name(o)
	e := event{Event: Event{Type: watch.Bookmark, RV: rv}}
	e.frame = w.frame(watch.Bookmark, o, k.encodeVersion(&version{object: o}, w.encoding))
	return e
}

// Expire makes the next frame a 410, after which the watch has ended: the
// server no longer has what happened since.
func (w *Watch) Expire() {
	w.Fail(http.StatusGone, metav1.StatusReasonExpired, "too old resource version: "+strconv.FormatInt(w.since, 10))
}

// Fail makes the next frame an error with that status. The watch ends with it.
func (w *Watch) Fail(code int32, reason metav1.StatusReason, message string) {
	status := &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}
	frame := w.frame(watch.Error, status, encodeStatus(status, w.encoding))
	w.queue, w.isFailing = []event{{Event: Event{Type: watch.Error}, frame: frame}}, true
}
