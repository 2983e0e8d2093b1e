package cleaner

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

func TestEventsAreWrittenThoughTheirBroadcasterIsMadeLate(t *testing.T) {
	written := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		written <- r.Method + " " + r.URL.Path
		w.WriteHeader(http.StatusForbidden) // or it would be tried again
	}))
	defer server.Close()
	core, err := typedClient(Config{}, &rest.Config{Host: server.URL}, "/api", corev1.SchemeGroupVersion)
	if err != nil {
		t.Fatal(err)
	}
	events := &lateEvents{ctx: t.Context(), core: coreClients{core: typedcorev1.New(core)}}
	defer events.close()
	if events.broadcaster != nil {
		t.Error("there is a broadcaster before the first Event")
	}
	reference := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "ns", Name: "ss-0"}
	events.Eventf(reference, corev1.EventTypeWarning, "Reason", "message of %s", "an Event")
	select {
	case got := <-written:
		if want := "POST /api/v1/namespaces/ns/events"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	case <-time.After(10 * time.Second):
		t.Error("no Event was written")
	}
}
