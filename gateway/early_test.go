package gateway

import (
	"bufio"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission"
	"github.com/forebay-io/forebay/admission/budget"
	"github.com/forebay-io/forebay/gateway/telemetry"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/internal/wire/wiretest"
)

// auditTokens adds up to the token, once everything has ended: what the engine
// computed, found in its cache and generated is what the records and the metrics say,
// and what the tenant with limits was charged is that of its requests.
func auditTokens(t *testing.T, r *rig, tenant string) {
	t.Helper()
	var all, charged wire.Totals
	for _, rec := range r.recorder.Last(1 << 20) {
		all.PrefillTokens += uint64(rec.ComputedTokens)
		all.CachedTokens += uint64(rec.CachedTokens)
		all.DecodeTokens += uint64(rec.CompletionTokens)
		if rec.Tenant == tenant && !rec.Refunded {
			charged.PrefillTokens += uint64(rec.ComputedTokens)
			charged.DecodeTokens += uint64(rec.CompletionTokens)
		}
		if used := rec.CachedTokens + rec.ComputedTokens; used > rec.PromptTokens || rec.Outcome == telemetry.OK && used != rec.PromptTokens {
			t.Errorf("%v: %d tokens cached and %d computed of a prompt of %d", rec.Outcome, rec.CachedTokens, rec.ComputedTokens, rec.PromptTokens)
		}
	}
	if engine := r.fake.State().Totals; engine.PrefillTokens != all.PrefillTokens || engine.CachedTokens != all.CachedTokens || engine.DecodeTokens != all.DecodeTokens {
		t.Errorf("the engine counted %+v, the records sum to %+v", engine, all)
	}
	if sum := float64(all.PrefillTokens + 2*all.CachedTokens + all.DecodeTokens); r.metric("forebay_tokens_total") != sum || r.metric("forebay_request_prompt_tokens_sum") != float64(all.PrefillTokens+all.CachedTokens) {
		t.Errorf("forebay_tokens_total sums to %v and the prompts to %v; the records are %+v", r.metric("forebay_tokens_total"), r.metric("forebay_request_prompt_tokens_sum"), all)
	}
	if a := r.budgets.Audit(); a.Reserved != a.Settled+a.Refunded || uint64(a.Input) != charged.PrefillTokens || uint64(a.Output) != charged.DecodeTokens {
		t.Errorf("charged %+v; the records sum to %+v", a, charged)
	}
}

// early is a request that ends before its answer is whole, and what it leaves.
type early struct {
	script wiretest.Script
	queued bool                      // it waits behind another
	ready  func(*rig, *bufio.Reader) // waits for the state in which it ends
	end    func(*rig, io.Closer)     // ends it; nil: the client leaves

	cached, computed, completion int
	refunded                     bool
}

