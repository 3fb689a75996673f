package cli

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"

	"github.com/forebay-io/forebay/gateway/capture"
	"github.com/forebay-io/forebay/gateway/debug"
	"github.com/forebay-io/forebay/gateway/telemetry"
)

const debugData = "gateway/debug/testdata"

// slowedView is a kept request of an interactive class that a neighbour slowed.
func slowedView(t *testing.T) *capture.View {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(debugData, "view.json"))
	if err != nil {
		t.Fatal(err)
	}
	v := new(capture.View)
	if err := json.Unmarshal(text, v); err != nil {
		t.Fatal(err)
	}
	return v
}

// pagesOver serves the debug pages with that JSON for each path. A string is an
// answer of a broken proxy, an error is a refusal.
func pagesOver(t *testing.T, data map[string]any) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if r.URL.Query().Get("format") != "json" {
			if !strings.HasPrefix(path, "/debug/assets/") {
				path = "/debug/assets/page.html"
			}
			a, err := new(debug.Pages).Get(path, nil)
			if err != nil {
				t.Error(err)
				return
			}
			for name, value := range a.Header {
				w.Header().Set(name, value)
			}
			w.Write(a.Body)
			return
		}
		switch value := data[path].(type) {
		case string:
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, value)
		case error:
			w.WriteHeader(http.StatusNotFound)
			json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"message": value.Error()}})
		default:
			json.NewEncoder(w).Encode(value)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// outline has a line for each block of the page: its text, with the places that
// its links lead to, or the geometry of a bar.
const outline = `[...document.querySelectorAll("main :is(h1, h2, p:not(#read-at), li, tr, .buttons, svg[role=img] :is(text, rect))")].map((e) => {
	const links = [...e.querySelectorAll("a"), ...e.parentElement.tagName === "a" ? [e.parentElement] : []].map((a) => " -> " + a.getAttribute("href")).join("");
	if (e.tagName === "rect") return "  " + ["class", "x", "y", "width", "height"].map((name) => e.getAttribute(name)).join(" ") + ": " + e.textContent + links;
	return e.tagName.toLowerCase() + ": " + (e.tagName === "TR" ? [...e.children].map((c) => c.textContent).join(" | ") : e.textContent) + links;
}).join("\n") + "\n"`

// TestRequestPageHasItAll compares the page of a request with a file, which
// -rewrite writes anew.
func TestRequestPageHasItAll(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	v := slowedView(t)
	b.open(pagesOver(t, map[string]any{"/debug/requests/" + v.ID: v})+"/debug/requests/"+v.ID, 1100, "light")
	b.readable("the page", "light")
	text := result(b, "outline", chromedp.Evaluate[string](outline))
	name := filepath.Join(debugData, "request.txt")
	if flag.Lookup("rewrite").Value.String() == "true" { // datadriven defines it
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s differs; go test ./cli -run %s -rewrite writes it anew:\n%s", name, t.Name(), diff)
	}
}

