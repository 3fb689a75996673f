package admission

import (
	"testing"
	"time"
)

// TestATenantPaysForWhatWasComputed: a request that ends early costs its tenant the
// engine time of what was computed, not of its whole prompt, however long it ran.
func TestATenantPaysForWhatWasComputed(t *testing.T) {
	for name, c := range map[string]struct {
		spent Spent
		ran   time.Duration
		want  time.Duration
	}{
		"left in the engine's queue":             {Spent{}, 10 * time.Second, 0},
		"left in prefill":                        {Spent{ComputedTokens: 100}, 10 * time.Second, 100 * time.Millisecond},
		"left in prefill behind a cached prefix": {Spent{ComputedTokens: 11, CachedTokens: 320}, time.Second, 11 * time.Millisecond},
		"ran to its end":                         {Spent{ComputedTokens: 697, CompletionTokens: 1, Whole: true}, time.Second, 697 * time.Millisecond},
		"nobody heard, and it ran for long":      {Spent{Unheard: true}, 10 * time.Second, 697 * time.Millisecond},
		"nobody heard, and it ran shortly":       {Spent{Unheard: true}, 50 * time.Millisecond, 50 * time.Millisecond},
	} {
		p := newPipe(t, Config{LongPrefill: time.Hour, Classes: []Class{{Name: "offline"}}})
		e := p.ask("a", "offline", 697)
		if p.Next(p.now) != e {
			t.Fatal("it does not start")
		}
		before := e.line.deficit + e.charged
		p.now += c.ran
		p.Done(e, c.spent, p.now)
		if charged := before - e.line.deficit; charged != c.want || e.charged != c.want {
			t.Errorf("%s: the tenant is charged %v, the request %v; want %v", name, charged, e.charged, c.want)
		}
	}
}
