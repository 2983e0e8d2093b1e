package existing_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/danm-chaos/danm-chaos/clusters"
)

// objects are all that is in the cluster, with what tells whether it changed:
// the resourceVersion, and of nodes, whose status never rests, the content.
func (w *world) objects() map[string]string {
	w.t.Helper()
	return w.objectsBy(func(resource string, o unstructured.Unstructured) string {
		if resource == "nodes" {
			return withoutStatus(w.t, o)
		}
		return o.GetResourceVersion()
	})
}

// objectsBy lists everything but leases, events and what is in namespaces of
// runs, with what tells whether it changed.
func (w *world) objectsBy(state func(resource string, o unstructured.Unstructured) string) map[string]string {
	w.t.Helper()
	lists, err := w.core.Discovery().ServerPreferredResources()
	if err != nil {
		w.t.Fatal(err)
	}
	found := map[string]string{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || r.Name == "leases" || r.Name == "events" {
				continue
			}
			all, err := w.dynamic.Resource(gv.WithResource(r.Name)).List(w.t.Context(), metav1.ListOptions{})
			if err != nil {
				w.t.Fatal(err)
			}
			for _, o := range all.Items {
				if !strings.HasPrefix(o.GetNamespace(), "chaos-") {
					found[fmt.Sprintf("%s %s/%s", r.Name, o.GetNamespace(), o.GetName())] = state(r.Name, o)
				}
			}
		}
	}
	return found
}

// withoutStatus is all of an object that people write.
func withoutStatus(t *testing.T, o unstructured.Unstructured) string {
	t.Helper()
	delete(o.Object, "status")
	o.SetResourceVersion("")
	o.SetManagedFields(nil)
	data, err := json.Marshal(o.Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// expectUntouched compares the cluster with what it was.
func (w *world) expectUntouched(before map[string]string) {
	w.t.Helper()
	if diff := cmp.Diff(before, w.objects()); diff != "" {
		w.t.Errorf("the cluster is not what it was (-before +after):\n%s", diff)
	}
}

func TestNodeShutdownThroughHooksIsValidAndTheClusterIsGivenBack(t *testing.T) {
	w := newWorld(t)
	w.startFixedCleaner()
	before := w.objects()
	code, text := w.chaos(w.runArgs("node-shutdown", "--iterations", "5", "--seed", "7", "--production-pattern", "(?i)^prod")...).ends(t)
	if code != 0 || !strings.Contains(text, "verdict: Valid") {
		t.Errorf("exit code %d, want a Valid run", code)
	}
	for _, want := range []string{"not judged:", "who deleted a DanmEp", "skipped", "fail-node 5 of 5 fired", "danm-system/danm-cleaner, image danm-cleaner:v9, version v9"} {
		if !strings.Contains(text, want) {
			t.Errorf("the run does not say %q", want)
		}
	}
	w.expectUntouched(before)
	w.expectNoJournal()
}

func (w *world) expectNoJournal() {
	w.t.Helper()
	left, err := os.ReadDir(filepath.Join(w.folder, "cache", "danm-chaos", "existing-runs"))
	if err != nil || len(left) > 0 {
		w.t.Errorf("journals left: %v, %v", left, err)
	}
}

func TestACleanerThatReleasesByNameIsFoundWithoutAnAuditLog(t *testing.T) {
	w := newWorld(t)
	w.startCleaner(filepath.Join(programs, "danm-chaos"), "canary", "by-name", "--kubeconfig", "{{kubeconfig}}", "--danm-api", "danm.io")
	code, text := w.chaos(w.runArgs("node-shutdown-backlog", "--iterations", "1", "--seed", "3", "--cleaner-manager", "danm-chaos")...).ends(t)
	if code != 1 || !strings.Contains(text, "verdict: Invalid") {
		t.Errorf("exit code %d, want an Invalid run", code)
	}
}

func TestAReadOnlyUserIsToldWhatIsMissingAndNothingIsCreated(t *testing.T) {
	w := newWorld(t)
	w.allowReading("viewer")
	kubeconfig := w.writeKubeconfig("viewer", func(a *api.AuthInfo) { a.Impersonate = "viewer" })
	before := w.objects()
	w.expectRightsMissing(w.reach(kubeconfig))
	w.expectUntouched(before)
}

// expectRightsMissing has doctor list what somebody lacks who may read alone, and
// run refuse.
func (w *world) expectRightsMissing(reach []string) {
	w.t.Helper()
	code, text := w.chaos(append([]string{"doctor"}, reach...)...).ends(w.t)
	var missing []string
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "MISSING"); ok {
			name, _, _ := strings.Cut(strings.TrimSpace(rest), "  ")
			missing = append(missing, name)
		}
	}
	want := []string{
		"right to create namespaces", "right to delete namespaces", "right to delete pods", "right to create pods/eviction", "right to patch nodes",
		"right to create statefulsets.apps", "right to patch statefulsets.apps", "right to delete statefulsets.apps",
		"right to create danmnets.danm.io", "right to delete danmnets.danm.io",
		"right to create tenantnetworks.danm.io", "right to delete tenantnetworks.danm.io",
		"right to create clusternetworks.danm.io", "right to delete clusternetworks.danm.io",
	}
	if diff := cmp.Diff(want, missing); diff != "" || code != 64 {
		w.t.Errorf("exit code %d, missing (-want +got):\n%s", code, diff)
	}
	args := append([]string{"run", "force-delete-loop"}, reach...)
	code, text = w.chaos(append(args, "--yes", "--out", filepath.Join(w.folder, "out"))...).ends(w.t)
	if code != 64 || strings.Count(text, "danm-chaos: right to ") != len(want) {
		w.t.Errorf("exit code %d, %d refusals, want 64 and %d", code, strings.Count(text, "danm-chaos: right to "), len(want))
	}
	if namespaces := w.runNamespaces(); len(namespaces) > 0 {
		w.t.Errorf("namespaces %v were made", namespaces)
	}
}

