package scenarios_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// Specs about single rules of the release protocol, on a real API server.
var _ = Describe("the release protocol", Label("protocol"), func() {
	const settle = 30 * time.Second
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
		installOtherGroup(ctx, world)
		log := startCleaner(ctx, append(quick, "--danm-api", string(group))...)
		Eventually(log).WithTimeout(settle).Should(gbytes.Say("circuit breaker open.*migration"))
		Consistently(world.endpointExists).WithContext(ctx).WithTimeout(3 * time.Second).Should(BeTrue())
		Expect(world.bitIsSet(ctx)).To(BeTrue())
	}, SpecTimeout(2*time.Minute))
})

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// installOtherGroup makes the cluster serve the other group too, with one
// endpoint in it, until the spec ends.
func installOtherGroup(ctx context.Context, w *orphanWorld) {
	GinkgoHelper()
	other := danm.NewClient(w.danm.Dynamic, group.Other())
	defineOtherGroup(ctx, w.danm.Dynamic)
	ep := &danm.Endpoint{ObjectMeta: metav1.ObjectMeta{Name: "copy", Namespace: w.namespace}}
	ep.Spec = danm.EndpointSpec{NetworkName: "test-net1", EndpointID: "copy", Pod: "p", APIType: string(danm.DanmNet)}
	u, err := ep.ToUnstructured(group.Other())
	Expect(err).NotTo(HaveOccurred())
	Eventually(func(ctx context.Context) error {
		_, err := other.Endpoints(w.namespace).Create(ctx, u, metav1.CreateOptions{})
		return err
	}).WithContext(ctx).WithTimeout(30 * time.Second).Should(Succeed())
}
