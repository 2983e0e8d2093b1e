package existing

import (
	"context"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Reached is a cluster that was named and may be used.
type Reached struct {
	Config  *rest.Config
	Core    kubernetes.Interface
	Version string // of the API server
}

// Reach opens a cluster for work that tests no cleaner. It refuses what a run
// would for the sake of the cluster: one that was not named, one in production,
// one that does not answer.
func Reach(ctx context.Context, o Options) (Reached, error) {
	if err := o.check(); err != nil {
		return Reached{}, err
	}
	a, err := connect(o)
	if err != nil {
		return Reached{}, err
	}
	version, err := a.serverVersion(ctx)
	if err != nil {
		return Reached{}, err
	}
	if err := a.checkProduction(ctx, o); err != nil {
		return Reached{}, err
	}
	return Reached{Config: a.config, Core: a.core, Version: version.GitVersion}, nil
}