// TestRequestPageTellsThePromise: the facts about the first token fit what is known.
func TestRequestPageTellsThePromise(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	pages, wants := map[string]any{}, map[string]string{}
	for id, c := range map[string]struct {
		v    capture.View
		want string
	}{
		"kept":    {capture.View{FirstTokenMS: 1500, PredictedMS: 1200, PredictionRatio: 1.25, FirstTokenGoalMS: 2000, Promise: "kept"}, "first token 1.5 s, 1.25 times the predicted 1.2 s;promised a first token within 2.0 s: kept"},
		"broken":  {capture.View{FirstTokenMS: 2400, PredictedMS: 1200, PredictionRatio: 2, FirstTokenGoalMS: 2000, Promise: "broken"}, "first token 2.4 s, 2.00 times the predicted 1.2 s;promised a first token within 2.0 s: !broken"},
		"revoked": {capture.View{PredictedMS: 1200, FirstTokenGoalMS: 2000, Promise: "revoked"}, "first token predicted after 1.2 s;promised a first token within 2.0 s: !revoked"},
		"late":    {capture.View{PredictedMS: 9000, FirstTokenGoalMS: 2000}, "first token predicted after 9.0 s;goal for the first token 2.0 s, not promised"},
		"open":    {capture.View{Running: true, FirstTokenGoalMS: 2000, Promise: "open"}, "promised a first token within 2.0 s: open"},
		"offline": {capture.View{FirstTokenMS: 1500}, "first token 1.5 s"},
	} {
		c.v.ID = id
		pages["/debug/requests/"+id], wants[id] = &c.v, c.want
	}
	url := pagesOver(t, pages)
	for id, want := range wants {
		b.open(url+"/debug/requests/"+id, 1100, "light")
		facts := `[...document.querySelectorAll(".facts li")].map((e) => e.querySelector(".bad") ? e.textContent.replace(/(\w+)$/, "!$1") : e.textContent).filter((s) => /first token/.test(s)).join(";")`
		if got := result(b, "the facts", chromedp.Evaluate[string](facts)); got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
}

// misdrawn counts the bars outside the drawing, without a colour, or not in line
// with a step.
const misdrawn = `(() => {
	const drawing = document.querySelector("svg[role=img]"), height = +drawing.getAttribute("height");
	const bars = [...drawing.querySelectorAll("rect")].map((r) => {
		const [x, width, y, h] = ["x", "width", "y", "height"].map((name) => parseFloat(r.getAttribute(name)));
		return {x, width, y, h, kind: r.getAttribute("class"), colour: getComputedStyle(r).fill};
	});
	const steps = new Map(bars.filter((b) => /^s-/.test(b.kind)).map((b) => [b.x, b]));
	return bars.filter((b) => {
		const step = steps.get(b.x);
		const part = /^(own|k )/.test(b.kind);
		return !(b.x >= 0 && b.width > 0 && b.x + b.width <= 100.002 && b.y >= 0 && b.h >= 0 && b.y + b.h <= height) || b.colour === "rgb(0, 0, 0)" ||
			part && (step?.width !== b.width || b.kind === "own" && b.y + b.h !== step.y + step.h);
	}).length;
})()`

// TestLanesAreAligned: whatever the request, every bar is within the drawing and
// has a colour, and the parts of a step stand over and under it.
func TestLanesAreAligned(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	full, odd := slowedView(t), slowedView(t)
	odd.WallMS, odd.Parts = 1, []capture.PartView{{Name: "queue", BeginMS: -5, MS: 1e9}, {Name: "x y\"<", BeginMS: 1e12, MS: 0}}
	odd.Steps[0].Kernels = append(odd.Steps[0].Kernels, capture.StepKernel{Class: "of tomorrow", MS: 1e6})
	url := pagesOver(t, map[string]any{"/debug/requests/full": full, "/debug/requests/empty": &capture.View{ID: "0"}, "/debug/requests/odd": odd})
	for name, bars := range map[string]float64{"full": float64(len(full.Parts) + len(full.Steps)), "empty": 0, "odd": 2 + float64(len(odd.Steps))} {
		b.open(url+"/debug/requests/"+name, 1100, "light")
		b.readable(name, "light")
		if n := b.number(misdrawn); n != 0 {
			t.Errorf("%s: %v bars are drawn badly", name, n)
		}
		if n := b.number(`document.querySelectorAll("svg[role=img] rect:is([class^=p-], [class^=s-])").length`); n != bars {
			t.Errorf("%s: %v bars, want %v", name, n, bars)
		}
		if n := b.number(`document.querySelectorAll("svg[role=img] line").length`); n < 2 || n > 6 {
			t.Errorf("%s: %v ticks", name, n)
		}
	}
	b.open(url+"/debug/requests/full", 1100, "light")
	b.do("control", chromedp.Evaluate[chromedp.Void](`document.querySelector("svg[role=img] rect").setAttribute("width", "101%")`))
	if b.number(misdrawn) == 0 {
		t.Error("control: a bar beyond the edge is not seen")
	}
}

// hostile stands for any name that a client chooses.
const hostile = `<img src=x onerror="document.title='taken'">"'&amp;</script><script>document.title='taken'</script><svg/onload=alert(1)>javascript:alert(1)`

// poisoned is value as JSON gives it, with every string replaced but times.
func poisoned(value any) any {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		panic(err)
	}
	var poison func(any) any
	poison = func(v any) any {
		switch v := v.(type) {
		case string:
			return hostile
		case []any:
			for i := range v {
				v[i] = poison(v[i])
			}
		case map[string]any:
			for key := range maps.Clone(v) {
				if key != "arrived" {
					v[key] = poison(v[key])
				}
			}
		}
		return v
	}
	return poison(tree)
}

