package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
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

	"github.com/forebay-io/forebay/gateway/capture"
)

// browser is a tab of a real Chromium. It notes what goes wrong in it.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	troubles []string // what the console said
}

// startBrowser skips the test if no Chromium is installed, unless
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

// took returns the troubles since the last call.
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

// result runs an action and returns its value.
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

// number evaluates an expression on the page.
func (b *browser) number(expression string) float64 {
	b.t.Helper()
	return result(b, expression, chromedp.Evaluate[float64](expression))
}

// shown is on a page once its script has built it.
const shown = "main:not([aria-busy])"

// open shows the page on a screen of that width, light or dark.
func (b *browser) open(url string, width int64, scheme string) {
	b.t.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		b.t.Fatal(err)
	}
	b.do(url, chromedp.EmulateViewport(width, 900), chromedp.Navigate(url), chromedp.WaitReady(shown))
}

// screenshot writes the screen to docs/img, only with -rewrite.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	if flag.Lookup("rewrite").Value.String() != "true" { // datadriven defines it
		return
	}
	if err := os.WriteFile(filepath.Join("docs", "img", name), result(b, name, chromedp.CaptureScreenshot()), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// readable checks the open page: nothing went wrong, it is no wider than the
// screen, and it is light or dark as asked.
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

// everywhere checks a page on a phone and on a desktop, light and dark.
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
	for _, page := range []string{"/debug/requests", "/debug/queue", "/debug/budgets", "/debug/steps"} {
		b.everywhere(p.admin + page)
	}
	if n := b.number(`document.querySelectorAll("svg rect.s-decode").length`); n < 5 {
		t.Errorf("%v steps are drawn", n)
	}
	p.chatOf(chatBody("kept", map[string]any{"max_tokens": 3}), func() {})
	b.open(p.admin+"/debug/requests", 1300, "light")
	if cut := b.number(`Math.max(...[...document.querySelectorAll(".table")].map((t) => t.scrollWidth - t.clientWidth))`); cut > 0 {
		t.Errorf("at a width of 1300 pixels %v of a table's are cut off", cut)
	}
	b.open(p.admin+"/debug/requests", 1100, "light")
	if n := b.number(`document.querySelectorAll("main tbody tr").length`); n < 5 {
		t.Errorf("%v requests are listed", n)
	}
	b.do("search", chromedp.SetValue(`input[name=id]`, "nobody-at-all"), chromedp.Submit(`input[name=id]`), chromedp.WaitReady(".sentence"))
	if text := result(b, "sentence", chromedp.TextContent(".sentence")); !strings.Contains(text, "x-forebay-capture: 1") {
		t.Errorf("a request that is not there: %q", text)
	}
	b.took() // Chromium notes the status 404
	b.open(p.admin+"/debug/queue", 1100, "light")
	for _, mode := range []string{"paused", "open"} {
		b.do(mode, chromedp.Submit(`form[action="/debug/queue/offline?mode=`+mode+`"]`), chromedp.WaitReady(`tr:has(form[action*="/offline?"]):not(:has(form[action*="mode=`+mode+`"]))`))
		if text := result(b, mode, chromedp.TextContent(`tr:has(form[action*="/offline?"])`)); !strings.HasPrefix(text, "offline"+mode) {
			t.Errorf("after the button: %q", text)
		}
	}
	b.readable("the queue after its buttons", "light")
	b.do("control", chromedp.Evaluate[chromedp.Void](`console.error("control")`), chromedp.Navigate("about:blank"))
	if len(b.took()) == 0 {
		t.Error("control: an error on the console is not seen")
	}
}

// slowedConfig has a goal that no request meets beside a neighbour.
const slowedConfig = `
admission: {classes: [{name: interactive, first_token_goal: 1h, token_goal: 5ms}]}
engine: {kernels: ref, threads: 1, kv_type: f32, long_stretch: 8}
`

// named sends a chat with that X-Request-Id and asks to keep it.
func (p *process) named(id string, body map[string]any) *http.Response {
	p.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.url+"/v1/chat/completions", bytes.NewReader(text))
	if err != nil {
		p.t.Fatal(err)
	}
	for key, value := range map[string]string{"Content-Type": "application/json", "X-Request-Id": id, "X-Forebay-Capture": "1"} {
		request.Header.Set(key, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		p.t.Fatalf("%s: status %d", id, response.StatusCode)
	}
	return response
}

