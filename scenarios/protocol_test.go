package scenarios_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// Specs about single rules of the release protocol, on a real API server.
var _ = Describe("the release protocol", Label("protocol"), func() {
	const settle = time.Minute
	quick := []string{"--release-quarantine", "500ms", "--orphan-quarantine", "2s"}

	It("releases a leftover whose owner nobody ever saw, the bit through the sweep", func(ctx SpecContext) {
		world := newOrphanWorld(ctx, "sweep")
		startCleaner(ctx, quick...)
		Eventually(world.endpointExists).WithContext(ctx).WithTimeout(settle).Should(BeFalse())
		Eventually(world.bitIsSet).WithContext(ctx).WithTimeout(settle).Should(BeFalse())
		Expect(world.reservedBits(ctx)).To(Equal([]bool{true, true}), "first and last bit stay set")
	}, SpecTimeout(2*time.Minute))

	It("reports in a dry run and writes nothing", func(ctx SpecContext) {
		world := newOrphanWorld(ctx, "dry-run")
		before := world.networkVersion(ctx)
		log := startCleaner(ctx, append(quick, "--dry-run")...)
		Eventually(log).WithTimeout(settle).Should(gbytes.Say("would release endpoint"))
		Expect(world.endpointExists(ctx)).To(BeTrue())
		Expect(world.networkVersion(ctx)).To(Equal(before))
	}, SpecTimeout(2*time.Minute))

	It("sets the bit of a living pod again", func(ctx SpecContext) {
		world := newOrphanWorld(ctx, "repair")
		world.giveToBystander(ctx)
		world.clearBit(ctx)
		startCleaner(ctx, quick...)
		Eventually(world.bitIsSet).WithContext(ctx).WithTimeout(settle).Should(BeTrue())
		Expect(world.endpointExists(ctx)).To(BeTrue())
	}, SpecTimeout(2*time.Minute))

	It("releases nothing while both API groups hold endpoints", func(ctx SpecContext) {
		world := newOrphanWorld(ctx, "migration")
		createCopy(ctx, world)
		log := startCleaner(ctx, quick...)
		Eventually(log).WithTimeout(settle).Should(gbytes.Say("circuit breaker open.*migration"))
		Consistently(world.endpointExists).WithContext(ctx).WithTimeout(3 * time.Second).Should(BeTrue())
		Expect(world.bitIsSet(ctx)).To(BeTrue())
	}, SpecTimeout(4*time.Minute))
})

// createCopy makes an endpoint of the other group, until the spec ends.
func createCopy(ctx context.Context, w *orphanWorld) {
	GinkgoHelper()
	other := danm.NewClient(w.danm.Dynamic, group.Other()).Endpoints(w.namespace)
	ep := &danm.Endpoint{ObjectMeta: metav1.ObjectMeta{Name: "copy"}}
	ep.Spec = danm.EndpointSpec{NetworkName: "test-net1", EndpointID: "copy", Pod: "p", APIType: string(danm.DanmNet)}
	u, err := ep.ToUnstructured(group.Other())
	Expect(err).NotTo(HaveOccurred())
	_, err = other.Create(ctx, u, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) error { return other.Delete(ctx, "copy", metav1.DeleteOptions{}) })
}
