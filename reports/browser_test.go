package reports

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/danm-chaos/danm-chaos/harness"
	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/reports/compare"
	"github.com/danm-chaos/danm-chaos/reports/timeline"
)

// screenshots is where pictures of the pages go, to be looked at.
const screenshots = "../out/screenshots"

// browserTimeout bounds one test in the browser, start included.
const browserTimeout = 2 * time.Minute

// tab is one page in a real browser, which remembers what it complained about.
type tab struct {
	ctx context.Context

	mu       sync.Mutex
	requests []string // other than for the page itself
	errors   []string
}

// chromium returns the path of a browser. A machine without one skips the test.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no chromium on this machine: `apt-get install chromium` makes this test run")
	return ""
}

// scratch is a folder for what a browser leaves behind. Its path is short, as
// sockets have their names in it, and it is removed after the browser has ended.
func scratch(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "browser")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

// open opens a page in a browser of its own.
func open(t *testing.T, url string, width, height int64) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.UserDataDir(t.TempDir()), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Env("TMPDIR="+scratch(t)),
	)
	ctx, cancel := context.WithTimeout(t.Context(), browserTimeout)
	ctx, endAllocator := chromedp.NewExecAllocator(ctx, options...)
	ctx, endBrowser := chromedp.NewContext(ctx)
	t.Cleanup(func() { endBrowser(); endAllocator(); cancel() })
	b := &tab{ctx: ctx}
	if err := chromedp.Listen(ctx, func(event any) { b.listen(url, event) }); err != nil {
		t.Fatal(err)
	}
	call(t, b, network.Enable, network.EnableParams{})
	call(t, b, log.Enable, cdp.Empty{})
	b.run(t, chromedp.EmulateViewport(width, height), chromedp.Navigate(url))
	return b
}

// call runs a command of the browser's protocol on the page.
func call[P, R any](t *testing.T, b *tab, command cdp.Command[P, R], params P) {
	t.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		t.Fatal(err)
	}
}

func (b *tab) listen(url string, event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if e.Request.URL != url && !strings.HasPrefix(e.Request.URL, "data:") {
			b.requests = append(b.requests, e.Request.URL)
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			b.errors = append(b.errors, fmt.Sprint(e.Args))
		}
	case *runtime.EventExceptionThrown:
		b.errors = append(b.errors, e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		b.errors = append(b.errors, e.Entry.Text)
	}
}

func (b *tab) run(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// eval returns what an expression of the page is.
func eval[T any](t *testing.T, b *tab, expression string) T {
	t.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return out
}

// do runs a statement in the page.
func do(statement string) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](statement)
}

// prefer makes the page believe that its reader prefers a scheme of colours.
func (b *tab) prefer(t *testing.T, scheme string) {
	t.Helper()
	call(t, b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
}

// expectQuiet fails if the page asked for anything or complained.
func (b *tab) expectQuiet(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.requests) > 0 {
		t.Errorf("the page asked for %q", b.requests)
	}
	if len(b.errors) > 0 {
		t.Errorf("the console says %q", b.errors)
	}
}

// screenshot keeps a picture of the whole page.
func (b *tab) screenshot(t *testing.T, name string) {
	t.Helper()
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(screenshots, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(screenshots, name), picture, 0o644); err != nil {
		t.Fatal(err)
	}
}

// incidentPage renders the incident and returns its address.
func incidentPage(t *testing.T, pod string) string {
	t.Helper()
	dir, r := incidentDir(t, pod)
	if err := Write(dir, r); err != nil {
		t.Fatal(err)
	}
	return "file://" + filepath.Join(dir, PageFile)
}

func TestThePageAsksForNothingAndFitsEveryWidth(t *testing.T) {
	url := incidentPage(t, "ss-0")
	for _, size := range []struct {
		name          string
		width, height int64
	}{{"phone", 390, 844}, {"desktop", 1280, 900}} {
		t.Run(size.name, func(t *testing.T) {
			b := open(t, url, size.width, size.height)
			if over := eval[int](t, b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
				t.Errorf("the page is %d pixels wider than the screen", over)
			}
			b.screenshot(t, "report-"+size.name+".png")
			b.run(t, do(`document.querySelectorAll("details").forEach((d) => { d.open = true; })`))
			if over := eval[int](t, b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
				t.Errorf("the page with open stories is %d pixels wider than the screen", over)
			}
			b.screenshot(t, "report-"+size.name+"-stories.png")
			b.expectQuiet(t)
		})
	}
}

