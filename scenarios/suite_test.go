package scenarios_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/deploy"
	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
)

// group is the API group of the suite's cluster, that of the reported release.
const group = danm.GroupDanmK8sIO

// The suite's specs share one real control plane; each has namespaces and
// nodes of its own.
var (
	cluster       *controlplane.Cluster
	cleanerBinary string
)

func TestScenarios(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real control plane, which -short forbids")
	}
	RegisterFailHandler(Fail)
	RunSpecs(t, "scenarios")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	cleanerBinary = buildCleaner(GinkgoT().TempDir())
	var err error
	cluster, err = controlplane.Start(context.WithoutCancel(ctx), controlplane.Options{
		RunID: fmt.Sprintf("suite-%d", os.Getpid()), Group: group, Variant: danmcni.Danm43, Seed: uint64(GinkgoRandomSeed()), Progress: os.Stderr,
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(cluster.Close)
	defineOtherGroup(ctx)
}, NodeTimeout(20*time.Minute))

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// defineOtherGroup makes the cluster serve the other group as well, without any
// object in it. It does so for the whole suite, because an API server under
// load may need minutes to let go of a definition.
func defineOtherGroup(ctx context.Context) {
	GinkgoHelper()
	config, err := cluster.RESTConfig(clusters.UserHarness)
	Expect(err).NotTo(HaveOccurred())
	client := dynamic.NewForConfigOrDie(config)
	definitions, err := deploy.CRDs(group.Other())
	Expect(err).NotTo(HaveOccurred())
	for _, crd := range definitions {
		_, err := client.Resource(crdResource).Create(ctx, crd, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
	}
	other := danm.NewClient(client, group.Other())
	Eventually(func(ctx context.Context) error {
		_, err := other.Endpoints("").List(ctx, metav1.ListOptions{})
		return err
	}).WithContext(ctx).WithTimeout(2 * time.Minute).Should(Succeed())
}

func mustAddr(s string) netip.Addr { return netip.MustParseAddr(s) }

func buildCleaner(folder string) string {
	GinkgoHelper()
	output, err := exec.Command("go", "build", "-o", folder, "../cleaner/cmd/danm-cleaner").CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
	return filepath.Join(folder, "danm-cleaner")
}
