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
	isDry    bool   // it is to run in dry-run
	run      func(ctx context.Context, c clients) error
	change   change // of the cleaner that ships, for canaries without run
}

const (
	shutdown = "node-shutdown"
	backlog  = "node-shutdown-backlog"
	deletion = "force-delete-loop"
)

// robbed is what may follow: a living pod that lost its address may have to
// share it, and lacks something at the end; and its address may be cleared once
// more for the endpoint that had it first.
const robbed = "I2 I3 I4"

func registry() map[string]canary {
	return map[string]canary{
		"by-name":       {"releases by the pod's name, so a new pod of the same name loses its address", "I1", robbed, backlog, false, runByName, nil},
		"no-quarantine": {"believes its pod list at once, so a pod newer than the list loses its address", "I1", robbed, shutdown, false, runNoQuarantine, nil},
		"phase-events":  {"takes a pod that ran and does not run now for one that has ended, also after a reboot", "I1", robbed, shutdown, false, runPhases, nil},
		"two-scans":     {"looks for pods by name, so an endpoint stays when its pod is made anew", "I3", "", shutdown, false, runScans, nil},

		"hasty-sweep":         {"sweeps bits without endpoint before an ADD has ended", "I1", robbed, deletion, false, nil, hasty},
		"no-sweep":            {"never sweeps bits without endpoint", "I3", "", shutdown, false, nil, neverSweeping},
		"cached-reads":        {"reads owners from its cache only, before a release too", "I1", robbed, shutdown, false, nil, wrapped(cachedReads)},
		"no-reread":           {"takes what its cache says of an owner for final", "I1", robbed, shutdown, false, nil, wrapped(neverReading)},
		"drops-tombstones":    {"keeps pods that a relist does not have any more", "I3", "", deletion, false, nil, wrapped(keepingTombstones)},
		"no-preconditions":    {"deletes and writes without any precondition", "I1", robbed, backlog, false, nil, wrapped(unconditional)},
		"unknown-is-gone":     {"takes a read of the owner that failed for one that found nothing", "I1", robbed, deletion, false, nil, wrapped(unknownIsGone)},
		"not-running-is-gone": {"takes every pod that does not run for gone", "I1", robbed, shutdown, false, nil, wrapped(hiding(isNotRunning))},
		"sweeps-reserved":     {"does not see that a ReservedIP sets an address aside", "I5", "", deletion, false, nil, wrapped(blindToReservedIPs)},
		"terminating-is-gone": {"takes a pod that is being deleted for gone", "I1", robbed, shutdown, false, nil, wrapped(hiding(isTerminating))},
		"silent-node-is-gone": {"takes every pod of a node that is not ready for gone", "I1", robbed, shutdown, false, nil, wrapped(trustingNodes)},
		"name-is-owner":       {"takes a new pod of the same name for the owner", "I3", "", shutdown, false, nil, wrapped(ownersByName)},
		"drops-deletions":     {"never hears that a pod was deleted", "I3", "", shutdown, false, nil, wrapped(missingDeletions)},
		"deaf-to-networks":    {"never hears that a network changed", "I3", "", shutdown, false, nil, wrapped(deafToNetworks)},
		"no-compare":          {"writes bitmaps without comparing", "I1", robbed, backlog, false, nil, wrapped(onPatches(uncompared))},
		"blind-retry":         {"clears the same bits again after a conflict", "I1", robbed, deletion, false, nil, wrapped(onPatches(retriedBlindly))},
		"full-update":         {"writes the whole network as it read it", "I1 I6", robbed, backlog, false, nil, wrapped(overwriting)},
		"no-lineage":          {"takes a bit that is set for one that was set all the time", "I1", robbed, deletion, false, nil, wrapped(withoutLineage)},
		"bit-first":           {"clears the bit before it deletes the endpoint", "I1", robbed, shutdown, false, nil, wrapped(bitFirst)},
		"keeps-endpoints":     {"clears bits and keeps their endpoints", "I3", "", shutdown, false, nil, wrapped(keptEndpoints)},
		"keeps-bits":          {"deletes endpoints and keeps their bits", "I3", "", shutdown, false, nil, wrapped(onPatches(uncleared))},
		"no-repair":           {"never sets the bit of a living pod again", "I3", "", deletion, false, nil, wrapped(onPatches(unrepaired))},
		"next-address":        {"clears the address after the one that it released", "I1", robbed + " I5", shutdown, false, nil, wrapped(onPatches(shifted))},
		"remembers-addresses": {"clears with every release what it released before", "I1", robbed, deletion, false, nil, wrapped(remembering)},
		"frees-reserved":      {"clears the network's own address with others", "I5", robbed, shutdown, false, nil, wrapped(onPatches(reserved))},
		"empty-uid-is-gone":   {"takes an endpoint without PodUID for one whose pod is gone", "I1", robbed, shutdown, false, nil, wrapped(emptyUIDIsGone)},
		"youngest-wins":       {"keeps only the youngest endpoint of a pod's interface", "I1", robbed, deletion, false, nil, wrapped(youngestWins)},
		"breaker-off":         {"goes on releasing when all pods seem to be gone", "I1", robbed, deletion, false, nil, wrapped(seeingPhantom)},
		"mirror-is-new":       {"takes a mirror that was made anew for another pod", "I1", robbed, shutdown, false, nil, wrapped(mirrorIsNew)},
		"one-group":           {"does not see that the other API group is in use", "I1", robbed, deletion, false, nil, wrapped(blindToOtherGroup)},
		"writes-in-dry-run":   {"writes in a dry run as ever", "I8", "", shutdown, true, nil, loud},
		"annotates-networks":  {"changes more of a network than its bits", "I6", "", shutdown, false, nil, wrapped(onPatches(annotated))},
	}
}

// Names lists the canaries in a fixed order.
func Names() []string { return slices.Sorted(maps.Keys(registry())) }

// Defect says in one clause what the canary does wrong.
func Defect(name string) string { return registry()[name].defect }

// Scenario names the shipped scenario that shows the defect best.
func Scenario(name string) string { return registry()[name].scenario }

// IsDry tells whether the canary's defect shows in a dry run only.
func IsDry(name string) bool { return registry()[name].isDry }

// Feature names what a simulated world must have for the defect to show, and
// most worlds do not have; empty is nothing.
func Feature(name string) string {
	return map[string]string{
		"empty-uid-is-gone": "legacy-endpoints",
		"breaker-off":       "hidden-pods",
		"one-group":         "half-migrated",
		"youngest-wins":     "late-adds",
		"mirror-is-new":     "static-pods",
		"sweeps-reserved":   "reserved-addresses",
	}[name]
}

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
