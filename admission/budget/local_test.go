package budget

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// hand is a clock that a test moves.
type hand struct {
	mu sync.Mutex
	t  time.Time
}

func newHand() *hand { return &hand{t: time.Date(2026, 8, 1, 10, 0, 0, 0, time.UTC)} }

func (h *hand) now() time.Time { h.mu.Lock(); defer h.mu.Unlock(); return h.t }

func (h *hand) move(d time.Duration) { h.mu.Lock(); h.t = h.t.Add(d); h.mu.Unlock() }

func newTestLocal() (*Local, *hand) {
	h := newHand()
	return NewLocal(Config{Burst: 10 * time.Second, BucketsMax: 1000}, h.now), h
}

// reserve asks for tenant t and model m.
func reserve(s Store, limits Limits, input, output int) (*Reservation, *Refusal) {
	r, err := s.Reserve(context.Background(), Ask{Tenant: "t", Model: "m", Scopes: OfTenant(limits), Input: input, Output: output})
	var refusal *Refusal
	errors.As(err, &refusal)
	return r, refusal
}

func must(t *testing.T, s Store, limits Limits, input, output int) *Reservation {
	t.Helper()
	r, refusal := reserve(s, limits, input, output)
	if refusal != nil {
		t.Fatal(refusal)
	}
	return r
}

// A tenant below its limit is never refused, however often its bucket is touched.
//
// Case C02.
func TestSteadyUseBelowLimit(t *testing.T) {
	l, h := newTestLocal()
	for i := range 240 {
		r, refusal := reserve(l, Limits{InputTokensPerMinute: 6000}, 50, 0)
		if refusal != nil {
			t.Fatalf("request %d: %v", i, refusal)
		}
		r.Settle(50, 0)
		h.move(time.Second)
	}
}

// What is charged is what was used, whatever the end.
//
// Case C04.
func TestChargedIsUsed(t *testing.T) {
	l, h := newTestLocal()
	random := rand.New(rand.NewPCG(4, 1))
	limits := Limits{InputTokensPerMinute: 6_000_000, OutputTokensPerMinute: 6_000_000, Concurrency: 1000, TokensPerDay: 100_000_000}
	levels := func() Amounts {
		b := l.books.Open(Key{"t", "m", "tenant", ""})
		defer l.books.Close(b)
		return b.levels(h.now())
	}
	must(t, l, limits, 0, 0).Settle(0, 0)
	before, charged := levels(), Amounts{}
	for range 500 {
		input, reserved := 1+random.IntN(400), random.IntN(1000)
		used := random.IntN(2*reserved + 2) // short of it, or past it
		r := must(t, l, limits, input, reserved)
		for n := random.IntN(200); n < used && random.IntN(20) > 0; n += random.IntN(200) {
			r.Used(n)
		}
		if random.IntN(4) == 0 { // admission refused it after all
			r.Refund()
		} else {
			r.Settle(input, used)
			charged = charged.Plus(1, new(Price).amounts(input, 0, used))
		}
		r.Settle(input*2, used*2)
		r.Refund()
		r.Used(used + 1000)
	}
	charged[Tokens] = 0 // has no limit here, as requests
	after := levels()
	if got := before.Plus(-1, after); got != charged {
		t.Errorf("charged %v, used %v", got, charged)
	}
	if a := l.Audit(); a.Reserved != a.Settled+a.Refunded || a.Input != int64(charged[InputTokens]) || a.Output != int64(charged[OutputTokens]) {
		t.Errorf("audit %+v does not agree with %v", a, charged)
	}
}

// A stream that is cut in any moment leaves its place to the next.
func TestPlaceIsFreed(t *testing.T) {
	l, h := newTestLocal()
	random := rand.New(rand.NewPCG(5, 1))
	for i := range 200 {
		r := must(t, l, Limits{Concurrency: 1}, 10, 100)
		if _, refusal := reserve(l, Limits{Concurrency: 1}, 10, 100); refusal == nil || refusal.Rule != Concurrency {
			t.Fatalf("round %d: a second request got %v", i, refusal)
		}
		var ends sync.WaitGroup
		for range 3 { // the client leaves, the stream ends and the server stops, at once
			used := random.IntN(300)
			ends.Go(func() { r.Used(used); r.Settle(10, 5) })
		}
		ends.Wait()
		h.move(time.Second)
	}
	if got := l.books.Open(Key{"t", "m", "tenant", ""}).running; got != 0 {
		t.Errorf("%v places taken in the end", got)
	}
}

// A clock that jumps adds nothing to what one that runs evenly gives.
//
// Case C11: a clock that steps back.
func TestClockJumps(t *testing.T) {
	run := func(skew func(i int) time.Duration) (admitted int) {
		l, h := newTestLocal()
		start := h.now()
		for i := range 6000 { // a minute of 100 a second
			h.t = start.Add(time.Duration(i)*10*time.Millisecond + skew(i))
			if r, _ := reserve(l, Limits{RequestsPerMinute: 1000}, 1, 1); r != nil {
				admitted++
				r.Settle(1, 1)
			}
		}
		return admitted
	}
	even := run(func(int) time.Duration { return 0 })
	if most := 1000 + 1000/6; even > most || even < most-1 {
		t.Errorf("%d admitted with an even clock, want %d", even, most)
	}
	for name, skew := range map[string]func(i int) time.Duration{
		"one hour back":         func(i int) time.Duration { return -time.Hour * time.Duration(i/3000) },
		"back and forth by 30s": func(i int) time.Duration { return 30 * time.Second * time.Duration(i%2*2-1) },
	} {
		if got := run(skew); got > even+1000/6 {
			t.Errorf("%s: %d admitted, %d without", name, got, even)
		}
	}
}