func TestThePageInDarkIsDark(t *testing.T) {
	b := open(t, incidentPage(t, "ss-0"), 1280, 900)
	light := eval[string](t, b, `getComputedStyle(document.body).backgroundColor`)
	b.prefer(t, "dark")
	if dark := eval[string](t, b, `getComputedStyle(document.body).backgroundColor`); dark == light {
		t.Errorf("both are %s", dark)
	}
	b.screenshot(t, "report-dark.png")
	for _, scheme := range []string{"dark", "light"} {
		b.prefer(t, scheme)
		if poor := eval[[]string](t, b, contrastScript); len(poor) > 0 {
			t.Errorf("in %s these are hard to read: %q", scheme, poor)
		}
	}
}

// contrastScript lists the texts whose contrast with what is behind them is
// below 4.5, as WCAG AA asks.
const contrastScript = `(() => {
  const light = (c) => { const [r, g, b] = c.match(/[\d.]+/g).map((x, i) => { x /= 255; return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\)$/.test(c)) return c; } return "rgb(255, 255, 255)"; };
  const poor = new Set();
  for (const e of document.querySelectorAll("main *")) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility() || e.closest("script")) continue;
    const a = light(e.closest("svg") ? getComputedStyle(e).fill : getComputedStyle(e).color), b = light(behind(e));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) poor.add(e.tagName + "." + e.className + " " + contrast.toFixed(2) + " " + e.textContent.slice(0, 30));
  }
  return [...poor];
})()`

func TestTheCurvesEndWhereTheSnapshotDoes(t *testing.T) {
	b := open(t, incidentPage(t, "ss-0"), 1280, 900)
	for _, figure := range []string{`figure[data-lane=""]`, `figure[data-lane="lane-0"]`} {
		for curve, want := range map[string]string{"pods": "2", "eps": "1", "bits": "1"} {
			path := eval[string](t, b, fmt.Sprintf(`document.querySelector('%s path.%s').getAttribute("d")`, figure, curve))
			last := path[strings.LastIndex(path, "V")+1 : strings.LastIndex(path, "H")]
			if last != want {
				t.Errorf("%s: %s ends at %s, want %s (%s)", figure, curve, last, want, path)
			}
		}
	}
	b.run(t, chromedp.Focus(chromedp.CSS(`figure:not([hidden]) svg.chart`)), chromedp.KeyEvent(kb.End))
	if got := eval[string](t, b, `document.querySelector("figure:not([hidden]) output").textContent`); !strings.Contains(got, "pods=2 eps=1 bits=1") {
		t.Errorf("the end reads %q", got)
	}
	b.expectQuiet(t)
}

func TestTheTimelineZoomsAndShowsOneLane(t *testing.T) {
	b := open(t, incidentPage(t, "ss-0"), 1280, 900)
	viewBox := func() string {
		return eval[string](t, b, `document.querySelector("figure:not([hidden]) svg.plot").getAttribute("viewBox")`)
	}
	whole := viewBox()
	b.run(t, chromedp.Focus(chromedp.CSS(`figure:not([hidden]) svg.chart`)), chromedp.KeyEvent("+"))
	if viewBox() == whole {
		t.Error("the key + does not zoom")
	}
	b.run(t, chromedp.KeyEvent("0"))
	if got := viewBox(); got != whole {
		t.Errorf("the key 0 shows %s, want %s", got, whole)
	}
	b.run(t, chromedp.KeyEvent(kb.Home), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.ArrowRight))
	if got := eval[string](t, b, `document.querySelector("figure:not([hidden]) output").textContent`); !strings.Contains(got, "pods=") {
		t.Errorf("the readout is %q", got)
	}
	b.run(t, chromedp.SetValue(chromedp.CSS(`#timeline select`), "lane-0"),
		do(`document.querySelector("#timeline select").dispatchEvent(new Event("change"))`))
	if got := eval[[]string](t, b, `[...document.querySelectorAll("figure:not([hidden])")].map((f) => f.dataset.lane)`); len(got) != 1 || got[0] != "lane-0" {
		t.Errorf("shown are %q", got)
	}
	b.hover(t, `figure:not([hidden]) svg.chart`)
	if got := eval[string](t, b, `document.querySelector("figure:not([hidden]) output").textContent`); !strings.Contains(got, "last step: ") {
		t.Errorf("pointing at the lane reads %q", got)
	}
	b.expectQuiet(t)
}

// hover moves the pointer to the right part of an element.
func (b *tab) hover(t *testing.T, selector string) {
	t.Helper()
	at := eval[[]float64](t, b, fmt.Sprintf(`(() => { const e = document.querySelector('%s'); e.scrollIntoView({block: "center"});
		const r = e.getBoundingClientRect(); return [r.left + r.width * 0.8, r.top + r.height / 2]; })()`, selector))
	b.run(t, chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at[0], at[1]))
}

