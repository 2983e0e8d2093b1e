package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/danm-chaos/danm-chaos/cleaner"
	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters/sim/apiserver"
)

// newServer returns a server whose UIDs count up.
func newServer(t *testing.T, options apiserver.Options) *apiserver.Server {
	t.Helper()
	count := 0
	options.Now = time.Now
	options.NewUID = func() types.UID { count++; return types.UID(fmt.Sprintf("uid-%d", count)) }
	s, err := apiserver.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// world is a server with one network and the clients to change it by.
type world struct {
	direct *apiserver.Direct
	core   kubernetes.Interface
	danm   *danm.Client
}

func newWorld(t *testing.T, options apiserver.Options) world {
	t.Helper()
	options.Groups = danm.Groups()[:1]
	w := world{direct: apiserver.NewDirect(newServer(t, options))}
	config := w.direct.RESTConfig("tester")
	var err error
	if w.core, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w.danm = danm.NewClient(dyn, danm.GroupDanmIO)
	return w
}

func (w world) createEndpoint(t *testing.T, name string, pod *corev1.Pod, address string) {
	t.Helper()
	object := map[string]any{
		"apiVersion": "danm.io/v1", "kind": "DanmEp", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"NetworkName": "net", "NetworkType": "ipvlan", "EndpointID": name, "Pod": pod.Name, "PodUID": string(pod.UID), "Host": "n1",
			"apiType": "DanmNet", "Interface": map[string]any{"Name": "eth0", "Address": address},
		},
	}
	if _, err := w.danm.Endpoints("default").Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (w world) createNetwork(t *testing.T, alloc string) {
	t.Helper()
	object := map[string]any{
		"apiVersion": "danm.io/v1", "kind": "DanmNet", "metadata": map[string]any{"name": "net"},
		"spec": map[string]any{"NetworkID": "net", "Options": map[string]any{"cidr": "10.10.10.0/24", "alloc": alloc}},
	}
	if _, err := w.danm.Networks(danm.DanmNet, "default").Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (w world) createPod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	made, err := w.core.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// withTen has bits 0, 10 and 255.
const withTen = "gCAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE="

func TestTheShippedCleanerReleasesOverIt(t *testing.T) {
	for _, watchList := range []bool{false, true} {
		t.Run(fmt.Sprintf("watchList=%v", watchList), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { releaseOnce(t, apiserver.Options{WatchList: watchList}) })
		})
	}
}

// newDeadAndAlive is a world of a pod that is about to die and one that is not.
func newDeadAndAlive(t *testing.T, options apiserver.Options) world {
	t.Helper()
	w := newWorld(t, options)
	w.createNetwork(t, withTen)
	dead, alive := w.createPod(t, "dead"), w.createPod(t, "alive")
	w.createEndpoint(t, "ep-dead", dead, "10.10.10.10/24")
	w.createEndpoint(t, "ep-alive", alive, "10.10.10.11/24")
	return w
}

// A cleaner that is asked to end between endpoint and bit ends after the bit.
func TestTheShippedCleanerFinishesAReleaseBeforeItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDeadAndAlive(t, apiserver.Options{})
		ctx, stop := context.WithCancel(t.Context())
		access := w.direct.RESTConfig("danm-cleaner")
		access.Wrap(func(next http.RoundTripper) http.RoundTripper { return afterDelete{next, stop} })
		ended := make(chan error, 1)
		config := cleaner.Config{REST: access, ReleaseQuarantine: 10 * time.Second, OrphanQuarantine: time.Hour}
		go func() { ended <- cleaner.Run(ctx, config) }()
		time.Sleep(time.Minute)
		now := int64(0)
		if err := w.core.CoreV1().Pods("default").Delete(t.Context(), "dead", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if ctx.Err() == nil {
			t.Fatal("it ended without having been asked to")
		}
		w.wantReleased(t)
	})
}

// afterDelete calls f when an endpoint has been deleted, before the answer
// arrives.
type afterDelete struct {
	http.RoundTripper
	f func()
}

func (a afterDelete) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := a.RoundTripper.RoundTrip(r)
	if r.Method == http.MethodDelete {
		a.f()
	}
	return response, err
}

func releaseOnce(t *testing.T, options apiserver.Options) {
	w := newDeadAndAlive(t, options)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	config := cleaner.Config{REST: w.direct.RESTConfig("danm-cleaner"), LeaderElect: true, Identity: "a", ReleaseQuarantine: 10 * time.Second, OrphanQuarantine: time.Minute}
	go func() { ended <- cleaner.Run(ctx, config) }()
	time.Sleep(time.Minute)
	now := int64(0)
	if err := w.core.CoreV1().Pods("default").Delete(t.Context(), "dead", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Minute)
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	w.wantReleased(t)
}

func (w world) wantReleased(t *testing.T) {
	t.Helper()
	if _, err := w.danm.GetEndpoint(t.Context(), "default", "ep-dead"); err == nil {
		t.Error("the endpoint of the dead pod is still there")
	}
	if _, err := w.danm.GetEndpoint(t.Context(), "default", "ep-alive"); err != nil {
		t.Errorf("the endpoint of the living pod: %v", err)
	}
	network, err := w.danm.GetNetwork(t.Context(), danm.NetworkRef{Kind: danm.DanmNet, Namespace: "default", Name: "net"})
	if err != nil {
		t.Fatal(err)
	}
	// The living pod's bit was clear and is set by repair: bit 11.
	if want := "gBAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE="; network.Spec.Options.Alloc != want {
		t.Errorf("alloc is %s, want %s", network.Spec.Options.Alloc, want)
	}
}