// TestHostileDataStaysText: names, ids and errors are shown as they are; none
// becomes an element, a script or a link to another host.
func TestHostileDataStaysText(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	ended := debug.RequestEnded{Kept: true, Error: "e", Reasons: []string{"r"}, Broken: []string{"b"}, Sentence: "s", ClientID: "c"}
	data := map[string]any{
		"/debug/requests/one":        poisoned(slowedView(t)),
		"/debug/requests":            poisoned(debug.RequestsPage{InFlight: []debug.RequestLive{{ClientID: "c"}}, Slow: []debug.RequestEnded{ended}, Failed: []debug.RequestEnded{ended, {}}, Finished: []debug.RequestEnded{}}),
		"/debug/queue":               poisoned(debug.QueuePage{Classes: []debug.QueueClass{{}}, Tenants: []debug.QueueTenant{{}}, Waiting: []debug.QueueWaiting{{}}, Running: []debug.QueueRunning{{}}}),
		"/debug/budgets":             poisoned(debug.BudgetsPage{Limits: []debug.BudgetRow{{Name: "n"}}, Used: []telemetry.Use{{}}}),
		"/debug/steps":               poisoned(debug.StepsPage{Steps: []debug.StepRow{{Kernels: []debug.StepRun{{}}}}, Error: "e"}),
		"/debug/requests/" + hostile: fmt.Errorf("No request is named %s", hostile),
	}
	url := pagesOver(t, data)
	query := "?class=" + strings.NewReplacer(" ", "+", "&", "%26").Replace(hostile)
	for _, path := range []string{"/debug/requests/one", "/debug/requests" + query, "/debug/queue", "/debug/budgets", "/debug/steps", "/debug/requests/" + strings.ReplaceAll(hostile, "/", "%2F")} {
		b.took()
		b.open(url+path, 1100, "light")
		if missing := strings.Contains(path, "%2F"); !missing {
			b.readable(path, "light")
		}
		if n := b.number(`document.querySelectorAll("img, script:not([src^='/debug/assets/']), iframe, object, style, [onerror], [onload], [style]").length`); n != 0 {
			t.Errorf("%s: %v elements come from the data", path, n)
		}
		if n := b.number(`[...document.querySelectorAll("a, form")].map((e) => new URL(e.getAttribute("href") ?? e.getAttribute("action"), location)).filter((u) => u.origin !== location.origin || !/^.(debug.|metrics$)/.test(u.pathname)).length`); n != 0 {
			t.Errorf("%s: %v links lead elsewhere", path, n)
		}
		if text := result(b, path, chromedp.TextContent("main")); !strings.Contains(text, hostile) {
			t.Errorf("%s: the text is not shown as it is: %.300q", path, text)
		}
		if title := result(b, "title", chromedp.Title()); title == "taken" {
			t.Errorf("%s: a script of the data ran", path)
		}
	}
	// The policy holds even against our own scripts.
	if b.number(`(() => { try { document.body.innerHTML = "<b>x</b>"; return 1 } catch { return 0 } })()`) != 0 {
		t.Error("a string can become markup")
	}
	b.number(`(() => { const s = document.createElement("script"); s.append("document.title = 'taken'"); document.body.append(s); return 0 })()`)
	if title := result(b, "title", chromedp.Title()); title == "taken" {
		t.Error("an inline script runs")
	}
}

// TestPagesSayWhatIsWrong: without JavaScript, and without Forebay.
func TestPagesSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	url := pagesOver(t, map[string]any{"/debug/steps": "<h1>502 Bad Gateway</h1>", "/debug/queue": &debug.QueuePage{Classes: []debug.QueueClass{}, Tenants: []debug.QueueTenant{}, Waiting: []debug.QueueWaiting{}, Running: []debug.QueueRunning{}, Brownout: 2, Degraded: true}})
	b.open(url+"/debug/steps", 1100, "light")
	if text := result(b, "sentence", chromedp.TextContent(".sentence")); !strings.Contains(text, "does not answer") {
		t.Errorf("behind a broken proxy: %q", text)
	}
	b.took()
	b.open(url+"/debug/queue", 1100, "light")
	b.readable("an empty queue", "light")
	text := result(b, "queue", chromedp.TextContent("main"))
	for _, want := range []string{"Nothing waits.", "Nothing runs.", "Overload: step 2", "store of budgets does not answer"} {
		if !strings.Contains(text, want) {
			t.Errorf("an empty queue does not say %q: %q", want, text)
		}
	}
	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	b.do("no script", chromedp.Navigate(url+"/debug/queue"), chromedp.WaitReady("nav"))
	if text := result(b, "page", chromedp.TextContent("main")); !strings.Contains(text, "needs JavaScript") {
		t.Errorf("without JavaScript the page says %q", text)
	}
}
