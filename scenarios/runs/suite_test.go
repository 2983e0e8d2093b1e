// Package runs_test runs danm-chaos as a user does: its exit codes, what it
// prints and what it leaves behind. It looks into nothing. It is a suite of its
// own because its runs mostly wait, and so can wait beside the other suite.
package runs_test

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// The programs stand side by side, as the harness expects them.
var chaosBinary, cleanerBinary string

func TestRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real control planes, which -short forbids")
	}
	RegisterFailHandler(Fail)
	RunSpecs(t, "runs")
}

var _ = BeforeSuite(func(SpecContext) {
	folder := GinkgoT().TempDir()
	output, err := exec.Command("go", "build", "-o", folder, "../../cleaner/cmd/danm-cleaner", "../../harness/cmd/danm-chaos").CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
	chaosBinary, cleanerBinary = filepath.Join(folder, "danm-chaos"), filepath.Join(folder, "danm-cleaner")
}, NodeTimeout(10*time.Minute))
