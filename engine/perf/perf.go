// Package perf predicts from sizes how fast a model makes tokens and how much
// memory it takes.
//
// Goal: the arithmetic behind forebay model info, by hand and testable. Making a
// token on a CPU reads every weight that the token uses and the keys and values of
// what it sees, and the machine reads memory at a rate; the quotient is a time
// that a token cannot stay below.
//
// Not here: sizes (package model knows them), the machine's rate and memory
// (engine/machine measures them), the time of prefill, which arithmetic
// bounds and not memory.
package perf

import "time"

// Model is what a prediction needs to know. All sizes are in bytes, over all layers.
type Model struct {
	Weights   int // resident, once the model is loaded
	ReadToken int // of the weights, for one token: one row of the embedding, and of the experts those in use
	// CacheRead is what attention reads of keys and values for a token that sees
	// this many, itself among them. Windows bound it.
	CacheRead func(contextTokens int) int

	Page          int // of keys and values; it holds PageTokens
	PageTokens    int
	ContextTokens int // the longest that the model was trained for
}

// Moved is what the processor reads from memory for one token at a context.
func (m *Model) Moved(contextTokens int) int { return m.ReadToken + m.CacheRead(contextTokens) }

// TokenTime is how long one token takes at a rate of so many bytes a second, over
// 0, if nothing but memory holds it up.
func (m *Model) TokenTime(contextTokens int, rate float64) time.Duration {
	return time.Duration(float64(m.Moved(contextTokens)) / rate * float64(time.Second))
}

// ContextIn is the longest context, in whole pages, whose keys and values fit
// into so much memory beside the weights; 0 where the weights alone do not.
func (m *Model) ContextIn(memory int) int { return m.ContextInCache(memory - m.Weights) }

// ContextInCache is the longest context that fits into so much memory for keys
// and values.
func (m *Model) ContextInCache(memory int) int {
	return min(m.ContextTokens, max(0, memory)/m.Page*m.PageTokens)
}
