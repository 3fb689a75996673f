package cli

import (
	"os"
	"runtime"
	"time"

	"github.com/forebay-io/forebay/engine"
	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/machine"
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/engine/perf"
	"github.com/forebay-io/forebay/kernels"
)

// prediction is the predicted speed of a model on this machine.
type prediction struct {
	WeightBytes      int    `json:"weight_bytes"`
	WeightTokenBytes int    `json:"weight_bytes_read_a_token"`
	KVType           string `json:"kv_type"`
	KVTokenBytes     int    `json:"kv_bytes_a_token"`
	WindowTokenBytes int    `json:"kv_bytes_more_a_token_in_window,omitempty"`
	WindowTokens     int    `json:"kv_window_tokens,omitempty"`
	StateBytes       int    `json:"state_bytes_a_sequence,omitempty"`

	ReadRate float64     `json:"read_bytes_a_second"` // measured, on all threads
	Threads  int         `json:"threads"`
	Contexts []atContext `json:"at_context"` // short and longest
	Memory   contextRoom `json:"in_memory"`
	Default  contextRoom `json:"in_default_kv_bytes"`
}

// atContext is the predicted speed of one token at a context length.
type atContext struct {
	Tokens     int     `json:"tokens"`
	MovedBytes int     `json:"moved_bytes"`
	Seconds    float64 `json:"seconds_a_token"`
}

// contextRoom is the longest context that fits in memory; 0 bytes means unknown.
type contextRoom struct {
	Bytes  int `json:"bytes"`
	Tokens int `json:"context_tokens"`
}

// shortContext is a context length, in tokens, at which a token reads mostly weights.
const shortContext = 128

// rateTime is how long the measurement of the memory's bandwidth takes.
const rateTime = 150 * time.Millisecond

func modelSizes(m *model.Config, f *gguf.File, cfg *engine.Config) *perf.Model {
	kv, _ := kernels.ParseKVType(cfg.KVType) // conf has checked it
	paging, windows := cfg.Paging(m, kv, m.ContextTokens, false)
	sizes := &perf.Model{
		ReadToken: m.WeightReadBytes(f), CacheRead: func(contextTokens int) int { return m.KVReadBytes(kv, contextTokens) },
		Page: paging.PageBytes, WindowPages: windows.Pages, WindowTokens: windows.Tokens, State: m.StateBytes(), PageTokens: cfg.PageTokens, ContextTokens: m.ContextTokens,
		PagesFor: func(tokens int) int { return windows.PagesFor(tokens, cfg.PageTokens) },
		TokensIn: func(pages int) int { return windows.TokensIn(pages, cfg.PageTokens) },
	}
	for _, use := range f.TypeUses() {
		sizes.Weights += use.Bytes
	}
	return sizes
}

func predict(sizes *perf.Model, cfg *engine.Config) *prediction {
	root, threads := os.DirFS("/"), runtime.GOMAXPROCS(0)
	p := &prediction{
		WeightBytes: sizes.Weights, WeightTokenBytes: sizes.ReadToken, KVType: cfg.KVType, KVTokenBytes: sizes.Page / sizes.PageTokens, WindowTokenBytes: sizes.Page * sizes.WindowPages / sizes.PageTokens, WindowTokens: sizes.WindowTokens, StateBytes: sizes.State,
		ReadRate: machine.ReadRate(threads, machine.LastCache(root), rateTime), Threads: threads,
	}
	for _, tokens := range []int{min(shortContext, sizes.ContextTokens), sizes.ContextTokens} {
		p.Contexts = append(p.Contexts, atContext{tokens, sizes.Moved(tokens), sizes.TokenTime(tokens, p.ReadRate).Seconds()})
	}
	if p.Memory.Bytes = machine.Available(root); p.Memory.Bytes > 0 {
		p.Memory.Tokens = sizes.ContextIn(p.Memory.Bytes)
	}
	p.Default.Bytes = int(cfg.CacheBytes(sizes.PagesFor(sizes.ContextTokens), sizes.Page))
	p.Default.Tokens = sizes.ContextInCache(p.Default.Bytes)
	return p
}

func (p *prediction) print(row func(name, format string, args ...any)) {
	row("weights", "%s; a token reads %s of them", size(p.WeightBytes), size(p.WeightTokenBytes))
	if p.StateBytes > 0 {
		row("state", "%s a sequence, of any length", size(p.StateBytes))
	}
	row("KV cache", "%s a token, in %s", size(p.KVTokenBytes), p.KVType)
	if p.WindowTokens > 0 {
		row("KV cache", "%s more for each of a sequence's last %d tokens", size(p.WindowTokenBytes), p.WindowTokens)
	}
	row("memory", "read at %.1f GB/s by %d threads, measured now", p.ReadRate/1e9, p.Threads)
	for _, at := range p.Contexts {
		row("at best", "%s moved and %.3g ms a token (%.0f a second) at %d tokens of context", size(at.MovedBytes), 1e3*at.Seconds, 1/at.Seconds, at.Tokens)
	}
	switch {
	case p.Memory.Bytes == 0:
		row("longest context", "not known: the system does not say how much memory is available")
	case p.Memory.Bytes < p.WeightBytes:
		row("longest context", "none: the %s of memory that is available does not hold the weights", size(p.Memory.Bytes))
	default:
		row("longest context", "%d tokens in the %s of memory that is available", p.Memory.Tokens, size(p.Memory.Bytes))
	}
	row("longest context", "%d tokens by default, where kv_bytes is %s", p.Default.Tokens, size(p.Default.Bytes))
}
