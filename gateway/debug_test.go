package gateway

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/valyala/fasthttp"

	"github.com/forebay-io/forebay/gateway/capture"
	"github.com/forebay-io/forebay/gateway/spans"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// keptViews is a Kept of a list, newest first.
type keptViews []*capture.View

func (k keptViews) List(capture.Filter) []*capture.View { return k }

func (k keptViews) Find(name string) *capture.View {
	for _, v := range k {
		if name == v.ID || name == v.ClientID || name == v.TraceID {
			return v
		}
	}
	return nil
}

// Trees is one span with the view's ids and sentence.
func (k keptViews) Trees(name string, _ spans.Names) []spans.Tree {
	v := k.Find(name)
	if v == nil {
		return nil
	}
	t := spans.Tree{Spans: []spans.Span{{Name: "request", Begin: 1, End: 2, Attributes: []spans.Attribute{spans.String("forebay.sentence", v.Sentence)}}}}
	hex.Decode(t.TraceID[:], []byte(v.TraceID))
	hex.Decode(t.Spans[0].ID[:], []byte(v.SpanID))
	return []spans.Tree{t}
}

// slowedView is a request that a neighbour's prompt slowed, with hostile words
// wherever a client chooses them.
func slowedView(t *testing.T) *capture.View {
	t.Helper()
	text, err := os.ReadFile("testdata/view.json")
	if err != nil {
		t.Fatal(err)
	}
	v := new(capture.View)
	if err := json.Unmarshal(text, v); err != nil {
		t.Fatal(err)
	}
	return v
}

// pagesOf are the pages over views and an idle gateway.
func pagesOf(t *testing.T, views ...*capture.View) *debugPages {
	return &debugPages{simpleRig(t, hello).gw, keptViews(views)}
}

// page asks one page without a connection.
func page(serve func(*fasthttp.RequestCtx) *failure, target string) response {
	c := new(fasthttp.RequestCtx)
	c.Request.SetRequestURI("http://admin" + target)
	if f := serve(c); f != nil {
		writeFailure(c, f)
	}
	r := response{status: c.Response.StatusCode(), body: string(c.Response.Body()), header: map[string][]string{}}
	for key, value := range c.Response.Header.All() {
		r.header.Set(string(key), string(value))
	}
	return r
}

// golden compares text with a file of testdata, or writes it with -rewrite.
func golden(t *testing.T, name, text string) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if flag.Lookup("rewrite").Value.String() == "true" { // datadriven defines it
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s differs; go test ./gateway -run %s -rewrite writes it anew:\n%s", name, t.Name(), diff)
	}
}

func TestRequestPage(t *testing.T) {
	v := slowedView(t)
	d := pagesOf(t, v)
	html := page(d.request, requestPath(v.ID))
	if html.status != 200 || !strings.HasPrefix(html.header.Get("Content-Type"), "text/html") {
		t.Fatalf("%d %v", html.status, html.header)
	}
	golden(t, "request.html", html.body)
	for _, id := range []string{v.ID[:idBytesLeast], v.TraceID, v.ClientID, "%" + "2e" + "%2e/x"} {
		resp := page(d.request, requestsPath+"/"+strings.ReplaceAll(id, " ", "%20")+"?format=json")
		if found := resp.status == 200; found != (id[0] != '%') {
			t.Errorf("%s: %d %s", id, resp.status, resp.body)
		} else if !found {
			continue
		}
		again := new(capture.View)
		if err := json.Unmarshal([]byte(resp.body), again); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(v, again, cmp.AllowUnexported(capture.View{})); diff != "" {
			t.Errorf("the JSON is not the view:\n%s", diff)
		}
	}
}

// TestRequestFiles: what other programs open has every part and step.
func TestRequestFiles(t *testing.T) {
	v := slowedView(t)
	d := pagesOf(t, v)
	for format, wants := range map[string][]string{
		"perfetto": {`"traceEvents"`, `"decode"`, "attention_prefill", v.TraceID},
		"otlp":     {`"resourceSpans"`, v.TraceID, v.SpanID, "forebay.sentence"},
	} {
		resp := page(d.request, requestPath(v.ID)+"?format="+format)
		if resp.status != 200 || !json.Valid([]byte(resp.body)) || !strings.Contains(resp.header.Get("Content-Disposition"), v.ID+"."+format+".json") {
			t.Errorf("%s: %d %v", format, resp.status, resp.header)
		}
		for _, want := range wants {
			if !strings.Contains(strings.ToLower(resp.body), strings.ToLower(want)) { // OTLP's ids are upper case here
				t.Errorf("%s: there is no %q among %d bytes", format, want, len(resp.body))
			}
		}
	}
}

