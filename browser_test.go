package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is a tab of a real Chromium that takes down what goes wrong in it.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	troubles []string // what the console said
}

// startBrowser skips the test where no Chromium is installed, unless
// FOREBAY_TEST_REQUIRE names chromium.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		if slices.Contains(strings.Split(os.Getenv("FOREBAY_TEST_REQUIRE"), ","), "chromium") {
			t.Fatal("chromium is required and not installed")
		}
		t.Skip("chromium is not installed: the debug pages are NOT tested in a browser")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true))
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	b := &browser{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatalf("%s does not start: %v", path, err)
	}
	for _, cmd := range []cdp.Command[cdp.Empty, cdp.Empty]{log.Enable, runtime.Enable} {
		if _, err := chromedp.Call(ctx, cmd, cdp.Empty{}); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b *browser) hear(event any) {
	trouble := ""
	switch e := event.(type) {
	case *log.EventEntryAdded:
		trouble = e.Entry.Text
	case *runtime.EventExceptionThrown:
		trouble = e.ExceptionDetails.Text
	case *runtime.EventConsoleAPICalled:
		trouble = "console." + string(e.Type)
	}
	if trouble != "" {
		b.mu.Lock()
		b.troubles = append(b.troubles, trouble)
		b.mu.Unlock()
	}
}

// took are the troubles since the last call.
func (b *browser) took() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.troubles
	b.troubles = nil
	return all
}

func (b *browser) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

// result is what an action gives.
func result[T any](b *browser, what string, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
	return value
}

// number is what an expression gives on the page.
func (b *browser) number(expression string) float64 {
	b.t.Helper()
	return result(b, expression, chromedp.Evaluate[float64](expression))
}

// open shows the page as on a screen of that width, light or dark.
func (b *browser) open(url string, width int64, scheme string) {
	b.t.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		b.t.Fatal(err)
	}
	b.do(url, chromedp.EmulateViewport(width, 900), chromedp.Navigate(url), chromedp.WaitReady("h1"))
}

// screenshot writes the page to docs/img, with -rewrite alone.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	if flag.Lookup("rewrite").Value.String() != "true" { // datadriven defines it
		return
	}
	if err := os.WriteFile(filepath.Join("docs", "img", name), result(b, name, chromedp.FullScreenshot(100)), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// readable checks the open page: nothing went wrong, it is no wider than the
// screen, and it is as light or as dark as was asked for.
func (b *browser) readable(what, scheme string) {
	b.t.Helper()
	if all := b.took(); len(all) > 0 {
		b.t.Errorf("%s: the console says %q", what, all)
	}
	if more := b.number("document.documentElement.scrollWidth - document.documentElement.clientWidth"); more > 0 {
		b.t.Errorf("%s: %v pixels are beyond the edge", what, more)
	}
	const bright = `(c => c.match(/\d+/g).slice(0, 3).reduce((a, x) => a + +x, 0) / 765)(getComputedStyle(document.%s).%s)`
	ground, text := b.number(fmt.Sprintf(bright, "body", "backgroundColor")), b.number(fmt.Sprintf(bright, "body", "color"))
	if dark := scheme == "dark"; dark != (ground < 0.2) || dark != (text > 0.7) {
		b.t.Errorf("%s, %s: text of brightness %.2f on %.2f", what, scheme, text, ground)
	}
}

// everywhere looks at a page on a phone and on a desk, by day and by night.
func (b *browser) everywhere(url string) {
	b.t.Helper()
	for _, width := range []int64{375, 1100} {
		for _, scheme := range []string{"light", "dark"} {
			b.open(url, width, scheme)
			b.readable(fmt.Sprintf("%s, %d pixels", url, width), scheme)
		}
	}
}

// TestPagesInABrowser opens the pages of a whole Forebay in a real Chromium.
func TestPagesInABrowser(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	p := serve(t)
	for range 5 {
		p.ask(chatBody("Hello!", nil))
	}
	b.everywhere(p.admin + "/debug/requests")
	b.everywhere(p.admin + "/debug/steps")
	if n := b.number(`document.querySelectorAll("svg rect.s-decode").length`); n < 5 {
		t.Errorf("%v steps are drawn", n)
	}
	b.open(p.admin+"/debug/requests", 1100, "light")
	b.do("search", chromedp.SetValue(`input[name=id]`, "nobody-at-all"), chromedp.Submit(`input[name=id]`), chromedp.WaitReady(".sentence"))
	if text := result(b, "sentence", chromedp.TextContent(".sentence")); !strings.Contains(text, "x-forebay-capture: 1") {
		t.Errorf("a request that is not there: %q", text)
	}
	b.took() // Chromium notes the status 404
	b.do("control", chromedp.Evaluate[chromedp.Void](`console.error("control")`), chromedp.Navigate("about:blank"))
	if len(b.took()) == 0 {
		t.Error("control: an error on the console is not seen")
	}
}
