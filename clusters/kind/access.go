package kind

import (
	"fmt"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/danm-chaos/danm-chaos/clusters"
)

// Groups that users are impersonated with. mastersGroup may do everything.
const (
	mastersGroup = "system:masters"
	nodesGroup   = "system:nodes"
)

// RESTConfig implements clusters.Cluster. The cluster knows one administrator,
// who impersonates the others; the audit log names them as the writer.
func (c *Cluster) RESTConfig(user string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("getting access: %w", err)
	}
	groups, err := groupsOf(user)
	if err != nil {
		return nil, err
	}
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	if user == clusters.UserHarness {
		config.QPS = -1 // the harness must not be what is slow
	}
	return config, nil
}

func groupsOf(user string) ([]string, error) {
	if node, isNode := strings.CutPrefix(user, clusters.UserNodePrefix); isNode && node != "" {
		return []string{nodesGroup, mastersGroup}, nil
	}
	if user == clusters.UserHarness || user == clusters.UserCleaner {
		return []string{mastersGroup}, nil
	}
	return nil, fmt.Errorf("getting access: unknown user %q", user)
}
