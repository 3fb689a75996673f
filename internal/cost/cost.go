package cost

import (
	"math"
	"time"
)

// Load is what one step computes.
type Load struct {
	PrefillTokens  int
	PrefillContext float64 // sum over chunks of tokens × tokens before them, half the chunk's own among these
	DecodeRows     int
	DecodeContext  int // sum of the decode rows' contexts, in tokens
}

// AddChunk adds n prompt tokens that come after context others.
func (l *Load) AddChunk(n, context int) {
	l.PrefillTokens += n
	l.PrefillContext += float64(n) * (float64(context) + float64(n)/2)
}

// AddRow adds the next token of a sequence that has context tokens.
func (l *Load) AddRow(context int) {
	l.DecodeRows++
	l.DecodeContext += context
}

// Cost is a linear model of a step's duration. Every coefficient is in
// nanoseconds, finite and not negative; the zero value knows nothing.
type Cost struct {
	Base           float64 // a step at all
	PrefillToken   float64 // a prompt token
	PrefillContext float64 // a prompt token times a token before it
	DecodeRow      float64 // a sequence's next token
	DecodeContext  float64 // a token that a decode row looks back on
}

// Known tells whether the model has learned anything.
func (c *Cost) Known() bool { return *c != Cost{} }

// Valid tells whether every coefficient is finite and not negative.
func (c *Cost) Valid() bool {
	for _, x := range [...]float64{c.Base, c.PrefillToken, c.PrefillContext, c.DecodeRow, c.DecodeContext} {
		if !(x >= 0 && x <= math.MaxFloat64) {
			return false
		}
	}
	return true
}

// Step is the predicted duration of a step that computes l.
func (c *Cost) Step(l Load) time.Duration { return duration(c.StepNS(l)) }

// StepNS is Step in nanoseconds, not rounded.
func (c *Cost) StepNS(l Load) float64 {
	return c.Base + c.PrefillToken*float64(l.PrefillTokens) + c.PrefillContext*l.PrefillContext +
		c.DecodeRow*float64(l.DecodeRows) + c.DecodeContext*float64(l.DecodeContext)
}

// duration is ns as a Duration, however large.
func duration(ns float64) time.Duration { return time.Duration(min(ns, math.MaxInt64/2)) }

// Prefill is the engine time of computing a prompt's last uncached tokens after
// cached ones, in steps of at most chunk tokens: W(u,h) = (b + a/B)·u + q·u·(h + u/2).
func (c *Cost) Prefill(uncached, cached, chunk int) time.Duration {
	return duration(c.ChunkNS(uncached, cached) + c.Base/float64(max(1, chunk))*float64(uncached))
}

// Decode is the engine time of one token of one sequence with so many tokens
// before it, where rows sequences share each step.
func (c *Cost) Decode(context, rows int) time.Duration {
	return duration(c.Base/float64(max(1, rows)) + c.RowNS(context))
}

// ChunkNS is what n prompt tokens after context others add to a step, in nanoseconds.
func (c *Cost) ChunkNS(n, context int) float64 {
	u := float64(n)
	return c.PrefillToken*u + c.PrefillContext*u*(float64(context)+u/2)
}

// RowNS is what a decode row adds to a step, in nanoseconds.
func (c *Cost) RowNS(context int) float64 { return c.DecodeRow + c.DecodeContext*float64(context) }

// TokensMost is more than any step computes.
const TokensMost = 1 << 24

// TokensIn is the largest chunk after context tokens that takes at most ns:
// the root of q/2·u² + (b + q·h)·u = ns.
func (c *Cost) TokensIn(ns float64, context int) int {
	if ns <= 0 {
		return 0
	}
	each := c.PrefillToken + c.PrefillContext*float64(context)
	// The form without a difference of near numbers.
	u := 2 * ns / (each + math.Sqrt(each*each+2*c.PrefillContext*ns))
	if !(u < TokensMost) { // free, or not a number
		return TokensMost
	}
	return int(u + 1e-9)
}
