package canary

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// Config is what every canary needs.
type Config struct {
	REST   *rest.Config
	Group  danm.Group
	Logger logr.Logger
}

// canary is one entry of the registry.
type canary struct {
	defect   string
	scenario string // the shipped scenario that shows it best
	run      func(ctx context.Context, c clients) error
}

func registry() map[string]canary {
	return map[string]canary{
		"by-name":       {"releases by the pod's name, so a new pod of the same name loses its address", "node-shutdown-backlog", runByName},
		"no-quarantine": {"believes its pod list at once, so a pod newer than the list loses its address", "node-shutdown", runNoQuarantine},
	}
}

// Names lists the canaries in a fixed order.
func Names() []string { return slices.Sorted(maps.Keys(registry())) }

// Defect says in one clause what the canary does wrong.
func Defect(name string) string { return registry()[name].defect }

// Scenario names the shipped scenario that shows the defect best.
func Scenario(name string) string { return registry()[name].scenario }

// Validate returns an error that lists the known names if there is no such
// canary.
func Validate(name string) error {
	if _, ok := registry()[name]; !ok {
		return fmt.Errorf("unknown canary %q: use %s", name, strings.Join(Names(), " or "))
	}
	return nil
}

// Run runs the canary until the context ends, which is no error. Everything
// that it started has ended when it returns.
func Run(ctx context.Context, name string, cfg Config) error {
	if err := Validate(name); err != nil {
		return err
	}
	c, err := newClients(cfg)
	if err != nil {
		return fmt.Errorf("canary %s: %w", name, err)
	}
	c.log.Info("canary started", "canary", name, "defect", Defect(name))
	if err := registry()[name].run(ctx, c); err != nil && ctx.Err() == nil {
		return fmt.Errorf("canary %s: %w", name, err)
	}
	return nil
}

// clients is the access that the canaries share.
type clients struct {
	core kubernetes.Interface
	danm *danm.Client
	log  logr.Logger
}

// Client-go's own defaults, which upstream's cleaner runs with. The backlog
// that they cause after a node failure is part of the reported bug.
const (
	upstreamQPS   = 5
	upstreamBurst = 10
)

func newClients(cfg Config) (clients, error) {
	config := rest.CopyConfig(cfg.REST)
	config.QPS, config.Burst, config.RateLimiter = upstreamQPS, upstreamBurst, nil
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return clients{}, fmt.Errorf("building client: %w", err)
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return clients{}, fmt.Errorf("building client: %w", err)
	}
	return clients{core: core, danm: danm.NewClient(dyn, cfg.Group), log: cfg.Logger}, nil
}

// waitFor returns after d, or with the context's error when that ends first.
func waitFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
