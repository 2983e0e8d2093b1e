package deploy

import (
	"embed"
	"fmt"
	"path"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

//go:embed base
var base embed.FS

// kustomization is what we read of base/kustomization.yaml.
type kustomization struct {
	Namespace string   `json:"namespace"`
	Resources []string `json:"resources"`
	Labels    []struct {
		Pairs map[string]string `json:"pairs"`
	} `json:"labels"`
}

// clusterWide are the kinds of ours that have no namespace.
var clusterWide = []string{"Namespace", "ClusterRole", "ClusterRoleBinding"}

// Objects returns what a user applies for the group, in an order in which it
// can be created. It is for clusters that are set up by program: what a user
// applies is rendered by kustomize, and a test compares the two. The caller
// owns the objects.
func Objects(g danm.Group) ([]*unstructured.Unstructured, error) {
	var k kustomization
	if err := readBase("kustomization.yaml", &k); err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, file := range k.Resources {
		data, err := base.ReadFile(path.Join("base", file))
		if err != nil {
			return nil, fmt.Errorf("reading manifests: %w", err)
		}
		objects, err := decodeAll(data)
		if err != nil {
			return nil, fmt.Errorf("decoding manifests in %s: %w", file, err)
		}
		all = append(all, objects...)
	}
	for _, o := range all {
		k.complete(o)
		if g != danm.GroupDanmIO {
			swapGroups(o.Object, g)
		}
	}
	return all, nil
}

func readBase(file string, into any) error {
	data, err := base.ReadFile(path.Join("base", file))
	if err != nil {
		return fmt.Errorf("reading manifests: %w", err)
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		return fmt.Errorf("decoding manifests in %s: %w", file, err)
	}
	return nil
}

// complete does what kustomize does for our kustomization.
func (k kustomization) complete(o *unstructured.Unstructured) {
	if !slices.Contains(clusterWide, o.GetKind()) {
		o.SetNamespace(k.Namespace)
	}
	subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
	for _, s := range subjects {
		s.(map[string]any)["namespace"] = k.Namespace
	}
	if len(subjects) > 0 {
		o.Object["subjects"] = subjects
	}
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	for _, l := range k.Labels {
		for key, value := range l.Pairs {
			labels[key] = value
		}
	}
	o.SetLabels(labels)
}

// swapGroups puts each of DANM's groups where the other was.
func swapGroups(value any, g danm.Group) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			v[key] = swapGroups(inner, g)
		}
	case []any:
		for i, inner := range v {
			v[i] = swapGroups(inner, g)
		}
	case string:
		return swapped(v, g)
	}
	return value
}

func swapped(text string, g danm.Group) string {
	const flag = "--danm-api="
	switch text {
	case string(g.Other()):
		return string(g)
	case string(g):
		return string(g.Other())
	case flag + string(g.Other()):
		return flag + string(g)
	default:
		return text
	}
}
