package engine

import (
	"time"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/cost"
)

// This file measures the cost of steps before the first request: a few forwards
// on pages that no sequence owns yet. They leave no trace: pages are written
// before they are read, no block is indexed, nothing is counted.

// trial is the shape of one forward.
type trial struct {
	rows, rowContext int // decode rows, and the tokens before each
	chunk, context   int // a prompt's next tokens, and the tokens before them
}

// trials go from cheap to expensive, and tell the five coefficients apart. The
// first teaches nothing: it reads weights that are in no cache yet.
var trials = [...]trial{
	{1, 16, 0, 0}, {1, 16, 0, 0}, {4, 16, 0, 0}, {0, 0, 16, 0}, {4, 512, 0, 0}, {2, 16, 16, 256},
	{0, 0, 64, 0}, {0, 0, 32, 1024}, {8, 256, 0, 0}, {0, 0, 128, 0}, {2, 64, 64, 512},
}

// encoderTrials are of encoders, which compute whole texts and nothing else.
var encoderTrials = [...]trial{{0, 0, 16, 0}, {0, 0, 16, 0}, {0, 0, 64, 0}, {0, 0, 128, 0}, {0, 0, 32, 0}, {0, 0, 256, 0}}

// benchmarkBytes is the bytes of weights that a forward reads in a second even
// from a disk. A forward cannot be stopped, so one that may take too long is not
// begun.
const benchmarkBytes = 1 << 30

// gpuFaster is how much faster at least a GPU reads its own memory.
const gpuFaster = 100

// selfBenchmark measures the cost of steps, within the configured limit.
func (p *loaded) selfBenchmark(cfg *Config) {
	began, limit := time.Now(), cfg.SelfBenchmarkLimit
	rate := float64(benchmarkBytes)
	if p.gpu != nil {
		rate *= gpuFaster
	}
	if time.Duration(float64(p.info.WeightBytes)/rate*float64(time.Second)) > limit {
		return
	}
	all := trials[:]
	if p.wholeSteps() {
		all = encoderTrials[:]
	}
	for i, t := range all {
		chunks, load, ok := p.trialChunks(t, cfg)
		if !ok || time.Since(began)+2*p.fit.Cost().Step(load) > limit {
			continue
		}
		start := time.Now()
		p.model.ForwardUnless(nil, chunks)
		if took := time.Since(start); i > 0 {
			p.fit.Observe(load, took)
		}
	}
}

// trialChunks are a trial's chunks, on the pool's first pages: all look at the
// same tokens, and each writes to blocks of its own. It reports false where the
// engine has no room for them.
func (p *loaded) trialChunks(t trial, cfg *Config) (chunks []model.Chunk, load cost.Load, ok bool) {
	most := max(t.rowContext, t.context) + max(t.chunk, 1)
	shared := (most + cfg.PageTokens - 1) / cfg.PageTokens
	own := shared // the next block that is not shared
	tokens := make([]int32, max(1, t.chunk))
	for i := range tokens {
		tokens[i] = int32(i % p.info.VocabTokens)
	}
	chunk := func(n, context, logits int) {
		tables := make([][]int32, 1+p.windows.Pages)
		for i := range (context + n + cfg.PageTokens - 1) / cfg.PageTokens {
			block := i
			if i >= context/cfg.PageTokens {
				block = own
				own++
			}
			for j := range tables { // a block's pages side by side
				tables[j] = append(tables[j], int32(block*len(tables)+j))
			}
		}
		chunks = append(chunks, model.Chunk{Tokens: tokens[:n], Start: context, Pages: tables[0], Windows: tables[1:], Logits: logits, State: int32(len(chunks))})
	}
	for range t.rows {
		chunk(1, t.rowContext, 1)
		load.AddRow(t.rowContext)
	}
	if t.chunk > 0 {
		chunk(t.chunk, t.context, 0)
		load.AddChunk(t.chunk, t.context)
	}
	return chunks, load, (p.states == 0 || len(chunks) <= p.states) && own*(1+p.windows.Pages) <= p.pages && t.rows+t.chunk <= cfg.BatchTokensMax && most <= p.info.ContextTokens
}
