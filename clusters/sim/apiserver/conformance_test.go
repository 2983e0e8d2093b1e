package apiserver_test

import (
	"testing"

	"k8s.io/client-go/rest"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters/conformance"
	"github.com/danm-chaos/danm-chaos/clusters/sim/apiserver"
)

// cluster is a server on its own, whose controllers the suite moves.
type cluster struct{ *apiserver.Direct }

func (c cluster) RESTConfig(user string) (*rest.Config, error) { return c.Direct.RESTConfig(user), nil }

func (c cluster) StepControllers() {
	c.Use(func(s *apiserver.Server) {
		s.CollectGarbage("system:kube-controller-manager")
		s.DrainNamespaces("system:kube-controller-manager")
	})
}

func (c cluster) Compact() {
	c.Use(func(s *apiserver.Server) { s.Compact(s.ResourceVersion()) })
}

func newCluster(t *testing.T, watchList bool) cluster {
	t.Helper()
	return cluster{apiserver.NewDirect(newServer(t, apiserver.Options{Groups: danm.Groups(), WatchList: watchList}))}
}

func TestItPassesTheSuiteOfAllClusters(t *testing.T) {
	conformance.Run(t, newCluster(t, false))
}

func TestItPassesTheSuiteWithWatchList(t *testing.T) {
	conformance.Run(t, newCluster(t, true))
}