func TestTablesAreSortedAndFiltered(t *testing.T) {
	b := open(t, incidentPage(t, "ss-0"), 1280, 900)
	numbers := func() []string {
		return eval[[]string](t, b, `[...document.querySelectorAll("#iteration-table tbody tr:not([hidden])")].map((r) => r.cells[0].textContent)`)
	}
	click := func(column string) {
		b.run(t, do(fmt.Sprintf(`[...document.querySelectorAll("#iteration-table thead button")].find((b) => b.textContent === "%s").click()`, column)))
	}
	click("#")
	if got := numbers(); fmt.Sprint(got) != "[1 2]" {
		t.Errorf("sorted by number: %v", got)
	}
	click("#")
	if got := numbers(); fmt.Sprint(got) != "[2 1]" {
		t.Errorf("sorted by number, downwards: %v", got)
	}
	click("verdict")
	if got := eval[string](t, b, `document.querySelector("#iteration-table th[aria-sort]").textContent`); got != "verdict" {
		t.Errorf("marked as sorted: %s", got)
	}
	b.run(t, chromedp.SetValue(chromedp.CSS(`[data-filters="iteration-table"] select`), "Invalid"),
		do(`document.querySelector('[data-filters="iteration-table"] select').dispatchEvent(new Event("input"))`))
	if got := numbers(); fmt.Sprint(got) != "[2]" {
		t.Errorf("filtered by verdict: %v", got)
	}
	b.run(t, chromedp.SendKeys(chromedp.CSS(`[data-filters="violation-table"] input`), "I1 cleared"))
	if got := eval[int](t, b, `document.querySelectorAll("#violation-table tbody tr:not([hidden])").length`); got != 1 {
		t.Errorf("%d violations fit the filter, want 1", got)
	}
	b.expectQuiet(t)
}

func TestTheButtonCopiesTheCommand(t *testing.T) {
	b := open(t, incidentPage(t, "ss-0"), 1280, 900)
	for _, name := range []string{"clipboard-read", "clipboard-write"} {
		allow := browser.SetPermissionParams{Permission: &browser.PermissionDescriptor{Name: name}, Setting: browser.PermissionSettingGranted}
		if _, err := chromedp.CallBrowser(b.ctx, browser.SetPermission, allow); err != nil {
			t.Fatal(err)
		}
	}
	b.run(t, chromedp.Click(chromedp.CSS(`button[data-copy="reproduce"]`)),
		chromedp.WaitVisible(chromedp.CSS(`button[data-copied]`)))
	if got, want := eval[string](t, b, `navigator.clipboard.readText()`), invalidResult().Reproduce; got != want {
		t.Errorf("copied %q, want %q", got, want)
	}
	b.expectQuiet(t)
}

func TestAStoryIsReachedByKeyboard(t *testing.T) {
	b := open(t, incidentPage(t, "ss-0"), 1280, 900)
	const tabsMax = 60
	for range tabsMax {
		b.run(t, chromedp.KeyEvent(kb.Tab))
		if eval[bool](t, b, `document.activeElement.matches('#violation-table a[href="#v1"]')`) {
			break
		}
	}
	b.run(t, chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(chromedp.CSS(`#v1 > div`)))
	if got := eval[string](t, b, `document.querySelector("#v1 tr.breaks").textContent`); !strings.Contains(got, "danm-cleaner") || !strings.Contains(got, "DanmEp ep-new deleted") {
		t.Errorf("what broke it: %q", got)
	}
	if !eval[bool](t, b, `document.activeElement === document.querySelector("#v1 > summary")`) {
		t.Error("the story has not the focus")
	}
	b.expectQuiet(t)
}

func TestAHostileNameIsText(t *testing.T) {
	b := open(t, incidentPage(t, hostileName), 390, 844)
	b.run(t, do(`document.querySelectorAll("details").forEach((d) => { d.open = true; })`))
	if n := eval[int](t, b, `document.querySelectorAll("img").length`); n != 0 {
		t.Errorf("%d images came out of a name", n)
	}
	if !eval[bool](t, b, `document.querySelector("#v1").textContent.includes("<img src=x onerror=alert(1)></script>&amp;")`) {
		t.Error("the story does not show the name as it is")
	}
	if over := eval[int](t, b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
		t.Errorf("the name makes the page %d pixels wider than the screen", over)
	}
	if eval[bool](t, b, `document.documentElement.outerHTML.includes("\u202e")`) {
		t.Error("the name can turn the text around it")
	}
	if !eval[bool](t, b, `document.querySelector("#v1").textContent.includes("\\u{202e}txt.exe")`) {
		t.Error("the story does not show what would turn the text")
	}
	b.run(t, chromedp.Focus(chromedp.CSS(`figure:not([hidden]) svg.chart`)), chromedp.KeyEvent(kb.End))
	b.screenshot(t, "report-hostile.png")
	b.expectQuiet(t)
}