// allowReading lets a user read everything.
func (w *world) allowReading(user string) {
	w.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}}}}
	if _, err := w.core.RbacV1().ClusterRoles().Create(w.t.Context(), role, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user, APIGroup: rbacv1.GroupName}}}
	if _, err := w.core.RbacV1().ClusterRoleBindings().Create(w.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) runNamespaces() []string {
	w.t.Helper()
	list, err := w.core.CoreV1().Namespaces().List(w.t.Context(), metav1.ListOptions{LabelSelector: clusters.RunLabel})
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, ns := range list.Items {
		names = append(names, ns.Name)
	}
	return names
}

func TestARunThatWasKilledInMidFaultIsCleanedUp(t *testing.T) {
	w := newWorld(t)
	w.startFixedCleaner()
	before := w.objects()
	isOff := func(node string) bool {
		_, ok := w.off.Load(node)
		return ok
	}
	w.expectCleaned(w.killInMidFault(isOff, w.runArgs("node-shutdown", "--iterations", "5", "--seed", "7")))
	w.expectUntouched(before)
}

// killInMidFault runs danm-chaos, kills it when it says that it switches a node
// off and the node is, and names the node.
func (w *world) killInMidFault(isOff func(node string) bool, args []string) string {
	w.t.Helper()
	c := w.chaos(args...)
	if err := c.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.await("a node to be switched off", func() bool {
		node := w.switchedOff()
		return node != "" && isOff(node)
	})
	if err := c.Process.Kill(); err != nil {
		w.t.Fatal(err)
	}
	_ = c.Wait() // it was killed
	return w.switchedOff()
}

// expectCleaned has clean undo a run that switched a node off.
func (w *world) expectCleaned(off string) {
	w.t.Helper()
	code, text := w.chaos("clean").ends(w.t)
	if code != 0 {
		w.t.Errorf("clean ended with %d", code)
	}
	for _, want := range []string{"node " + off + " switched on, it is Ready again", "removed", "given back", ": cleaned"} {
		if !strings.Contains(text, want) {
			w.t.Errorf("clean does not say %q", want)
		}
	}
	w.expectNoJournal()
}

// switchedOff names the node that a run says it switched off.
func (w *world) switchedOff() string {
	w.t.Helper()
	list, err := w.core.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, n := range list.Items {
		if _, off := n.Annotations["chaos.danm/switched-off"]; off {
			return n.Name
		}
	}
	return ""
}

func TestAClusterIsRefusedInOneLineEach(t *testing.T) {
	w := newWorld(t)
	before := w.objects()
	base := []string{"run", "node-shutdown", "--cluster", "existing", "--yes"}
	reach := append(slices.Clone(base), "--kubeconfig", w.kubeconfig)
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"no kubeconfig", base, "--kubeconfig is missing"},
		{"no context", reach, "--context is missing: name it, the current one may be any cluster"},
		{"a context that does not exist", append(slices.Clone(reach), "--context", "moon"), "--context moon is not in"},
		{"a name like production", append(slices.Clone(reach), "--context", "production-eu"), `"production-eu" looks like production`},
		{"a hook without the other", append(slices.Clone(reach), "--context", contextName, "--node-down", "x {{node}}"), "belong together"},
		{"a hook that knows no node", append(slices.Clone(reach), "--context", contextName, "--node-down", "x", "--node-up", "y {{node}}"), "--node-down does not say which node"},
		{"nodes that cannot be failed", append(slices.Clone(reach), "--context", contextName), "nodes cannot be failed"},
		{"a worker that does not exist", append(slices.Clone(reach), "--context", contextName, "--on-nodes", "n1,n2,n9"), "n9 does not exist"},
		{"a group that is not served", append(slices.Clone(reach), "--context", contextName, "--danm-api", "danm.k8s.io"), "danm.k8s.io is not served, but danm.io is"},
		{"another cleaner", append(slices.Clone(reach), "--context", contextName, "--cleaner-deployment", "a/b"), "there is no Deployment a/b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, text := w.chaos(append(c.args, "--out", filepath.Join(w.folder, "out"))...).ends(t)
			if code != 64 || !strings.Contains(text, c.want) {
				t.Errorf("exit code %d, want 64 and %q", code, c.want)
			}
		})
	}
	t.Run("a mark of production", func(t *testing.T) {
		w.markProduction(t, "true")
		code, text := w.chaos(append(slices.Clone(reach), "--context", contextName)...).ends(t)
		if code != 64 || !strings.Contains(text, "marked as production") {
			t.Errorf("exit code %d, want 64", code)
		}
		w.markProduction(t, "")
	})
	t.Run("nobody confirms", func(t *testing.T) {
		args := slices.DeleteFunc(w.runArgs("force-delete-loop"), func(a string) bool { return a == "--yes" })
		code, text := w.chaos(args...).ends(t)
		if code != 64 || !strings.Contains(text, "not confirmed, nothing was done") || !strings.Contains(text, "label and annotate nodes n1, n2, n3") {
			t.Errorf("exit code %d, want 64 after telling what would be done", code)
		}
	})
	delete(before, "namespaces /kube-system") // marked by us
	after := w.objects()
	delete(after, "namespaces /kube-system")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("refusals changed the cluster:\n%s", diff)
	}
}

func (w *world) markProduction(t *testing.T, value string) {
	t.Helper()
	ns, err := w.core.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ns.Annotations = map[string]string{"chaos.danm/production": value}
	if value == "" {
		ns.Annotations = nil
	}
	if _, err := w.core.CoreV1().Namespaces().Update(t.Context(), ns, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
