package budget

import (
	"context"
	"testing"
	"time"
)

// TestStandings are what a holder has used and has left, by the limits asked about, and
// whole for one that used nothing.
func TestStandings(t *testing.T) {
	l, h := newTestLocal()
	limits := Limits{RequestsPerMinute: 60, TokensPerDay: 1000, CostPerDay: 5}
	must(t, l, limits, 300, 100)
	key := Key{Tenant: "t", Model: "m", Kind: KindTenant}
	holders := l.Holders(10)
	if len(holders) != 1 || holders[0] != (Holder{key, limits}) || len(l.Holders(0)) != 0 {
		t.Fatalf("holders %+v", holders)
	}
	more := limits
	more.TokensPerDay = 2000
	states, err := l.Standings(context.Background(), []Holder{{key, limits}, {Key{Tenant: "t", Model: "m", Kind: KindKey, Name: "k"}, limits}, {key, more}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []State{{1000, 600, 14 * time.Hour, 400}, {1000, 1000, 14 * time.Hour, 0}, {2000, 1600, 14 * time.Hour, 400}} {
		if got := states[i][Day]; got != want {
			t.Errorf("standing %d: %+v, want %+v", i, got, want)
		}
	}
	if got := states[0][Requests]; got != (State{60, 9, time.Second, 1}) {
		t.Errorf("requests %+v", got)
	}
	h.move(time.Second)
	if states, _ = l.Standings(context.Background(), holders); states[0][Requests].Used != 0 || len(l.Holders(10)) != 1 {
		t.Errorf("a second later %+v", states[0][Requests])
	}
}
