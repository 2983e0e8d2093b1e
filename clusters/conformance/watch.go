package conformance

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

func watchChecks() []Check {
	return []Check{
		{"a watch shows every change since its version, in order", watchShowsChanges},
		{"a watch without version begins with what is there", watchBeginsWithState},
		{"a watch may begin with what is there, up to a bookmark, or is told that it may not", watchListEndsInBookmark},
		{"a watch gets a bookmark before it times out, and then ends", watchGetsBookmark},
		{"a watch from a version that is no longer known expires", oldWatchExpires},
		{"a selecting watch adds what begins to match and deletes what ceases to", selectingWatch},
		{"a watch by the node shows a pod when it is bound", watchByNode},
		{"a name that is taken again is deleted and added", recreationIsTwoEvents},
		{"watches in JSON and protobuf say the same", watchEncodingsAgree},
		{"a watch of one namespace shows nothing of others", watchOfOneNamespace},
		{"an informer sees what a list says", informerAgrees},
		{"options that contradict each other are refused", contradictionsAreRefused},
	}
}

// seen is one event of a watch.
type seen struct {
	k      *kit
	event  watch.EventType
	object metav1.Object
}

func (s seen) rv() int64 { return s.k.version(s.object.GetResourceVersion()) }

func (s seen) describe() string { return string(s.event) + " " + s.object.GetName() }

// watching is an open watch.
type watching struct {
	k      *kit
	source watch.Interface
}

func (k *kit) watchPods(o metav1.ListOptions) watching {
	k.t.Helper()
	source, err := k.core.CoreV1().Pods(k.namespace).Watch(k.ctx(), o)
	k.must(err)
	return watching{k, source}
}

func (k *kit) watchNetworks(o metav1.ListOptions) watching {
	k.t.Helper()
	source, err := k.networks().Watch(k.ctx(), o)
	k.must(err)
	return watching{k, source}
}

func (w watching) stop() { w.source.Stop() }

// next waits for an event.
func (w watching) next() seen {
	w.k.t.Helper()
	e, ok := w.receive()
	if !ok {
		w.k.t.Fatalf("the watch ended")
	}
	o, isObject := e.Object.(metav1.Object)
	if !isObject {
		w.k.t.Fatalf("got %s with %v", e.Type, e.Object)
	}
	return seen{w.k, e.Type, o}
}

func (w watching) receive() (watch.Event, bool) {
	w.k.t.Helper()
	select {
	case e, ok := <-w.source.ResultChan():
		return e, ok
	case <-w.k.ctx().Done():
		w.k.t.Fatalf("nothing came")
	}
	return watch.Event{}, false
}

// wantEvents expects events as describe has them.
func (w watching) wantEvents(want ...string) []seen {
	w.k.t.Helper()
	var all []seen
	var got []string
	for range want {
		s := w.next()
		all, got = append(all, s), append(got, s.describe())
	}
	if g, w2 := strings.Join(got, ", "), strings.Join(want, ", "); g != w2 {
		w.k.t.Fatalf("saw %s, want %s", g, w2)
	}
	return all
}

