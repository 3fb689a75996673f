package gateway

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/cache/hitmap"
	"github.com/forebay-io/forebay/internal/cost"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// tenants are one with every right, one with few, and one with budgets.
func tenants(limits budget.Limits) admission.Config {
	return admission.Config{Tenants: []admission.Tenant{
		{Name: "full", Keys: []string{"sk-full"}, Weight: 1},
		{Name: "low", Keys: []string{"sk-low"}, Weight: 1, Classes: []string{"batch", "offline"}},
		{Name: "poor", Keys: []string{"sk-poor"}, Weight: 1, Limits: limits},
	}}
}

func (r *rig) as(key, body string, headers ...string) response {
	r.t.Helper()
	return r.do("POST", "/v1/chat/completions", body, append(headers, "Authorization", "Bearer "+key)...)
}

func TestTenantsNeedTheirKey(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), admission: tenants(budget.Limits{})})
	for _, headers := range [][]string{nil, {"Authorization", "Bearer wrong"}, {"Authorization", "Basic sk-full"}, {"Authorization", "sk-full"}} {
		for path, body := range map[string]string{"/v1/chat/completions": chatBody(""), "/v1/completions": textBody(`"stream":true`), "/v1/models": "", "/v1/models/fake": ""} {
			method := map[bool]string{true: "POST", false: "GET"}[body != ""]
			resp := r.do(method, path, body, headers...)
			if code, _ := errorOf(t, resp.body); resp.status != 401 || code != "invalid_api_key" || resp.header.Get("Www-Authenticate") != "Bearer" || resp.header.Get("X-Should-Retry") != "false" || strings.Contains(resp.body, "wrong") {
				t.Errorf("%s %v: %d %v %s", path, headers, resp.status, resp.header, resp.body)
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/version"} {
		if resp := r.do("GET", path, ""); resp.status != 200 {
			t.Errorf("%s needs a key: %d", path, resp.status)
		}
	}
	if n := len(r.fake.Records()); n != 0 {
		t.Errorf("the engine saw %d requests without a key", n)
	}
	for _, scheme := range []string{"Bearer ", "bearer ", "BEARER  "} {
		if resp := r.do("POST", "/v1/chat/completions", chatBody(""), "Authorization", scheme+"sk-low"); resp.status != 200 {
			t.Errorf("%q: %d %s", scheme, resp.status, resp.body)
		}
	}
	r.as("sk-full", chatBody(""))
	r.settled()
	if all := r.recorder.Last(2); all[0].Tenant != "full" || all[1].Tenant != "low" {
		t.Errorf("tenants %q and %q", all[0].Tenant, all[1].Tenant)
	}
	if a, b := r.fake.Records()[0].Salt, r.fake.Records()[3].Salt; a == b {
		t.Error("two tenants share a salt")
	}
	if resp := r.do("GET", "/v1/models", "", "Authorization", "Bearer sk-low"); resp.status != 200 {
		t.Errorf("models with a key: %d", resp.status)
	}
}

// TestForgedClassIsClamped: what a client writes raises no class above what
// its key allows.
//
// Case C15.
func TestForgedClassIsClamped(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(hello), admission: tenants(budget.Limits{})})
	for _, c := range []struct{ key, header, tier, class, told string }{
		{"sk-full", "", "", "interactive", ""}, {"sk-full", "offline", "priority", "offline", "flex"}, {"sk-full", "", "priority", "interactive", "priority"},
		{"sk-full", "", "flex", "batch", "flex"}, {"sk-full", "", "auto", "interactive", "default"}, {"sk-full", "interactive", "flex", "interactive", "default"},
		{"sk-low", "", "", "batch", ""}, {"sk-low", "interactive", "", "batch", ""}, {"sk-low", "", "priority", "batch", "flex"}, {"sk-low", "offline", "priority", "offline", "flex"},
	} {
		extra, headers := "", []string{}
		if c.tier != "" {
			extra = `"service_tier":"` + c.tier + `"`
		}
		if c.header != "" {
			headers = []string{classHeader, c.header}
		}
		resp := r.as(c.key, chatBody(extra), headers...)
		if tier, _ := object(t, resp.body)["service_tier"].(string); resp.status != 200 || resp.header.Get(classHeader) != c.class || tier != c.told {
			t.Errorf("%+v: %d, class %q, tier %q", c, resp.status, resp.header.Get(classHeader), tier)
		}
		all := r.fake.Records()
		if g := all[len(all)-1]; g.Class != c.class || (g.Level == 0) != (c.class == "interactive") {
			t.Errorf("%+v: the engine got class %s, level %d", c, g.Class, g.Level)
		}
	}
	resp := r.as("sk-full", chatBody(""), classHeader, "gold")
	if _, param := errorOf(t, resp.body); resp.status != 400 || param != classHeader || !strings.Contains(resp.body, "interactive, batch, offline") {
		t.Errorf("an unknown class: %d %s", resp.status, resp.body)
	}
}