var (
	geometry = regexp.MustCompile(`<rect class="([a-z0-9_-]+)" x="([0-9.]+)%" y="([0-9]+)" width="([0-9.]+)%" height="([0-9]+)"`)
	colours  = regexp.MustCompile(`\.([a-z][a-z0-9_-]*)[,{]`)
)

// TestLanesAreAligned: whatever the view, every bar is within the drawing and of
// a colour that the style sheet has, and the bars of a step stand over each other.
func TestLanesAreAligned(t *testing.T) {
	known := map[string]bool{}
	for _, m := range colours.FindAllStringSubmatch(debugStyle, -1) {
		known[m[1]] = true
	}
	full := slowedView(t)
	empty := &capture.View{ID: "0"}
	odd := *full
	odd.WallMS, odd.Parts = 1, []capture.PartView{{Name: "queue", BeginMS: -5, MS: 1e9}, {Name: "x y\"<", BeginMS: 1e12, MS: 0}}
	for i, v := range []*capture.View{full, empty, &odd} {
		w := newWaterfall(v)
		for _, b := range append(append(append(w.Phases, w.Steps...), w.Own...), w.Kernels...) {
			if b.X < 0 || b.W <= 0 || b.X+b.W > 100+1e-9 || b.Y < 0 || b.Y+b.H > w.Height || b.H < 0 {
				t.Errorf("view %d: out of the drawing: %+v", i, b)
			}
			if !known[b.Kind] {
				t.Errorf("view %d: no colour for %q", i, b.Kind)
			}
		}
		if n := len(w.Ticks); n < 2 || n > 6 {
			t.Errorf("view %d: %d ticks of %v ms", i, n, v.WallMS)
		}
	}
	w := newWaterfall(full)
	steps := map[float64]bar{}
	for _, b := range w.Steps {
		steps[b.X] = b
	}
	for _, b := range append(w.Own, w.Kernels...) {
		if whole, ok := steps[b.X]; !ok || b.W != whole.W || b.Kind == "own" && b.Y+b.H != whole.Y+whole.H {
			t.Errorf("%q is not in line with its step: %+v", b.Title, b)
		}
	}
	body := page(pagesOf(t, full).request, requestPath(full.ID)).body
	if n := len(geometry.FindAllString(body, -1)); n < len(w.Phases)+len(w.Steps)+len(w.Own)+len(w.Kernels) {
		t.Errorf("%d bars are drawn", n)
	}
	for k := range wire.KernelClassCount {
		if !known[kernelKind(k.String())] {
			t.Errorf("no colour for %s", k)
		}
	}
}

// TestPagesAreStrict: nothing is loaded or run, the one style sheet is that of
// the hash, and what a client chose is text.
func TestPagesAreStrict(t *testing.T) {
	v := slowedView(t)
	d := pagesOf(t, v)
	for target, serve := range map[string]func(*fasthttp.RequestCtx) *failure{
		requestPath(v.ID): d.request, requestsPath: d.requests, stepsPath: d.steps, requestsPath + "/%3Cscript%3Enone": d.request,
		requestsPath + "?class=%22%3E%3Cscript%3E": d.requests,
	} {
		resp := page(serve, target)
		for _, bad := range []string{"<script", "<img", "http:", "https:", "style=", "onload", "ZgotmplZ", "javascript:"} {
			if strings.Contains(resp.body, bad) {
				t.Errorf("%s: the page has %q", target, bad)
			}
		}
		_, style, _ := strings.Cut(resp.body, "<style>")
		style, _, _ = strings.Cut(style, "</style>")
		sum := sha256.Sum256([]byte(style))
		policy := resp.header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") || !strings.Contains(policy, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") {
			t.Errorf("%s: policy %q does not allow its own style", target, policy)
		}
	}
}

