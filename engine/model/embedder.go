package model

import "math"

// Pooling says how the hidden states of a text's tokens become one vector. A model that
// has one is an embedder: Forward returns hidden states, and no logits.
type Pooling int

const (
	PoolNone  Pooling = iota // of a model that generates
	PoolMean                 // the mean of all tokens
	PoolFirst                // the first token, as BERT's [CLS]
	PoolLast                 // the last token
	PoolRank                 // a Ranker's token, the first one of an encoder, else the last one
)

// String returns the pooling's name.
func (p Pooling) String() string { return [...]string{"none", "mean", "first", "last", "rank"}[p] }

// poolingMost is the largest value of the key pooling_type that is supported; the values are
// those of llama.cpp's enum llama_pooling_type.
const poolingMost = PoolRank

func (k *keys) readPooling(c *Config) {
	n, _ := k.whole("pooling_type")
	if n > uint64(poolingMost) {
		k.fail("pooling_type", "is %d; supported are none (0), mean (1), first (2), last (3) and rank (4)", n)
		return
	}
	if c.Pooling = Pooling(n); c.Pooling != PoolNone && c.Pooling != PoolRank {
		k.readDenseModules(c)
	}
	if c.Pooling == PoolRank && k.err == nil {
		k.readRanker(c)
	}
}

// VectorWidth is the length of an embedder's vectors: 1 of a ranker, whose vector is a score.
func (c *Config) VectorWidth() int {
	if c.Pooling == PoolRank {
		return 1
	}
	if dense := c.Encoder.Dense; len(dense) > 0 {
		return dense[len(dense)-1]
	}
	return c.Embed
}

// RowWidth is the length of a row that Forward returns: Embed of an embedder, else
// Vocab.
func (c *Config) RowWidth() int {
	if c.Pooling != PoolNone {
		return c.Embed
	}
	return c.Vocab
}

// Pooler makes one vector of the hidden states of a text. They come in order, in any
// pieces, and may come again: the vector's bits do not depend on that.
type Pooler struct {
	m       *Model
	pooling Pooling
	sum     []float64
	rows    int // in sum; those of a mean are of the first tokens
}

// NewPooler pools a text as the embedder does.
func (m *Model) NewPooler() *Pooler {
	pooling := m.config.Pooling
	switch {
	case pooling == PoolRank && m.config.Encoder.On:
		pooling = PoolFirst
	case pooling == PoolRank:
		pooling = PoolLast
	}
	return &Pooler{m: m, pooling: pooling, sum: make([]float64, m.config.Embed)}
}

// WholeTexts says that an embedder has to compute all tokens of a text, and can take none
// from a cache.
func (c *Config) WholeTexts() bool {
	return c.Encoder.On || c.Pooling == PoolMean || c.Pooling == PoolFirst
}

// Whole is WholeTexts of the model.
func (p *Pooler) Whole() bool { return p.m.config.WholeTexts() }

// Rows is how many of the n tokens from start on, counted from their end, need hidden
// states; last says that the text ends with them, and then at least one does.
func (p *Pooler) Rows(start, n int, last bool) int {
	switch {
	case p.pooling == PoolMean && start+n > p.rows:
		return start + n - max(start, p.rows)
	case p.pooling == PoolFirst && p.rows == 0:
		return n
	case last:
		return 1
	}
	return 0
}

// Add takes in the rows that Rows asked for.
func (p *Pooler) Add(hidden []float32) {
	width := len(p.sum)
	if p.pooling == PoolFirst {
		hidden = hidden[:min(len(hidden), width*(1-p.rows))]
	}
	for ; len(hidden) > 0; hidden = hidden[width:] {
		for i, x := range hidden[:width] {
			p.sum[i] += float64(x)
		}
		p.rows++
	}
}

// multiply is the product of a matrix with one row.
func (p *Pooler) multiply(w *linear, in activations) activations {
	in.round(0, 0, in.width)
	out := newActivations(p.m.set, 1, w.Rows, func(n, width int) []float32 { return make([]float32, n*width) })
	p.m.pass.multiply(out.numbers, w, in.from(0), 1, 0, w.Rows)
	return out
}

// Vector is the text's vector. It has the length 1, or is the score of a ranker; it holds NaN where the model gave
// numbers that are not finite. It must not run beside Forward.
func (p *Pooler) Vector() []float32 {
	in := newActivations(p.m.set, 1, len(p.sum), func(n, width int) []float32 { return make([]float32, n*width) })
	for i, x := range p.sum {
		in.numbers[i] = float32(x / float64(max(1, p.rows)))
	}
	if p.m.config.Pooling == PoolRank {
		return []float32{p.score(in)}
	}
	for i := range p.m.weights.encoder.dense {
		in = p.multiply(&p.m.weights.encoder.dense[i], in)
	}
	normalize(in.numbers)
	return in.numbers
}

// normalize divides x by its Euclidean length, unless that is zero.
func normalize(x []float32) {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	if sum == 0 {
		return
	}
	length := math.Sqrt(sum)
	for i, v := range x {
		x[i] = float32(float64(v) / length)
	}
}
