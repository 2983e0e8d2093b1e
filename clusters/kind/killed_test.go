package kind

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// victimVariable makes the test binary a run that is going to be killed.
const victimVariable = "DANM_KIND_TEST_VICTIM"

// isUp is what the victim says when there is something to leave behind.
const isUp = "cluster is up"

func TestCleanRemovesTheClusterOfAKilledRun(t *testing.T) {
	if runID := os.Getenv(victimVariable); runID != "" {
		beVictim(t, runID)
	}
	needEngine(t)
	useCache(t)
	before := remains(t, "")
	runID := "test-killed-" + strconv.Itoa(os.Getpid())
	ctx, cancel := context.WithTimeout(t.Context(), stepMax)
	defer cancel()
	victim := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestCleanRemovesTheClusterOfAKilledRun$")
	victim.Env = append(os.Environ(), victimVariable+"="+runID)
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != isUp {
		t.Log(lines.Text())
	}
	_ = victim.Process.Kill() // if it ended by itself, the next check says so
	_ = victim.Wait()
	if left := remains(t, runID); len(left) <= len(before) {
		t.Fatal("the killed run left nothing: the test proves nothing")
	}
	var said strings.Builder
	if err := Clean(t.Context(), "", &said); err != nil {
		t.Fatal(err)
	}
	t.Log(said.String())
	if after := remains(t, runID); len(after) > len(before) {
		t.Errorf("left behind: %v", after)
	}
}

// beVictim starts a cluster and waits to be killed.
func beVictim(t *testing.T, runID string) {
	c, err := Start(t.Context(), Options{RunID: runID, Group: danm.GroupDanmIO, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(isUp)
	<-t.Context().Done()
	t.Fatal("not killed", c.Close(context.Background()))
}
