package scenarios_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
)

// Exit codes of danm-cleaner audit and explain.
const (
	exitConsistent   = 0
	exitInconsistent = 1
	exitIncomplete   = 2
)

// The commands of an operator, on a real control plane. They look at the whole
// cluster, so these specs must not run beside others that leave leftovers.
var _ = Describe("danm-cleaner audit", Label("audit"), Serial, func() {
	const patience = time.Minute
	quick := []string{"--confirm", "500ms", "--release-quarantine", "500ms", "--orphan-quarantine", "2s"}

	BeforeEach(func(ctx SpecContext) {
		By("waiting until the namespaces of earlier specs are empty")
		config, err := cluster.RESTConfig(clusters.UserHarness)
		Expect(err).NotTo(HaveOccurred())
		client := danm.NewClient(dynamic.NewForConfigOrDie(config), group)
		Eventually(func(ctx context.Context) (int, error) {
			eps, err := client.Endpoints("").List(ctx, metav1.ListOptions{})
			if err != nil {
				return 0, err
			}
			networks, err := client.Networks(danm.DanmNet, "").List(ctx, metav1.ListOptions{})
			if err != nil {
				return 0, err
			}
			return len(eps.Items) + len(networks.Items), nil
		}).WithContext(ctx).WithTimeout(patience).Should(BeZero())
	}, NodeTimeout(2*time.Minute))

	It("finds a consistent cluster consistent, and lists who has which address", func(ctx SpecContext) {
		world := newOrphanWorld(ctx, "audit-consistent")
		world.giveToBystander(ctx)
		audit := asUser(clusters.UserHarness, "audit", "--allocations")
		Eventually(audit, patience).Should(gexec.Exit(exitConsistent))
		Expect(audit.Out).To(gbytes.Say(`DanmNet audit-consistent/test-net1 +10.10.10.15 +audit-consistent/leftover +audit-consistent/bystander`))
	}, SpecTimeout(2*time.Minute))

	It("finds a leftover, explains it, and heals it with --fix --yes", func(ctx SpecContext) {
		world := newOrphanWorld(ctx, "audit-leftover")
		found := asUser(clusters.UserHarness, append([]string{"audit", "--json"}, quick...)...)
		Eventually(found, patience).Should(gexec.Exit(exitInconsistent))
		var report struct {
			SchemaVersion int
			Findings      []struct{ Kind, Endpoint, Reason string }
		}
		Expect(json.Unmarshal(found.Out.Contents(), &report)).To(Succeed())
		Expect(report.SchemaVersion).To(Equal(1))
		Expect(report.Findings).To(HaveLen(1))
		Expect(report.Findings[0].Kind + " " + report.Findings[0].Endpoint + " " + report.Findings[0].Reason).
			To(Equal("LeakedEndpoint audit-leftover/leftover PodGone"))

		for _, question := range [][]string{{"ep", "audit-leftover/leftover"}, {"pod", "audit-leftover/ss-cinfo-0"}, {"ip", orphanAddress}} {
			explained := asUser(clusters.UserHarness, append([]string{"explain"}, question...)...)
			Eventually(explained, patience).Should(gexec.Exit(exitConsistent))
			Expect(explained.Out).To(gbytes.Say(`would be released when the quarantine is over: pod audit-leftover/ss-cinfo-0 does not exist`))
			Expect(explained.Out).To(gbytes.Say(`15 of 10.10.10.0/24, set`))
		}
		nothing := asUser(clusters.UserHarness, "explain", "ep", "audit-leftover/none")
		Eventually(nothing, patience).Should(gexec.Exit(exitInconsistent))

		refused := asUser(clusters.UserHarness, append([]string{"audit", "--fix"}, quick...)...) // no answer is a no
		Eventually(refused, patience).Should(gexec.Exit(exitInconsistent))
		Expect(world.endpointExists(ctx)).To(BeTrue())

		healed := asUser(clusters.UserHarness, append([]string{"audit", "--fix", "--yes"}, quick...)...)
		Eventually(healed, patience).Should(gexec.Exit(exitConsistent))
		Expect(world.endpointExists(ctx)).To(BeFalse())
		Expect(world.bitIsSet(ctx)).To(BeFalse())
		Expect(world.reservedBits(ctx)).To(Equal([]bool{true, true}), "first and last bit stay set")
	}, SpecTimeout(4*time.Minute))

	It("sets the bit of a living pod again with --fix --yes", func(ctx SpecContext) {
		world := newOrphanWorld(ctx, "audit-repair")
		world.giveToBystander(ctx)
		world.clearBit(ctx)
		healed := asUser(clusters.UserHarness, append([]string{"audit", "--fix", "--yes"}, quick...)...)
		Eventually(healed, patience).Should(gexec.Exit(exitConsistent))
		Expect(world.bitIsSet(ctx)).To(BeTrue())
		Expect(world.endpointExists(ctx)).To(BeTrue())
	}, SpecTimeout(2*time.Minute))

	It("says that it could not read everything as a user without rights, and changes nothing", func(ctx SpecContext) {
		world := newOrphanWorld(ctx, "audit-forbidden")
		denied := asUser("nobody", append([]string{"audit", "--fix", "--yes"}, quick...)...)
		Eventually(denied, patience).Should(gexec.Exit(exitIncomplete))
		Expect(denied.Out).To(gbytes.Say("could not read API groups: .*forbidden"))
		Eventually(asUser("nobody", "explain", "ip", orphanAddress), patience).Should(gexec.Exit(exitIncomplete))
		Expect(world.endpointExists(ctx)).To(BeTrue())
	}, SpecTimeout(2*time.Minute))
})

// asUser runs danm-cleaner with the rights of a user of the cluster, or of one
// that has none.
func asUser(user string, args ...string) *gexec.Session {
	GinkgoHelper()
	config, err := cluster.RESTConfig(clusters.UserHarness)
	Expect(err).NotTo(HaveOccurred())
	if user != clusters.UserHarness {
		config.Impersonate = rest.ImpersonationConfig{UserName: user}
	}
	target, err := url.Parse(config.Host)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(config)
	Expect(err).NotTo(HaveOccurred())
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport,
		FlushInterval: -1, // watches must not be buffered
	})
	DeferCleanup(proxy.Close)
	command := exec.Command(cleanerBinary, append(args, "--kubeconfig", writeKubeconfig(proxy.URL))...)
	session, err := gexec.Start(command, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { session.Kill().Wait(time.Minute) })
	return session
}