// Each refusal says which budget, how long, and whether waiting helps; waiting
// as told is enough.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		limits        Limits
		input, output int
		rule          Rule
	}{
		"requests":      {Limits{RequestsPerMinute: 7}, 1, 1, Requests},
		"input tokens":  {Limits{InputTokensPerMinute: 1000}, 90, 1, InputTokens},
		"output tokens": {Limits{OutputTokensPerMinute: 1000}, 1, 130, OutputTokens},
		"a large one":   {Limits{InputTokensPerMinute: 1000}, 900, 1, InputTokens},
		"day":           {Limits{TokensPerDay: 1000}, 300, 100, Day},
		"several":       {Limits{RequestsPerMinute: 6, TokensPerDay: 150}, 100, 0, Requests},
	} {
		t.Run(name, func(t *testing.T) {
			l, h := newTestLocal()
			var refusal *Refusal
			for i := 0; refusal == nil; i++ {
				if _, refusal = reserve(l, c.limits, c.input, c.output); i > 100 {
					t.Fatal("never refused")
				}
			}
			if refusal.Rule != c.rule || refusal.TooLarge || refusal.RetryAfter <= 0 || refusal.RetryAfter > 24*time.Hour {
				t.Fatalf("got %+v", refusal)
			}
			if c.rule == Requests && name == "several" {
				return
			}
			h.move(refusal.RetryAfter - time.Millisecond)
			if r, _ := reserve(l, c.limits, c.input, c.output); r != nil {
				t.Error("admitted before the time it was told")
			}
			h.move(time.Millisecond)
			must(t, l, c.limits, c.input, c.output)
		})
	}
	l, _ := newTestLocal()
	for want, c := range map[string]Limits{
		"the request needs 2000, more than input_tokens_per_minute of 1000; make it smaller":         {InputTokensPerMinute: 1000},
		"max_tokens asks for 3000 tokens, more than output_tokens_per_minute of 1000; ask for fewer": {OutputTokensPerMinute: 1000},
		"the request needs 5000, more than tokens_per_day of 1000; make it smaller":                  {TokensPerDay: 1000},
	} {
		_, err := l.Reserve(context.Background(), Ask{Tenant: "t", Model: "m", Scopes: OfTenant(c), Input: 2000, Output: 100, Asked: 3000})
		if refusal := new(Refusal); !errors.As(err, &refusal) || !refusal.TooLarge || refusal.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// The place of a request that is refused by one budget is taken from no other.
func TestAllOrNothing(t *testing.T) {
	l, _ := newTestLocal()
	limits := Limits{RequestsPerMinute: 600, InputTokensPerMinute: 6000, OutputTokensPerMinute: 600, Concurrency: 5, TokensPerDay: 1 << 20}
	before := must(t, l, limits, 100, 100).States()
	for range 10 {
		if r, refusal := reserve(l, limits, 100, 100); r != nil || refusal.Rule != OutputTokens {
			t.Fatalf("got %v", refusal)
		}
	}
	b := l.books.Open(Key{"t", "m", "tenant", ""})
	after := b.States()
	if after != before {
		t.Errorf("refusals changed %v to %v", before, after)
	}
}

func TestDayEndsAtMidnight(t *testing.T) {
	l, h := newTestLocal()
	h.t = time.Date(2026, 8, 1, 23, 0, 0, 0, time.UTC)
	limits := Limits{TokensPerDay: 1000}
	old := must(t, l, limits, 500, 500)
	_, refusal := reserve(l, limits, 1, 0)
	if refusal == nil || refusal.Rule != Day || refusal.RetryAfter != time.Hour {
		t.Fatalf("got %+v", refusal)
	}
	h.move(refusal.RetryAfter)
	r := must(t, l, limits, 600, 300)
	old.Settle(500, 0) // gives nothing to a day that did not pay it
	if got := r.States()[Day]; got != (State{Limit: 1000, Remaining: 100, Reset: 24 * time.Hour, Used: 900}) {
		t.Errorf("got %+v", got)
	}
}

func TestStates(t *testing.T) {
	l, h := newTestLocal()
	limits := Limits{RequestsPerMinute: 60, OutputTokensPerMinute: 6000, Concurrency: 3}
	r := must(t, l, limits, 10, 400)
	want := States{Requests: {60, 9, time.Second, 1}, OutputTokens: {6000, 600, 4 * time.Second, 400}, Concurrency: {3, 2, 0, 1}}
	if got := r.States(); got != want {
		t.Errorf("reserved: %v, want %v", got, want)
	}
	r.Used(401) // takes a step more
	want[OutputTokens] = State{6000, 472, 5280 * time.Millisecond, 528}
	if got := r.States(); got != want {
		t.Errorf("extended: %v, want %v", got, want)
	}
	h.move(2 * time.Second)
	r.Settle(10, 500)
	want = States{Requests: {60, 10, 0, 0}, OutputTokens: {6000, 700, 3 * time.Second, 300}, Concurrency: {3, 3, 0, 0}}
	if got := r.States(); got != want {
		t.Errorf("settled: %v, want %v", got, want)
	}
}

// An answer of any length goes on; those who come later wait for the debt.
func TestLongAnswerLeavesADebt(t *testing.T) {
	l, h := newTestLocal()
	limits := Limits{OutputTokensPerMinute: 600}
	r := must(t, l, limits, 1, 50)
	for n := range 1000 {
		r.Used(n)
	}
	r.Settle(1, 1000)
	_, refusal := reserve(l, limits, 1, 50)
	if refusal == nil || refusal.RetryAfter != 95*time.Second {
		t.Fatalf("got %+v", refusal)
	}
	h.move(refusal.RetryAfter)
	must(t, l, limits, 1, 50)
}

func TestLimitsChange(t *testing.T) {
	l, _ := newTestLocal()
	must(t, l, Limits{Concurrency: 1}, 1, 1)
	must(t, l, Limits{Concurrency: 2}, 1, 1)
	if _, refusal := reserve(l, Limits{Concurrency: 2}, 1, 1); refusal == nil {
		t.Error("running requests were forgotten")
	}
	must(t, l, Limits{}, 1<<40, 1<<40)
	must(t, l, Limits{RequestsPerMinute: 6}, 1, 1)
}

// Many tenants take no more memory than configured, and running ones are kept.
func TestBucketsAreBounded(t *testing.T) {
	h := newHand()
	l := NewLocal(Config{Burst: time.Second, BucketsMax: 100}, h.now)
	limits := Limits{Concurrency: 1}
	running := must(t, l, limits, 1, 1)
	for i := range 10000 {
		r, err := l.Reserve(context.Background(), Ask{Tenant: string(rune(i)), Model: "n", Scopes: OfTenant(limits)})
		if err != nil {
			t.Fatal(err)
		}
		r.Settle(1, 1)
	}
	if got := len(l.books.others.byKey); got > 101 || l.books.others.order.Len() != got {
		t.Errorf("%d buckets", got)
	}
	if _, refusal := reserve(l, limits, 1, 1); refusal == nil {
		t.Error("a running request was forgotten")
	}
	running.Settle(1, 1)
	must(t, l, limits, 1, 1)
}

// Cancels at any moment, from many sides, leave nothing.
func TestRandomCancelsLeaveZero(t *testing.T) {
	l, _ := newTestLocal()
	limits := Limits{Concurrency: 1 << 20, OutputTokensPerMinute: 1 << 29, TokensPerDay: 1 << 40}
	var all sync.WaitGroup
	for seed := range uint64(4) {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, 9))
			for range 25000 {
				r, _ := reserve(l, limits, 10, 100)
				if r == nil {
					continue
				}
				switch random.IntN(3) {
				case 0:
					r.Refund()
				case 1:
					r.Used(random.IntN(300))
				}
				r.Settle(0, 0)
			}
		})
	}
	all.Wait()
	b := l.books.Open(Key{"t", "m", "tenant", ""})
	if a := l.Audit(); a.Reserved != 100_000 || a.Settled+a.Refunded != a.Reserved || b.running != 0 || b.used[Day] != 0 || b.users.Load() != 1 {
		t.Errorf("audit %+v, %v running, %v tokens used, %d users", a, b.running, b.used[Day], b.users.Load())
	}
}

