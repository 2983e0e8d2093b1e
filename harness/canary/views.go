package canary

import (
	"net/http"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// Defects in what the cleaner makes of a world that is out of the ordinary.

// noOwner is a UID that no pod has.
const noOwner = "00000000-dead-4000-8000-000000000000"

// emptyUIDIsGone compares the UID of an endpoint that has none like any other.
func emptyUIDIsGone(danm.Group) defect {
	compared := func(endpoint object) bool {
		if spec := within(endpoint, "spec"); spec != nil && text(spec, "PodUID") == "" {
			spec["PodUID"] = noOwner
		}
		return true
	}
	return func(e exchange) (*http.Response, error) {
		if e.resource != danm.EndpointResource || e.request.Method != http.MethodGet {
			return e.pass()
		}
		return e.throughEvents(onObjects(compared), compared)
	}
}

// mirrorIsNew does not see that a pod is the mirror of a static one.
func mirrorIsNew(danm.Group) defect {
	plain := func(pod object) bool {
		delete(within(pod, "metadata", "annotations"), corev1.MirrorPodAnnotationKey)
		return true
	}
	return func(e exchange) (*http.Response, error) {
		if e.resource != podResource || e.request.Method != http.MethodGet {
			return e.pass()
		}
		return e.throughEvents(onObjects(plain), plain)
	}
}

// seeingPhantom sees a pod in every list, so that there never seem to be none.
func seeingPhantom(danm.Group) defect {
	phantom := object{"metadata": object{"namespace": "kube-system", "name": "phantom", "uid": noOwner, "resourceVersion": "1"}}
	return func(e exchange) (*http.Response, error) {
		if e.resource != podResource || e.name != "" || e.isWatch || e.request.Method != http.MethodGet {
			return e.pass()
		}
		response, err := e.inJSON()
		if err != nil || response.StatusCode != http.StatusOK {
			return response, err
		}
		list, _ := read(response)
		items, _ := list["items"].([]any)
		list["items"] = append(items, phantom)
		return e.answer(http.StatusOK, list)
	}
}

// blindToReservedIPs finds no address that is set aside.
func blindToReservedIPs(danm.Group) defect {
	return func(e exchange) (*http.Response, error) {
		if e.resource != danm.ReservedIPResource || e.request.Method != http.MethodGet {
			return e.pass()
		}
		return e.throughScreen(func(object) bool { return false })
	}
}

// blindToOtherGroup finds nothing in the API group that it does not work on.
func blindToOtherGroup(g danm.Group) defect {
	return func(e exchange) (*http.Response, error) {
		isOther := strings.HasPrefix(e.request.URL.Path, "/apis/"+string(g.Other())+"/")
		if !isOther || e.resource == "" || e.request.Method != http.MethodGet {
			return e.pass()
		}
		return e.throughScreen(func(object) bool { return false })
	}
}

// youngestWins takes all endpoints of a pod's interface but the youngest for
// leftovers of earlier sandboxes.
func youngestWins(danm.Group) defect {
	s := &seniority{youngest: map[string]object{}}
	return func(e exchange) (*http.Response, error) {
		if e.resource != danm.EndpointResource || e.name != "" || e.request.Method != http.MethodGet {
			return e.pass()
		}
		if e.isWatch {
			return e.throughEvents(s.hear, nil)
		}
		response, err := e.inJSON()
		if err != nil || response.StatusCode != http.StatusOK {
			return response, err
		}
		list, _ := read(response)
		s.judge(list)
		return e.answer(http.StatusOK, list)
	}
}

// seniority knows the youngest endpoint of every interface.
type seniority struct {
	mu       sync.Mutex
	youngest map[string]object
}

// interfaceOf names the interface of a pod that an endpoint is for.
func interfaceOf(endpoint object) string {
	spec := within(endpoint, "spec")
	return text(spec, "PodUID") + "/" + text(within(spec, "Interface"), "Name")
}

// note keeps the endpoint if it is the youngest of its interface. It tells whether
// it is not, and whether it took the place of another.
func (s *seniority) note(endpoint object) (isOld, hasOlder bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, metadata := interfaceOf(endpoint), within(endpoint, "metadata")
	known := s.youngest[key]
	switch {
	case known == nil:
		s.youngest[key] = metadata
		return false, false
	case known["name"] == metadata["name"]:
		return false, false
	case !isYounger(metadata, known):
		return true, false
	}
	s.youngest[key] = metadata
	return false, true
}

// isYounger tells which of two objects was created later.
func isYounger(a, b object) bool {
	if at, bt := text(a, "creationTimestamp"), text(b, "creationTimestamp"); at != bt {
		return at > bt
	}
	return text(a, "uid") > text(b, "uid")
}

// hear asks for a new list when an endpoint turns out to have an older sibling:
// that one has to be seen with other eyes now.
func (s *seniority) hear(e *event) bool {
	if e.Type != watch.Added && e.Type != watch.Modified {
		return true
	}
	isOld, hasOlder := s.note(e.Object)
	switch {
	case isOld:
		within(e.Object, "spec")["PodUID"] = noOwner
	case hasOlder:
		e.Type, e.Object = watch.Error, object{
			"kind": "Status", "apiVersion": "v1", "status": metav1.StatusFailure,
			"code": http.StatusGone, "reason": string(metav1.StatusReasonExpired), "message": "list again",
		}
	}
	return true
}

// judge takes the owner from all endpoints of a list that have a younger sibling.
func (s *seniority) judge(list object) {
	items, _ := list["items"].([]any)
	sorted := slices.Clone(items)
	slices.SortFunc(sorted, func(a, b any) int {
		if isYounger(within(a.(object), "metadata"), within(b.(object), "metadata")) {
			return -1
		}
		return 1
	})
	for _, item := range sorted {
		if endpoint := item.(object); s.isOld(endpoint) {
			within(endpoint, "spec")["PodUID"] = noOwner
		}
	}
}

func (s *seniority) isOld(endpoint object) bool {
	isOld, _ := s.note(endpoint)
	return isOld
}
