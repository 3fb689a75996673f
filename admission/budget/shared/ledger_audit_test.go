package shared

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/forebay-io/forebay/admission/budget"
)

// Requests end in every way at three gateways, while Redis loses all its data again
// and again: the day's use is what was charged, to the token, and no place is held.
func TestUseOutlastsLosses(t *testing.T) {
	server := startServer(t)
	cfg := config(t, server.url())
	cfg.SyncInterval, cfg.BreakerErrors = 10*time.Millisecond, 1000
	limits := budget.Limits{TokensPerDay: 10_000_000, TokensPerMonth: 10_000_000, Concurrency: 1000}
	stores := []*Store{openTest(t, cfg, nil), openTest(t, cfg, nil), openTest(t, cfg, nil)}
	c := server.client()
	for round := range 10 {
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				r, refusal := ask(stores[i%3], limits, 1+rand.IntN(100), rand.IntN(300))
				if refusal != nil {
					t.Error(refusal)
					return
				}
				time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
				r.Used(rand.IntN(400))
				switch rand.IntN(4) {
				case 0: // admission refused it
					r.Refund()
				case 1: // the client left while the prompt was computed
					r.Settle(rand.IntN(50), 0)
				default:
					r.Settle(rand.IntN(100), 400+rand.IntN(100))
				}
				r.Refund()
			})
			if i == 30 && round > 0 {
				time.Sleep(5 * time.Millisecond)
				if err := c.FlushAll(context.Background()).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
		all.Wait()
		var used int64
		for _, s := range stores {
			a := s.Audit()
			used += a.Input + a.Output
			if a.Reserved != a.Settled+a.Refunded || a.Fallback != 0 {
				t.Errorf("%+v", a)
			}
		}
		lastWord(stores, limits)
		var b book
		defer func() { t.Logf("round %d: %v, %d used", round, b.V, used) }()
		eventually(t, "the day's use is what was charged", func() bool {
			var err error
			b, err = server.book()
			return err == nil && len(b.L) == 3 && b.V[budget.Day] == float64(used) && b.V[budget.Month] == b.V[budget.Day] && b.V[budget.Concurrency] == 0.0
		})
	}
}

// lastWord has each gateway say what it used.
func lastWord(stores []*Store, limits budget.Limits) {
	for _, s := range stores {
		if r, _ := ask(s, limits, 0, 0); r != nil {
			r.Refund()
		}
	}
}
