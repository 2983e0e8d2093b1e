package cleaner

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
