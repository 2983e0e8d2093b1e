package netplugin

import (
	"fmt"
	"runtime/debug"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
)

// kube is access to the API.
type kube struct {
	danm   *danm.Client
	plugin *danmcni.Plugin
}

// openKube reads the kubeconfig. It does not talk to the API yet.
func openKube(c Config, log logr.Logger) (kube, error) {
	rc, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return kube{}, fmt.Errorf("reading kubeconfig: %w", err)
	}
	// A process that lives for one command needs no limit of its own.
	rc.QPS = -1
	rc.UserAgent = userAgent()
	core, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return kube{}, fmt.Errorf("making a client: %w", err)
	}
	d, err := dynamic.NewForConfig(rc)
	if err != nil {
		return kube{}, fmt.Errorf("making a client: %w", err)
	}
	k := kube{danm: danm.NewClient(d, c.DanmAPI)}
	k.plugin = danmcni.New(danmcni.Config{
		Client: k.danm, Pods: core.CoreV1(), Variant: c.Variant, Host: c.NodeName,
		NewID:    func() string { return string(uuid.NewUUID()) },
		Requests: danm.RequestsInEitherSpelling, Logger: log,
	})
	return k, nil
}

func userAgent() string {
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
	}
	return "danm-cni/" + version
}
