package engine

import (
	"cmp"
	"slices"
	"time"
)

// This file decides what one step computes. It is pure: the loop hands in
// what it knows of each sequence and gets back how many tokens each may take.
//
// Invariants:
//  1. The oldest sequence always gets tokens, whatever its key and the budget.
//  2. Decode rows go before prefill, but for a least chunk of the oldest
//     prefill, so that a full house of decodes cannot hold it off.
//  3. The shares never exceed batchTokensMax together.

// work is one sequence that could compute in the next step.
type work struct {
	pending int    // tokens known and not yet computed, at least 1
	decode  bool   // the one pending token is the last that was sampled
	key     int64  // the gateway's order, smaller first
	arrival uint64 // unique; smaller is older
	index   int    // the caller's own number for it
}

// share is how many tokens a sequence computes in the step.
type share struct{ index, tokens int }

// limits bound one step.
type limits struct {
	batchTokensMax int
	tokensMin      int // the oldest prefill's chunk even when the budget is spent
	budget         time.Duration
}

// compose appends the next step's shares to dst: decode rows oldest first,
// then prefill chunks by key and arrival, as many tokens as cost says fit the
// time budget. It reorders works.
func compose(dst []share, works []work, cost *stepCost, l limits) []share {
	if len(works) == 0 {
		return dst
	}
	slices.SortFunc(works, compareWork)
	room, rows := l.batchTokensMax, 0
	kept, keptFor := 0, 0 // the oldest prefill's least chunk
	if oldest, ok := oldestPrefill(works); ok {
		kept, keptFor = min(oldest.pending, l.tokensMin, room), oldest.index
		if works[0].decode && works[0].arrival < oldest.arrival {
			kept = min(kept, room-1)
		}
	}
	for _, w := range works {
		if w.decode && room > kept {
			dst = append(dst, share{w.index, 1})
			room--
			rows++
		}
	}
	tokens := min(room, max(kept, cost.prefillTokens(l.budget, rows)))
	for _, w := range works {
		if w.decode {
			continue
		}
		if w.index == keptFor {
			kept = 0
		}
		if n := min(w.pending, tokens-kept); n > 0 {
			dst = append(dst, share{w.index, n})
			tokens -= n
		}
	}
	return dst
}

// oldestPrefill finds the prefill that arrived first.
func oldestPrefill(works []work) (oldest work, ok bool) {
	for _, w := range works {
		if !w.decode && (!ok || w.arrival < oldest.arrival) {
			oldest, ok = w, true
		}
	}
	return oldest, ok
}

// compareWork puts decodes first, oldest first, then prefills by key and arrival.
func compareWork(a, b work) int {
	switch {
	case a.decode && b.decode:
		return cmp.Compare(a.arrival, b.arrival)
	case a.decode:
		return -1
	case b.decode:
		return 1
	}
	return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.arrival, b.arrival))
}

// stepCost estimates a step's duration as base + decodeRow·rows +
// prefillToken·tokens, in nanoseconds, learned from the steps as they end.
// The zero value knows nothing and allows one cautious chunk.
type stepCost struct {
	base, decodeRow, prefillToken float64
	known                         bool
}

// The first chunk, while nothing is known, and the share of an error that one
// step corrects. A normalised gradient step forgets old speeds and, unlike
// recursive least squares, does not wind up while steps all look alike.
const (
	prefillTokensUnknown = 64
	costCorrection       = 0.2
)

// predict is the expected duration of a step in nanoseconds.
func (c *stepCost) predict(rows, tokens int) float64 {
	return c.base + c.decodeRow*float64(rows) + c.prefillToken*float64(tokens)
}

// observe corrects the estimate by a step that ended.
func (c *stepCost) observe(rows, tokens int, took time.Duration) {
	r, t := float64(rows), float64(tokens)
	if !c.known {
		each := float64(took) / (1 + r + t)
		c.base, c.decodeRow, c.prefillToken, c.known = each, each, each, true
		return
	}
	// A step that was stopped by the machine teaches at most a fourfold rise.
	miss := min(float64(took), 4*c.predict(rows, tokens)) - c.predict(rows, tokens)
	gain := costCorrection * miss / (1 + r*r + t*t)
	c.base = max(0, c.base+gain)
	c.decodeRow = max(0, c.decodeRow+gain*r)
	c.prefillToken = max(0, c.prefillToken+gain*t)
}

// prefillTokens is how many prefill tokens fit into budget beside rows decode
// rows. Where no decode row waits for the step's end, the budget is fourfold,
// since larger steps read the weights less often.
func (c *stepCost) prefillTokens(budget time.Duration, rows int) int {
	if !c.known {
		return prefillTokensUnknown
	}
	if rows == 0 {
		budget *= 4
	}
	left := float64(budget) - c.predict(rows, 0)
	if left <= 0 {
		return 0
	}
	return int(min(left/max(c.prefillToken, 1), 1<<20))
}
