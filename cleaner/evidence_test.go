package cleaner

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

func TestADeletedNodeIsKnownByTheHostThatItHad(t *testing.T) {
	c := testController(t)
	nodes := c.caches.nodes.store
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{corev1.LabelHostname: "host-1"}}}
	before, after := endpointOf("before", "ss-0", "1"), endpointOf("after", "ss-1", "2")
	before.Spec.Host, after.Spec.Host = "host-1", "host-1"
	if err := nodes.Add(node); err != nil {
		t.Fatal(err)
	}
	if got := c.nodeNameOf(before, nil); got != "node-1" {
		t.Errorf("while the node exists: %q", got)
	}
	if err := nodes.Delete(node); err != nil {
		t.Fatal(err)
	}
	if got := c.nodeNameOf(before, nil); got != "node-1" {
		t.Errorf("once it is deleted: %q", got)
	}
	if got := c.nodeNameOf(after, nil); got != "" {
		t.Errorf("a host that never was a node's passes for %q", got)
	}
}

func TestPodsAreReadAsClientGoReadsThem(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.RequestURI+" "+r.Header.Get("Accept"))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
	}))
	defer server.Close()
	client, err := typedClient(Config{}, &rest.Config{Host: server.URL + "/behind/a/proxy"}, "/api", corev1.SchemeGroupVersion)
	if err != nil {
		t.Fatal(err)
	}
	api := typedcorev1.New(client)
	for _, pod := range [][2]string{
		{"ns", "ss-0"}, {"ns", ".."}, {"ns", "../secrets"}, {"ns", "a/b"}, {"ns", "a%2Fb"}, {"ns", "a?b#c"}, {"ns", "a b"}, {"ns", "ü"}, {"", "ss-0"}, {"..", "ss-0"},
	} {
		asked = nil
		_, quick := readPod(t.Context(), api, pod[0], pod[1])
		_, usual := api.Pods(pod[0]).Get(t.Context(), pod[1], metav1.GetOptions{})
		if isGone(quick) != isGone(usual) || quick.Error() != usual.Error() {
			t.Errorf("%q: %v, and client-go: %v", pod, quick, usual)
		}
		if n := len(asked); n%2 != 0 || !slices.Equal(asked[:n/2], asked[n/2:]) {
			t.Errorf("%q: the requests are %q", pod, asked)
		}
	}
}
