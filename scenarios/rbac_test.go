package scenarios_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
)

// The manifests give the cleaner exactly the rights that it needs: not one too
// few, which the first spec shows by doing everything under them without being
// refused once, and not one too many, which the second shows by taking each
// away and repeating a request that the cleaner made.
var _ = Describe("the shipped service account", Label("rbac"), Ordered, func() {
	const settle = time.Minute
	var (
		account *serviceAccount
		proxy   *recordingProxy
	)

	BeforeAll(func(ctx SpecContext) {
		account = installServiceAccount(ctx)
		proxy = newRecordingProxy(account.config(ctx))
		DeferCleanup(proxy.Close)
	}, NodeTimeout(3*time.Minute))

	It("suffices to release, repair, sweep, elect a leader and write Events", func(ctx SpecContext) {
		world := newOrphanWorld(ctx, "rbac")
		world.createCompletedLeftover(ctx)
		for _, kind := range []danm.NetworkKind{danm.TenantNetwork, danm.ClusterNetwork} {
			world.createSweepable(ctx, kind)
		}
		living := newOrphanWorld(ctx, "rbac-repair")
		living.giveToBystander(ctx)
		log := account.startCleaner(ctx, proxy)

		By("releasing leftovers, bits of every kind of network included")
		Eventually(log).WithTimeout(settle).Should(gbytes.Say("leader elected"))
		Eventually(world.endpointExists).WithContext(ctx).WithTimeout(settle).Should(BeFalse())
		Eventually(world.bitIsSet).WithContext(ctx).WithTimeout(settle).Should(BeFalse())
		for _, kind := range []danm.NetworkKind{danm.TenantNetwork, danm.ClusterNetwork} {
			Eventually(func() (bool, error) { return world.sweepableBitIsSet(ctx, kind) }).WithTimeout(settle).Should(BeFalse())
		}
		Eventually(proxy.saw(right{"", "nodes", "get"})).WithTimeout(settle).Should(BeTrue(), "a completed pod's node is read")

		By("repairing twice, so that the second Event is added to the first")
		for range 2 {
			living.clearBit(ctx)
			Eventually(living.bitIsSet).WithContext(ctx).WithTimeout(settle).Should(BeTrue())
		}
		Eventually(func() ([]corev1.Event, error) { return living.repairEvents(ctx) }).WithTimeout(settle).
			Should(ContainElement(HaveField("Count", BeEquivalentTo(2))))

		By("leaving a record of who held the address")
		Expect(os.ReadFile(account.releaseLog)).To(ContainSubstring(`"kind":"EndpointReleased"`))
		Expect(os.ReadFile(account.releaseLog)).To(ContainSubstring(`"endpoint":"` + orphanName + `"`))
		By("never having been refused")
		Expect(proxy.refused()).To(BeEmpty())
	}, SpecTimeout(6*time.Minute))

	It("suffices on an API server that cannot begin a watch with the present state", func(ctx SpecContext) {
		world := newOrphanWorld(ctx, "rbac-list")
		account.startCleaner(ctx, proxy, "KUBE_FEATURE_WatchListClient=false")
		Eventually(world.endpointExists).WithContext(ctx).WithTimeout(settle).Should(BeFalse())
		Eventually(world.bitIsSet).WithContext(ctx).WithTimeout(settle).Should(BeFalse())
		Expect(proxy.refused()).To(BeEmpty())
	}, SpecTimeout(4*time.Minute))

	It("has no right that was not used, and each is the only one that allows it", func(ctx SpecContext) {
		granted := account.rights()
		Expect(granted).NotTo(BeEmpty())
		Expect(proxy.unused(granted)).To(BeEmpty(), "rights that the cleaner never used")
		for _, r := range granted {
			account.without(ctx, r, func() {
				Eventually(func() (int, error) { return proxy.repeat(ctx, r) }).WithTimeout(settle).WithPolling(20*time.Millisecond).
					Should(Equal(http.StatusForbidden), "%s, taken away", r)
			})
			Eventually(func() (int, error) { return proxy.repeat(ctx, r) }).WithTimeout(settle).WithPolling(20*time.Millisecond).
				ShouldNot(Equal(http.StatusForbidden), "%s, given back", r)
		}
	}, SpecTimeout(6*time.Minute))
})

// right is one verb on one resource.
type right struct{ group, resource, verb string }

func (r right) String() string { return fmt.Sprintf("%s %s.%s", r.verb, r.resource, r.group) }