// slowByNeighbour slows a streamed answer by another request's long prompt. It
// returns what was kept of the answer, and the neighbour's id.
func slowByNeighbour(t *testing.T, p *process) (*capture.View, string) {
	t.Helper()
	streamed := p.named("streamed", chatBody("Tell me a "+pageCanary, map[string]any{"stream": true, "ignore_eos": true, "max_tokens": 120}))
	lines := bufio.NewReader(streamed.Body)
	for range 12 { // some tokens alone
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	report := p.named("report", chatBody(strings.Repeat("one more word of a long "+pageCanary+" report, ", 40), map[string]any{"max_tokens": 1}))
	if _, err := io.Copy(io.Discard, io.MultiReader(report.Body, lines)); err != nil {
		t.Fatal(err)
	}
	view, neighbour := p.kept("streamed"), p.kept("report")
	return view, neighbour.ID
}

// pageCanary is a word of the prompts; it must appear nowhere else.
const pageCanary = "canary4219"

// stepBars counts the bars of each kind that a view's steps must have, at least
// and at most: a part that is too small to see has no bar.
func stepBars(v *capture.View) map[string][2]float64 {
	bars := map[string][2]float64{}
	count := func(kind string, seen bool) {
		n := bars[kind]
		if n[1]++; seen {
			n[0]++
		}
		bars[kind] = n
	}
	for i := range v.Steps {
		s := &v.Steps[i]
		lost := 2*s.LostMS >= s.MS // another program had the processor
		if lost {
			count("s-lost", true)
		}
		switch {
		case !s.Member:
			continue
		case lost:
		case s.PrefillTokens > s.OthersPrefill:
			count("s-own", true)
		case s.OthersPrefill > 0:
			count("s-others", true)
		}
		count("own", s.OwnMS > s.MS/4)
		for _, k := range s.Kernels {
			if k.Class == "mlp" || k.Class == "attention_prefill" {
				count("k-"+k.Class, k.MS > s.MS/4)
			}
		}
	}
	return bars
}

// kept returns the page of an ended request.
func (p *process) kept(id string) *capture.View {
	p.t.Helper()
	v := new(capture.View)
	eventually(p.t, id+" is kept", func() bool {
		response, err := http.Get(p.admin + "/debug/requests/" + id + "?format=json")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		*v = capture.View{}
		return json.NewDecoder(response.Body).Decode(v) == nil && response.StatusCode == http.StatusOK && !v.Running
	})
	return v
}

// TestNeighbourIsNamed: another request's prompt slows a stream; the page says so
// in its first sentence and draws it in three lanes.
func TestNeighbourIsNamed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "forebay.yaml")
	if err := os.WriteFile(file, []byte(slowedConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--config", file)
	view, neighbour := slowByNeighbour(t, p)
	sum := 0.0
	for _, part := range view.Parts {
		sum += part.MS
	}
	if math.Abs(sum-view.WallMS) > max(1, view.WallMS/100) {
		t.Errorf("the parts sum to %v of %v ms", sum, view.WallMS)
	}
	named := view.Cause == "others_prefill" && strings.Contains(view.Sentence, neighbour)
	if view.Cause == "taken" { // by the programs of other tests, which is then the truth
		lost := 0.0
		for i := range view.Steps {
			lost += view.Steps[i].LostMS
		}
		t.Logf("the machine was taken for %.0f of %.0f ms", lost, view.WallMS)
		named = lost > view.WallMS/10
	}
	if !named || len(view.Broken) == 0 || len(view.Steps) == 0 || len(view.Kernels) == 0 {
		t.Errorf("the neighbour is %s, the cause %q: %s", neighbour, view.Cause, view.Sentence)
	}
	for _, page := range []string{"", "/streamed", "/" + neighbour[:8], "/streamed?format=json", "/streamed?format=otlp", "/streamed?format=perfetto"} {
		response, err := http.Get(p.admin + "/debug/requests" + page)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != http.StatusOK || bytes.Contains(text, []byte(pageCanary)) {
			t.Errorf("%q: status %d, holds a prompt: %v", page, response.StatusCode, bytes.Contains(text, []byte(pageCanary)))
		}
	}
	if strings.Contains(p.output(), pageCanary) {
		t.Error("the log holds a prompt")
	}
	out, _ := run(t, "", "trace", "show", "streamed", "--admin", strings.TrimPrefix(p.admin, "http://"))
	if !strings.HasPrefix(out, view.Sentence) {
		t.Errorf("forebay trace show: %s", out)
	}

	b := startBrowser(t)
	url := p.admin + "/debug/requests/streamed"
	b.everywhere(url)
	b.open(url, 375, "dark")
	b.screenshot("request-slowed-phone.png")
	b.open(url, 1100, "light")
	b.screenshot("request-slowed.png")
	if text := result(b, "sentence", chromedp.TextContent(".sentence")); text != view.Sentence {
		t.Errorf("the page says %q", text)
	}
	drawn := func(kind string) float64 {
		return b.number(fmt.Sprintf(`document.querySelectorAll("svg[role=img] rect.%s").length`, kind))
	}
	bars := stepBars(view)
	for _, kind := range []string{"s-own", "s-others", "s-lost", "own", "k-mlp", "k-attention_prefill"} {
		want := bars[kind]
		if n := drawn(kind); n < want[0] || n > want[1] || want[1] == 0 && kind != "s-lost" && kind != "s-own" {
			t.Errorf("%v bars of %s; want %v to %v", n, kind, want[0], want[1])
		}
	}
	if drawn("p-decode") != 1 {
		t.Error("the phase decode is not drawn once")
	}
	// A step of the neighbour's leads to its page.
	b.do("follow", chromedp.Evaluate[chromedp.Void](`document.querySelector("svg a:has(rect.s-others)").dispatchEvent(new MouseEvent("click", {bubbles: true}))`), chromedp.WaitReady(`a[href$="`+view.ID+`"]`))
	if at := result(b, "where", chromedp.Location()); !strings.HasSuffix(at, neighbour) {
		t.Errorf("the step leads to %s, the neighbour is %s", at, neighbour)
	}
	b.readable("the neighbour's page", "light")
}