// TestWhatEndsEarlyIsCountedAsFarAsItCame ends a request of a prompt of 24 tokens in
// each of its states. Record, metrics and budgets have what the engine computed.
func TestWhatEndsEarlyIsCountedAsFarAsItCame(t *testing.T) {
	inEngine := func(r *rig, _ *bufio.Reader) { eventually(3*time.Second, func() bool { return r.fake.Live() > 0 }) }
	reading := func(r *rig, in *bufio.Reader) {
		for range 3 {
			if _, err := readLine(in, "data: "); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	killed := func(r *rig, _ io.Closer) { r.fake.Close() }
	three := []string{"a", "b", "c"}
	for name, c := range map[string]early{
		"in the queue":            {queued: true, refunded: true},
		"in the engine's queue":   {script: wiretest.Script{FirstDelay: time.Hour}, ready: inEngine},
		"in prefill":              {script: wiretest.Script{FirstDelay: time.Hour, PrefillTokens: 5, CachedTokens: 16}, ready: inEngine, cached: 16, computed: 5},
		"in decode":               {script: wiretest.Script{Pieces: three, Hang: true, CachedTokens: 16}, ready: reading, cached: 16, computed: 8, completion: 3},
		"at the last token":       {script: wiretest.Script{Pieces: three, CachedTokens: 16}, ready: reading, cached: 16, computed: 8, completion: 3},
		"engine fails in prefill": {script: wiretest.Script{FirstDelay: time.Hour, PrefillTokens: 5}, ready: inEngine, end: killed, computed: 5, refunded: true},
		"engine fails in decode":  {script: wiretest.Script{Pieces: three, Hang: true, CachedTokens: 16}, ready: reading, end: killed, cached: 16, computed: 8, completion: 3},
	} {
		t.Run(name, func(t *testing.T) { c.run(t) })
	}
}

func (c early) run(t *testing.T) {
	limits := budget.Limits{TokensPerDay: 1000, CostPerDay: 1000} // which do not come back with time
	r := newRig(t, rigConfig{
		fake: wiretest.FakeConfig{Script: func(g *wire.Generation) wiretest.Script {
			if strings.Contains(g.Prompt.Text, "holder") {
				return wiretest.Script{Hang: true}
			}
			return c.script
		}},
		admission: admission.Config{RunningSequencesMax: 1, Tenants: []admission.Tenant{{Name: "poor", Keys: []string{"*"}, Weight: 1, Limits: limits}, {Name: "free", Keys: []string{"free"}, Weight: 1}}},
		budget:    budget.Config{Prices: []budget.ModelPrice{{Model: "fake", Prompt: 1e6, Cached: 1e5, Output: 2e6}}},
	})
	if c.queued {
		holder := r.dial()
		defer holder.Close()
		io.WriteString(holder, rawPost("/v1/completions", `{"model":"fake","prompt":"holder"}`, "Authorization: Bearer free"))
		eventually(3*time.Second, func() bool { return r.fake.Live() == 1 })
		c.ready = func(r *rig, _ *bufio.Reader) {
			eventually(3*time.Second, func() bool { return r.fifo.Load().Waiting == 1 })
		}
	}
	client := r.dial()
	defer client.Close()
	io.WriteString(client, rawPost("/v1/completions", `{"model":"fake","prompt":"`+strings.Repeat("p", 24)+`","stream":true}`))
	c.ready(r, bufio.NewReader(client))
	if c.end == nil {
		client.Close()
	} else {
		c.end(r, client)
	}
	mine := func() (rec telemetry.Record) {
		for _, rec = range r.recorder.Last(2) {
			if rec.Tenant == "poor" {
				return rec
			}
		}
		return telemetry.Record{}
	}
	if !eventually(3*time.Second, func() bool { return mine().Finished != 0 }) {
		t.Fatal("it did not end")
	}
	rec := mine()
	if rec.CachedTokens != c.cached || rec.ComputedTokens != c.computed || rec.CompletionTokens != c.completion || rec.Refunded != c.refunded || rec.Unanswered {
		t.Errorf("%v: %d cached, %d computed, %d made, refunded %v; want %d, %d, %d, %v", rec.Outcome, rec.CachedTokens, rec.ComputedTokens, rec.CompletionTokens, rec.Refunded, c.cached, c.computed, c.completion, c.refunded)
	}
	charge := budget.Amounts{}
	if !c.refunded {
		charge = budget.Amounts{budget.Day: float64(c.computed + c.completion), budget.CostDay: float64(c.computed) + 0.1*float64(c.cached) + 2*float64(c.completion)}
	}
	reservation, err := r.budgets.Reserve(t.Context(), budget.Ask{Tenant: "poor", Model: "fake", Scopes: budget.OfTenant(limits)})
	if err != nil {
		t.Fatal(err)
	}
	for rule, s := range reservation.States() {
		if used := 1000 - s.Remaining; s.Limit > 0 && math.Abs(used-charge[rule]) > 1e-6 {
			t.Errorf("%v: %v used, want %v", budget.Rule(rule), used, charge[rule])
		}
	}
	reservation.Refund()
	if !c.queued && c.end == nil {
		r.settled()
		auditTokens(t, r, "poor")
	}
}

// TestACancelThatIsNotAnsweredHoldsThePlaceForALimit: the place of a request that ended
// early is given back when the engine has answered, or when the limit is over.
func TestACancelThatIsNotAnsweredHoldsThePlaceForALimit(t *testing.T) {
	r := newRig(t, rigConfig{
		fake:      scripted(wiretest.Script{Pieces: []string{"a"}, Hang: true, Deaf: true, CachedTokens: 1}),
		admission: admission.Config{RunningSequencesMax: 1},
		gateway:   Config{Timeouts: TimeoutConfig{CancelLimit: 200 * time.Millisecond}},
	})
	resp := r.do("POST", "/v1/completions", textBody(""), deadlineHeader, "50")
	if resp.status != 504 || len(r.recorder.Last(1)) != 0 || r.fifo.Load().Running != 1 {
		t.Errorf("the client got %d; %d records and %+v, while the engine has not answered", resp.status, len(r.recorder.Last(1)), r.fifo.Load())
	}
	r.settled()
	rec := r.recorder.Last(1)[0]
	if !rec.Unanswered || rec.CachedTokens != 1 || rec.ComputedTokens != 1 || rec.CompletionTokens != 1 || rec.Finished-rec.Arrived < int64(250*time.Millisecond) {
		t.Errorf("record %+v", rec)
	}
	if n := r.metric("forebay_cancel_unanswered_total"); n != 1 {
		t.Errorf("forebay_cancel_unanswered_total is %v", n)
	}
}

// TestTheRecordHasWhatABillNeeds: end user, tokens and cost, of a tenant without limits
// too.
func TestTheRecordHasWhatABillNeeds(t *testing.T) {
	r := newRig(t, rigConfig{
		fake:   scripted(wiretest.Script{Pieces: []string{"a", "b"}, CachedTokens: 1}),
		budget: budget.Config{Prices: []budget.ModelPrice{{Model: "*", Prompt: 1e6, Cached: 1e5, Output: 2e6}}},
	})
	r.do("POST", "/v1/completions", textBody(`"user":"ann@example.com"`))
	r.settled()
	rec := r.recorder.Last(1)[0]
	if rec.ComputedTokens != 1 || rec.CachedTokens != 1 || rec.CompletionTokens != 2 || rec.Cost != 1+0.1+4 || len(rec.User) < 16 || strings.Contains(rec.User, "ann") {
		t.Errorf("record %+v", rec)
	}
	r.do("POST", "/v1/completions", textBody(""))
	r.settled()
	if user := r.recorder.Last(1)[0].User; user != "" {
		t.Errorf("user %q of a request without one", user)
	}
}
