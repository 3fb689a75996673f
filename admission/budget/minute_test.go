package budget

import (
	"math/rand/v2"
	"testing"
	"time"
)

// maxWithin is the most that came within any span of 60 s.
func maxWithin(at []time.Time, n []int) (most int) {
	sum, first := 0, 0
	for i := range at {
		for sum += n[i]; at[i].Sub(at[first]) > time.Minute; first++ {
			sum -= n[first]
		}
		most = max(most, sum)
	}
	return most
}

// Case C24.
func TestAnyMinute(t *testing.T) {
	l, h := newTestLocal()
	start := h.now()
	var at []time.Time
	var one []int
	for _, when := range []time.Duration{59900 * time.Millisecond, 60100 * time.Millisecond, 118 * time.Second} {
		h.t = start.Add(when)
		for range 100 {
			if r, _ := reserve(l, Limits{RequestsPerMinute: 100}, 1, 1); r != nil {
				at, one = append(at, h.now()), append(one, 1)
			}
		}
	}
	if got := maxWithin(at, one); got > 100+16 {
		t.Errorf("%d within 60 s", got)
	}
	// The control: a count that begins anew each minute lets twice as many through.
	at, one = nil, nil
	for _, when := range []time.Duration{59900 * time.Millisecond, 60100 * time.Millisecond} {
		for range 100 {
			at, one = append(at, start.Add(when)), append(one, 1)
		}
	}
	if got := maxWithin(at, one); got <= 100+16 {
		t.Errorf("fixed windows pass too: %d within 60 s", got)
	}
}

// Never more than limit + burst, or limit + the largest, in any minute; and
// what a tenant that always asks gets is not less than its limit.
func TestAnyMinuteOverRandomLoads(t *testing.T) {
	random := rand.New(rand.NewPCG(24, 1))
	for round := range 20 {
		l, h := newTestLocal()
		limit, largest := 600+random.IntN(10000), 1+random.IntN(3000)
		largest = min(largest, limit)
		var at []time.Time
		var tokens []int
		total := 0
		for from := h.now(); h.now().Sub(from) < 5*time.Minute; h.move(time.Duration(random.IntN(500)) * time.Millisecond) {
			for range random.IntN(4) {
				n := 1 + random.IntN(largest)
				r, _ := reserve(l, Limits{InputTokensPerMinute: limit}, n, 1)
				if r != nil && random.IntN(10) == 0 {
					r.Refund()
				} else if r != nil {
					at, tokens, total = append(at, h.now()), append(tokens, n), total+n
				}
			}
		}
		if got, most := maxWithin(at, tokens), limit+max(limit/6, largest); got > most {
			t.Errorf("round %d: %d within 60 s, limit %d, largest %d", round, got, limit, largest)
		}
		if largest < limit/60 && total < 4*limit {
			t.Errorf("round %d: %d in five minutes at a limit of %d", round, total, limit)
		}
	}
}

// Clients that are refused together and obey do not return together, and each
// needs few rounds.
//
// Case C25.
func TestNoHerd(t *testing.T) {
	l, h := newTestLocal()
	limits := Limits{RequestsPerMinute: 200}
	start := h.now()
	waiting := make([]time.Time, 200) // when each comes next
	for i := range waiting {
		waiting[i] = start
	}
	var returns []time.Duration
	for round := 1; len(waiting) > 0; round++ {
		if round > 3 {
			t.Fatalf("%d not served in 3 rounds", len(waiting))
		}
		var again []time.Time
		for _, when := range waiting { // promised in order, so they come in order
			h.t = when
			if _, refusal := reserve(l, limits, 1, 1); refusal != nil {
				again = append(again, h.t.Add(refusal.RetryAfter))
				returns = append(returns, h.t.Add(refusal.RetryAfter).Sub(start))
			}
		}
		waiting = again
	}
	if spread := returns[len(returns)-1] - returns[0]; spread < 30*time.Second {
		t.Errorf("all return within %v", spread)
	}
}
