package telemetry

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/internal/wire"
)

const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// Case H08.
func TestTraceparent(t *testing.T) {
	trace := strings.Split(good, "-")[1]
	for name, c := range map[string]struct {
		parent string
		joined bool
	}{
		"absent":              {"", false},
		"good":                {good, true},
		"upper case":          {strings.ToUpper(good), false},
		"zero trace":          {"00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01", false},
		"zero parent":         {"00-" + trace + "-0000000000000000-01", false},
		"version ff":          {"ff" + good[2:], false},
		"version 01, more":    {"01" + good[2:] + "-what", true},
		"version 01":          {"01" + good[2:], true},
		"version 01, no dash": {"01" + good[2:] + "x", false},
		"version 00, more":    {good + "-what", false},
		"54 characters":       {good[:54], false},
		"56 characters":       {good + "0", false},
		"not hex":             {strings.Replace(good, "0af7", "0ag7", 1), false},
		"wrong dashes":        {strings.ReplaceAll(good, "-", "_"), false},
	} {
		got, parent := Trace(c.parent, "a=1")
		joined := got.TraceID[0] == 0x0a && got.TraceID[15] == 0x9c
		if joined != c.joined || joined != (parent != [8]byte{}) || joined != (got.State == "a=1") || joined && got.Flags != 1 {
			t.Errorf("%s: joined %v, %+v, parent %x", name, joined, got, parent)
		}
		if got.TraceID == [16]byte{} || got.SpanID == [8]byte{} || got.SpanID == parent {
			t.Errorf("%s: ids %+v", name, got)
		}
	}
	if got, _ := Trace(good, "a="+strings.Repeat("b", traceStateBytesMax)); got.State != "" {
		t.Errorf("%d bytes of state were kept", len(got.State))
	}
	if got, _ := Trace(good, "bad\x01state"); got.TraceID[0] != 0x0a || got.State != "" {
		t.Errorf("bad state: %+v", got)
	}
}

func TestRingKeepsTheNewest(t *testing.T) {
	g := NewRing(3)
	for i := range 5 {
		if got := len(g.Last(10)); got != min(i, 3) {
			t.Errorf("%d records after %d", got, i)
		}
		g.Put(&Record{PromptTokens: i})
	}
	last := g.Last(2)
	if len(last) != 2 || last[0].PromptTokens != 4 || last[1].PromptTokens != 3 {
		t.Errorf("last %+v", last)
	}
}

