package budget

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"
)

// A request passes all its scopes or takes from none.
func TestScopesAllOrNone(t *testing.T) {
	l, _ := newTestLocal()
	ask := func(key string) (*Reservation, *Refusal) {
		r, err := l.Reserve(context.Background(), Ask{Tenant: "t", Model: "m", Input: 10, Output: 10, Scopes: []Scope{
			{Kind: "tenant", Limits: Limits{TokensPerDay: 100, Concurrency: 10}},
			{Kind: "key", Name: key, Limits: Limits{TokensPerDay: 40}},
			{Kind: "user"},
		}})
		var refusal *Refusal
		errors.As(err, &refusal)
		return r, refusal
	}
	var held []*Reservation
	for range 2 {
		r, refusal := ask("a")
		if refusal != nil {
			t.Fatal(refusal)
		}
		held = append(held, r)
	}
	for range 100 { // refused by the key, these take nothing of the tenant
		if _, refusal := ask("a"); refusal == nil || refusal.Scope.Kind != "key" || refusal.Scope.Name != "a" || refusal.Rule != Day {
			t.Fatalf("got %v", refusal)
		}
	}
	for range 2 {
		r, refusal := ask("b")
		if refusal != nil {
			t.Fatal(refusal)
		}
		held = append(held, r)
	}
	if got := held[3].States()[Day]; got.Limit != 40 || got.Remaining != 0 {
		t.Errorf("of both, %+v was shown", got)
	}
	for _, r := range held {
		r.Settle(5, 0)
	}
	if got := held[3].States()[Day]; got.Remaining != 30 {
		t.Errorf("after the end %+v", got)
	}
	if a := l.Audit(); a.Reserved != 4 || a.Settled != 4 || a.Refused != 100 || a.Input != 20 {
		t.Errorf("%+v", a)
	}
}

// What is only predicted never refuses for good; what the client asked for does.
func TestPredictionRefusesNothingForGood(t *testing.T) {
	for _, limits := range []Limits{{OutputTokensPerMinute: 300}, {TokensPerDay: 310}} {
		l, h := newTestLocal()
		r, refusal := reserve(l, limits, 10, 609)
		if refusal != nil {
			t.Fatal(refusal)
		}
		r.Settle(10, 400) // it took more, and later ones wait for that
		_, refusal = reserve(l, limits, 10, 725)
		if refusal == nil || refusal.TooLarge || refusal.RetryAfter <= 0 {
			t.Fatalf("the next got %v", refusal)
		}
		h.move(refusal.RetryAfter)
		if _, refusal = reserve(l, limits, 10, 725); refusal != nil {
			t.Error(refusal)
		}
		_, err := l.Reserve(context.Background(), Ask{Tenant: "t", Model: "m", Scopes: OfTenant(limits), Input: 10, Output: 20, Asked: 301})
		if !errors.As(err, &refusal) || !refusal.TooLarge || refusal.Limit == 0 {
			t.Errorf("an answer of up to 301 tokens: %v", err)
		}
	}
}

// One client that comes back too early is told the time that it has, and not a later
// one each time: after a moment, or at once where it can only be the same request.
func TestImpatientClient(t *testing.T) {
	yes, no := func() bool { return true }, func() bool { return false }
	for name, c := range map[string]struct {
		alone func() bool
		every time.Duration
		want  time.Duration // for the last of nine, from the first refusal
	}{
		"after a moment":              {no, 300 * time.Millisecond, 3 * time.Second},
		"not known":                   {nil, 300 * time.Millisecond, 3 * time.Second},
		"at once, alone":              {yes, time.Millisecond, 3 * time.Second},
		"nine at once beside another": {no, time.Millisecond, 9 * 3 * time.Second},
	} {
		l, h := newTestLocal()
		ask := func(client uint64) time.Duration {
			_, err := l.Reserve(context.Background(), Ask{Tenant: "t", Model: "m", Scopes: OfTenant(Limits{RequestsPerMinute: 20}), Client: Client{client, c.alone}})
			if refusal := new(Refusal); errors.As(err, &refusal) {
				return refusal.RetryAfter
			}
			return 0
		}
		for range 3 {
			ask(7)
		}
		start, last := h.now(), time.Duration(0)
		for range 9 {
			last = h.now().Add(ask(7)).Sub(start)
			h.move(c.every)
		}
		if last > c.want || last < c.want-time.Second {
			t.Errorf("%s: told to come %v after the first refusal, want %v", name, last, c.want)
		}
		if got := ask(8); got < last+2*time.Second-h.now().Sub(start) {
			t.Errorf("%s: another is told %v", name, got)
		}
	}
}

// Many requests of one client that are refused over more than a moment do not all
// return when the first of them may.
func TestAHerdOfOneClient(t *testing.T) {
	l, h := newTestLocal()
	returns := map[time.Time]int{}
	for range 100 { // at 20 a second
		_, err := l.Reserve(context.Background(), Ask{Tenant: "t", Model: "m", Scopes: OfTenant(Limits{RequestsPerMinute: 20}), Client: Client{7, func() bool { return false }}})
		if refusal := new(Refusal); errors.As(err, &refusal) {
			returns[h.now().Add(refusal.RetryAfter).Truncate(time.Second)]++
		}
		h.move(50 * time.Millisecond)
	}
	for at, n := range returns {
		if n > 100/2 {
			t.Errorf("%d return at %v", n, at)
		}
	}
}

// Money, hours and months.
func TestMoneyAndWindows(t *testing.T) {
	h := newHand() // 1 August 2026, 10:00
	l := NewLocal(Config{Burst: 10 * time.Second, BucketsMax: 100, UsersMax: 100, Prices: []ModelPrice{{Model: "m", Prompt: 2, Cached: 0.5, Output: 10}}}, h.now)
	limits := Limits{CostPerMonth: 0.01, TokensPerHour: 1500}
	r := must(t, l, limits, 1000, 100)
	r.Cached(2000)
	r.Settle(1000, 300)
	const want = (1000*2 + 2000*0.5 + 300*10) / 1e6
	if got := r.States()[CostMonth]; math.Abs(got.Limit-got.Remaining-want) > 1e-12 {
		t.Errorf("%+v, want %v used", got, want)
	}
	_, refusal := reserve(l, limits, 300, 0)
	if refusal == nil || refusal.Rule != Hour || refusal.RetryAfter != time.Hour {
		t.Fatalf("got %+v", refusal)
	}
	h.move(time.Hour)
	must(t, l, limits, 300, 0).Settle(300, 300)
	_, refusal = reserve(l, limits, 1, 100)
	if refusal == nil || refusal.Rule != CostMonth {
		t.Fatalf("got %v", refusal)
	}
	h.t = time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	must(t, l, limits, 300, 300)
	// What was reserved in one month is not given to the next.
	h.t = time.Date(2026, 9, 30, 23, 59, 0, 0, time.UTC)
	r = must(t, l, limits, 100, 100)
	h.move(2 * time.Minute)
	r.Settle(0, 0)
	if got := r.States()[CostMonth]; got.Remaining != 0.01 {
		t.Errorf("%+v in a new month", got)
	}
}

// A dry run counts what it would refuse, and takes nothing for it.
func TestDryRun(t *testing.T) {
	l, _ := newTestLocal()
	limits := Limits{TokensPerDay: 100, DryRun: true}
	for range 5 {
		must(t, l, limits, 40, 200).Settle(40, 0)
	}
	if a := l.Audit(); a.Dry[Day] == 0 || a.Refused != 0 || a.Settled != 5 {
		t.Errorf("%+v", a)
	}
}
