package model

import (
	"fmt"
	"slices"
)

// Chunk is a run of new tokens of one sequence.
type Chunk struct {
	Tokens []int32
	Start  int // position of Tokens[0]; keys and values before it are in Pages
	// Pages is the sequence's page table: page i holds the positions from
	// i·PageTokens on. It covers [0, Start+len(Tokens)).
	Pages []int32
	// Windows are page tables as Pages, one for each of Paging.WindowPages. What the first
	// token does not see through a window may be any page.
	Windows [][]int32
	// Logits is how many of the last tokens need logits: 0, 1, … len(Tokens).
	Logits int
	// Stay leaves the logits on the device, for Sample; on the CPU they do not stay.
	Stay bool
	// Decode says that the token was sampled, and is not of a prompt. Only the
	// Timer uses it.
	Decode bool
	// State is the slot of the sequence's state, in a model with recurrent layers. It is
	// that of the tokens before Start, and Forward moves it on.
	State int32
	// Checkpoints are to be kept of the state on its way, in their order.
	Checkpoints []Checkpoint
}

// Checkpoint is a copy of the state after the first After tokens of a chunk. Its slot
// belongs to no sequence.
type Checkpoint struct {
	After int
	Slot  int32
}

// run is a chunk's rows in the batch, for what goes through them in their order.
type run struct {
	row, rows   int
	state       int32
	checkpoints []Checkpoint
}

// batch is the tokens of one Forward, row by row.
type batch struct {
	tokens     []int32
	positions  []int
	pages      [][]int32
	windows    [][][]int32 // of each row
	ends       []int       // of each row's chunk, as a position
	logitsRows []int       // rows of the batch whose logits are asked for
	tiles      []tile
	runs       []run
	contexts   contexts
	// keys counts what attention looks at, logitsKeys the same for logitsRows.
	// Only the timer uses them; it counts a window as a whole context.
	keys, logitsKeys attentionKeys
}

// tile is a run of rows of one sequence that attention computes together; keys
// is the sum of the keys that they look at.
type tile struct{ row, rows, keys int }

const (
	// tileHeads is how many query heads, over all rows of a tile, read the keys
	// and values of a KV head together. More would save little.
	tileHeads = 48
	// tileItems is how many items of attention each worker should find. With
	// fewer, workers wait for the one with the last item.
	tileItems = 4
)

func newBatch(n int) batch {
	return batch{
		tokens: make([]int32, 0, n), positions: make([]int, 0, n), pages: make([][]int32, 0, n), windows: make([][][]int32, 0, n), ends: make([]int, 0, n),
		logitsRows: make([]int, 0, n), tiles: make([]tile, 0, n), runs: make([]run, 0, n),
	}
}

