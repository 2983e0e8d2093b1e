package danmcni

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni/internal/memoryapi"
)

type object = memoryapi.Object

// memoryAPI is an API with the objects that the tests use.
type memoryAPI struct{ *memoryapi.API }

func newMemoryAPI() *memoryAPI { return &memoryAPI{memoryapi.New()} }

const (
	netPath = "/apis/danm.io/v1/namespaces/ns/danmnets/net"
	podPath = "/api/v1/namespaces/ns/pods/web-0"
	epsPath = "/apis/danm.io/v1/namespaces/ns/danmeps"
)

func (a *memoryAPI) addPod(annotation string) {
	a.Store(podPath, object{
		"kind": "Pod", "apiVersion": "v1",
		"metadata": object{
			"name": "web-0", "namespace": "ns", "uid": "pod-uid",
			"labels":      object{"app": "web"},
			"annotations": object{"danm.io/interfaces": annotation},
		},
	})
}

// addNetwork makes DanmNet ns/net. It has a field that nobody here knows.
func (a *memoryAPI) addNetwork(options object) {
	a.Store(netPath, object{
		"kind": "DanmNet", "apiVersion": "danm.io/v1",
		"metadata": object{"name": "net", "namespace": "ns", "uid": "net-uid"},
		"spec":     object{"NetworkID": "net", "Future": object{"x": int64(1)}, "Options": options},
	})
}

// setOptions changes the network behind the plugin's back.
func (a *memoryAPI) setOptions(key, value string) {
	o := memoryapi.Clone(a.Objects[netPath])
	o["spec"].(object)["Options"].(object)[key] = value
	a.Store(netPath, o)
}

func (a *memoryAPI) option(keys ...string) any {
	var value any = a.Objects[netPath]["spec"].(object)["Options"]
	for _, key := range keys {
		value = value.(object)[key]
	}
	return value
}

func (a *memoryAPI) endpointNames() []string {
	var names []string
	for key := range a.Objects {
		if strings.HasPrefix(key, epsPath) {
			names = append(names, path.Base(key))
		}
	}
	slices.Sort(names)
	return names
}

func (a *memoryAPI) plugin(t *testing.T, change func(*Config)) *Plugin {
	t.Helper()
	rc := &rest.Config{Host: "http://memory.invalid", Transport: a, QPS: -1}
	core, err := kubernetes.NewForConfig(rc)
	if err != nil {
		t.Fatal(err)
	}
	d, err := dynamic.NewForConfig(rc)
	if err != nil {
		t.Fatal(err)
	}
	ids := 0
	cfg := Config{
		Client: danm.NewClient(d, danm.GroupDanmIO), Pods: core.CoreV1(), Host: "node-a",
		NewID: func() string { ids++; return fmt.Sprintf("id-%d", ids) },
	}
	if change != nil {
		change(&cfg)
	}
	return New(cfg)
}
