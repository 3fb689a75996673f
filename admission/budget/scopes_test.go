package budget

import (
	"context"
	"errors"
	"testing"
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
