// Package perf predicts from sizes how fast a model makes tokens and how much
// memory it takes.
//
// Goal: the arithmetic behind forebay model info, testable. A token on a CPU reads
// the weights it uses, and the keys and values of its context. Divided by the
// rate at which the machine reads memory, that is a lower bound of its time.
//
// Non-goals: the sizes (engine/model knows them), the machine's rate and memory
// (engine/machine measures them), and the time of prefill, which is bound by
// arithmetic and not by memory.
package perf

import "time"

// Model holds the inputs of a prediction. All sizes are in bytes, over all layers.
type Model struct {
	Weights   int // in memory after loading
	ReadToken int // weights read for one token: one row of the embedding, and only the experts in use
	// CacheRead returns the bytes of keys and values that attention reads for a
	// token with a context of contextTokens, itself included. Sliding windows
	// bound it.
	CacheRead func(contextTokens int) int

	State        int // of a sequence in a model with recurrent layers; every token reads and writes it
	Page         int // of keys and values
	PageTokens   int
	WindowPages  int // more for PageTokens of the last WindowTokens, which layers with windows see
	WindowTokens int
	// PagesFor returns the most pages of a context, TokensIn the longest context in so many.
	PagesFor      func(tokens int) int
	TokensIn      func(pages int) int
	ContextTokens int // the longest that the model was trained for
}

// Moved returns the bytes read from memory for one token at a context length.
func (m *Model) Moved(contextTokens int) int {
	return m.ReadToken + 2*m.State + m.CacheRead(contextTokens)
}

// TokenTime returns the least time of one token if memory is read at rate bytes a
// second; rate is over 0.
func (m *Model) TokenTime(contextTokens int, rate float64) time.Duration {
	return time.Duration(float64(m.Moved(contextTokens)) / rate * float64(time.Second))
}

// ContextIn returns the longest context whose keys and values
// fit into memory bytes beside the weights and a state; 0 if these alone do not fit.
func (m *Model) ContextIn(memory int) int { return m.ContextInCache(memory - m.Weights - m.State) }

// ContextInCache returns the longest context whose keys and values fit into
// memory bytes.
func (m *Model) ContextInCache(memory int) int {
	return min(m.ContextTokens, m.TokensIn(max(0, memory)/m.Page))
}
