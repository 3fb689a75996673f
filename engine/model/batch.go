package model

import "fmt"

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
	// keys are what attention looks at, logitsKeys those of logitsRows: for the
	// timer, which takes windows for whole contexts.
	keys, logitsKeys attentionKeys
}

func newBatch(n int) batch {
	return batch{tokens: make([]int32, 0, n), positions: make([]int, 0, n), pages: make([][]int32, 0, n), logitsRows: make([]int, 0, n)}
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
