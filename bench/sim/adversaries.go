package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// adversaries change a trace of chats into a hostile one.
var adversaries = map[string]func(*rand.Rand, *Trace){
	"long-prompts": longPrompts,
	"flood":        flood,
	"max-tokens":   hugeMaxTokens,
	"length-lie":   lengthLie,
	"cancels":      cancelStorm,
	"slowdown":     slowdown,
}

// adversaryNames is the order in which all of them are applied.
var adversaryNames = []string{"long-prompts", "flood", "max-tokens", "length-lie", "cancels", "slowdown"}

// longPrompts makes one request in a hundred a prompt of 100,000 tokens and more.
func longPrompts(rnd *rand.Rand, t *Trace) {
	for i := range t.Requests {
		if rnd.IntN(100) == 0 {
			t.Requests[i].Prompt = 100_000 + rnd.IntN(20_000)
		}
	}
}

// flood adds a tenant that sends 20 times as many requests as each polite one, very
// small ones, over the middle third.
func flood(rnd *rand.Rand, t *Trace) {
	from, to := t.span()/3, t.span()*2/3
	n := len(t.Requests) / 3 * 20 / politeTenants
	for range n {
		t.Requests = append(t.Requests, Request{
			At: from + time.Duration(rnd.Int64N(int64(to-from)+1)), Prompt: 16 + rnd.IntN(64), Output: 8, Asked: askedUnset,
			Tenant: "flood", Class: interactive,
		})
	}
	slices.SortStableFunc(t.Requests, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
}

// hugeMaxTokens lets a tenth of the requests ask for far more tokens than they get.
func hugeMaxTokens(rnd *rand.Rand, t *Trace) {
	for i := range t.Requests {
		if rnd.IntN(10) == 0 {
			t.Requests[i].Output, t.Requests[i].Asked = 1+rnd.IntN(8), 65536
		}
	}
}

// lengthLie makes every answer of the first tenant five times as long from the
// middle on.
func lengthLie(_ *rand.Rand, t *Trace) {
	for i := len(t.Requests) / 2; i < len(t.Requests); i++ {
		if r := &t.Requests[i]; r.Tenant == "tenant-1" {
			r.Output *= 5
			r.Asked = max(r.Asked, r.Output)
		}
	}
}

// cancelStorm has three clients in ten cancel within 3 seconds.
func cancelStorm(rnd *rand.Rand, t *Trace) {
	for i := range t.Requests {
		if rnd.IntN(10) < 3 {
			t.Requests[i].CancelAfter = time.Duration(1 + rnd.Int64N(int64(3*time.Second)))
		}
	}
}

// slowdown halves the engine's speed for 30 seconds in the middle.
func slowdown(_ *rand.Rand, t *Trace) {
	t.Slow = append(t.Slow, Slow{At: 0.5, For: 30 * time.Second, Factor: 2})
}
