package kind

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
)

// bare is a cluster without nodes, which is enough for a cleaner.
func bare(t *testing.T) *Cluster {
	t.Helper()
	c := &Cluster{data: journalData{RunID: "bare-" + filepath.Base(t.TempDir()) + "-" + t.Name(), Folder: t.TempDir()}}
	t.Cleanup(func() {
		if err := c.stopCleaners(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestACleanerIsGivenItsKubeconfig(t *testing.T) {
	c := bare(t)
	var said strings.Builder
	p, err := c.StartCleaner(t.Context(), clusters.CleanerSpec{Argv: []string{"echo", "--kubeconfig={{kubeconfig}}"}, Logs: &said})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	if want := "--kubeconfig=" + c.cleanerKubeconfig() + "\n"; said.String() != want || p.ExitError() != nil {
		t.Errorf("it was given %q, want %q; it ended with %v", said.String(), want, p.ExitError())
	}
}

func TestWhatAKilledRunLeftOfItsCleanerIsKilled(t *testing.T) {
	c := bare(t)
	p, err := c.StartCleaner(t.Context(), clusters.CleanerSpec{Argv: []string{"sh", "-c", "sleep 600 & wait"}})
	if err != nil {
		t.Fatal(err)
	}
	killed, err := controlplane.KillMarked(t.Context(), c.data.RunID)
	if err != nil || killed == 0 {
		t.Errorf("killed %d, %v", killed, err)
	}
	<-p.Exited()
	if killed, err := controlplane.KillMarked(t.Context(), c.data.RunID); err != nil || killed != 0 {
		t.Errorf("%d are left, %v", killed, err)
	}
}

func TestNoCleanerStartsInAClosedCluster(t *testing.T) {
	c := bare(t)
	c.closed = true
	if _, err := c.StartCleaner(t.Context(), clusters.CleanerSpec{Argv: []string{os.Args[0]}}); err == nil {
		t.Error("it started")
	}
	if _, err := bare(t).StartCleaner(t.Context(), clusters.CleanerSpec{}); err == nil {
		t.Error("nothing was started")
	}
}