// serviceAccount is what the kustomization makes of it, on the API server.
type serviceAccount struct {
	core      kubernetes.Interface
	dynamic   dynamic.Interface
	server    *rest.Config
	namespace string
	name      string
	// releaseLog is the file that the latest cleaner writes its records to.
	releaseLog string
}

const manifests = "../cleaner/deploy/overlays/danm-k8s-io"

// accountResources are the kinds that are created, in this order. The rest of
// the manifests needs a kubelet.
var accountResources = []struct{ kind, group, resource string }{
	{"Namespace", "", "namespaces"},
	{"ServiceAccount", "", "serviceaccounts"},
	{"ClusterRole", rbacv1.GroupName, "clusterroles"},
	{"ClusterRoleBinding", rbacv1.GroupName, "clusterrolebindings"},
	{"Role", rbacv1.GroupName, "roles"},
	{"RoleBinding", rbacv1.GroupName, "rolebindings"},
}

func installServiceAccount(ctx context.Context) *serviceAccount {
	GinkgoHelper()
	config, err := cluster.RESTConfig(clusters.UserHarness)
	Expect(err).NotTo(HaveOccurred())
	a := &serviceAccount{
		core: kubernetes.NewForConfigOrDie(config), dynamic: dynamic.NewForConfigOrDie(config), server: config,
		namespace: "danm-cleaner", name: "danm-cleaner",
	}
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), manifests)
	Expect(err).NotTo(HaveOccurred())
	for _, r := range accountResources {
		for _, object := range rendered.Resources() {
			if object.GetKind() != r.kind {
				continue
			}
			content, err := object.Map()
			Expect(err).NotTo(HaveOccurred())
			u := &unstructured.Unstructured{Object: content}
			version := schema.GroupVersionResource{Group: r.group, Version: "v1", Resource: r.resource}
			target := a.dynamic.Resource(version).Namespace(u.GetNamespace())
			_, err = target.Create(ctx, u, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(func(ctx context.Context) error { return target.Delete(ctx, u.GetName(), metav1.DeleteOptions{}) })
		}
	}
	return a
}

// config is access by a token of the account, as a pod would have it.
func (a *serviceAccount) config(ctx context.Context) *rest.Config {
	GinkgoHelper()
	request, err := a.core.CoreV1().ServiceAccounts(a.namespace).CreateToken(ctx, a.name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	config := rest.AnonymousClientConfig(a.server)
	config.BearerToken = request.Status.Token
	return config
}

// startCleaner runs the shipped cleaner under the account until the spec ends.
func (a *serviceAccount) startCleaner(ctx context.Context, p *recordingProxy, env ...string) *gbytes.Buffer {
	GinkgoHelper()
	log := gbytes.NewBuffer()
	a.releaseLog = filepath.Join(GinkgoT().TempDir(), "releases.jsonl")
	program := exec.Command(cleanerBinary, "run", "--kubeconfig", p.kubeconfig, "--danm-api", string(group),
		"--leader-elect-namespace", a.namespace, "--release-quarantine", "500ms", "--orphan-quarantine", "2s",
		"--completed-allowance", "500ms", "--release-log", a.releaseLog, "--metrics-bind-address", "0", "--health-probe-bind-address", "0")
	program.Env = append(program.Environ(), env...)
	program.Stdout = io.MultiWriter(log, GinkgoWriter)
	program.Stderr = program.Stdout
	Expect(program.Start()).To(Succeed())
	DeferCleanup(func() {
		_ = program.Process.Signal(interrupt)
		Expect(program.Wait()).To(Succeed())
	})
	return log
}

// rights lists every verb on every resource that the account was given.
func (a *serviceAccount) rights() []right {
	GinkgoHelper()
	var out []right
	for _, rules := range a.rules(context.Background()) {
		for _, rule := range rules {
			out = append(out, rightsOf(rule)...)
		}
	}
	return out
}

func rightsOf(rule rbacv1.PolicyRule) []right {
	var out []right
	for _, g := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				out = append(out, right{g, resource, verb})
			}
		}
	}
	return out
}

