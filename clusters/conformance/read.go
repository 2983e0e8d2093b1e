package conformance

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

func readChecks() []Check {
	return []Check{
		{"a list is sorted, and its version is that of the moment", listIsSorted},
		{"a list of all namespaces has those of each", listOfAllNamespaces},
		{"a label selector selects", labelsSelect},
		{"a field selector selects, by known fields only", fieldsSelect},
		{"pages show one moment", pagesShowOneMoment},
		{"a list can be read as it was", listOfThePast},
		{"a read may ask for any version, and not for one of the future", readsOfVersions},
		{"JSON and protobuf say the same", encodingsAgree},
		{"unknown encodings are refused", unknownEncodingsAreRefused},
		{"unknown paths and methods are refused", unknownPathsAreRefused},
		{"discovery lists DANM's resources", discoveryListsDANM},
		{"a refusal is a Status in the client's encoding", refusalIsAStatus},
	}
}

func listIsSorted(t T, k *kit) {
	for _, name := range []string{"b", "c", "a"} {
		k.createNetwork(name, nil)
	}
	list, err := k.networks().List(k.ctx(), metav1.ListOptions{})
	k.must(err)
	if got := names(pointers(list.Items)); got != "a b c" {
		t.Errorf("listed %s", got)
	}
	newest := int64(0)
	for i := range list.Items {
		newest = max(newest, k.version(list.Items[i].GetResourceVersion()))
	}
	if rv := k.version(list.GetResourceVersion()); rv < newest {
		t.Errorf("the list is of %d, an item of %d", rv, newest)
	}
	if got := list.Items[0]; got.GetKind() != string(danm.DanmNet) || k.alloc(&got) != "gAAAAA==" {
		t.Errorf("item: %v", got.Object)
	}
}

func listOfAllNamespaces(t T, k *kit) {
	k.createConfigMap("mine", map[string]string{"x": "1"})
	all, err := k.core.CoreV1().ConfigMaps("").List(k.ctx(), metav1.ListOptions{FieldSelector: "metadata.name=mine"})
	k.must(err)
	if !slices.ContainsFunc(all.Items, func(c corev1.ConfigMap) bool { return c.Namespace == k.namespace && c.Data["x"] == "1" }) {
		t.Errorf("not in %s", names(pointers(all.Items)))
	}
}

func labelsSelect(t T, k *kit) {
	k.createNetwork("a", map[string]string{"x": "1"})
	k.createNetwork("b", map[string]string{"x": "2"})
	k.createNetwork("c", nil)
	for selector, want := range map[string]string{
		"x=1": "a", "x!=1": "b c", "x": "a b", "!x": "c", "x in (1,2)": "a b", "x=3": "",
	} {
		list, err := k.networks().List(k.ctx(), metav1.ListOptions{LabelSelector: selector})
		k.must(err)
		if got := names(pointers(list.Items)); got != want {
			t.Errorf("%s selects %q, want %q", selector, got, want)
		}
	}
	_, err := k.networks().List(k.ctx(), metav1.ListOptions{LabelSelector: "x in"})
	k.wantReason(err, metav1.StatusReasonBadRequest, 400)
}

func fieldsSelect(t T, k *kit) {
	k.createPod("a", "n1")
	k.createPod("b", "n2")
	k.createPod("c", "")
	for selector, want := range map[string]string{
		"spec.nodeName=n1": "a", "spec.nodeName=": "c", "metadata.name=b": "b", "spec.nodeName!=n1": "b c", "status.phase=Running": "",
		"metadata.namespace=" + k.namespace + ",status.phase=Pending": "a b c",
	} {
		list, err := k.core.CoreV1().Pods(k.namespace).List(k.ctx(), metav1.ListOptions{FieldSelector: selector})
		k.must(err)
		if got := names(pointers(list.Items)); got != want {
			t.Errorf("%s selects %q, want %q", selector, got, want)
		}
	}
	_, err := k.core.CoreV1().Pods(k.namespace).List(k.ctx(), metav1.ListOptions{FieldSelector: "spec.hostname=a"})
	k.wantReason(err, metav1.StatusReasonBadRequest, 400)
	_, err = k.networks().List(k.ctx(), metav1.ListOptions{FieldSelector: "spec.NetworkID=a"})
	k.wantReason(err, metav1.StatusReasonBadRequest, 400)
}