func TestDeadlineHeader(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(endless)})
	for text, status := range map[string]int{"soon": 400, "1.5": 400, "99999999999999999999": 400, "604800001": 400, "0": 504, "-5": 504, "60": 504} {
		resp := r.do("POST", "/v1/chat/completions", chatBody(`"max_tokens":4000`), deadlineHeader, text)
		if code, param := errorOf(t, resp.body); resp.status != status || (status == 504) != (code == "deadline_exceeded") || status == 400 && param != deadlineHeader {
			t.Errorf("%s: %d %s", text, resp.status, resp.body)
		}
	}
	resp := r.do("POST", "/v1/chat/completions", chatBody(`"stream":true,"max_tokens":4000`), deadlineHeader, "80")
	all := events(resp.body)
	if code, _ := errorOf(t, all[len(all)-1]); resp.status != 200 || len(all) < 3 || code != "deadline_exceeded" {
		t.Errorf("a stream over its deadline: %d, %d events, the last %s", resp.status, len(all), all[len(all)-1])
	}
	r.client.CloseIdleConnections() // that of a stream that failed ends with it
	if resp := r.do("POST", "/v1/chat/completions", chatBody(`"max_tokens":2`), deadlineHeader, "60000"); resp.status != 200 {
		t.Errorf("in time: %d", resp.status)
	}
	r.settled()
}

// TestRefusalsAndLeavingHurtNobody: there is no breaker for them to open.
//
// Case C20.
func TestRefusalsAndLeavingHurtNobody(t *testing.T) {
	r := newRig(t, rigConfig{fake: wiretest.FakeConfig{Model: wire.Model{ID: "fake", Chat: true, ContextTokens: 64}, Script: func(g *wire.Generation) wiretest.Script {
		if strings.Contains(g.Prompt.Text, "leave") {
			return wiretest.Script{Hang: true}
		}
		return hello
	}}})
	long := strings.Replace(chatBody(""), "hi", strings.Repeat("long ", 100), 1)
	leaving := strings.Replace(chatBody(`"stream":true`), "hi", "leave", 1)
	for i := range 100 {
		if resp := r.do("POST", "/v1/chat/completions", long); resp.status != 400 {
			t.Fatalf("too long: %d %s", resp.status, resp.body)
		}
		c := r.dial()
		io.WriteString(c, rawPost("/v1/chat/completions", leaving))
		eventually(3*time.Second, func() bool { return r.fake.Live() == 1 })
		c.Close()
		r.settled()
		if i%20 == 19 {
			if resp := r.chat(""); resp.status != 200 {
				t.Fatalf("after %d of each: %d %s", i+1, resp.status, resp.body)
			}
		}
	}
	if resp := r.do("GET", "/readyz", ""); resp.status != 200 {
		t.Errorf("not ready: %s", resp.body)
	}
}

// TestWhoseSocketFailed: a client that leaves is no error, an engine that
// goes is no cancel.
//
// Case C21.
func TestWhoseSocketFailed(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(endless), admission: admission.Config{RunningSequencesMax: 1}})
	whole := rawPost("/v1/chat/completions", chatBody(`"stream":true,"max_tokens":4000`))
	running := r.dial() // (c), in the middle of its stream
	io.WriteString(running, whole)
	eventually(3*time.Second, func() bool { return r.fake.Live() == 1 })
	queued := r.dial() // (b)
	io.WriteString(queued, whole)
	eventually(3*time.Second, func() bool { return r.fifo.Load().Waiting == 1 })
	sending := r.dial() // (a)
	io.WriteString(sending, whole[:len(whole)-10])
	for _, c := range []net.Conn{sending, queued, running} {
		c.Close()
	}
	r.settled()
	eventually(3*time.Second, func() bool { return r.metric("forebay_requests_total") == 3 })
	if n := r.metric("forebay_client_gone_total"); n != 3 {
		t.Errorf("%v clients left, want 3", n)
	}
	c := r.dial() // (d)
	defer c.Close()
	io.WriteString(c, whole)
	eventually(3*time.Second, func() bool { return r.fake.Live() == 1 })
	r.fake.Close()
	r.settled()
	if o := r.lastOutcome(); o != "engine_unavailable" || r.metric("forebay_client_gone_total") != 3 {
		t.Errorf("the engine's end: %s", o)
	}
}

// generateCounter counts how often each id was given to the engine.
type generateCounter struct {
	wire.Engine
	mu    sync.Mutex
	times map[string]int
}

func (e *generateCounter) Generate(g *wire.Generation) *wire.Stream {
	e.mu.Lock()
	e.times[g.ID]++
	e.mu.Unlock()
	return e.Engine.Generate(g)
}