// TestTokenTimeIsThatOfOneChoice: choices run side by side, and what a slow
// reader adds after the last token is not the engine's.
func TestTokenTimeIsThatOfOneChoice(t *testing.T) {
	for name, c := range map[string]struct {
		r    Record
		want float64
	}{
		"one choice":   {Record{Choices: 1, CompletionTokens: 5, FirstToken: 100, LastToken: 500, Finished: 9000}, 100},
		"four choices": {Record{Choices: 4, CompletionTokens: 20, FirstToken: 100, LastToken: 500, Finished: 9000}, 100},
		"one token":    {Record{Choices: 1, CompletionTokens: 1, FirstToken: 100, LastToken: 100, Finished: 9000}, 0},
		"one each":     {Record{Choices: 3, CompletionTokens: 3, FirstToken: 100, LastToken: 110, Finished: 9000}, 0},
		"none":         {Record{}, 0},
	} {
		if got := c.r.TokenTime(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestLogLine(t *testing.T) {
	var out bytes.Buffer
	r, err := New(Config{}, &out, func() Levels { return Levels{} })
	if err != nil {
		t.Fatal(err)
	}
	r.Finish(&Record{ID: "a", Arrived: 1e6, Admitted: 3e6, Finished: 5e6, Outcome: WriteStall, ErrorKind: "write_stall", Param: "n", ErrorText: "a \"b\""})
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line["outcome"] != "write_stall" || line["total_ms"] != 4.0 || line["admitted_ms"] != 2.0 || line["error"] != "write_stall" || line["param"] != "n" || line["error_text"] != `a "b"` {
		t.Errorf("%v: %s", err, out.String())
	}
	kept, revoked := promised(), promised()
	cut(Revoked, "revoked", 500)(&revoked)
	revoked.WaitReason = revoked.Refused
	for _, c := range []struct {
		r    Record
		want map[string]any
	}{
		{kept, map[string]any{"promise": "kept", "predicted_ms": 800.0, "first_token_goal_ms": 2000.0, "accepted_ms": 3.0, "admitted_ms": 600.0, "first_token_ms": 1000.0}},
		{revoked, map[string]any{"promise": "revoked", "outcome": "revoked", "wait_reason": "revoked", "predicted_ms": 800.0, "first_token_goal_ms": 2000.0, "accepted_ms": 3.0, "admitted_ms": nil, "total_ms": 500.0}},
	} {
		out.Reset()
		r.Finish(&c.r)
		line = nil
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		for field, want := range c.want {
			if line[field] != want {
				t.Errorf("%s is %v, want %v: %s", field, line[field], want, out.String())
			}
		}
	}
	if _, err := New(Config{LogFormat: "xml"}, &out, nil); err == nil {
		t.Error("an unknown format was accepted")
	}
}

func TestGaugesAreReadNotCounted(t *testing.T) {
	levels := Levels{RequestsRunning: 3, Classes: []ClassLevel{{Name: "interactive", Waiting: 2, Margin: 1.25}}, Engine: &wire.State{Pages: wire.Pages{PagesUsed: 7, PagesFree: 9}, Load: wire.Load{Running: 2, Paused: 1}}}
	r, err := New(Config{AccessLogOff: true}, nil, func() Levels { return levels })
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) float64 { return value(t, r, name) }
	for name, want := range map[string]float64{"forebay_requests_running": 3, "forebay_engine_sequences": 3, "forebay_kv_pages_used": 7, "forebay_kv_pages_free": 9, "forebay_engine_up": 1, "forebay_admission_waiting": 2, "forebay_admission_margin": 1.25} {
		if got := read(name); got != want {
			t.Errorf("%s is %v", name, got)
		}
	}
	levels = Levels{}
	for _, name := range []string{"forebay_requests_running", "forebay_engine_sequences", "forebay_kv_pages_used", "forebay_engine_up"} {
		if got := read(name); got != 0 {
			t.Errorf("%s is %v", name, got)
		}
	}
}

// value is a metric's, summed over its labels.
func value(t *testing.T, r *Recorder, name string) (sum float64) {
	t.Helper()
	families, err := r.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		return sum
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func TestObserveCountsWhatHappened(t *testing.T) {
	r, err := New(Config{AccessLogOff: true}, nil, func() Levels { return Levels{} })
	if err != nil {
		t.Fatal(err)
	}
	expect := func(after string, requests, tokens, queued, first float64) {
		t.Helper()
		for name, want := range map[string]float64{"forebay_requests_total": requests, "forebay_tokens_total": tokens, "forebay_admission_wait_seconds": queued, "gen_ai_server_time_to_first_token_seconds": first} {
			if got := value(t, r, name); got != want {
				t.Errorf("after %s %s is %v, want %v", after, name, got, want)
			}
		}
	}
	refused := Record{Route: "completions", Arrived: 1, Prepared: 2, Finished: 3, PromptTokens: 100, Outcome: QueueFull}
	answered := Record{Route: "completions", Stream: true, Arrived: 1, Prepared: 2, Admitted: 3, Dispatched: 4, FirstToken: 5, LastToken: 5, FirstWrite: 2e9 + 1, Finished: 3e9, PromptTokens: 100, CachedTokens: 10, ComputedTokens: 90, CompletionTokens: 1, Outcome: OK}
	r.Finish(&answered)
	expect("an answer", 1, 111, 1, 1)
	r.Finish(&refused)
	expect("a refusal", 2, 111, 1, 1)
	early := Record{Route: "completions", Arrived: 1, Prepared: 2, Admitted: 3, Dispatched: 4, Finished: 5, PromptTokens: 700, CachedTokens: 20, ComputedTokens: 80, Outcome: ClientGone}
	r.Finish(&early)
	expect("a client that left in prefill", 3, 111+20+100, 2, 1)
	if d := answered.FirstTokenDelay(); d != 2e9 {
		t.Errorf("a stream's first token came after %d ns", d)
	}
	if answered.Stream = false; answered.FirstTokenDelay() != 4 {
		t.Errorf("a plain answer's first token came after %d ns", answered.FirstTokenDelay())
	}
}

func TestFinishAllocatesLittle(t *testing.T) {
	r, err := New(Config{AccessLogOff: true}, nil, func() Levels { return Levels{} })
	if err != nil {
		t.Fatal(err)
	}
	rec := Record{Route: "chat_completions", Class: "interactive", Outcome: OK, Finished: 1}
	if n := testing.AllocsPerRun(100, func() { r.Finish(&rec) }); n > 8 {
		t.Errorf("%v allocations a request", n)
	}
	full, refused := fullRecord(), Record{Class: "interactive", Outcome: Late, Refused: "late", Finished: 1, FirstTokenGoal: 1}
	if n := testing.AllocsPerRun(100, func() { r.Finish(full); r.Finish(&refused) }); n > 0 {
		t.Errorf("%v allocations for a request with everything and a refused one", n)
	}
}

// TestTenantsInMetricsAreBounded: those beyond tenants_max share one label, and what is
// not charged counts no tokens.
func TestTenantsInMetricsAreBounded(t *testing.T) {
	r, err := New(Config{AccessLogOff: true, TenantsMax: 2, KeysMax: 3}, nil, func() Levels { return Levels{} })
	if err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"a", "b", "c", "d", "a"} {
		r.Finish(&Record{Tenant: tenant, Dispatched: 1, Finished: 2, ComputedTokens: 3, CachedTokens: 4, CompletionTokens: 5, Cost: 0.5})
		r.Finish(&Record{Tenant: tenant, Dispatched: 1, Finished: 2, ComputedTokens: 3, Refunded: true})
		r.Finish(&Record{Tenant: tenant, Finished: 2})
	}
	page := scrape(t, r, "", "")
	for _, want := range []string{
		`forebay_tenant_requests_total{charged="true",tenant="a"} 2`, `forebay_tenant_requests_total{charged="false",tenant="(other)"} 2`,
		`forebay_tenant_tokens_total{kind="computed",tenant="b"} 3`, `forebay_tenant_tokens_total{kind="cached",tenant="(other)"} 8`,
		`forebay_tenant_tokens_total{kind="completion",tenant="a"} 10`, `forebay_tenant_cost_total{tenant="(other)"} 1`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("the page has no %s", want)
		}
	}
	if strings.Contains(page, `tenant="c"`) {
		t.Error("a third tenant has a series of its own")
	}
	want := []Use{
		{Tenant: tenantOther, Requests: 1, Refunded: 1, Computed: 3, Cached: 4, Completion: 5, Cost: 0.5},
		{Tenant: "a", Requests: 2, Refunded: 2, Computed: 6, Cached: 8, Completion: 10, Cost: 1},
		{Tenant: "b", Requests: 1, Refunded: 1, Computed: 3, Cached: 4, Completion: 5, Cost: 0.5},
		{Tenant: "c", Requests: 1, Refunded: 1, Computed: 3, Cached: 4, Completion: 5, Cost: 0.5},
	}
	if got := r.Uses(); !slices.Equal(got, want) {
		t.Errorf("uses %+v", got)
	}
}
