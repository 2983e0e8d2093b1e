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
	breaks   string // the invariants that it should break, by their numbers; of several, any
	follows  string // those that may break together with these, as a consequence
	scenario string // the shipped scenario that shows it best
	run      func(ctx context.Context, c clients) error
	change   change // of the cleaner that ships, for canaries without run
}

const (
	shutdown = "node-shutdown"
	backlog  = "node-shutdown-backlog"
	deletion = "force-delete-loop"
)

// robbed is what may follow: a living pod that lost its address may have to
// share it, and lacks something at the end.
const robbed = "I2 I3"

func registry() map[string]canary {
	return map[string]canary{
		"by-name":       {"releases by the pod's name, so a new pod of the same name loses its address", "I1", robbed, backlog, runByName, nil},
		"no-quarantine": {"believes its pod list at once, so a pod newer than the list loses its address", "I1", robbed, shutdown, runNoQuarantine, nil},
		"phase-events":  {"takes a pod that ran and does not run now for one that has ended, also after a reboot", "I1", robbed, shutdown, runPhases, nil},
		"two-scans":     {"looks for pods by name, so an endpoint stays when its pod is made anew", "I3", "", shutdown, runScans, nil},

		"hasty-sweep":         {"sweeps bits without endpoint before an ADD has ended", "I1", robbed, deletion, nil, hasty},
		"no-sweep":            {"never sweeps bits without endpoint", "I3", "", shutdown, nil, neverSweeping},
		"cached-reads":        {"reads owners from its cache only, before a release too", "I1", robbed, shutdown, nil, wrapped(cachedReads)},
		"unknown-is-gone":     {"takes a read of the owner that failed for one that found nothing", "I1", robbed, deletion, nil, wrapped(unknownIsGone)},
		"not-running-is-gone": {"takes every pod that does not run for gone", "I1", robbed, shutdown, nil, wrapped(hiding(isNotRunning))},
		"terminating-is-gone": {"takes a pod that is being deleted for gone", "I1", robbed, shutdown, nil, wrapped(hiding(isTerminating))},
		"silent-node-is-gone": {"takes every pod of a node that is not ready for gone", "I1", robbed, shutdown, nil, wrapped(trustingNodes)},
		"name-is-owner":       {"takes a new pod of the same name for the owner", "I3", "", shutdown, nil, wrapped(ownersByName)},
		"drops-deletions":     {"never hears that a pod was deleted", "I3", "", shutdown, nil, wrapped(missingDeletions)},
		"deaf-to-networks":    {"never hears that a network changed", "I3", "", shutdown, nil, wrapped(deafToNetworks)},
		"no-compare":          {"writes bitmaps without comparing", "I1", robbed, backlog, nil, wrapped(onPatches(uncompared))},
		"blind-retry":         {"clears the same bits again after a conflict", "I1", robbed, deletion, nil, wrapped(onPatches(retriedBlindly))},
		"full-update":         {"writes the whole network as it read it", "I1 I6", robbed + " I4", backlog, nil, wrapped(overwriting)},
		"no-lineage":          {"takes a bit that is set for one that was set all the time", "I1", robbed, deletion, nil, wrapped(withoutLineage)},
		"bit-first":           {"clears the bit before it deletes the endpoint", "I1", robbed, shutdown, nil, wrapped(bitFirst)},
		"keeps-endpoints":     {"clears bits and keeps their endpoints", "I3", "", shutdown, nil, wrapped(keptEndpoints)},
		"keeps-bits":          {"deletes endpoints and keeps their bits", "I3", "", shutdown, nil, wrapped(onPatches(uncleared))},
		"no-repair":           {"never sets the bit of a living pod again", "I3", "", deletion, nil, wrapped(onPatches(unrepaired))},
		"next-address":        {"clears the address after the one that it released", "I1", robbed + " I4 I5", shutdown, nil, wrapped(onPatches(shifted))},
		"remembers-addresses": {"clears with every release what it released before", "I1", robbed + " I4", deletion, nil, wrapped(remembering)},
		"frees-reserved":      {"clears the network's own address with others", "I5", robbed, shutdown, nil, wrapped(onPatches(reserved))},
		"annotates-networks":  {"changes more of a network than its bits", "I6", "", shutdown, nil, wrapped(onPatches(annotated))},
	}
}

// Names lists the canaries in a fixed order.
func Names() []string { return slices.Sorted(maps.Keys(registry())) }

// Defect says in one clause what the canary does wrong.
func Defect(name string) string { return registry()[name].defect }

// Scenario names the shipped scenario that shows the defect best.
func Scenario(name string) string { return registry()[name].scenario }

// NamesOnReal lists those that a few iterations on a real cluster show. The
// others need moments that only the simulator can choose.
func NamesOnReal() []string { return []string{"by-name", "no-quarantine"} }

// Breaks lists the numbers of the invariants that the canary should break, any
// of them, and of those that may break as a consequence.
func Breaks(name string) (should, may []string) {
	c := registry()[name]
	return strings.Fields(c.breaks), strings.Fields(c.follows)
}

// Validate returns an error if there is no such canary.
func Validate(name string) error {
	if _, ok := registry()[name]; !ok {
		return fmt.Errorf("unknown canary %q: use one that danm-chaos list names", name)
	}
	return nil
}

// Run runs a canary that is a cleaner of its own until the context ends, which
// is no error. Everything
// that it started has ended when it returns.
func Run(ctx context.Context, name string, cfg Config) error {
	if err := Validate(name); err != nil {
		return err
	}
	if registry()[name].run == nil {
		return fmt.Errorf("canary %s: it is a change of the cleaner that ships, see ChangeOf", name)
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
