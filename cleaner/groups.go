package cleaner

import (
	"context"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// discovered is what the cluster serves of DANM.
type discovered struct {
	group     danm.Group
	resources map[string]bool
	// both says why no release is allowed: both groups hold endpoints.
	both string
}

// waitForDANM returns once the cluster serves endpoints, or the context's
// error.
func waitForDANM(ctx context.Context, cfg Config, core kubernetes.Interface, dyn dynamic.Interface) (discovered, error) {
	ticker := cfg.Clock.NewTicker(discoveryPeriod)
	defer ticker.Stop()
	for ctx.Err() == nil {
		found, err := discover(ctx, cfg.Group, core, dyn)
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

// discover finds the group to work on. Where both are served, the one that
// holds endpoints is meant; where both hold some, a migration is under way and
// neither copy may be trusted.
func discover(ctx context.Context, wanted danm.Group, core kubernetes.Interface, dyn dynamic.Interface) (discovered, error) {
	api := discovery.ToDiscoveryInterfaceWithContext(core.Discovery())
	list, err := serverGroups(ctx, api)
	if err != nil {
		return discovered{}, fmt.Errorf("discovering API groups: %w", err)
	}
	servedBy, inUse := map[danm.Group]map[string]bool{}, map[danm.Group]bool{}
	for _, g := range danm.Groups() {
		if !isListed(list, g) {
			continue
		}
		resources, err := resourcesOf(ctx, api, g)
		if err != nil {
			return discovered{}, err
		}
		if !resources[danm.EndpointResource] {
			continue
		}
		servedBy[g] = resources
		if inUse[g], err = hasEndpoints(ctx, danm.NewClient(dyn, g)); err != nil {
			return discovered{}, err
		}
	}
	group := choose(wanted, servedBy, inUse)
	if servedBy[group] == nil {
		return discovered{}, fmt.Errorf("no DanmEp resource is served in %s", groupNames(wanted))
	}
	found := discovered{group: group, resources: servedBy[group]}
	if inUse[danm.GroupDanmIO] && inUse[danm.GroupDanmK8sIO] {
		found.both = fmt.Sprintf("both %s and %s hold endpoints: a migration is under way", danm.GroupDanmIO, danm.GroupDanmK8sIO)
	}
	return found, nil
}

func choose(wanted danm.Group, servedBy map[danm.Group]map[string]bool, inUse map[danm.Group]bool) danm.Group {
	if wanted != "" {
		return wanted
	}
	var choice danm.Group
	for _, g := range danm.Groups() {
		if servedBy[g] != nil && (choice == "" || inUse[g] && !inUse[choice]) {
			choice = g
		}
	}
	return choice
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

func serverGroups(ctx context.Context, d discovery.DiscoveryInterfaceWithContext) (*metav1.APIGroupList, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return d.ServerGroupsWithContext(ctx)
}

func resourcesOf(ctx context.Context, d discovery.DiscoveryInterfaceWithContext, g danm.Group) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := d.ServerResourcesForGroupVersionWithContext(ctx, g.GroupVersion().String())
	if err != nil {
		return nil, fmt.Errorf("discovering %s: %w", g, err)
	}
	out := map[string]bool{}
	for _, r := range list.APIResources {
		out[r.Name] = true
	}
	return out, nil
}

func hasEndpoints(ctx context.Context, c *danm.Client) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := c.Endpoints("").List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return false, fmt.Errorf("listing endpoints of %s: %w", c.Group, err)
	}
	return len(list.Items) > 0, nil
}

// checkGroups looks again at what the cluster serves. A failed look freezes
// nothing and frees nothing: the last answer stands.
func (c *controller) checkGroups(ctx context.Context) error {
	found, err := discover(ctx, c.cfg.Group, c.core, c.danm.Dynamic)
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
