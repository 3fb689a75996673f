package model

import (
	"fmt"
	"slices"
)

// Span is a run of new tokens of one sequence.
type Span struct {
	Tokens []int32
	Start  int // position of Tokens[0]; keys and values before it are in Pages
	// Pages is the sequence's page table: page i holds the positions from
	// i·PageTokens on. It covers [0, Start+len(Tokens)).
	Pages []int32
	// Logits is how many of the last tokens need logits: 0, 1, … len(Tokens).
	Logits int
	// Decode says that the token is a next one and no prompt's: nothing but the
	// Timer asks.
	Decode bool
}

// batch is the tokens of one Forward, row by row.
type batch struct {
	tokens     []int32
	positions  []int
	pages      [][]int32
	logitsRows []int // rows of the batch whose logits are asked for
	tiles      []tile
	spans      spans
	// keys are what attention looks at, logitsKeys those of logitsRows: for the
	// timer, which takes windows for whole contexts.
	keys, logitsKeys attentionKeys
}

// tile is rows of one sequence, one after another, that attention computes together.
type tile struct{ row, rows, keys int }

const (
	// tileHeads is how many query heads, over all rows of a tile, read the keys
	// and values of a KV head together: more save little.
	tileHeads = 48
	// tileItems is how many items of attention a worker should find: with less,
	// some wait for the last.
	tileItems = 4
)

func newBatch(n int) batch {
	return batch{
		tokens: make([]int32, 0, n), positions: make([]int, 0, n), pages: make([][]int32, 0, n),
		logitsRows: make([]int, 0, n), tiles: make([]tile, 0, n),
	}
}

// layTiles cuts the rows into tiles, those with most work first, and where these are few
// their contexts into spans. How they are cut is a matter of speed alone.
func (m *Model) layTiles() {
	b := &m.batch
	b.tiles = b.tiles[:0]
	most := min(m.tileRows, max(1, m.rows*m.config.KVHeads/(tileItems*m.team.Workers())))
	for row := 0; row < m.rows; {
		end := row + 1
		for end < m.rows && b.follows(end) {
			end++
		}
		cuts := (end - row + most - 1) / most
		rows := (end - row + cuts - 1) / cuts // even shares
		for ; row < end; row += rows {
			n := min(rows, end-row)
			b.tiles = append(b.tiles, tile{row: row, rows: n, keys: n * (b.positions[row] + n)})
		}
		row = end
	}
	slices.SortFunc(b.tiles, func(a, b tile) int { return b.keys - a.keys })
	m.laySpans()
}

// follows says whether row i is the next token of the sequence of the row before it.
func (b *batch) follows(i int) bool {
	return b.positions[i] == b.positions[i-1]+1 && &b.pages[i][0] == &b.pages[i-1][0] && len(b.pages[i]) == len(b.pages[i-1])
}

// dropRows keeps only the rows whose logits are asked for. Once the last
// layer's keys and values are stored, nothing else depends on the others.
func (m *Model) dropRows() {
	b, s := &m.batch, &m.scratch
	b.keys = b.logitsKeys
	width, queries := m.config.Embed, m.config.Heads*m.config.HeadDim
	m.rows = len(b.logitsRows)
	if m.rows == len(b.tokens) {
		return
	}
	for i, from := range b.logitsRows { // from only grows, and is at least i
		copy(row(s.x, i, width), row(s.x, from, width))
		copy(row(s.q, i, queries), row(s.q, from, queries))
		b.positions[i], b.pages[i] = b.positions[from], b.pages[from]
	}
	m.layTiles()
}

// gather lays the spans' tokens out as rows.
func (m *Model) gather(spans []Span) {
	b := &m.batch
	b.tokens, b.positions, b.pages, b.logitsRows = b.tokens[:0], b.positions[:0], b.pages[:0], b.logitsRows[:0]
	b.keys, b.logitsKeys = attentionKeys{}, attentionKeys{}
	for i := range spans {
		s := &spans[i]
		m.check(s)
		for j, token := range s.Tokens {
			if j >= len(s.Tokens)-s.Logits {
				b.logitsRows = append(b.logitsRows, len(b.tokens))
				b.logitsKeys.add(s.Decode, s.Start+j+1)
			}
			b.keys.add(s.Decode, s.Start+j+1)
			b.tokens = append(b.tokens, token)
			b.positions = append(b.positions, s.Start+j)
			b.pages = append(b.pages, s.Pages)
		}
	}
	m.rows = len(b.tokens)
	m.layTiles()
}

// check panics if s cannot be computed: workers would fail where it is harder
// to see why.
func (m *Model) check(s *Span) {
	end := s.Start + len(s.Tokens)
	if s.Start < 0 || end > m.options.ContextTokens || end > len(s.Pages)*m.options.PageTokens || s.Logits < 0 || s.Logits > len(s.Tokens) {
		panic(fmt.Sprintf("model: span [%d,%d) with %d logits and %d pages of %d does not fit a context of %d",
			s.Start, end, s.Logits, len(s.Pages), m.options.PageTokens, m.options.ContextTokens))
	}
	if len(m.batch.tokens)+len(s.Tokens) > m.options.BatchTokensMax {
		panic(fmt.Sprintf("model: a batch of more than %d tokens", m.options.BatchTokensMax))
	}
	for _, token := range s.Tokens {
		if token < 0 || int(token) >= m.config.Vocab {
			panic(fmt.Sprintf("model: token %d is outside the vocabulary of %d", token, m.config.Vocab))
		}
	}
	for _, page := range s.Pages {
		if page < 0 || int(page) >= m.options.Pages {
			panic(fmt.Sprintf("model: page %d is outside the pool of %d", page, m.options.Pages))
		}
	}
}
