package telemetry

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// promised is a streamed request that was admitted with a goal of 2 s and kept it.
func promised() Record {
	const ms = int64(time.Millisecond)
	at := int64(time.Hour)
	return Record{
		ID: "p", Route: "chat_completions", Class: "interactive", Stream: true, Outcome: OK, Arrived: at, Prepared: at + 2*ms, Reserved: at + 2*ms, Accepted: at + 3*ms, Admitted: at + 600*ms,
		Dispatched: at + 600*ms, FirstToken: at + 1000*ms, FirstWrite: at + 1000*ms, LastToken: at + 1200*ms, Finished: at + 1200*ms, CompletionTokens: 3,
		Promised: 2 * time.Second, FirstTokenGoal: 2 * time.Second, WaitPredicted: 800 * ms,
	}
}

// cut is that request, if it ended while it waited, so many milliseconds after it
// came.
func cut(outcome Outcome, reason string, after int64) func(*Record) {
	return func(r *Record) {
		r.Outcome, r.Refused, r.Finished = outcome, reason, r.Arrived+after*int64(time.Millisecond)
		r.Admitted, r.Dispatched, r.FirstToken, r.FirstWrite, r.LastToken, r.CompletionTokens = 0, 0, 0, 0, 0, 0
	}
}

func TestPromises(t *testing.T) {
	const second = int64(time.Second)
	for name, c := range map[string]struct {
		change func(*Record)
		want   Promise
		when   string // of its refusal
	}{
		"in time":                   {func(*Record) {}, PromiseKept, ""},
		"just in time":              {func(r *Record) { r.FirstWrite = r.Arrived + 2*second }, PromiseKept, ""},
		"just late":                 {func(r *Record) { r.FirstWrite = r.Arrived + 2*second + 1 }, PromiseBroken, ""},
		"a goal with slack":         {func(r *Record) { r.FirstWrite, r.Promised = r.Arrived+9*second, 10*time.Second }, PromiseKept, ""},
		"no goal":                   {func(r *Record) { r.Promised, r.FirstWrite = 0, r.Arrived+9*second }, PromiseNone, ""},
		"refused on arrival":        {func(r *Record) { cut(Late, "late", 3)(r); r.Accepted, r.Promised = 0, 0 }, PromiseNone, "arrival"},
		"over its budget":           {func(r *Record) { cut(RateLimited, "budget_day", 3)(r); r.Accepted, r.Promised = 0, 0 }, PromiseNone, "arrival"},
		"demoted on arrival":        {func(r *Record) { r.Promised, r.FirstTokenGoal, r.DemotedFrom = 0, 0, "batch" }, PromiseNone, ""},
		"demoted later":             {func(r *Record) { r.FirstTokenGoal, r.DemotedFrom = 0, "batch" }, PromiseRevoked, ""},
		"revoked":                   {cut(Revoked, "revoked", 500), PromiseRevoked, "later"},
		"refused after its goal":    {cut(Revoked, "revoked", 2500), PromiseBroken, "later"},
		"refused later as late":     {cut(Late, "late", 500), PromiseRevoked, "later"},
		"waited as long as allowed": {cut(QueueTimeout, "timed_out", 1000), PromiseRevoked, "later"},
		"waited beyond its goal":    {cut(QueueTimeout, "timed_out", 30000), PromiseBroken, "later"},
		"its client's deadline":     {cut(DeadlineExceeded, "past_deadline", 1000), PromiseOpen, "later"},
		"left in time":              {cut(ClientGone, "", 1999), PromiseOpen, ""},
		"left after the goal":       {cut(ClientGone, "", 2001), PromiseBroken, ""},
		"the engine went":           {cut(EngineUnavailable, "", 100), PromiseOpen, ""},
		"left its plain answer": {func(r *Record) { // it got nothing, and yet the engine was in time
			r.Stream, r.Outcome, r.FirstWrite, r.Finished = false, ClientGone, 0, r.Arrived+30*second
		}, PromiseKept, ""},
		"failed after its first token": {func(r *Record) { r.Outcome = EngineError }, PromiseKept, ""},
	} {
		r := promised()
		c.change(&r)
		if got := r.Promise(r.Finished); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		m := quiet(t, &Levels{Classes: []ClassLevel{{Name: "interactive"}}})
		scrape(t, m, "", "") // from then on every configured class is there
		m.Finish(&r)
		page := scrape(t, m, "", "")
		for p := PromiseOpen; p < promiseCount; p++ {
			want := 0.0
			if p == c.want {
				want = 1
			}
			if got, there := number(page, fmt.Sprintf(`forebay_promises_total{class="interactive",result=%q}`, p)); got != want || !there {
				t.Errorf("%s: %v requests are %s (there: %v)", name, got, p, there)
			}
		}
		counted := ""
		for line := range strings.Lines(page) {
			if rest, ok := strings.CutPrefix(line, `forebay_admission_refused_total{class="interactive",reason="`+r.Refused+`",when="`); ok {
				counted, _, _ = strings.Cut(rest, `"`)
			}
		}
		series := fmt.Sprintf(`forebay_refusal_seconds_sum{class="interactive",outcome=%q,when=%q}`, r.Outcome, c.when)
		if took, there := number(page, series); counted != c.when || there != (c.when != "") || there && took != seconds(r.Finished-r.Arrived) {
			t.Errorf("%s: refused %q, want %q; after %v s", name, counted, c.when, took)
		}
	}
	r := promised() // while it runs
	r.Finished, r.FirstToken, r.FirstWrite, r.Outcome = 0, 0, 0, 0
	if soon, late := r.Promise(r.Arrived+second), r.Promise(r.Arrived+3*second); soon != PromiseOpen || late != PromiseBroken {
		t.Errorf("a running request: %q, then %q", soon, late)
	}
}

// TestPredictionsAreCompared: bias and quantiles follow from the page, by class.
func TestPredictionsAreCompared(t *testing.T) {
	m := quiet(t, &Levels{})
	for i, c := range []struct {
		class     string
		predicted time.Duration // the actual time is 1 s
	}{{"interactive", 800 * time.Millisecond}, {"interactive", 500 * time.Millisecond}, {"interactive", 1600 * time.Millisecond}, {"batch", 4 * time.Second}, {"batch", 0}} {
		r := promised()
		r.ID, r.Class, r.WaitPredicted = fmt.Sprint(i), c.class, int64(c.predicted)
		m.Finish(&r)
	}
	left, demoted := promised(), promised()
	cut(ClientGone, "", 100)(&left)
	m.Finish(&left) // has no actual time
	demoted.FirstTokenGoal = 0
	m.Finish(&demoted) // and this one no prediction for its class
	page := scrape(t, m, "", "")
	const ratio, mistake = "forebay_first_token_prediction_ratio", "forebay_first_token_prediction_error_seconds"
	expectNumbers(t, page, map[string]float64{
		ratio + `_count{class="interactive"}`:                     3,
		ratio + `_sum{class="interactive"}`:                       1/.8 + 1/.5 + 1/1.6,
		ratio + `_bucket{class="interactive",le="1"}`:             1,
		ratio + `_bucket{class="interactive",le="1.35"}`:          2,
		ratio + `_count{class="batch"}`:                           1,
		mistake + `_sum{class="interactive",direction="late"}`:    .2 + .5,
		mistake + `_sum{class="interactive",direction="early"}`:   .6,
		mistake + `_count{class="interactive",direction="early"}`: 1,
		mistake + `_sum{class="batch",direction="early"}`:         3,
		mistake + `_count{class="batch",direction="late"}`:        0, // there, so that the bias has both sides
	})
}
