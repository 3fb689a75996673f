package cost

import (
	"math"
	"time"
)

// Load is the work of one step.
type Load struct {
	PrefillTokens  int
	PrefillContext float64 // sum over chunks: tokens × (tokens before the chunk + half of the chunk)
	DecodeRows     int
	DecodeContext  int // sum of the decode rows' contexts, in tokens
}

// AddChunk adds a chunk of n prompt tokens after a context of context tokens.
func (l *Load) AddChunk(n, context int) {
	l.PrefillTokens += n
	l.PrefillContext += float64(n) * (float64(context) + float64(n)/2)
}

// AddRow adds a decode row: the next token of a sequence of context tokens.
func (l *Load) AddRow(context int) {
	l.DecodeRows++
	l.DecodeContext += context
}

// Cost is a linear model of a step's duration. Every coefficient is in
// nanoseconds, finite and not negative. The zero value means unknown.
type Cost struct {
	Base           float64 // of every step
	PrefillToken   float64 // of each prompt token
	PrefillContext float64 // of each pair of a prompt token and a token before it
	DecodeRow      float64 // of each decode row
	DecodeContext  float64 // of each token in the context of a decode row
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

// Step returns the predicted duration of a step with load l.
func (c *Cost) Step(l Load) time.Duration { return duration(c.StepNS(l)) }

// StepNS is Step in nanoseconds, not rounded.
func (c *Cost) StepNS(l Load) float64 {
	return c.Base + c.PrefillToken*float64(l.PrefillTokens) + c.PrefillContext*l.PrefillContext +
		c.DecodeRow*float64(l.DecodeRows) + c.DecodeContext*float64(l.DecodeContext)
}

// duration converts ns to a Duration, and clamps large values.
func duration(ns float64) time.Duration { return time.Duration(min(ns, math.MaxInt64/2)) }

// Prefill returns the engine time of the last uncached tokens of a prompt after
// cached ones, in steps of at most chunk tokens: W(u,h) = (b + a/B)·u + q·u·(h + u/2).
func (c *Cost) Prefill(uncached, cached, chunk int) time.Duration {
	return duration(c.ChunkNS(uncached, cached) + c.Base/float64(max(1, chunk))*float64(uncached))
}

// Decode returns the engine time of one token of a sequence with context tokens,
// if rows sequences share each step.
func (c *Cost) Decode(context, rows int) time.Duration {
	return duration(c.Base/float64(max(1, rows)) + c.RowNS(context))
}

// ChunkNS returns the time that a chunk of n prompt tokens after context tokens adds
// to a step, in nanoseconds.
func (c *Cost) ChunkNS(n, context int) float64 {
	u := float64(n)
	return c.PrefillToken*u + c.PrefillContext*u*(float64(context)+u/2)
}

// RowNS returns the time that a decode row adds to a step, in nanoseconds.
func (c *Cost) RowNS(context int) float64 { return c.DecodeRow + c.DecodeContext*float64(context) }

// TokensMost is larger than the tokens of any step.
const TokensMost = 1 << 24

// TokensIn returns the largest chunk after context tokens that takes at most ns
// nanoseconds: the root u of q/2·u² + (b + q·h)·u = ns.
func (c *Cost) TokensIn(ns float64, context int) int {
	if ns <= 0 {
		return 0
	}
	each := c.PrefillToken + c.PrefillContext*float64(context)
	// This form of the root avoids the difference of nearly equal numbers.
	u := 2 * ns / (each + math.Sqrt(each*each+2*c.PrefillContext*ns))
	if !(u < TokensMost) { // a chunk costs nothing, or u is not a number
		return TokensMost
	}
	return int(u + 1e-9)
}
