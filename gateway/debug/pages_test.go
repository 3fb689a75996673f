package debug

import (
	"encoding/hex"
	"encoding/json"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/gateway/capture"
	"github.com/forebay-io/forebay/gateway/spans"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// keptViews is a Kept of a list, newest first.
type keptViews []*capture.View

func (k keptViews) List() []*capture.View { return k }

func (keptViews) Explain(r *telemetry.Record) *capture.View {
	if r.ID == "eeeeeeeeee" {
		return &capture.View{ID: r.ID, Unkept: true}
	}
	return nil
}

func (k keptViews) Launches(string) []byte { return nil }

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

// emptyQueue has no requests.
type emptyQueue struct{ admission.Controller }

func (emptyQueue) View() admission.View { return admission.View{} }

// pagesOf are the pages over views and an idle gateway.
func pagesOf(views ...*capture.View) *Pages {
	return &Pages{Sources{
		Engine: wiretest.NewFake(wiretest.Script{}), Admission: emptyQueue{}, Kept: keptViews(views), Version: "test",
		Records: func(int) []telemetry.Record { return nil }, Live: func() []RequestLive { return nil }, LimiterDegraded: func() bool { return true },
	}}
}

// get asks for a page; a refusal has the status that the test expects of it.
func (p *Pages) get(t *testing.T, target string) (*Answer, *Refusal) {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	a, err := p.Get(u.EscapedPath(), u.Query())
	refusal, _ := err.(*Refusal)
	if err != nil && refusal == nil {
		t.Fatal(err)
	}
	return a, refusal
}

func TestRequestIsFoundByAnyName(t *testing.T) {
	v := slowedView(t)
	p := pagesOf(v)
	for _, id := range []string{v.ID, v.ID[:idBytesMin], v.TraceID, v.ClientID} {
		target := RequestsPath + "/" + url.PathEscape(id)
		a, refusal := p.get(t, target+"?format=json")
		if refusal != nil {
			t.Errorf("%s: %v", id, refusal)
			continue
		}
		again := new(capture.View)
		if err := json.Unmarshal(a.Body, again); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(v, again, cmp.AllowUnexported(capture.View{})); diff != "" {
			t.Errorf("the JSON is not the view:\n%s", diff)
		}
		if a, _ = p.get(t, target); a.Status != 200 {
			t.Errorf("the page of %s has status %d", id, a.Status)
		}
	}
	for _, id := range []string{"%2e%2e/x", "nobody", v.ID[:idBytesMin-1]} {
		if _, refusal := p.get(t, RequestsPath+"/"+id+"?format=json"); refusal == nil || refusal.Kind != NotFound || !strings.Contains(refusal.Message, "No request is named") {
			t.Errorf("%s: %v", id, refusal)
		}
		if a, _ := p.get(t, RequestsPath+"/"+id); a.Status != 404 {
			t.Errorf("the page of %s has status %d", id, a.Status)
		}
	}
}

// TestRequestFiles: what other programs open has every part and step.
func TestRequestFiles(t *testing.T) {
	v := slowedView(t)
	p := pagesOf(v)
	for format, wants := range map[string][]string{
		"perfetto": {`"traceEvents"`, `"decode"`, "attention_prefill", v.TraceID},
		"otlp":     {`"resourceSpans"`, v.TraceID, v.SpanID, "forebay.sentence"},
	} {
		a, refusal := p.get(t, RequestsPath+"/"+v.ID+"?format="+format)
		if refusal != nil || !json.Valid(a.Body) || !strings.Contains(a.Header["Content-Disposition"], v.ID+"."+format+".json") {
			t.Fatalf("%s: %v %v", format, refusal, a)
		}
		for _, want := range wants {
			if !strings.Contains(strings.ToLower(string(a.Body)), strings.ToLower(want)) { // OTLP's ids are upper case here
				t.Errorf("%s: there is no %q among %d bytes", format, want, len(a.Body))
			}
		}
	}
}

func TestRequestsAreFiltered(t *testing.T) {
	slow, failed, fine := slowedView(t), slowedView(t), slowedView(t)
	failed.ID, failed.Outcome, failed.Broken, failed.Reasons, failed.Class, failed.WallMS = "f0f0f0f0f0", "engine_error", nil, []string{"failed"}, "batch", 20
	failed.Key = "ci"
	failed.Failed, failed.Cause = true, "engine_failed"
	fine.ID, fine.Broken, fine.Reasons, fine.Tenant, fine.WallMS = "0c0c0c0c0c", nil, []string{"baseline"}, "other", 10
	pages := pagesOf(slow, failed, fine)
	for query, want := range map[string]string{
		"":                            "3 1 1",
		"&class=batch":                "1 0 1",
		"&tenant=other":               "1 0 0",
		"&key=ci":                     "1 0 1",
		"&key=c":                      "0 0 0",
		"&outcome=ok":                 "2 1 0",
		"&reason=failed":              "1 0 1",
		"&cause=engine_failed":        "1 0 1",
		"&since=1ns":                  "0 0 0",
		"&until=2001-01-01T00:00:00Z": "0 0 0",
		"&reason=" + slow.Broken[0]:   "1 1 0",
		"&min_ms=15":                  "2 1 1",
		"&min_ms=1e9":                 "0 0 0",
		"&class=batch&outcome=ok":     "0 0 0",
	} {
		a, _ := pages.get(t, RequestsPath+"?format=json"+query)
		var p struct{ Finished, Slow, Failed []RequestEnded }
		if err := json.Unmarshal(a.Body, &p); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join([]string{strconv.Itoa(len(p.Finished)), strconv.Itoa(len(p.Slow)), strconv.Itoa(len(p.Failed))}, " "); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	for _, bad := range []string{"?min_ms=soon", "?min_ms=-1", "?min_ms=NaN", "?since=yesterday", "?cause=queues", "?outcome=fine", "?reason=slow", "?format=xml"} {
		a, refusal := pages.get(t, RequestsPath+bad)
		if !strings.Contains(bad, "format") {
			if a.Status != 400 {
				t.Errorf("the page of %s has status %d", bad, a.Status)
			}
			_, refusal = pages.get(t, RequestsPath+bad+"&format=json")
		}
		if refusal == nil || refusal.Kind != Invalid || !strings.Contains(refusal.Message, refusal.Param+" must be") {
			t.Errorf("%s: %v", bad, refusal)
		}
	}
	if a, _ := pages.get(t, RequestsPath+"?id=a/b%23c"); a.Status != 303 || a.Header["Location"] != RequestsPath+"/a%2Fb%23c" {
		t.Errorf("the search leads to %+v", a)
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
	if p = stepsPage(&wire.State{}, 0); len(p.Steps) != 0 || p.Steps == nil {
		t.Errorf("without a log: %+v", p)
	}
}

// busyQueue has one class.
type busyQueue struct{ admission.Controller }

func (busyQueue) View() admission.View {
	return admission.View{Classes: []admission.ClassView{{Name: "interactive", Mode: admission.Paused, Waiting: 2, Backlog: time.Second, Margin: 1.25, Refused: 7, Demoted: 3, Revoked: 1}}}
}

func TestQueueShowsItsClasses(t *testing.T) {
	p := pagesOf()
	p.Admission = busyQueue{}
	a, refusal := p.get(t, QueuePath+"?format=json")
	if refusal != nil {
		t.Fatal(refusal)
	}
	var page QueuePage
	if err := json.Unmarshal(a.Body, &page); err != nil {
		t.Fatal(err)
	}
	want := []QueueClass{{Name: "interactive", Mode: "paused", Waiting: 2, BacklogMS: 1000, Margin: 1.25, Refused: 7, Demoted: 3, Revoked: 1}}
	if diff := cmp.Diff(want, page.Classes); diff != "" {
		t.Error(diff)
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

// file is one of the assets.
func file(t *testing.T, name string) string {
	t.Helper()
	a, err := asset(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(a.Body)
}

// TestAssetsAreStrict: nothing is loaded from elsewhere, no script is inline, and
// no script can make markup of a string.
func TestAssetsAreStrict(t *testing.T) {
	entries, err := assets.ReadDir("assets")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		a, err := asset(e.Name())
		if err != nil || a.Header["Content-Type"] == "" || a.Header["X-Content-Type-Options"] != "nosniff" || a.Header["Content-Security-Policy"] != policy {
			t.Errorf("%s: %v %v", e.Name(), err, a)
		}
		text := strings.ReplaceAll(string(a.Body), "http://www.w3.org/2000/svg", "")
		for _, sink := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "createContextualFragment", "eval(", "Function(", "http:", "https:", "javascript:", "style=", "onload", "import("} {
			if strings.Contains(text, sink) {
				t.Errorf("%s has %q", e.Name(), sink)
			}
		}
	}
	if inline := regexp.MustCompile(`<script[^>]*>[^<]|<style`).FindString(file(t, "page.html")); inline != "" {
		t.Errorf("the page has %q inline", inline)
	}
	for _, directive := range []string{"default-src 'none'", "script-src 'self'", "require-trusted-types-for 'script'", "trusted-types 'none'", "frame-ancestors 'none'", "base-uri 'none'"} {
		if !slices.Contains(strings.Split(policy, "; "), directive) {
			t.Errorf("the policy lacks %s", directive)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Errorf("the policy is %s", policy)
	}
	for _, name := range []string{"", "..", "../pages.go", "none.js", "page.html/"} {
		if _, refusal := pagesOf().get(t, assetsPath+name); refusal == nil || refusal.Kind != NotFound {
			t.Errorf("%q is served", name)
		}
	}
}

// TestEveryKindHasAColour: page.css names each kernel class.
func TestEveryKindHasAColour(t *testing.T) {
	css := file(t, "page.css")
	for k := range wire.KernelClassCount {
		if !strings.Contains(css, ".k-"+k.String()+"{") {
			t.Errorf("no colour for %s", k)
		}
	}
}

// TestOperationsExplainEveryName: docs/operations.md explains what the pages name.
func TestOperationsExplainEveryName(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	meanings := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^  (\w+): "[^"]+",$`).FindAllStringSubmatch(file(t, "words.js"), -1) {
		meanings[m[1]] = true
	}
	var names []string
	new(capture.Stats).Each(func(reason string, _ uint64) { names = append(names, reason) }, func(string, uint64) {})
	for name := range meanings {
		names = append(names, name)
	}
	for part := range wire.PartCount {
		names = append(names, part.String())
		if !meanings[part.String()] {
			t.Errorf("the pages do not say what %s means", part)
		}
	}
	for o := range telemetry.OutcomeCount {
		names = append(names, o.String())
	}
	for r := admission.TooLarge; r <= admission.ClassClosed; r++ {
		names = append(names, r.String())
	}
	for p := telemetry.PromiseOpen; p <= telemetry.PromiseRevoked; p++ {
		names = append(names, p.String())
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
