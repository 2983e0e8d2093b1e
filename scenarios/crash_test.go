package scenarios_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters"
)

// The protocol orders its effects so that a crash leaks and never frees
// twice: endpoint first, bit second. Here the cleaner is killed by the kernel
// exactly between the two, and its successor must find and close the leak.
var _ = Describe("a cleaner that is killed between endpoint and bit", Label("crash"), func() {
	It("leaves one bit, which its successor releases", func(ctx SpecContext) {
		world := newOrphanWorld(ctx, "crash")

		By("killing the first cleaner at the answer to its DELETE")
		proxy := newKillingProxy(cleanerConfig(), world.namespace)
		DeferCleanup(proxy.Close)
		victim := exec.Command(cleanerBinary, "run", "--kubeconfig", proxy.kubeconfig, "--danm-api", string(group),
			"--release-quarantine", "500ms", "--orphan-quarantine", "1h",
			"--leader-elect=false", "--metrics-bind-address", "0", "--health-probe-bind-address", "0")
		victim.Stdout, victim.Stderr = GinkgoWriter, GinkgoWriter
		proxy.arm(victim)
		err := victim.Wait()
		Expect(err).To(MatchError(ContainSubstring("killed")), "the cleaner must have been killed, not have ended")

		By("finding the endpoint gone and the bit still set")
		Expect(world.endpointExists(ctx)).To(BeFalse())
		Expect(world.bitIsSet(ctx)).To(BeTrue())

		By("starting its successor")
		startCleaner(ctx, "--release-quarantine", "500ms", "--orphan-quarantine", "2s")
		Eventually(world.bitIsSet).WithContext(ctx).WithTimeout(time.Minute).Should(BeFalse())
	}, SpecTimeout(4*time.Minute))
})

// killingProxy stands between the cleaner and the API server and kills the
// cleaner when the endpoint of one namespace has been deleted, before the
// answer arrives.
type killingProxy struct {
	kill sync.Once
	*httptest.Server
	kubeconfig string
	process    chan *os.Process
}

func newKillingProxy(config *rest.Config, namespace string) *killingProxy {
	target, err := url.Parse(config.Host)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(config)
	Expect(err).NotTo(HaveOccurred())
	ofEndpoint := "/namespaces/" + namespace + "/" + danm.EndpointResource + "/"
	p := &killingProxy{process: make(chan *os.Process, 1)}
	reverse := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches must not be buffered
		ModifyResponse: func(r *http.Response) error {
			isDelete := r.Request.Method == http.MethodDelete && strings.Contains(r.Request.URL.Path, ofEndpoint)
			if isDelete && r.StatusCode == http.StatusOK {
				p.kill.Do(func() { err := (<-p.process).Kill(); Expect(err).NotTo(HaveOccurred()) })
			}
			return nil
		},
	}
	p.Server = httptest.NewServer(reverse)
	p.kubeconfig = writeKubeconfig(p.URL)
	return p
}

// arm starts the program to kill.
func (p *killingProxy) arm(victim *exec.Cmd) {
	GinkgoHelper()
	Expect(victim.Start()).To(Succeed())
	DeferCleanup(func() { _ = victim.Process.Kill() })
	p.process <- victim.Process
}

func writeKubeconfig(server string) string {
	GinkgoHelper()
	c := clientcmdapi.NewConfig()
	c.Clusters["proxy"] = &clientcmdapi.Cluster{Server: server}
	c.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	c.CurrentContext = "proxy"
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(*c, path)).To(Succeed())
	return path
}

// cleanerConfig is access as the cleaner under test.
func cleanerConfig() *rest.Config {
	GinkgoHelper()
	config, err := cluster.RESTConfig(clusters.UserCleaner)
	Expect(err).NotTo(HaveOccurred())
	return config
}

// startCleaner runs the shipped cleaner until the spec ends and returns what it
// logs.
func startCleaner(ctx context.Context, args ...string) *gbytes.Buffer {
	GinkgoHelper()
	log := gbytes.NewBuffer()
	argv := append([]string{cleanerBinary, "run", "--kubeconfig", "{{kubeconfig}}", "--danm-api", string(group),
		"--leader-elect=false", "--metrics-bind-address", "0", "--health-probe-bind-address", "0"}, args...)
	process, err := cluster.StartCleaner(ctx, clusters.CleanerSpec{Argv: argv, Logs: io.MultiWriter(log, GinkgoWriter)})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(process.Stop)
	return log
}
