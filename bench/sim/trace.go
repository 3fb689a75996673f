package sim

import (
	"slices"
	"time"
)

// Trace is what arrives, and when the engine is slow.
type Trace struct {
	Name     string
	Requests []Request // by arrival; the first comes at 0
	Slow     []Slow
	// From is the arrival from which on requests count; those before prepare the policy.
	From time.Duration
}

// Request is one arrival.
type Request struct {
	At     time.Duration
	Prompt int // tokens, at least 1
	Output int // tokens that the model will give, at least 1
	// Asked is the client's max_tokens, at least Output.
	Asked  int
	Tenant string
	Class  string
	Blocks []uint64 // hashes of the prompt's full blocks of BlockTokens
	// Cached is how many leading tokens of the prompt need no computing, besides
	// those of Blocks that the machine has kept.
	Cached int
	// Recorded is what became of it in the run that the trace was recorded in; nil
	// if it was in none.
	Recorded *Recorded
	// CancelAfter is when the client cancels, from arrival; 0 is never.
	CancelAfter time.Duration
}

// BlockTokens are the tokens of a block that a trace names by a hash.
const BlockTokens = 512

// askedUnset is the max_tokens of a request for which the trace has none.
const askedUnset = 2048

// Slow is a stretch of time in which every step takes Factor times as long.
type Slow struct {
	At     float64 // its beginning, as a share of the trace's span
	For    time.Duration
	Factor float64
}

// span is the time from the first arrival to the last.
func (t *Trace) span() time.Duration { return t.Requests[len(t.Requests)-1].At }

// scaled returns a copy whose arrivals take k times as long.
func (t *Trace) scaled(k float64) *Trace {
	s := *t
	s.From = time.Duration(float64(t.From) * k)
	s.Requests = slices.Clone(t.Requests)
	for i := range s.Requests {
		s.Requests[i].At = time.Duration(float64(s.Requests[i].At) * k)
	}
	return &s
}

// Head returns the trace's first n requests, all of them for 0.
func (t *Trace) Head(n int) *Trace {
	s := *t
	if n > 0 && n < len(s.Requests) {
		s.Requests = s.Requests[:n]
	}
	return &s
}
