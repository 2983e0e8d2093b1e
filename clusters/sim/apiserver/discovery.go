package apiserver

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
)

// kubernetesVersion is the one whose behaviour is modelled.
var kubernetesVersion = apimachineryversion.Info{Major: "1", Minor: "37", GitVersion: "v1.37.2"}

// discoveryDepth is how many slashes a path of discovery has at most.
const discoveryDepth = 4 // one may be at the end

// discover answers what clients ask before they ask for objects; false if the
// path is none of those.
func (c *call) discover() (answer, bool) {
	if c.request.Method != http.MethodGet || strings.Count(c.request.Path, "/") > discoveryDepth {
		return answer{}, false
	}
	known, ok := c.discovery.Load(c.request.Path)
	if !ok {
		found := c.discovered()
		if found == nil {
			return answer{}, false
		}
		a := answer{code: http.StatusOK, body: marshalJSON(found)}
		switch list := found.(type) {
		case metav1.APIResourceList:
			a.served = &list
		case metav1.APIGroupList:
			a.served = &list
		}
		c.discovery.Store(c.request.Path, a)
		known = a
	}
	a := known.(answer)
	if e, err := negotiate(c.request.Accept, false); err == nil && e == asObjects && a.served != nil {
		c.encoding, a.body = e, nil
	}
	return a, true
}

func (c *call) discovered() any {
	switch parts := strings.Split(strings.Trim(c.request.Path, "/"), "/"); {
	case len(parts) == 1:
		return c.discoverRoot(parts[0])
	case len(parts) == 2 && parts[0] == "api":
		return c.discoverVersion(schema.GroupVersion{Version: parts[1]})
	case len(parts) == 2 && parts[0] == "apis":
		return c.discoverGroup(parts[1])
	case len(parts) == 3 && parts[0] == "apis":
		return c.discoverVersion(schema.GroupVersion{Group: parts[1], Version: parts[2]})
	}
	return nil
}

func (c *call) discoverRoot(name string) any {
	switch name {
	case "api":
		return metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case "apis":
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
		for _, group := range c.groups() {
			list.Groups = append(list.Groups, c.apiGroup(group))
		}
		return list
	case "version":
		return kubernetesVersion
	}
	return nil
}

// groups returns every served group but the core one, in order.
func (s *Server) groups() []string {
	names := map[string]bool{}
	for gr := range s.tables {
		names[gr.Group] = gr.Group != ""
	}
	maps.DeleteFunc(names, func(_ string, isNamed bool) bool { return !isNamed })
	return slices.Sorted(maps.Keys(names))
}

func (s *Server) apiGroup(group string) metav1.APIGroup {
	version := s.kindsOf(group, "")[0].Version
	served := metav1.GroupVersionForDiscovery{GroupVersion: group + "/" + version, Version: version}
	return metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{served}, PreferredVersion: served}
}

func (c *call) discoverGroup(group string) any {
	if len(c.kindsOf(group, "")) == 0 {
		return nil
	}
	g := c.apiGroup(group)
	g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
	return g
}

func (c *call) discoverVersion(gv schema.GroupVersion) any {
	kinds := c.kindsOf(gv.Group, gv.Version)
	if len(kinds) == 0 {
		return nil
	}
	return metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String(), APIResources: apiResources(kinds),
	}
}

func (s *Server) sortedResources() []schema.GroupResource {
	return slices.SortedFunc(maps.Keys(s.tables), compareResources)
}