func pagesShowOneMoment(t T, k *kit) {
	for _, name := range []string{"a", "c", "e"} {
		k.createNetwork(name, nil)
	}
	first, err := k.networks().List(k.ctx(), metav1.ListOptions{Limit: 2})
	k.must(err)
	k.createNetwork("d", nil)
	k.must(k.networks().Delete(k.ctx(), "e", metav1.DeleteOptions{}))
	second, err := k.networks().List(k.ctx(), metav1.ListOptions{Limit: 2, Continue: first.GetContinue()})
	k.must(err)
	if got := names(pointers(first.Items)) + " | " + names(pointers(second.Items)); got != "a c | e" {
		t.Errorf("pages: %s", got)
	}
	if first.GetContinue() == "" || second.GetContinue() != "" || second.GetResourceVersion() != first.GetResourceVersion() {
		t.Errorf("first %q at %s, second %q at %s", first.GetContinue(), first.GetResourceVersion(), second.GetContinue(), second.GetResourceVersion())
	}
	_, err = k.networks().List(k.ctx(), metav1.ListOptions{Continue: "nonsense"})
	k.wantReason(err, metav1.StatusReasonBadRequest, 400)
}

func listOfThePast(t T, k *kit) {
	made := k.createNetwork("a", nil)
	k.touch("a", "gQAAAA==")
	k.createNetwork("b", nil)
	list, err := k.networks().List(k.ctx(), metav1.ListOptions{ResourceVersion: made.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	k.must(err)
	if got := names(pointers(list.Items)); got != "a" || k.alloc(&list.Items[0]) != "gAAAAA==" || list.GetResourceVersion() != made.GetResourceVersion() {
		t.Errorf("listed %s at %s: %v", got, list.GetResourceVersion(), list.Items)
	}
}

func readsOfVersions(t T, k *kit) {
	made := k.createNetwork("a", nil)
	for _, rv := range []string{"0", made.GetResourceVersion()} {
		_, err := k.networks().List(k.ctx(), metav1.ListOptions{ResourceVersion: rv})
		k.must(err)
	}
	_, err := k.networks().Get(k.ctx(), "a", metav1.GetOptions{ResourceVersion: made.GetResourceVersion()})
	k.must(err)
	// A client library would try again for as long as the server asks it to.
	future := strconv.FormatInt(k.version(made.GetResourceVersion())+1_000_000, 10)
	r := k.send(call{method: "GET", path: k.corePath("pods") + "?resourceVersion=" + future, accept: contentJSON})
	if status := r.status(t); r.code != 504 || status.Reason != metav1.StatusReasonTimeout || !strings.Contains(status.Message, "Too large resource version") || r.retryAfter == "" {
		t.Errorf("%d, retry after %q: %s", r.code, r.retryAfter, r.body)
	}
	_, err = k.networks().List(k.ctx(), metav1.ListOptions{ResourceVersion: "x"})
	if err == nil {
		t.Errorf("a version that is no number was accepted")
	}
}

func encodingsAgree(t T, k *kit) {
	k.createPod("a", "n1")
	jsonClient, err := kubernetes.NewForConfig(withContentType(k.config, contentJSON))
	k.must(err)
	fromProtobuf, err := k.core.CoreV1().Pods(k.namespace).List(k.ctx(), metav1.ListOptions{})
	k.must(err)
	fromJSON, err := jsonClient.CoreV1().Pods(k.namespace).List(k.ctx(), metav1.ListOptions{})
	k.must(err)
	fromJSON.ResourceVersion = fromProtobuf.ResourceVersion // others write too
	if diff := cmp.Diff(fromProtobuf, fromJSON); diff != "" || len(fromJSON.Items) != 1 {
		t.Errorf("protobuf - JSON +:\n%s", diff)
	}
	raw := k.send(call{method: "GET", path: k.corePath("pods/a"), accept: contentProtobuf})
	if raw.contentType != contentProtobuf || !bytes.HasPrefix(raw.body, []byte("k8s\x00")) {
		t.Errorf("content type %s, begins %q", raw.contentType, raw.body[:4])
	}
	made, err := jsonClient.CoreV1().Pods(k.namespace).Create(k.ctx(), k.pod("b", "n1"), metav1.CreateOptions{})
	k.must(err)
	if made.Spec.Containers[0].Name != "c" {
		t.Errorf("created from JSON: %v", made)
	}
}

func withContentType(config *rest.Config, contentType string) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = contentType, contentType
	return config
}

func unknownEncodingsAreRefused(t T, k *kit) {
	if r := k.send(call{method: "GET", path: k.corePath("pods"), accept: "text/plain"}); r.code != 406 {
		t.Errorf("Accept of text: %d: %.200s", r.code, r.body)
	}
	if r := k.send(call{"POST", k.corePath("configmaps"), "text/plain", contentJSON, "{}"}); r.code != 415 {
		t.Errorf("body of text: %d: %.200s", r.code, r.body)
	}
	if r := k.send(call{method: "GET", path: k.corePath("pods"), accept: "text/plain, " + contentJSON + ";q=0.5"}); r.code != 200 {
		t.Errorf("Accept of text or JSON: %d: %.200s", r.code, r.body)
	}
	path := "/apis/danm.io/v1/namespaces/" + k.namespace + "/danmnets"
	if r := k.send(call{method: "GET", path: path, accept: contentProtobuf}); r.code != 406 {
		t.Errorf("protobuf of a custom resource: %d: %.200s", r.code, r.body)
	}
}

func unknownPathsAreRefused(t T, k *kit) {
	for _, path := range []string{"/nothing", "/apis/nobody.example/v1/things", "/apis/danm.io/v1/things", "/apis/danm.io/v9/danmeps", "/apis/nobody.example"} {
		if r := k.send(call{method: "GET", path: path, accept: contentJSON}); r.code != 404 {
			t.Errorf("%s: %d: %.200s", path, r.code, r.body)
		}
	}
	if r := k.send(call{"PUT", k.corePath("configmaps"), contentJSON, contentJSON, "{}"}); r.code != 405 {
		t.Errorf("PUT of a collection: %d: %.200s", r.code, r.body)
	}
}

func discoveryListsDANM(t T, k *kit) {
	groups, err := k.core.Discovery().ServerGroups()
	k.must(err)
	if !slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == string(danm.GroupDanmIO) }) {
		t.Errorf("groups: %v", groups.Groups)
	}
	for gv, want := range map[string][]string{
		danm.GroupDanmIO.GroupVersion().String(): {danm.EndpointResource, danm.DanmNet.Resource(), danm.ClusterNetwork.Resource()},
		"v1":                                     {"pods", "pods/status", "nodes", "events"},
	} {
		list, err := k.core.Discovery().ServerResourcesForGroupVersion(gv)
		k.must(err)
		for _, name := range want {
			i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == name })
			if i < 0 {
				t.Errorf("%s has no %s", gv, name)
				continue
			}
			if r := list.APIResources[i]; r.Namespaced != (name != "nodes" && name != danm.ClusterNetwork.Resource()) || !slices.Contains(r.Verbs, "get") {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
}

func refusalIsAStatus(t T, k *kit) {
	r := k.send(call{method: "GET", path: k.corePath("pods/none"), accept: contentJSON})
	status := r.status(t)
	if r.code != 404 || status.Kind != "Status" || status.Reason != metav1.StatusReasonNotFound || status.Details == nil || status.Details.Name != "none" || status.Details.Kind != "pods" {
		t.Errorf("%d: %s", r.code, r.body)
	}
	_, err := k.core.CoreV1().Pods(k.namespace).Get(k.ctx(), "none", metav1.GetOptions{})
	k.wantReason(err, metav1.StatusReasonNotFound, 404)
	var u *unstructured.Unstructured
	u, err = k.networks().Get(k.ctx(), "none", metav1.GetOptions{})
	if u != nil {
		t.Errorf("got %v", u)
	}
	k.wantReason(err, metav1.StatusReasonNotFound, 404)
}
