package live

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
)

func TestABrowserFollowsTheRunWithoutBeingReloaded(t *testing.T) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium on this machine: `apt-get install chromium` makes this test run")
	}
	f, h := begun(t, true)
	s := serve(t, ":0", f)
	scratch, err := os.MkdirTemp("", "browser") // short, as sockets have their names in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(scratch) })
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Env("TMPDIR="+scratch))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ctx, endAllocator := chromedp.NewExecAllocator(ctx, options...)
	defer endAllocator()
	ctx, endBrowser := chromedp.NewContext(ctx)
	defer endBrowser()
	mark := chromedp.Evaluate[chromedp.Void](`window.sameDocument = true`)
	if err := chromedp.Do(ctx, chromedp.Navigate(s.URL()), mark); err != nil {
		t.Fatal(err)
	}
	addPod(h, "a", 1)
	f.IterationDone(harness.Iteration{Number: 7, Lane: "lane-0", Network: "DanmNet v4", Verdict: check.Valid}, 1, 20)
	if err := chromedp.Do(ctx, chromedp.WaitVisible(chromedp.CSS(`#iteration-table tbody tr[data-verdict="Valid"]`))); err != nil {
		t.Fatal(err)
	}
	state := chromedp.Evaluate[[]bool](`[window.sameDocument === true, !!document.querySelector("#iteration-table thead button"),
		document.querySelector("figure:not([hidden]) output").textContent.includes("pods=1")]`)
	got, err := chromedp.Run(ctx, state)
	if err != nil {
		t.Fatal(err)
	}
	for i, what := range []string{"the document is the same", "the new table can be sorted", "the chart shows the new pod"} {
		if !got[i] {
			t.Errorf("not so: %s", what)
		}
	}
}
