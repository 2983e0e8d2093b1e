package existing

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// access is what it takes to talk to the cluster.
type access struct {
	config  *rest.Config
	core    kubernetes.Interface
	danm    *danm.Client
	dynamic dynamic.Interface
	finder  discovery.DiscoveryInterface
	names   []string // by which people know the cluster: context, cluster, server
}

// connect reads the kubeconfig, and no other, and asks the cluster nothing yet.
func connect(o Options) (access, error) {
	var a access
	path, err := filepath.Abs(o.Kubeconfig)
	if err != nil {
		return a, fmt.Errorf("finding the kubeconfig: %w", err)
	}
	if _, err := os.Stat(path); err != nil {
		return a, Refuse(fmt.Sprintf("--kubeconfig %s cannot be read: %v", o.Kubeconfig, err))
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: path}, &clientcmd.ConfigOverrides{CurrentContext: o.Context})
	raw, err := loader.RawConfig()
	if err != nil {
		return a, Refuse(fmt.Sprintf("--kubeconfig %s cannot be read: %v", o.Kubeconfig, err))
	}
	named := raw.Contexts[o.Context]
	if named == nil {
		return a, Refuse(fmt.Sprintf("--context %s is not in %s", o.Context, o.Kubeconfig))
	}
	if a.config, err = loader.ClientConfig(); err != nil {
		return a, Refuse(fmt.Sprintf("--context %s of %s cannot be used: %v", o.Context, o.Kubeconfig, err))
	}
	a.names = []string{o.Context, named.Cluster, a.config.Host}
	return a, a.makeClients(o.Group)
}

func (a *access) makeClients(group danm.Group) error {
	config := rest.CopyConfig(a.config)
	config.QPS = -1 // we wait for answers, one after the other
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if a.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	a.core, a.finder, a.danm = core, core.Discovery(), danm.NewClient(a.dynamic, group)
	return nil
}

// checkProduction refuses a cluster that is marked, or named, as one that
// people depend on.
func (a access) checkProduction(ctx context.Context, o Options) error {
	if o.Production != nil {
		for _, name := range a.names {
			if o.Production.MatchString(name) {
				return Refuse(fmt.Sprintf("%q looks like production (--production-pattern %s)", name, o.Production))
			}
		}
	}
	ns, err := a.core.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return nil // the missing right is reported with the others
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading namespace %s: %w", metav1.NamespaceSystem, err)
	}
	if mark, ok := ns.Annotations[ProductionAnnotation]; ok && mark != "false" {
		return Refuse(fmt.Sprintf("the cluster is marked as production: namespace %s has annotation %s", ns.Name, ProductionAnnotation))
	}
	return nil
}
