package bench_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
)

// benchVariable switches the benchmarks on; they take minutes.
const benchVariable = "DANM_BENCH"

const group = danm.GroupDanmK8sIO

// startCluster starts a control plane for one benchmark, or skips it.
func startCluster(t *testing.T) *controlplane.Cluster {
	t.Helper()
	if os.Getenv(benchVariable) == "" {
		t.Skipf("%s is not set; make bench sets it", benchVariable)
	}
	ctx := context.WithoutCancel(t.Context())
	c, err := controlplane.Start(ctx, controlplane.Options{RunID: "bench-" + strconv.Itoa(os.Getpid()), Group: group, Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

// buildCleaner builds the program that ships.
func buildCleaner(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "danm-cleaner")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "../cmd/danm-cleaner")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return program
}

// eventually polls a condition until it holds and returns how long that took.
func eventually(t *testing.T, what string, timeout time.Duration, holds func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		if time.Since(began) > timeout {
			t.Fatalf("not within %s: %s", timeout, what)
		}
		<-ticker.C
	}
	return time.Since(began)
}

// number reads a size from the environment, so that a quick look may be small.
func number(t *testing.T, variable string, unset int) int {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		return unset
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}
