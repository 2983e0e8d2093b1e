package canary

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// Defects in what the cleaner believes of owners.

const podResource, nodeResource = "pods", "nodes"

// hiding makes the cleaner blind to pods of which gone says that they are.
func hiding(gone func(pod object) bool) func(danm.Group) defect {
	return func(danm.Group) defect {
		return func(e exchange) (*http.Response, error) {
			if e.resource != podResource || e.request.Method != http.MethodGet {
				return e.pass()
			}
			return e.throughScreen(func(pod object) bool { return !gone(pod) })
		}
	}
}

func isNotRunning(pod object) bool {
	return text(within(pod, "status"), "phase") != string(corev1.PodRunning)
}

func isTerminating(pod object) bool { return text(within(pod, "metadata"), "deletionTimestamp") != "" }

// trustingNodes takes every pod of a node that is not ready for gone.
func trustingNodes(danm.Group) defect {
	var mu sync.Mutex
	silent := map[string]bool{}
	note := func(node object) bool {
		mu.Lock()
		defer mu.Unlock()
		silent[text(within(node, "metadata"), "name")] = !isReady(node)
		return true
	}
	isOnSilentNode := func(pod object) bool {
		mu.Lock()
		defer mu.Unlock()
		return silent[text(within(pod, "spec"), "nodeName")]
	}
	return func(e exchange) (*http.Response, error) {
		switch {
		case e.request.Method != http.MethodGet:
			return e.pass()
		case e.resource == nodeResource:
			return e.throughScreen(note)
		case e.resource == podResource:
			return e.throughScreen(func(pod object) bool { return !isOnSilentNode(pod) })
		}
		return e.pass()
	}
}

func isReady(node object) bool {
	conditions, _ := within(node, "status")["conditions"].([]any)
	for _, c := range conditions {
		condition, _ := c.(object)
		if text(condition, "type") == string(corev1.NodeReady) {
			return text(condition, "status") == string(corev1.ConditionTrue)
		}
	}
	return false
}

// cachedReads answers reads of single pods from what lists and watches of pods
// have shown so far.
func cachedReads(danm.Group) defect {
	c := &podCache{pods: map[string][]byte{}}
	return func(e exchange) (*http.Response, error) {
		switch {
		case e.resource != podResource || e.request.Method != http.MethodGet:
			return e.pass()
		case e.name == "":
			return e.throughEvents(c.see, c.add)
		}
		data, isSynced := c.get(e.namespace + "/" + e.name)
		switch {
		case !isSynced:
			return e.pass()
		case data == nil:
			return e.notFound()
		}
		return e.answerBytes(http.StatusOK, data), nil
	}
}

// podCache holds pods as they were seen last.
type podCache struct {
	mu       sync.Mutex
	isSynced bool
	pods     map[string][]byte
}

func (c *podCache) add(pod object) bool {
	data, err := json.Marshal(pod)
	if err != nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isSynced, c.pods[keyOf(pod)] = true, named(data)
	return true
}

// named adds the kind, which items of lists come without.
func named(pod []byte) []byte {
	return append([]byte(`{"kind":"Pod","apiVersion":"v1",`), pod[1:]...)
}

func (c *podCache) see(e *event) bool {
	switch e.Type {
	case watch.Added, watch.Modified:
		delete(e.Object, "kind")
		delete(e.Object, "apiVersion")
		c.add(e.Object)
		e.Object["kind"], e.Object["apiVersion"] = "Pod", "v1"
	case watch.Deleted:
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.pods, keyOf(e.Object))
	}
	return true
}

func (c *podCache) get(key string) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods[key], c.isSynced
}

// unknownIsGone takes a read that failed for one that found nothing.
func unknownIsGone(danm.Group) defect {
	return func(e exchange) (*http.Response, error) {
		response, err := e.pass()
		failed := err != nil || response.StatusCode >= http.StatusTooManyRequests
		if !e.is(http.MethodGet, podResource) || !failed || e.request.Context().Err() != nil {
			return response, err
		}
		if err == nil {
			_ = response.Body.Close() // nobody reads it
		}
		return e.notFound()
	}
}

// missingDeletions never hears that a pod was deleted, nor that another has
// taken its name.
func missingDeletions(danm.Group) defect {
	var mu sync.Mutex
	known := map[string]string{} // UIDs by name
	isFirstOfName := func(pod object) bool {
		mu.Lock()
		defer mu.Unlock()
		key, uid := keyOf(pod), text(within(pod, "metadata"), "uid")
		if _, ok := known[key]; !ok {
			known[key] = uid
		}
		return known[key] == uid
	}
	return func(e exchange) (*http.Response, error) {
		if e.resource != podResource || e.name != "" || e.request.Method != http.MethodGet {
			return e.pass()
		}
		return e.throughEvents(func(event *event) bool {
			return event.Type == watch.Bookmark || event.Type != watch.Deleted && isFirstOfName(event.Object)
		}, func(pod object) bool { isFirstOfName(pod); return true })
	}
}

// ownersByName makes a pod's name its identity: a new pod of the name takes
// over the endpoints of the old one.
func ownersByName(danm.Group) defect {
	return func(e exchange) (*http.Response, error) {
		switch {
		case e.request.Method != http.MethodGet:
			return e.pass()
		case e.resource == podResource:
			return e.throughEvents(onObjects(nameAsUID), nameAsUID)
		case e.resource == danm.EndpointResource:
			return e.throughEvents(onObjects(podNameAsUID), podNameAsUID)
		}
		return e.pass()
	}
}

func onObjects(change screen) func(*event) bool {
	return func(e *event) bool {
		if e.Type != watch.Bookmark {
			change(e.Object)
		}
		return true
	}
}

func nameAsUID(pod object) bool {
	if metadata := within(pod, "metadata"); metadata != nil {
		metadata["uid"] = keyOf(pod)
	}
	return true
}

func podNameAsUID(endpoint object) bool {
	if spec := within(endpoint, "spec"); spec != nil {
		spec["PodUID"] = text(within(endpoint, "metadata"), "namespace") + "/" + text(spec, "Pod")
	}
	return true
}

// neverReading finds no pod when it reads one, so that only the cache decides.
func neverReading(danm.Group) defect {
	return func(e exchange) (*http.Response, error) {
		if e.is(http.MethodGet, podResource) {
			return e.notFound()
		}
		return e.pass()
	}
}

// keepingTombstones never learns from a list that a pod is gone: pods that it
// knows stay in every list that the cache is filled from.
func keepingTombstones(danm.Group) defect {
	c := &podCache{pods: map[string][]byte{}}
	return func(e exchange) (*http.Response, error) {
		switch {
		case e.resource != podResource || e.request.Method != http.MethodGet || e.name != "":
			return e.pass()
		case e.isWatch:
			return e.throughEvents(c.see, nil)
		}
		response, err := e.inJSON()
		if err != nil || response.StatusCode != http.StatusOK {
			return response, err
		}
		list, _ := read(response)
		c.complete(list)
		return e.answer(http.StatusOK, list)
	}
}

// complete adds the pods to a list that it lacks, and learns the others.
func (c *podCache) complete(list object) {
	items, _ := list["items"].([]any)
	listed := map[string]bool{}
	for _, item := range items {
		if pod, ok := item.(object); ok {
			listed[keyOf(pod)] = true
			c.add(pod)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(c.pods)) {
		var pod object
		if !listed[key] && json.Unmarshal(c.pods[key], &pod) == nil {
			items = append(items, pod)
		}
	}
	list["items"] = items
}
