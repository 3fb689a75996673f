//go:build cuda

package gpu

import (
	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/cudrv"
	"github.com/forebay-io/forebay/kernels/cuda"
)

// This file is attention: queries, keys and values of the step's tokens, and what they find.

func (s *pass) attention(i int, l *layer) {
	c, b, d := s.config, &s.buffers, &s.config.Layers[i]
	width := (c.Heads + 2*d.KVHeads) * d.HeadDim
	s.of(model.KernelQKV, i)
	s.multiply(b.qkv, width, l.qkv, b.normed, c.Embed, s.rows, s.rowCount())
	layout, pages := s.layout(i), s.pools[i]
	var table, tempers cuda.Address
	dims, turn := 0, 0
	if d.Rope != model.NoRope {
		table, dims = s.ropes[d.Rope], c.Ropes[d.Rope].Dims
		if c.Ropes[d.Rope].Pairing == model.PairNeighbours {
			turn |= cuda.TurnNeighbours
		}
	}
	if c.QKNormLast {
		turn |= cuda.TurnNormLast
	}
	if d.Tempered {
		tempers = s.tempers
	}
	qNorm, kNorm := l.qNorm, l.kNorm
	if c.QKNorm == model.NormPlain && d.Rope == model.NoRope {
		qNorm, kNorm = 0, 0
	}
	s.of(model.KernelNormRope, i)
	if c.QKNorm == model.NormAllHeads {
		s.normPart(b.qkv, width, c.Heads*d.HeadDim, qNorm)
		s.normPart(b.qkv+cuda.Address(4*c.Heads*d.HeadDim), width, d.KVHeads*d.HeadDim, kNorm)
		qNorm, kNorm = 0, 0
	}
	s.launch(s.kernels.place, cudrv.Grid{c.Heads + 2*d.KVHeads, s.rows, 1}, placeThreads, 4*(warpSize+d.HeadDim), s.args.Reset().
		At(b.qkv).Int(c.Heads, d.KVHeads, d.HeadDim, layout.PageTokens, layout.BlockBytes()).At(pages.keys, pages.values, qNorm, kNorm).
		Float(c.NormEps).At(table).Int(dims, turn).At(tempers, b.batch))
	s.attend(i, l)
	heads := c.Heads * d.HeadDim
	s.of(model.KernelOutput, i)
	s.multiply(b.sum, c.Embed, []matrix{l.out}, b.heads, heads, s.rows, s.rowCount())
}

// window is what a row of a layer sees, as sight in attention.cu has it.
func (s *pass) window(layer int) int {
	if s.config.Layers[layer].Chunked {
		return -s.config.ChunkTokens
	}
	return s.config.Layers[layer].WindowTokens
}

// attend computes what the queries find. Tokens of a prompt that follow each other share a
// block for each KV head. A row that is alone has a block for each KV head, or, where such rows
// are few, a block for each split of its context too. The bits are the same.
func (s *pass) attend(i int, l *layer) {
	c, b, d, layout, pages := s.config, &s.buffers, &s.config.Layers[i], s.layout(i), s.pools[i]
	group, window := c.Heads/d.KVHeads, s.window(i)
	rest := func(a *cuda.Args) *cuda.Args {
		return a.At(b.qkv).Int(c.Heads, d.KVHeads, d.HeadDim, layout.PageTokens, layout.BlockBytes()).At(pages.keys, pages.values).
			Int(window).Float(c.AttentionScale, c.AttentionSoftCap).At(b.batch)
	}
	if s.tiles > 0 {
		s.of(model.KernelAttentionPrefill, i)
		grid := cudrv.Grid{d.KVHeads * cut(group, cuda.PromptRows(d.HeadDim)), s.tiles, 1}
		s.launch(s.kernels.attendPrompt, grid, cuda.AttendThreads, cuda.PromptShared(d.HeadDim), rest(s.args.Reset().At(b.heads, l.sinks)))
	}
	if s.alone == 0 {
		return
	}
	s.of(model.KernelAttentionDecode, i)
	grid, shared := cudrv.Grid{d.KVHeads * cut(group, cuda.AttendHeads), s.alone, 1}, cuda.AttendShared(d.HeadDim)
	if s.splits < 2 {
		s.launch(s.kernels.attend, grid, cuda.AttendThreads, shared, rest(s.args.Reset().At(b.heads, l.sinks)))
		return
	}
	grid[2] = s.splits
	if seen := max(window, -window); seen > 0 {
		grid[2] = min(grid[2], (seen-2)/cuda.SplitTokens+2)
	}
	s.launch(s.kernels.attendSplits, grid, cuda.AttendThreads, shared, rest(s.args.Reset().At(b.partial).Int(s.splits)))
	s.launch(s.kernels.attendMerge, cudrv.Grid{c.Heads, s.alone, 1}, cuda.AttendThreads, 0, s.args.Reset().
		At(b.heads, b.partial).Int(s.splits, c.Heads, d.HeadDim, window).At(l.sinks, b.batch))
}
