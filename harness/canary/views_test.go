package canary

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// createEndpoint makes another endpoint for eth0 past the canary.
func (b bench) createEndpoint(name, podUID string) {
	b.t.Helper()
	spec := object{
		"NetworkName": "net", "NetworkType": "ipvlan", "EndpointID": name, "Pod": "pod", "apiType": "DanmNet",
		"Interface": object{"Name": "eth0", "Address": "10.10.10.11/24"},
	}
	if podUID != "" {
		spec["PodUID"] = podUID
	}
	_, err := b.plain.danm.Endpoints("default").Create(b.t.Context(), &unstructured.Unstructured{Object: object{
		"apiVersion": "danm.io/v1", "kind": "DanmEp", "metadata": object{"name": name}, "spec": spec,
	}}, metav1.CreateOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
}

// ownersSeen lists the owners of all endpoints by their names.
func (b bench) ownersSeen(c clients) map[string]string {
	b.t.Helper()
	eps, err := c.listEndpoints(b.t.Context(), "default")
	if err != nil {
		b.t.Fatal(err)
	}
	owners := map[string]string{}
	for _, ep := range eps {
		owners[ep.Name] = string(ep.Spec.PodUID)
	}
	return owners
}

func TestEmptyUIDIsGoneSeesAnOwnerThatNobodyIs(t *testing.T) {
	b := newBench(t, "empty-uid-is-gone")
	b.createEndpoint("old", "")
	if seen, plain := b.ownersSeen(b.seen), b.ownersSeen(b.plain); seen["old"] != noOwner || seen["ep"] != plain["ep"] || plain["old"] != "" {
		t.Errorf("sees %v of %v", seen, plain)
	}
}

func TestBreakerOffNeverSeesAnEmptyCluster(t *testing.T) {
	b := newBench(t, "breaker-off")
	b.deletePod(0)
	if got := b.listPods(); got != 1 || b.getPod() != nil {
		t.Errorf("lists %d pods, and reads %v", got, b.getPod())
	}
}

func TestOneGroupFindsNothingInTheOther(t *testing.T) {
	change, _ := ChangeOf("one-group", danm.GroupDanmK8sIO)
	b := newBench(t, "one-group")
	blind := b.seenBy(change)
	if got := b.ownersSeen(b.seen); len(got) != 1 {
		t.Errorf("the cleaner of this group sees %v", got)
	}
	if got := b.ownersSeen(blind); len(got) != 0 {
		t.Errorf("the cleaner of the other group sees %v", got)
	}
}

func TestYoungestWinsTakesTheOwnerFromTheOthers(t *testing.T) {
	b := newBench(t, "youngest-wins")
	owner := b.ownersSeen(b.plain)["ep"]
	watch, err := b.seen.danm.Endpoints("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: b.network(b.plain).ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if got := b.ownersSeen(b.seen); got["ep"] != owner {
		t.Errorf("a single endpoint is seen as %v", got)
	}
	b.createEndpoint("young", owner)
	for e := range watch.ResultChan() {
		if e.Type == "ERROR" { // so that it lists again
			break
		}
	}
	if got := b.ownersSeen(b.seen); got["ep"] != noOwner || got["young"] != owner {
		t.Errorf("two are seen as %v", got)
	}
}

func TestMirrorIsNewSeesNoMirrors(t *testing.T) {
	b := newBench(t, "mirror-is-new")
	patch := []byte(`{"metadata":{"annotations":{"kubernetes.io/config.mirror":"hash","kubernetes.io/config.hash":"hash"}}}`)
	if _, err := b.plain.core.CoreV1().Pods("default").Patch(t.Context(), "pod", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := b.getPod().Annotations; got["kubernetes.io/config.mirror"] != "" || got["kubernetes.io/config.hash"] != "hash" {
		t.Errorf("it sees %v", got)
	}
}