// TestNothingIsGeneratedTwice: an engine that goes between dispatch and the
// first event costs the client an error, and never a second generation.
//
// Case C22.
func TestNothingIsGeneratedTwice(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(wiretest.Script{FirstDelay: time.Millisecond, Err: wire.Errorf(wire.Unavailable, "the engine ended")}), admission: tenants(budget.Limits{RequestsPerMinute: 100000})})
	counter := &generateCounter{Engine: r.fake, times: map[string]int{}}
	r.gw.engine = counter
	for range 50 {
		if resp := r.as("sk-poor", chatBody("")); resp.status != 503 || !wholeSeconds.MatchString(resp.header.Get("Retry-After")) {
			t.Fatalf("%d %v %s", resp.status, resp.header, resp.body)
		}
	}
	r.settled()
	for id, n := range counter.times {
		if n != 1 {
			t.Errorf("%s was given to the engine %d times", id, n)
		}
	}
	if a := r.budgets.Audit(); len(counter.times) != 50 || a.Refunded != 50 {
		t.Errorf("%d generations, %+v", len(counter.times), a)
	}
}

// TestRandomEndsSettleOnce: of 10,000 requests that end in every way, each has
// one outcome, and nothing is left of any.
//
// Case C04: whatever the end, what was reserved and not used goes back once.
func TestRandomEndsSettleOnce(t *testing.T) {
	const total = 10000
	limits := budget.Limits{RequestsPerMinute: 1e6, OutputTokensPerMinute: 1e6, Concurrency: 20}
	r := newRig(t, rigConfig{records: 2 * total, fake: wiretest.FakeConfig{Script: func(*wire.Generation) wiretest.Script {
		switch rand.IntN(8) {
		case 0:
			return wiretest.Script{Endless: true, CachedTokens: rand.IntN(5)}
		case 1:
			return wiretest.Script{Pieces: []string{"a"}, Err: wire.Errorf(wire.Internal, "no")}
		case 2:
			return wiretest.Script{Err: wire.Errorf(wire.Unavailable, "gone")}
		case 3:
			return wiretest.Script{Endless: true, Delay: time.Millisecond, FirstDelay: time.Millisecond, CachedTokens: 3, PrefillTokens: rand.IntN(9)}
		}
		return hello
	}}, admission: admission.Config{
		RunningSequencesMax: 8, Classes: []admission.Class{{Name: "interactive", FirstTokenGoal: time.Hour}, {Name: "offline", WaitingRequestsMax: 4}},
		Tenants: []admission.Tenant{{Name: "a", Keys: []string{"a"}, Weight: 1, Limits: limits}, {Name: "b", Keys: []string{"*"}, Weight: 1}},
	}})
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range total / 32 {
				headers := []string{"Authorization", "Bearer " + string(rune('a'+rand.IntN(2))), classHeader, []string{"interactive", "batch", "offline", "none"}[rand.IntN(4)]}
				if rand.IntN(5) == 0 {
					headers = append(headers, deadlineHeader, strconv.Itoa(rand.IntN(20)))
				}
				body := chatBody(fmt.Sprintf(`"stream":%v,"n":%d,"max_tokens":%d`, rand.IntN(2) == 0, rand.IntN(3), 1+rand.IntN(30)))
				if rand.IntN(8) > 0 {
					r.try("POST", "/v1/chat/completions", body, headers...)
					continue
				}
				c, err := net.Dial("tcp", r.addr)
				if err != nil {
					continue
				}
				io.WriteString(c, rawPost("/v1/chat/completions", body, headers[0]+": "+headers[1]))
				time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
				c.Close()
			}
		})
	}
	wg.Wait()
	r.settled()
	ids, outcomes := map[string]bool{}, map[string]int{}
	records := r.recorder.Last(2 * total)
	for _, rec := range records {
		ids[rec.ID] = true
		outcomes[rec.Outcome.String()]++
	}
	a := r.budgets.Audit()
	if len(ids) != len(records) || len(records) < total*9/10 || r.metric("forebay_requests_total") != float64(len(records)) {
		t.Errorf("%d records of %d requests", len(records), len(ids))
	}
	if a.Reserved != a.Settled+a.Refunded || a.Settled == 0 || a.Refunded == 0 {
		t.Errorf("reservations: %+v", a)
	}
	auditTokens(t, r, "a")
	for _, want := range []string{"ok", "invalid", "client_gone", "engine_error", "engine_unavailable", "deadline_exceeded"} {
		if outcomes[want] == 0 {
			t.Errorf("no request ended as %s: %v", want, outcomes)
		}
	}
	var reservation *budget.Reservation // as many as there may be at once
	for i := range 20 {
		var err error
		if reservation, err = r.budgets.Reserve(t.Context(), budget.Ask{Tenant: "a", Model: "fake", Scopes: budget.OfTenant(limits)}); err != nil {
			t.Fatalf("the place of request %d is lost: %v", i+1, err)
		}
	}
	reservation.Refund()
}

