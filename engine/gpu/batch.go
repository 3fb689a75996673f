//go:build cuda

package gpu

import (
	"encoding/binary"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/kernels/cuda"
)

// This file writes a step's tokens for the kernels, as batch.h has them.

// stepShape says how large the launches of a step are.
type stepShape struct {
	rows, wanted int // tokens, and those with logits
	alone, tiles int // what attention takes: tokens one by one, and groups of tokens that follow each other
	context      int // the longest
	splits       int // of the longest context, where each has a block of its own
	runs         int // sequences, where they have states
	checkpoints  int // of states
}

// decoding says whether the step is like those of decoding: few tokens, each with logits.
// Attention takes all of them one by one.
func (s *stepShape) decoding() bool { return s.rows <= graphRowsMax && s.wanted == s.rows }

const batchHead = 32 // bytes of struct Batch

// The arrays of a batch, of a number for each token.
const (
	batchTokens = iota
	batchPositions
	batchTables
	batchLogits
	batchAlone
	batchTiles
	batchTileTokens
	batchArrays // that a model without states has

	batchFirsts = iota - 1
	batchStates
	batchRuns
	batchRunRows
	batchCheckpointRows
	batchCheckpointSlots
	batchArraysOfStates // all
)

// arrays is how many of them the model's batches have.
func (p *placed) arrays() int {
	if p.stateLen() > 0 {
		return batchArraysOfStates
	}
	return batchArrays
}

// tablePages is how many entries the page tables of a step may have.
func (p *placed) tablePages() int {
	o := &p.options
	return o.BatchTokensMax * ((o.ContextTokens-1)/o.PageTokens + 1)
}

// batchBytes is the size of a batch with so many entries in its page tables.
func (p *placed) batchBytes(pages int) int {
	return batchHead + 4*(p.arrays()*p.options.BatchTokensMax+pages)
}

// rowCount and wantedCount are where the batch says how many rows it has.
func (s *pass) rowCount() cuda.Address    { return s.buffers.batch }
func (s *pass) wantedCount() cuda.Address { return s.buffers.batch + 4 }

// picks is where the batch lists the rows whose logits are asked for.
func (s *pass) picks() cuda.Address {
	return s.buffers.batch + batchHead + cuda.Address(4*batchLogits*s.options.BatchTokensMax)
}

// put writes number i of an array.
func (p *placed) put(array, i, v int) {
	binary.LittleEndian.PutUint32(p.step[batchHead+4*(array*p.options.BatchTokensMax+i):], uint32(int32(v)))
}

// fill writes a step's tokens, and gives the bytes that count.
func (p *placed) fill(chunks []model.Chunk) (batch []byte, s stepShape, err error) {
	pages := 0
	for i := range chunks {
		c := &chunks[i]
		for j, token := range c.Tokens {
			if j >= len(c.Tokens)-c.Logits {
				p.put(batchLogits, s.wanted, s.rows)
				s.wanted++
			}
			p.put(batchTokens, s.rows, int(token))
			p.put(batchPositions, s.rows, c.Start+j)
			p.put(batchTables, s.rows, pages)
			s.rows++
		}
		s.context = max(s.context, c.Start+len(c.Tokens))
		for _, page := range c.Pages[:(c.Start+len(c.Tokens)-1)/p.options.PageTokens+1] {
			p.put(p.arrays(), pages, int(page))
			pages++
		}
	}
	p.share(chunks, &s)
	if p.stateLen() > 0 {
		err = p.fillStates(chunks, &s)
	}
	for i, v := range [batchHead / 4]int{s.rows, s.wanted, s.alone, s.tiles, p.options.BatchTokensMax, p.arrays(), s.runs, s.checkpoints} {
		binary.LittleEndian.PutUint32(p.step[4*i:], uint32(v))
	}
	return p.step[:p.batchBytes(pages)], s, err
}

// share says which tokens attention takes one by one, and which together.
func (p *placed) share(chunks []model.Chunk, s *stepShape) {
	row, decoding := 0, s.decoding()
	for i := range chunks {
		n := len(chunks[i].Tokens)
		for at := 0; at < n; {
			if decoding || n == 1 {
				p.put(batchAlone, s.alone, row+at)
				s.alone++
				at++
				continue
			}
			size := min(p.promptTokens, n-at)
			p.put(batchTiles, s.tiles, row+at)
			p.put(batchTileTokens, s.tiles, size)
			s.tiles++
			at += size
		}
		row += n
	}
}

// promptTokens is how many tokens of a prompt attention takes together, in every layer.
func promptTokens(c *model.Config) int {
	n := batchMax
	for i := range c.Layers {
		if c.Layers[i].KVHeads == 0 {
			continue
		}
		n = min(n, cuda.PromptTokens(c.Layers[i].HeadDim, c.Heads/c.Layers[i].KVHeads))
	}
	return n
}