func TestRequestsAreFiltered(t *testing.T) {
	slow, failed, fine := slowedView(t), slowedView(t), slowedView(t)
	failed.ID, failed.Outcome, failed.Broken, failed.Reasons, failed.Class, failed.WallMS = "f0f0f0f0f0", "engine_error", nil, []string{"failed"}, "batch", 20
	fine.ID, fine.Broken, fine.Reasons, fine.Tenant, fine.WallMS = "0c0c0c0c0c", nil, []string{"baseline"}, "other", 10
	d := pagesOf(t, slow, failed, fine)
	for query, want := range map[string]string{
		"":                          "3 1 1",
		"&class=batch":              "1 0 1",
		"&tenant=other":             "1 0 0",
		"&outcome=ok":               "2 1 0",
		"&reason=failed":            "1 0 1",
		"&reason=" + slow.Broken[0]: "1 1 0",
		"&min_ms=15":                "2 1 1",
		"&min_ms=1e9":               "0 0 0",
		"&class=batch&outcome=ok":   "0 0 0",
	} {
		resp := page(d.requests, requestsPath+"?format=json"+query)
		var p RequestsPage
		if err := json.Unmarshal([]byte(resp.body), &p); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join([]string{strconv.Itoa(len(p.Finished)), strconv.Itoa(len(p.Slow)), strconv.Itoa(len(p.Failed))}, " "); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	for _, bad := range []string{"?min_ms=soon", "?min_ms=-1", "?min_ms=NaN", "?format=xml"} {
		if resp := page(d.requests, requestsPath+bad); resp.status != 400 || !strings.Contains(resp.body, "must be") {
			t.Errorf("%s: %d %s", bad, resp.status, resp.body)
		}
	}
	if resp := page(d.requests, requestsPath+"?id=a/b%23c"); resp.status != 303 || resp.header.Get("Location") != requestsPath+"/a%2Fb%23c" {
		t.Errorf("the search leads to %d %q", resp.status, resp.header.Get("Location"))
	}
	html := page(d.requests, requestsPath)
	for _, want := range []string{requestPath(failed.ID), "engine_error", "baseline", slow.Broken[0]} {
		if !strings.Contains(html.body, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
}

// TestRequestsThatWereNotKept: the page says why, and what to do.
func TestRequestsThatWereNotKept(t *testing.T) {
	r := simpleRig(t, hello)
	id := r.do("POST", "/v1/chat/completions", chatBody(""), "X-Request-Id", "mine-1").header.Get("X-Request-Id")
	r.settled()
	d := &debugPages{r.gw, keptViews{}}
	for target, want := range map[string]string{id: "was not kept", "mine-": "At least", "nobody-1": "No request is named"} {
		for _, format := range []string{"", "?format=json"} {
			resp := page(d.request, requestPath(target)+format)
			if resp.status != 404 || !strings.Contains(resp.body, want) {
				t.Errorf("%s%s: %d %s", target, format, resp.status, resp.body)
			}
			if want != "At least" && !strings.Contains(resp.body, "x-forebay-capture: 1") {
				t.Errorf("%s%s: does not say how to keep the next", target, format)
			}
		}
	}
}

func TestRunningRequestIsShown(t *testing.T) {
	r := simpleRig(t, wiretest.Script{Hang: true})
	c := r.dial()
	defer c.Close()
	if _, err := c.Write([]byte(rawPost("/v1/chat/completions", chatBody(`"stream":true`), "X-Request-Id: still-there"))); err != nil {
		t.Fatal(err)
	}
	eventually(3*time.Second, func() bool { return r.fifo.Load().Running == 1 })
	d := &debugPages{r.gw, keptViews{}}
	resp := page(d.request, requestsPath+"/still-?format=json")
	var v capture.View
	if err := json.Unmarshal([]byte(resp.body), &v); err != nil || resp.status != 200 {
		t.Fatalf("%d %v", resp.status, err)
	}
	sum := 0.0
	for _, p := range v.Parts {
		sum += p.MS
	}
	if !v.Running || len(v.ID) != 32 || v.Class != "interactive" || sum < v.WallMS-1e-6 || sum > v.WallMS+1e-6 || !strings.Contains(v.Sentence, "still runs") {
		t.Errorf("%+v", v)
	}
	if html := page(d.request, requestPath(v.ID)); html.status != 200 || !strings.Contains(html.body, "still running") {
		t.Errorf("%d %s", html.status, html.body)
	}
}

func TestStepsPage(t *testing.T) {
	log := wire.NewStepLog(8)
	for i := range 10 {
		r := wire.StepRecord{Step: uint64(i + 1), Began: int64(i) * 10e6, Ended: int64(i)*10e6 + 5e6, Gap: time.Millisecond, DecodeRows: 2, PagesUsed: 7, LeftOutMore: 1}
		if i == 9 {
			r.PrefillTokens = 300
			r.Kernels[wire.KernelMLP] = wire.KernelTime{Count: 4, Total: 3 * time.Millisecond, Max: time.Millisecond}
		}
		log.Add(&r)
	}
	p := stepsPage(&wire.State{Err: &wire.Error{Message: "gone"}, Pages: wire.Pages{PagesTotal: 9}, Load: wire.Load{Sequences: 2}, Steps: log}, 100e6)
	if len(p.Steps) != 8 || p.Steps[0].Step != 10 || p.Steps[0].AgoMS != 5 || p.Steps[0].MS != 5 || p.Steps[0].LeftOut != 1 || p.DecodeTokens != 16 || p.PrefillTokens != 300 || p.OverMS != 75 || p.Pages.Total != 9 || p.Error != "gone" {
		t.Errorf("%+v", p)
	}
	if k := p.Steps[0].Kernels; len(k) != 1 || k[0] != (StepRun{"mlp", 4, 3, 1}) {
		t.Errorf("kernels %+v", k)
	}
	strip := stepStrip(p)
	if len(strip) != 8 || strip[7].Kind != stepOthers || strip[0].Kind != stepDecode || strip[7].X <= strip[0].X {
		t.Errorf("strip %+v", strip)
	}
	if p = stepsPage(&wire.State{}, 0); len(p.Steps) != 0 || p.Steps == nil {
		t.Errorf("without a log: %+v", p)
	}
	r := simpleRig(t, hello)
	r.chat("")
	for _, target := range []string{stepsPath, stepsPath + "?format=json"} {
		if resp := r.adminDo("GET", target); resp.status != 200 || !strings.Contains(resp.body, "decode") {
			t.Errorf("%s: %d", target, resp.status)
		}
	}
	if resp := r.do("GET", stepsPath, ""); resp.status != 404 {
		t.Errorf("clients see steps: %d", resp.status)
	}
}

func TestRecent(t *testing.T) {
	const now = int64(time.Hour)
	var records []telemetry.Record
	for i := range 200 { // one a second, newest first
		end := now - int64(i)*int64(time.Second)
		r := telemetry.Record{Arrived: end - 2e9, Prepared: end - 1e9, FirstToken: end - 2e9 + int64(i+1)*1e6, FirstWrite: 1, Finished: end, CompletionTokens: 3, Outcome: telemetry.OK}
		if i%10 == 0 {
			r.Outcome = telemetry.EngineError
		}
		records = append(records, r)
	}
	if s := recentOf(records, now); s != (Recent{OverMS: 60000, Finished: 61, Failed: 7, Tokens: 183, FirstTokenP50: 31, FirstTokenP99: 61}) {
		t.Errorf("%+v", s)
	}
	if s := recentOf(records[:10], now); s.Finished != 10 || s.OverMS != 9000 {
		t.Errorf("a short ring: %+v", s)
	}
	if s := recentOf(nil, now); s.Finished != 0 || s.FirstTokenP99 != 0 {
		t.Errorf("nothing: %+v", s)
	}
}

// TestNoTextOnPages: no word of a prompt or an answer is on any page.
func TestNoTextOnPages(t *testing.T) {
	const canary = "canary7531"
	r := simpleRig(t, wiretest.Script{Pieces: []string{canary, " said"}})
	body := strings.Replace(chatBody(""), `"hi"`, `"`+canary+`"`, 1)
	if resp := r.do("POST", "/v1/chat/completions", body); !strings.Contains(resp.body, canary) {
		t.Fatalf("control: the answer has no canary: %s", resp.body)
	}
	r.do("POST", "/v1/chat/completions", strings.Replace(body, `"fake"`, `"`+canary+`"`, 1))
	r.do("POST", "/v1/chat/completions", strings.Replace(body, "{", `{"`+canary+`":1,"n":0,`, 1))
	r.settled()
	for _, target := range []string{requestsPath, stepsPath, queuePath} {
		for _, format := range []string{"", "?format=json"} {
			if resp := r.adminDo("GET", target+format); resp.status != 200 || strings.Contains(resp.body, canary) {
				t.Errorf("%s%s: %d, canary %v", target, format, resp.status, strings.Contains(resp.body, canary))
			}
		}
	}
}

// TestOperationsExplainEveryName: what the pages name, docs/operations.md explains.
func TestOperationsExplainEveryName(t *testing.T) {
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	new(capture.Stats).Each(func(reason string, _ uint64) { names = append(names, reason) }, func(string, uint64) {})
	for name := range meanings {
		names = append(names, name)
	}
	for part := range wire.PartCount {
		names = append(names, part.String())
		if meaningOf(part.String()) == "" {
			t.Errorf("the pages do not say what %s means", part)
		}
	}
	for _, name := range names {
		if name != "before" && !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/operations.md says nothing of %s", name)
		}
	}
	for _, name := range slowReasons {
		if !slices.Contains(names, name) {
			t.Errorf("there is no reason %s", name)
		}
	}
}