func TestReserveAllocates(t *testing.T) {
	l, _ := newTestLocal()
	a := Ask{Tenant: "t", Model: "m", Scopes: OfTenant(Limits{RequestsPerMinute: 1e9, InputTokensPerMinute: 1e9, OutputTokensPerMinute: 1e9, Concurrency: 1e6, TokensPerDay: 1e12}), Input: 100, Output: 100}
	got := testing.AllocsPerRun(1000, func() {
		r, err := l.Reserve(context.Background(), a)
		if err != nil {
			t.Fatal(err)
		}
		r.Used(50)
		r.Settle(100, 50)
	})
	if got > 1 { // the reservation itself
		t.Errorf("%v allocations", got)
	}
}

func BenchmarkLocalReserveSettle(b *testing.B) {
	l := NewLocal(Config{Burst: 10 * time.Second, BucketsMax: 1000}, nil)
	a := Ask{Tenant: "t", Model: "m", Scopes: OfTenant(Limits{RequestsPerMinute: 1e9, InputTokensPerMinute: 1e9, OutputTokensPerMinute: 1e9, Concurrency: 1e6, TokensPerDay: 1e12}), Input: 1, Output: 1}
	b.ReportAllocs()
	for b.Loop() {
		r, err := l.Reserve(context.Background(), a)
		if err != nil {
			b.Fatal(err)
		}
		r.Settle(1, 1)
	}
}
