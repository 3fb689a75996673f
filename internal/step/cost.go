package step

import "time"

// Load is what one step computes.
type Load struct {
	PrefillTokens  int
	PrefillContext float64 // sum over chunks of tokens × tokens before them, half the chunk's own among these
	DecodeRows     int
	DecodeContext  int // sum of the decode rows' contexts, in tokens
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

// Step is the predicted duration of a step that computes l.
func (c *Cost) Step(l Load) time.Duration {
	return time.Duration(c.Base + c.PrefillToken*float64(l.PrefillTokens) + c.PrefillContext*l.PrefillContext +
		c.DecodeRow*float64(l.DecodeRows) + c.DecodeContext*float64(l.DecodeContext))
}

// Prefill is the engine time of computing a prompt's last uncached tokens after
// cached ones, in steps of at most chunk tokens: W(u,h) = (b + a/B)·u + q·u·(h + u/2).
func (c *Cost) Prefill(uncached, cached, chunk int) time.Duration {
	u, h := float64(uncached), float64(cached)
	return time.Duration((c.PrefillToken+c.Base/float64(max(1, chunk)))*u + c.PrefillContext*u*(h+u/2))
}

// Decode is the engine time of one token of one sequence with so many tokens
// before it, where rows sequences share each step.
func (c *Cost) Decode(context, rows int) time.Duration {
	return time.Duration(c.Base/float64(max(1, rows)) + c.DecodeRow + c.DecodeContext*float64(context))
}