// rules returns the rules of the account's roles by kind and name.
func (a *serviceAccount) rules(ctx context.Context) map[string][]rbacv1.PolicyRule {
	GinkgoHelper()
	out := map[string][]rbacv1.PolicyRule{}
	for _, name := range []string{"danm-cleaner-read", "danm-cleaner-write"} {
		role, err := a.core.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		out["ClusterRole "+name] = role.Rules
	}
	role, err := a.core.RbacV1().Roles(a.namespace).Get(ctx, "danm-cleaner-lease", metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	out["Role "+role.Name] = role.Rules
	return out
}

// without takes one right away while f runs.
func (a *serviceAccount) without(ctx context.Context, taken right, f func()) {
	GinkgoHelper()
	before := a.rules(ctx)
	found := false
	for key, rules := range before {
		var left []rbacv1.PolicyRule
		isHere := false
		for _, rule := range rules {
			for _, r := range rightsOf(rule) {
				if r == taken {
					isHere = true
					continue
				}
				left = append(left, rbacv1.PolicyRule{
					APIGroups: []string{r.group}, Resources: []string{r.resource}, Verbs: []string{r.verb}, ResourceNames: rule.ResourceNames,
				})
			}
		}
		if isHere {
			found = true
			a.setRules(ctx, key, left)
			defer a.setRules(ctx, key, rules)
		}
	}
	Expect(found).To(BeTrue(), "%s is in no role", taken)
	f()
}

func (a *serviceAccount) setRules(ctx context.Context, key string, rules []rbacv1.PolicyRule) {
	GinkgoHelper()
	kind, name, _ := strings.Cut(key, " ")
	patch := encode(map[string]any{"rules": rules})
	var err error
	if kind == "ClusterRole" {
		_, err = a.core.RbacV1().ClusterRoles().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	} else {
		_, err = a.core.RbacV1().Roles(a.namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	Expect(err).NotTo(HaveOccurred())
}

// recordingProxy stands between the cleaner and the API server, adds the
// account's token, and keeps one request of each right that was used.
type recordingProxy struct {
	*httptest.Server
	kubeconfig string
	target     *url.URL
	transport  http.RoundTripper

	mu        sync.Mutex
	used      map[right]request
	forbidden []string
}

type request struct{ method, uri string }

func newRecordingProxy(config *rest.Config) *recordingProxy {
	GinkgoHelper()
	target, err := url.Parse(config.Host)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(config)
	Expect(err).NotTo(HaveOccurred())
	p := &recordingProxy{target: target, transport: transport, used: map[right]request{}}
	p.Server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      transport,
		FlushInterval:  -1, // watches must not be buffered
		ModifyResponse: func(r *http.Response) error { p.record(r); return nil },
	})
	p.kubeconfig = writeKubeconfig(p.URL)
	return p
}

func (p *recordingProxy) record(answer *http.Response) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if answer.StatusCode == http.StatusForbidden || answer.StatusCode == http.StatusUnauthorized {
		p.forbidden = append(p.forbidden, answer.Request.Method+" "+answer.Request.URL.RequestURI())
		return
	}
	if r, ok := rightOf(answer.Request); ok {
		p.used[r] = request{answer.Request.Method, answer.Request.URL.RequestURI()}
	}
}

// rightOf returns what a Role must allow for the request.
func rightOf(r *http.Request) (right, bool) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var out right
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		out.group, parts = parts[1], parts[3:]
	default:
		return out, false // discovery, which every user may do
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	out.resource = parts[0]
	switch r.Method {
	case http.MethodPost:
		out.verb = "create"
	case http.MethodPut:
		out.verb = "update"
	case http.MethodPatch, http.MethodDelete:
		out.verb = strings.ToLower(r.Method)
	default:
		out.verb = "list"
		if watch := r.URL.Query().Get("watch"); watch == "true" || watch == "1" {
			out.verb = "watch"
		} else if len(parts) > 1 {
			out.verb = "get"
		}
	}
	return out, true
}

func (p *recordingProxy) refused() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.forbidden)
}

func (p *recordingProxy) saw(r right) func() bool {
	return func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		_, ok := p.used[r]
		return ok
	}
}

func (p *recordingProxy) unused(granted []right) []right {
	return slices.DeleteFunc(slices.Clone(granted), func(r right) bool { return p.saw(r)() })
}

// repeat makes the recorded request of a right once more and returns the code
// of the answer. It carries no body: only whether it is refused is asked, and
// an allowed write fails for want of one.
func (p *recordingProxy) repeat(ctx context.Context, r right) (int, error) {
	p.mu.Lock()
	recorded := p.used[r]
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, recorded.method, p.target.String()+recorded.uri, nil)
	if err != nil {
		return 0, err
	}
	answer, err := p.transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}