// long is a run of many iterations, in each of which three pods come and go.
func long(iterations int) ([]history.Record, harness.Result) {
	f := newRecorder()
	f.record(history.Record{Run: &history.Run{SchemaVersion: history.SchemaVersion, CleanerUser: "danm-cleaner", CNIUserPrefix: "system:node:"}})
	f.record(history.Record{Lane: &history.Lane{Name: "lane-0", Generation: 1, Namespace: fixtureNamespace, NetworkKind: "DanmNet", Network: fixtureNetwork, IPv4: true}})
	r := validResult()
	r.Iterations = nil
	const podsPerIteration = 3
	for i := range iterations {
		f.op(history.Invoke, 0, "fail-node", "node-0", true)
		for p := range podsPerIteration {
			pod, uid, host := fmt.Sprintf("ss-%d", p), fmt.Sprintf("uid-%d-%d", i, p), 10+(i*podsPerIteration+p)%200
			f.add(pod, uid, "ep-"+uid, host)
			f.pod(history.Deleted, "danm-harness", pod, uid)
			f.release(pod, uid, "ep-"+uid, host)
		}
		f.op(history.OK, 1, "restore-node", "node-0", false)
		r.Iterations = append(r.Iterations, iteration(i+1, check.Valid))
	}
	return f.records, r
}

func TestALongRunIsSmallAndOpensAtOnce(t *testing.T) {
	records, r := long(300)
	run := Run{Result: r, Records: records, builder: timeline.NewBuilder()}
	run.builder.Add(records...)
	dir := t.TempDir()
	if err := run.Write(dir, []Format{HTML}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, PageFile))
	if err != nil {
		t.Fatal(err)
	}
	const bytesMax, openMax = 3 << 20, 2000.0
	t.Logf("%d iterations, %d records: %d bytes", len(r.Iterations), len(records), info.Size())
	if info.Size() > bytesMax {
		t.Errorf("the page has %d bytes, more than %d", info.Size(), bytesMax)
	}
	url := "file://" + filepath.Join(dir, PageFile)
	b := open(t, url, 1280, 900)
	// A machine that does other work may be slow once, but not each time.
	const tries = 5
	best := math.Inf(1)
	for range tries {
		b.run(t, chromedp.Navigate(url))
		took := eval[float64](t, b, `performance.getEntriesByType("navigation")[0].loadEventEnd`)
		t.Logf("open after %.0f ms", took)
		if best = min(best, took); best <= openMax {
			break
		}
	}
	if best <= 0 || best > openMax {
		t.Errorf("the page opens in %.0f ms at best, more than %.0f", best, openMax)
	}
	b.expectQuiet(t)
}

func TestTheIndexLinksToRunsAndAsksForNothing(t *testing.T) {
	out := t.TempDir()
	for i, r := range []harness.Result{validResult(), invalidResult(), unknownResult()} {
		r.RunID = fmt.Sprintf("run-%d", i)
		dir := filepath.Join(out, r.RunID)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := Write(dir, r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := WriteIndex(out); err != nil {
		t.Fatal(err)
	}
	for name, width := range map[string]int64{"phone": 390, "desktop": 1280} {
		b := open(t, "file://"+filepath.Join(out, IndexFile), width, 900)
		if over := eval[int](t, b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
			t.Errorf("%s: the index is %d pixels wider than the screen", name, over)
		}
		b.screenshot(t, "index-"+name+".png")
		if poor := eval[[]string](t, b, contrastScript); len(poor) > 0 {
			t.Errorf("these are hard to read: %q", poor)
		}
		b.expectQuiet(t)
		b.run(t, chromedp.Click(chromedp.CSS(`#run-table tbody a`)), chromedp.WaitVisible(chromedp.CSS(`#iteration-table`)))
	}
}

func TestThePageOfAComparisonAsksForNothing(t *testing.T) {
	for name, sides := range comparisons() {
		data, err := RenderComparison(compare.Compare(sides[0], sides[1], compare.DefaultOptions()), HTML)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), ComparePage)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		b := open(t, "file://"+path, 390, 844)
		if over := eval[int](t, b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
			t.Errorf("%s: the page is %d pixels wider than the screen", name, over)
		}
		if n := eval[int](t, b, `document.querySelectorAll("img").length`); n != 0 {
			t.Errorf("%s: %d images came out of a name", name, n)
		}
		b.screenshot(t, "compare-"+name+".png")
		b.expectQuiet(t)
	}
}
