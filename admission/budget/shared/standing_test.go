package shared

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission/budget"
)

// TestStandingsAreThoseOfAllGateways: a gateway shows what others have used, also of
// budgets that it never had to do with, and takes nothing by it.
func TestStandingsAreThoseOfAllGateways(t *testing.T) {
	m, url := mini(t)
	one, other := openTest(t, config(t, url), nil), openTest(t, config(t, url), nil)
	limits := budget.Limits{RequestsPerMinute: 6, TokensPerDay: 1000, Concurrency: 2}
	mine := budget.Holder{Key: budget.Key{Tenant: "t", Model: "m", Kind: budget.KindTenant}, Limits: limits}
	strange, broken := mine, mine
	strange.Tenant, broken.Tenant = "strange", "broken"
	m.Lpush(bookKey("forebay", broken.Key), "no book")
	holders := []budget.Holder{mine, strange, broken}
	r, refusal := ask(one, limits, 30, 20)
	if refusal != nil {
		t.Fatal(refusal)
	}
	whole := budget.Whole(limits, config(t, url).Burst, time.Date(2026, 8, 1, 10, 0, 0, 0, time.UTC))
	check := func(when string, requests, day, running float64) {
		t.Helper()
		states, err := other.Standings(t.Context(), holders)
		if err != nil {
			t.Fatal(err)
		}
		if got := states[0]; got[budget.Requests].Used != requests || got[budget.Day].Used != day || got[budget.Concurrency].Used != running || got[budget.Day].Remaining != 1000-day {
			t.Errorf("%s: %+v", when, got)
		}
		if states[1] != whole && when == "reserved" || states[2] != states[1] {
			t.Errorf("%s: untouched budgets are %+v and %+v, want %+v", when, states[1], states[2], whole)
		}
	}
	check("reserved", 1, 50, 1)
	if got := other.Holders(10); len(got) != 0 {
		t.Errorf("looking made the accounts %+v", got)
	}
	if got := one.Holders(10); !slices.Equal(got, []budget.Holder{mine}) {
		t.Errorf("holders %+v", got)
	}
	r.Settle(30, 5)
	eventually(t, "the end is told", func() bool {
		states, err := other.Standings(t.Context(), holders)
		return err == nil && states[0][budget.Day].Used == 35 && states[0][budget.Concurrency].Used == 0
	})
	m.SetTime(time.Date(2026, 8, 1, 10, 0, 5, 0, time.UTC))
	check("five seconds later", 0.5, 35, 0)
	m.SetTime(time.Date(2026, 8, 2, 0, 0, 0, 0, time.UTC))
	check("the next day", 0, 0, 0)
}

// TestStandingsWithoutRedis are what this gateway knows, and an error, soon.
func TestStandingsWithoutRedis(t *testing.T) {
	cfg := config(t, "redis://unused")
	cfg.DecisionLimit = 5 * time.Millisecond
	s := open(cfg, &hung{}, slog.New(slog.DiscardHandler), nil)
	t.Cleanup(s.Close)
	limits := budget.Limits{TokensPerDay: 1000}
	if _, refusal := ask(s, limits, 30, 20); refusal != nil { // its part
		t.Fatal(refusal)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	states, err := s.Standings(ctx, []budget.Holder{{Key: budget.Key{Tenant: "t", Model: "m", Kind: budget.KindTenant}, Limits: limits}})
	if err == nil || len(states) != 1 || states[0][budget.Day].Used != 50 {
		t.Errorf("%+v, %v", states, err)
	}
}