func TestOversizedPromptsAreDemoted(t *testing.T) {
	r := newRig(t, rigConfig{fake: scripted(endless), admission: admission.Config{Classes: []admission.Class{
		{Name: "interactive", PromptTokensMax: 50, Oversized: "demote", OutputTokensMax: 7}, {Name: "offline", OutputTokensMax: 3}, {Name: "strict", PromptTokensMax: 50},
	}}})
	long := strings.Replace(chatBody(""), "hi", strings.Repeat("long ", 40), 1)
	resp := r.do("POST", "/v1/chat/completions", long)
	if resp.status != 200 || resp.header.Get(classHeader) != "offline" || resp.header.Get(demotedHeader) != "interactive" || r.fake.Records()[0].Tokens > 3 {
		t.Errorf("%d %v, %d tokens", resp.status, resp.header, r.fake.Records()[0].Tokens)
	}
	resp = r.chat(`"max_tokens":50`)
	if usage := object(t, resp.body)["usage"].(map[string]any); usage["completion_tokens"] != 7.0 || resp.header.Get(demotedHeader) != "" {
		t.Errorf("usage %v", usage)
	}
	resp = r.do("POST", "/v1/chat/completions", long, classHeader, "strict")
	if code, _ := errorOf(t, resp.body); resp.status != 400 || code != "request_cannot_fit" || !strings.Contains(resp.body, "at most 50") {
		t.Errorf("%d %s", resp.status, resp.body)
	}
	if r.metric("forebay_admission_demoted_total") != 1 {
		t.Error("the demotion was not counted")
	}
}

func TestReportsFollowTheEngine(t *testing.T) {
	var r Reporter
	var cached hitmap.Set
	s := &wire.State{
		At: 5, Model: wire.Model{PageTokens: 16}, Pages: wire.Pages{PagesTotal: 10, PagesUsed: 4, PagesPinned: 3},
		Load: wire.Load{Running: 1, ShortPrefill: 7, LongPrefill: 8, Sequences: 9},
		Pace: wire.Pace{Room: cost.Room{Budget: 4, TokensMin: 16, TokensMax: 512}, StepDuration: 3, StepPredicted: 2},
	}
	report := func(s *wire.State) admission.Report {
		got := r.Report(s)
		cached.Follow(got.Blocks)
		return got
	}
	s.Blocks.Add(hitmap.Change{Hash: 1})
	s.Blocks.Add(hitmap.Change{Hash: 2})
	got := report(s)
	if !got.Up || got.At != 5 || got.KVTokens != 160 || got.KVPinned != 48 || got.Room != (cost.Room{Budget: 4, TokensMin: 16, TokensMax: 512}) || got.ShortPrefill != 7 || got.LongPrefill != 8 || got.Sequences != 9 || got.StepDuration != 3 || got.StepPredicted != 2 || cached.Len() != 2 || got.Blocks.Missed {
		t.Errorf("%+v", got)
	}
	next := *s
	next.Blocks.Add(hitmap.Change{Hash: 1, Evicted: true})
	if got = report(&next); len(got.Blocks.Changes) != 1 || cached.Len() != 1 || !cached.Holds(2) {
		t.Errorf("news: %+v", got)
	}
	if got = report(&wire.State{Err: wire.Errorf(wire.Unavailable, "gone")}); got.Up || cached.Len() != 0 {
		t.Errorf("gone: %+v", got)
	}
	if got = report(s); !got.Up || got.Blocks.Missed || cached.Len() != 2 {
		t.Errorf("a new engine: %+v", got)
	}
	if got = report(&wire.State{Blocks: hitmap.Journal{Before: 100, Changes: []hitmap.Change{{Hash: 9}}}}); !got.Blocks.Missed || cached.Len() != 1 {
		t.Errorf("missed some: %+v", got)
	}
}

func TestRetriesAreCounted(t *testing.T) {
	r := simpleRig(t, hello)
	l := &ledger{Controller: r.fifo}
	r.gw.admission = l
	for _, n := range []string{"0", "1", "x", "-1"} {
		r.do("POST", "/v1/chat/completions", chatBody(`"user":"u1"`), retryCountHeader, n, deadlineHeader, "5000")
	}
	for i, want := range []bool{false, true, false, false} {
		if w := l.demands[i]; w.Retry != want || w.User != "u1" || w.Within <= 0 || w.Within > 5*time.Second {
			t.Errorf("%d: %+v", i, w)
		}
	}
}
