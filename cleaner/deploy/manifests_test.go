package deploy

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// podMonitor is what we use of the Prometheus operator's type, whose module
// would weigh more than this.
type podMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector            metav1.LabelSelector `json:"selector"`
		PodMetricsEndpoints []struct {
			Port     string `json:"port"`
			Path     string `json:"path"`
			Interval string `json:"interval"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

// typed returns an empty object of every kind that we ship.
var typed = map[string]func() any{
	"Namespace":           func() any { return &corev1.Namespace{} },
	"ServiceAccount":      func() any { return &corev1.ServiceAccount{} },
	"ClusterRole":         func() any { return &rbacv1.ClusterRole{} },
	"ClusterRoleBinding":  func() any { return &rbacv1.ClusterRoleBinding{} },
	"Role":                func() any { return &rbacv1.Role{} },
	"RoleBinding":         func() any { return &rbacv1.RoleBinding{} },
	"Deployment":          func() any { return &appsv1.Deployment{} },
	"PodDisruptionBudget": func() any { return &policyv1.PodDisruptionBudget{} },
	"NetworkPolicy":       func() any { return &networkingv1.NetworkPolicy{} },
	"PodMonitor":          func() any { return &podMonitor{} },
}

// render builds a kustomization and decodes every object strictly, by kind and
// name.
func render(t *testing.T, folder string) map[string]any {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	for _, r := range resources.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		make, ok := typed[r.GetKind()]
		if !ok {
			t.Fatalf("%s renders a %s, which no test knows", folder, r.GetKind())
		}
		object := make()
		if err := yaml.UnmarshalStrict(text, object, yaml.DisallowUnknownFields); err != nil {
			t.Errorf("%s: %s %s: %v", folder, r.GetKind(), r.GetName(), err)
		}
		out[r.GetKind()+" "+r.GetName()] = object
	}
	return out
}

// variants are the kustomizations that a user may apply.
func variants(t *testing.T) []string {
	t.Helper()
	overlays, err := filepath.Glob("overlays/*")
	if err != nil || len(overlays) == 0 {
		t.Fatalf("found overlays %v, error %v", overlays, err)
	}
	return append([]string{"base"}, overlays...)
}

func cleanerContainer(t *testing.T, objects map[string]any) (corev1.PodSpec, corev1.Container) {
	t.Helper()
	deployment, ok := objects["Deployment danm-cleaner"].(*appsv1.Deployment)
	if !ok || len(deployment.Spec.Template.Spec.Containers) != 1 {
		t.Fatal("no Deployment danm-cleaner with one container")
	}
	return deployment.Spec.Template.Spec, deployment.Spec.Template.Spec.Containers[0]
}

func TestEveryVariantRendersAndDecodesStrictly(t *testing.T) {
	common := []string{
		"Deployment danm-cleaner", "Namespace danm-cleaner", "NetworkPolicy danm-cleaner",
		"PodDisruptionBudget danm-cleaner", "ServiceAccount danm-cleaner",
		"ClusterRole danm-cleaner-read", "ClusterRoleBinding danm-cleaner-read",
	}
	writing := []string{
		"ClusterRole danm-cleaner-write", "ClusterRoleBinding danm-cleaner-write",
		"Role danm-cleaner-lease", "RoleBinding danm-cleaner-lease",
	}
	for _, folder := range variants(t) {
		t.Run(folder, func(t *testing.T) {
			want := slices.Clone(common)
			if folder != "overlays/dry-run" {
				want = append(want, writing...)
			}
			if folder == "overlays/pod-monitor" {
				want = append(want, "PodMonitor danm-cleaner")
			}
			slices.Sort(want)
			var got []string
			for key := range render(t, folder) {
				got = append(got, key)
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEveryVariantRunsWithoutPrivileges(t *testing.T) {
	for _, folder := range variants(t) {
		pod, c := cleanerContainer(t, render(t, folder))
		for what, ok := range map[string]bool{
			"not root":              *pod.SecurityContext.RunAsNonRoot && *pod.SecurityContext.RunAsUser != 0,
			"seccomp":               pod.SecurityContext.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
			"read-only root":        *c.SecurityContext.ReadOnlyRootFilesystem,
			"no escalation":         !*c.SecurityContext.AllowPrivilegeEscalation,
			"no capabilities":       slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}),
			"a memory limit":        !c.Resources.Limits.Memory().IsZero(),
			"no volumes, no host":   len(pod.Volumes) == 0 && !pod.HostNetwork && !pod.HostPID,
			"a liveness probe":      c.LivenessProbe.HTTPGet.Path == "/healthz",
			"a readiness probe":     c.ReadinessProbe.HTTPGet.Path == "/readyz",
			"its service account":   pod.ServiceAccountName == "danm-cleaner",
			"tolerates a dead node": len(pod.Tolerations) > 0,
		} {
			if !ok {
				t.Errorf("%s: the pod lacks: %s", folder, what)
			}
		}
	}
}

func TestOverlaysChangeTheArguments(t *testing.T) {
	for folder, want := range map[string][]string{
		"base":                    {"run", "--danm-api=danm.io"},
		"overlays/danm-k8s-io":    {"run", "--danm-api=danm.k8s.io"},
		"overlays/strict-fencing": {"run", "--danm-api=danm.io", "--fencing=strict"},
		"overlays/dry-run":        {"run", "--danm-api=danm.io", "--dry-run"},
		"overlays/pod-monitor":    {"run", "--danm-api=danm.io"},
	} {
		_, c := cleanerContainer(t, render(t, folder))
		got := slices.DeleteFunc(slices.Clone(c.Args), func(a string) bool { return strings.HasPrefix(a, "--leader-elect-namespace=") })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", folder, diff)
		}
	}
}

// Selectors, ports and subjects refer by text to what is in another file.
func TestReferencesMeetTheirTargets(t *testing.T) {
	for _, folder := range variants(t) {
		objects := render(t, folder)
		pod := objects["Deployment danm-cleaner"].(*appsv1.Deployment).Spec.Template
		selectors := map[string]*metav1.LabelSelector{
			"budget": objects["PodDisruptionBudget danm-cleaner"].(*policyv1.PodDisruptionBudget).Spec.Selector,
			"policy": &objects["NetworkPolicy danm-cleaner"].(*networkingv1.NetworkPolicy).Spec.PodSelector,
		}
		if m, ok := objects["PodMonitor danm-cleaner"].(*podMonitor); ok {
			selectors["monitor"] = &m.Spec.Selector
		}
		for name, s := range selectors {
			selector, err := metav1.LabelSelectorAsSelector(s)
			if err != nil || selector.Empty() || !selector.Matches(labelSet(pod.Labels)) {
				t.Errorf("%s: the %s does not select the pod (%v)", folder, name, err)
			}
		}
		for key, object := range objects {
			if b, ok := object.(*rbacv1.ClusterRoleBinding); ok {
				checkBinding(t, key, objects, b.RoleRef, b.Subjects)
			}
			if b, ok := object.(*rbacv1.RoleBinding); ok {
				checkBinding(t, key, objects, b.RoleRef, b.Subjects)
			}
		}
	}
}

type labelSet map[string]string

func (l labelSet) Has(key string) bool                      { _, ok := l[key]; return ok }
func (l labelSet) Get(key string) string                    { return l[key] }
func (l labelSet) Lookup(key string) (value string, _ bool) { value, ok := l[key]; return value, ok }

func checkBinding(t *testing.T, key string, objects map[string]any, role rbacv1.RoleRef, subjects []rbacv1.Subject) {
	t.Helper()
	if objects[role.Kind+" "+role.Name] == nil {
		t.Errorf("%s refers to %s %s, which is not rendered", key, role.Kind, role.Name)
	}
	want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: "danm-cleaner", Namespace: "danm-cleaner"}}
	if diff := cmp.Diff(want, subjects); diff != "" {
		t.Errorf("%s subjects (-want +got):\n%s", key, diff)
	}
}

// A right that is not on this list was not thought about. Scenario "rbac" shows
// on a real API server that each of them is needed.
func TestTheRightsAreExactlyThese(t *testing.T) {
	for folder, groups := range map[string][2]string{"base": {"danm.io", "danm.k8s.io"}, "overlays/danm-k8s-io": {"danm.k8s.io", "danm.io"}} {
		own, other := groups[0], groups[1]
		want := []string{
			`[""] [events] [create patch]`,
			`[""] [pods nodes] [get list watch]`,
			`["` + other + `"] [danmeps] [list]`,
			`["` + own + `"] [danmeps danmnets tenantnetworks clusternetworks] [get list watch]`,
			`["` + own + `"] [danmeps] [delete]`,
			`["` + own + `"] [danmnets tenantnetworks clusternetworks] [patch]`,
			`["` + own + `"] [reservedips] [list]`,
			`["coordination.k8s.io"] [leases] [create]`,
			`["coordination.k8s.io"] [leases] [get update] danm-cleaner`,
		}
		var got []string
		for _, object := range render(t, folder) {
			for _, r := range rulesOf(object) {
				groups, err := json.Marshal(r.APIGroups)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, strings.TrimSpace(fmt.Sprintf("%s %v %v %s", groups, r.Resources, r.Verbs, strings.Join(r.ResourceNames, " "))))
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", folder, diff)
		}
	}
}

func rulesOf(object any) []rbacv1.PolicyRule {
	switch r := object.(type) {
	case *rbacv1.ClusterRole:
		return r.Rules
	case *rbacv1.Role:
		return r.Rules
	}
	return nil
}

// TestObjectsAreWhatKustomizeRenders compares our own rendering with that of
// the tool that users have.
func TestObjectsAreWhatKustomizeRenders(t *testing.T) {
	for group, folder := range map[danm.Group]string{danm.GroupDanmIO: "base", danm.GroupDanmK8sIO: "overlays/danm-k8s-io"} {
		t.Run(folder, func(t *testing.T) {
			resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
			if err != nil {
				t.Fatal(err)
			}
			want, got := map[string]any{}, map[string]any{}
			for _, r := range resources.Resources() {
				object, err := r.Map()
				if err != nil {
					t.Fatal(err)
				}
				want[r.GetKind()+" "+r.GetName()] = plain(t, object)
			}
			objects, err := Objects(group)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range objects {
				got[o.GetKind()+" "+o.GetName()] = plain(t, o.Object)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-kustomize +ours):\n%s", diff)
			}
		})
	}
}

// plain makes numbers of all decoders the same.
func plain(t *testing.T, object map[string]any) (out map[string]any) {
	t.Helper()
	data, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}