func watchShowsChanges(t T, k *kit) {
	k.createNetwork("before", nil)
	list, err := k.networks().List(k.ctx(), metav1.ListOptions{})
	k.must(err)
	w := k.watchNetworks(metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	defer w.stop()
	made := k.createNetwork("a", nil)
	changed := k.touch("a", "gQAAAA==")
	k.must(k.networks().Delete(k.ctx(), "a", metav1.DeleteOptions{}))
	events := w.wantEvents("ADDED a", "MODIFIED a", "DELETED a")
	if events[0].object.GetUID() != made.GetUID() || events[1].rv() != k.version(changed.GetResourceVersion()) {
		t.Errorf("saw %v and %v", events[0].object, events[1].object)
	}
	if events[2].rv() <= events[1].rv() || events[2].object.GetUID() != made.GetUID() {
		t.Errorf("deleted at %d, changed at %d", events[2].rv(), events[1].rv())
	}
}

func watchBeginsWithState(_ T, k *kit) {
	k.createNetwork("b", nil)
	k.createNetwork("a", nil)
	for rv, alloc := range map[string]string{"": "gQAAAA==", "0": "gIAAAA=="} {
		w := k.watchNetworks(metav1.ListOptions{ResourceVersion: rv})
		names := map[string]bool{}
		for range 2 {
			s := w.next()
			if s.event != watch.Added {
				k.t.Errorf("saw %s", s.describe())
			}
			names[s.object.GetName()] = true
		}
		if !names["a"] || !names["b"] {
			k.t.Errorf("began with %v", names)
		}
		k.touch("a", alloc)
		w.wantEvents("MODIFIED a")
		w.stop()
	}
}

func watchListEndsInBookmark(t T, k *kit) {
	k.createNetwork("a", nil)
	yes := true
	w, err := k.networks().Watch(k.ctx(), metav1.ListOptions{
		SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if apierrors.IsInvalid(err) {
		return // the client lists instead
	}
	k.must(err)
	events := watching{k, w}
	defer events.stop()
	events.wantEvents("ADDED a")
	bookmark := events.next()
	if bookmark.event != watch.Bookmark || bookmark.object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" || bookmark.rv() == 0 {
		t.Errorf("saw %s with %v", bookmark.event, bookmark.object)
	}
	k.touch("a", "gQAAAA==")
	events.wantEvents("MODIFIED a")
}

func watchGetsBookmark(t T, k *kit) {
	made := k.createNetwork("a", nil)
	seconds := int64(5)
	w := k.watchNetworks(metav1.ListOptions{ResourceVersion: made.GetResourceVersion(), AllowWatchBookmarks: true, TimeoutSeconds: &seconds})
	defer w.stop()
	began, bookmarks := time.Now(), 0
	for {
		e, ok := w.receive()
		if !ok {
			break
		}
		if e.Type != watch.Bookmark {
			t.Fatalf("saw %s", e.Type)
		}
		bookmarks++
		if rv := k.version(e.Object.(metav1.Object).GetResourceVersion()); rv < k.version(made.GetResourceVersion()) {
			t.Errorf("a bookmark of %d, the watch began at %s", rv, made.GetResourceVersion())
		}
	}
	if took := time.Since(began); bookmarks == 0 || took < time.Second {
		t.Errorf("%d bookmarks in %s", bookmarks, took)
	}
}

func oldWatchExpires(t T, k *kit) {
	k.createNetwork("a", nil)
	if c, ok := k.cluster.(Compactor); ok {
		c.Compact()
	}
	w, err := k.networks().Watch(k.ctx(), metav1.ListOptions{ResourceVersion: "1"})
	if err == nil {
		events := watching{k, w}
		defer events.stop()
		e, ok := events.receive()
		if !ok || e.Type != watch.Error {
			t.Fatalf("saw %s", e.Type)
		}
		err = apierrors.FromObject(e.Object)
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("got %v", err)
	}
}

func selectingWatch(_ T, k *kit) {
	made := k.createNetwork("a", map[string]string{"x": "1"})
	w := k.watchNetworks(metav1.ListOptions{ResourceVersion: made.GetResourceVersion(), LabelSelector: "x=2"})
	defer w.stop()
	for _, patch := range []string{`{"metadata":{"labels":{"x":"2"}}}`, `{"spec":{"Options":{"alloc":"gQAAAA=="}}}`, `{"metadata":{"labels":{"x":"1"}}}`} {
		_, err := k.patchNetwork(types.MergePatchType, patch)
		k.must(err)
	}
	k.must(k.networks().Delete(k.ctx(), "a", metav1.DeleteOptions{}))
	k.createNetwork("b", map[string]string{"x": "2"})
	events := w.wantEvents("ADDED a", "MODIFIED a", "DELETED a", "ADDED b")
	if labels := events[2].object.GetLabels(); labels["x"] != "2" {
		k.t.Errorf("what ceased to match is shown with labels %v", labels)
	}
}

func watchByNode(_ T, k *kit) {
	pod := k.createPod("a", "")
	w := k.watchPods(metav1.ListOptions{ResourceVersion: pod.ResourceVersion, FieldSelector: "spec.nodeName=n1"})
	defer w.stop()
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
	k.must(k.core.CoreV1().Pods(k.namespace).Bind(k.ctx(), binding, metav1.CreateOptions{}))
	w.wantEvents("ADDED a")
}

func recreationIsTwoEvents(t T, k *kit) {
	first := k.createNetwork("a", nil)
	w := k.watchNetworks(metav1.ListOptions{ResourceVersion: first.GetResourceVersion()})
	defer w.stop()
	k.must(k.networks().Delete(k.ctx(), "a", metav1.DeleteOptions{}))
	second := k.createNetwork("a", nil)
	events := w.wantEvents("DELETED a", "ADDED a")
	if events[0].object.GetUID() != first.GetUID() || events[1].object.GetUID() != second.GetUID() {
		t.Errorf("UIDs %s and %s", events[0].object.GetUID(), events[1].object.GetUID())
	}
}

func watchEncodingsAgree(t T, k *kit) {
	jsonClient, err := kubernetes.NewForConfig(withContentType(k.config, contentJSON))
	k.must(err)
	pod := k.createPod("a", "")
	w := k.watchPods(metav1.ListOptions{ResourceVersion: pod.ResourceVersion})
	defer w.stop()
	source, err := jsonClient.CoreV1().Pods(k.namespace).Watch(k.ctx(), metav1.ListOptions{ResourceVersion: pod.ResourceVersion})
	k.must(err)
	other := watching{k, source}
	defer other.stop()
	k.must(k.core.CoreV1().Pods(k.namespace).Delete(k.ctx(), "a", metav1.DeleteOptions{}))
	for {
		left, right := w.next(), other.next()
		if left.describe() != right.describe() || left.rv() != right.rv() || left.object.GetUID() != pod.UID || right.object.GetUID() != pod.UID {
			t.Fatalf("saw %s at %d and %s at %d", left.describe(), left.rv(), right.describe(), right.rv())
		}
		if left.event == watch.Deleted {
			return
		}
	}
}

func watchOfOneNamespace(_ T, k *kit) {
	made := k.createConfigMap("a", nil)
	source, err := k.core.CoreV1().ConfigMaps(k.namespace).Watch(k.ctx(), metav1.ListOptions{ResourceVersion: made.ResourceVersion, FieldSelector: "metadata.name!=kube-root-ca.crt"})
	k.must(err)
	w := watching{k, source}
	defer w.stop()
	elsewhere := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "conformance-"}}
	other, err := k.core.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(k.ctx(), elsewhere, metav1.CreateOptions{})
	k.must(err)
	k.must(k.core.CoreV1().ConfigMaps(metav1.NamespaceDefault).Delete(k.ctx(), other.Name, metav1.DeleteOptions{}))
	k.createConfigMap("b", nil)
	w.wantEvents("ADDED b")
}

