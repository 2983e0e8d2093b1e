package cleaner

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// discovered is what the cluster serves of DANM.
type discovered struct {
	group     danm.Group
	resources map[string]bool
	// both says why no release is allowed: the other group holds endpoints.
	both string
}

// discoveryTimeout bounds one question about groups. It is not the workers'
// requestTimeout: a sweep that gives up at the very moment at which a worker does
// would find the work before or after the worker put it back, by chance.
const discoveryTimeout = 13 * time.Second

// waitForDANM returns once the cluster serves endpoints, or the context's
// error.
func waitForDANM(ctx context.Context, cfg Config, core coreAPI, dyn dynamic.Interface) (discovered, error) {
	ticker := cfg.Clock.NewTicker(discoveryPeriod)
	defer ticker.Stop()
	for ctx.Err() == nil {
		found, err := discover(ctx, cfg.Group, "", core, dyn)
		if err == nil {
			return found, nil
		}
		cfg.Logger.Info("waiting for DANM's API", "cause", err.Error())
		select {
		case <-ctx.Done():
		case <-ticker.C():
		}
	}
	return discovered{}, ctx.Err()
}

// discover finds the group to work on: the wanted one, else the one in use.
// Where the other holds endpoints, a migration is under way and neither copy may
// be trusted. current is the group worked on so far, "" if none.
func discover(ctx context.Context, wanted, current danm.Group, core coreAPI, dyn dynamic.Interface) (discovered, error) {
	list, err := servedGroups(ctx, core.Discovery())
	if err != nil {
		return discovered{}, fmt.Errorf("discovering API groups: %w", err)
	}
	servedBy, uses := map[danm.Group]map[string]bool{}, map[danm.Group]groupUse{}
	for _, g := range danm.Groups() {
		if !isListed(list, g) {
			continue
		}
		resources, err := resourcesOf(ctx, core.Discovery(), g)
		if err != nil {
			return discovered{}, err
		}
		if !resources[danm.EndpointResource] {
			continue
		}
		servedBy[g] = resources
		if uses[g], err = useOf(ctx, danm.NewClient(dyn, g), resources, wanted == ""); err != nil {
			return discovered{}, err
		}
	}
	group, err := choose(wanted, current, uses)
	if err != nil {
		return discovered{}, err
	}
	return discovered{group: group, resources: servedBy[group], both: migration(group, uses)}, nil
}

// migration says why the API groups forbid a release, or nothing. Whether the
// group that is worked on holds endpoints, too, does not matter: as long as it
// has none, its networks look as if they were full of orphans.
func migration(group danm.Group, uses map[danm.Group]groupUse) string {
	if uses[group.Other()] != holdsEndpoints {
		return ""
	}
	return fmt.Sprintf("%s is worked on, and %s holds endpoints: a migration is under way", group, group.Other())
}

// groupUse is how much a served group is in use; more is greater.
type groupUse int

const (
	notServed groupUse = iota
	holdsNothing
	holdsNetworks
	holdsEndpoints
)

// useOf looks what a group holds. Networks matter only where the group must be
// guessed: the group of the last endpoint that was released is still the one
// whose bits are to be swept.
func useOf(ctx context.Context, c *danm.Client, resources map[string]bool, guess bool) (groupUse, error) {
	if found, err := holds(ctx, c.Endpoints("")); found || err != nil {
		return holdsEndpoints, describe(err, "endpoints", c.Group)
	}
	for _, kind := range danm.NetworkKinds() {
		if !guess || !resources[kind.Resource()] {
			continue
		}
		if found, err := holds(ctx, c.Networks(kind, "")); found || err != nil {
			return holdsNetworks, describe(err, kind.Resource(), c.Group)
		}
	}
	return holdsNothing, nil
}

func describe(err error, what string, g danm.Group) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("listing %s of %s: %w", what, g, err)
}

func holds(ctx context.Context, r dynamic.ResourceInterface) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	list, err := r.List(ctx, metav1.ListOptions{Limit: 1})
	return err == nil && len(list.Items) > 0, err
}

// choose picks the group that is wanted, else the one most in use, else the
// current one. It does not guess between two sets of networks: sweeping the
// wrong one would look as if all were well.
func choose(wanted, current danm.Group, uses map[danm.Group]groupUse) (danm.Group, error) {
	if wanted != "" {
		current = wanted
	}
	best := current
	for _, g := range danm.Groups() {
		if wanted == "" && uses[g] > uses[best] {
			best = g
		}
	}
	if uses[best] == notServed {
		return "", fmt.Errorf("no DanmEp resource is served in %s", groupNames(wanted))
	}
	if current == "" && uses[best] == holdsNetworks && uses[best.Other()] == holdsNetworks {
		return "", fmt.Errorf("%s and %s both hold networks and neither holds endpoints: name one by --danm-api", best, best.Other())
	}
	return best, nil
}

func groupNames(wanted danm.Group) string {
	if wanted != "" {
		return string(wanted)
	}
	return fmt.Sprintf("%s or %s", danm.GroupDanmIO, danm.GroupDanmK8sIO)
}

// isListed looks the group up in the list of all groups. Asking for the group
// itself would not do: the answer for one that is not served cannot be told
// from that of a broken proxy.
func isListed(list *metav1.APIGroupList, g danm.Group) bool {
	return slices.ContainsFunc(list.Groups, func(served metav1.APIGroup) bool { return served.Name == string(g) })
}

// servedGroups asks for all groups but the core one, in which DANM is not.
func servedGroups(ctx context.Context, c rest.Interface) (*metav1.APIGroupList, error) {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	list := &metav1.APIGroupList{}
	err := c.Get().AbsPath("/apis").Do(ctx).Into(list)
	return list, err
}

func resourcesOf(ctx context.Context, c rest.Interface, g danm.Group) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	list := &metav1.APIResourceList{}
	if err := c.Get().AbsPath("/apis", g.GroupVersion().String()).Do(ctx).Into(list); err != nil {
		return nil, fmt.Errorf("discovering %s: %w", g, err)
	}
	out := map[string]bool{}
	for _, r := range list.APIResources {
		out[r.Name] = true
	}
	return out, nil
}

// checkGroups looks again at what the cluster serves. A failed look freezes
// nothing and frees nothing: the last answer stands.
func (c *controller) checkGroups(ctx context.Context) error {
	found, err := discover(ctx, c.cfg.Group, c.danm.Group, c.core, c.danm.Dynamic)
	if err != nil {
		c.log.V(1).Info("cannot look for the other API group", "cause", err.Error())
		return nil
	}
	if found.group != c.danm.Group || !maps.Equal(found.resources, c.found.resources) {
		return errResourcesChanged
	}
	c.breaker.setGroups(found.both)
	return nil
}
