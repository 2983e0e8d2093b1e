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

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
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
}, NodeTimeout(20*time.Minute))

func mustAddr(s string) netip.Addr { return netip.MustParseAddr(s) }

func buildCleaner(folder string) string {
	GinkgoHelper()
	output, err := exec.Command("go", "build", "-o", folder, "../cleaner/cmd/danm-cleaner").CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
	return filepath.Join(folder, "danm-cleaner")
}