// layTiles cuts the rows into tiles, those with most work first, and the
// contexts of few tiles into pieces. The cuts change the speed alone.
func (p *pass) layTiles() {
	b := &p.batch
	b.tiles = b.tiles[:0]
	most := min(p.m.tileRows, max(1, p.rows*p.m.kvHeadsMin()/(tileItems*p.m.team.Workers())))
	if p.m.config.Encoder.On {
		most = 1 // every row sees as much before it as after it
	}
	for row := 0; row < p.rows; {
		end := row + 1
		for end < p.rows && b.follows(end) && !p.m.config.startsChunk(b.positions[end]) {
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
	p.layContexts()
}

// startsChunk reports whether layers with chunks see nothing before a position.
func (c *Config) startsChunk(position int) bool {
	return c.ChunkTokens > 0 && position%c.ChunkTokens == 0
}

// kvHeadsMin is the fewest KV heads of a layer.
func (m *Model) kvHeadsMin() int {
	least := m.config.KVHeads
	for i := range m.config.Layers {
		if n := m.config.Layers[i].KVHeads; n > 0 {
			least = min(least, n)
		}
	}
	return least
}

// follows reports whether row i is the next token of the same sequence as row i-1.
func (b *batch) follows(i int) bool {
	return b.positions[i] == b.positions[i-1]+1 && &b.pages[i][0] == &b.pages[i-1][0] && len(b.pages[i]) == len(b.pages[i-1])
}

// dropRows keeps only the rows whose logits are asked for. Once the last keys and
// values are stored, nothing else depends on the others.
func (p *pass) dropRows() {
	b, s := &p.batch, &p.scratch
	b.keys = b.logitsKeys
	width, queries := p.m.config.Embed, p.m.config.Heads*p.m.config.Layers[p.layer].HeadDim
	recurrent, heads := p.m.config.Layers[p.layer].KVHeads == 0, s.heads.of(p.m.config.Recurrent.width())
	p.rows = len(b.logitsRows)
	if p.rows == len(b.tokens) {
		return
	}
	for i, from := range b.logitsRows { // from only grows, and is at least i
		copy(row(s.x, i, width), row(s.x, from, width))
		b.positions[i], b.pages[i], b.windows[i], b.ends[i] = b.positions[from], b.pages[from], b.windows[from], b.ends[from]
		if recurrent {
			heads.copyRow(i, &heads, from)
			continue
		}
		copy(row(s.q, i, queries), row(s.q, from, queries))
		if p.m.config.GatedAttention {
			copy(row(s.gatedQ, i, 2*queries), row(s.gatedQ, from, 2*queries))
		}
		if p.m.config.Parallel || p.m.config.AltUp.Streams > 0 {
			s.normed.copyRow(i, &s.normed, from)
		}
		for _, predicted := range s.altUp.predicted {
			copy(row(predicted, i, width), row(predicted, from, width))
		}
		if s.altUp.laurel != nil {
			copy(row(s.altUp.laurel, i, width), row(s.altUp.laurel, from, width))
		}
		if p.layer < len(p.m.config.Layers)-1 { // the layers that follow rotate queries
			for r := range s.angles {
				dims := p.m.config.Ropes[r].Dims
				copy(row(s.angles[r], i, dims), row(s.angles[r], from, dims))
			}
		}
		perLayer := p.m.config.PerLayer * len(p.m.config.Layers)
		copy(row(s.perLayer, i, perLayer), row(s.perLayer, from, perLayer))
	}
	p.layTiles()
}

// gather lays the chunks' tokens out as rows.
func (p *pass) gather(chunks []Chunk) {
	b := &p.batch
	b.tokens, b.positions, b.pages, b.windows, b.logitsRows = b.tokens[:0], b.positions[:0], b.pages[:0], b.windows[:0], b.logitsRows[:0]
	b.ends, b.runs = b.ends[:0], b.runs[:0]
	b.keys, b.logitsKeys = attentionKeys{}, attentionKeys{}
	for i := range chunks {
		c := &chunks[i]
		p.check(c)
		if p.m.stateLen > 0 && len(c.Tokens) > 0 {
			b.runs = append(b.runs, run{len(b.tokens), len(c.Tokens), c.State, c.Checkpoints})
		}
		for j, token := range c.Tokens {
			if j >= len(c.Tokens)-c.Logits {
				b.logitsRows = append(b.logitsRows, len(b.tokens))
				b.logitsKeys.add(c.Decode, c.Start+j+1)
			}
			b.keys.add(c.Decode, c.Start+j+1)
			b.tokens = append(b.tokens, token)
			b.positions = append(b.positions, c.Start+j)
			b.pages = append(b.pages, c.Pages)
			b.windows = append(b.windows, c.Windows)
			b.ends = append(b.ends, c.Start+len(c.Tokens))
		}
	}
	p.rows = len(b.tokens)
	p.layTiles()
}

// check panics if c cannot be computed: a failure in a worker would be harder
// to understand.
func (p *pass) check(c *Chunk) {
	o, end := &p.m.options, c.Start+len(c.Tokens)
	if c.Start < 0 || end > o.ContextTokens || end > len(c.Pages)*o.PageTokens || c.Logits < 0 || c.Logits > len(c.Tokens) {
		panic(fmt.Sprintf("model: chunk [%d,%d) with %d logits and %d pages of %d does not fit a context of %d",
			c.Start, end, c.Logits, len(c.Pages), o.PageTokens, o.ContextTokens))
	}
	if p.m.config.Encoder.On && c.Start != 0 {
		panic(fmt.Sprintf("model: an encoder's text from token %d on", c.Start))
	}
	if len(p.batch.tokens)+len(c.Tokens) > o.BatchTokensMax {
		panic(fmt.Sprintf("model: a batch of more than %d tokens", o.BatchTokensMax))
	}
	if p.m.stateLen > 0 {
		p.checkStates(c)
	}
	for _, token := range c.Tokens {
		if token < 0 || int(token) >= p.m.config.Vocab {
			panic(fmt.Sprintf("model: token %d is outside the vocabulary of %d", token, p.m.config.Vocab))
		}
	}
	if len(c.Windows) != p.m.paging.WindowPages {
		panic(fmt.Sprintf("model: %d tables of windows, want %d", len(c.Windows), p.m.paging.WindowPages))
	}
	p.checkPages(c.Pages)
	for _, table := range c.Windows {
		if p.checkPages(table); len(table) != len(c.Pages) {
			panic(fmt.Sprintf("model: a window's table of %d pages beside %d", len(table), len(c.Pages)))
		}
	}
}

func (p *pass) checkPages(table []int32) {
	for _, page := range table {
		if page < 0 || int(page) >= p.m.options.Pages {
			panic(fmt.Sprintf("model: page %d is outside the pool of %d", page, p.m.options.Pages))
		}
	}
}

func (p *pass) checkStates(c *Chunk) {
	states := int32(p.m.options.States)
	if c.State < 0 || c.State >= states {
		panic(fmt.Sprintf("model: state %d is outside the %d there are", c.State, states))
	}
	last := 1
	for _, at := range c.Checkpoints {
		if at.After < last || at.After > len(c.Tokens) || at.Slot < 0 || at.Slot >= states || at.Slot == c.State {
			panic(fmt.Sprintf("model: a checkpoint in slot %d of %d after %d of %d tokens, of state %d", at.Slot, states, at.After, len(c.Tokens), c.State))
		}
		last = at.After
	}
}