func informerAgrees(t T, k *kit) {
	k.createPod("a", "")
	k.createPod("b", "")
	factory := informers.NewSharedInformerFactoryWithOptions(k.core, 0, informers.WithNamespace(k.namespace))
	pods := factory.Core().V1().Pods()
	store := pods.Informer().GetStore()
	stop := make(chan struct{})
	factory.Start(stop)
	defer factory.Shutdown()
	defer close(stop)
	k.createPod("c", "")
	k.must(k.core.CoreV1().Pods(k.namespace).Delete(k.ctx(), "a", metav1.DeleteOptions{}))
	k.await("the informer", func() bool {
		_, hasA, _ := store.GetByKey(k.namespace + "/a")
		_, hasC, _ := store.GetByKey(k.namespace + "/c")
		return hasC && !hasA && pods.Informer().HasSynced()
	})
	if n := len(store.List()); n != 2 {
		t.Errorf("%d pods", n)
	}
}

func contradictionsAreRefused(_ T, k *kit) {
	yes := true
	_, err := k.networks().Watch(k.ctx(), metav1.ListOptions{SendInitialEvents: &yes})
	k.wantReason(err, metav1.StatusReasonInvalid, 422)
	_, err = k.networks().List(k.ctx(), metav1.ListOptions{ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	k.wantReason(err, metav1.StatusReasonInvalid, 422)
	_, err = k.networks().List(k.ctx(), metav1.ListOptions{ResourceVersion: "0", ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	k.wantReason(err, metav1.StatusReasonInvalid, 422)
}
