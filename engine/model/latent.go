package model

import (
	"math"

	"github.com/forebay-io/forebay/kernels"
)

// Latent describes multi-head latent attention (DeepSeek-V2, 2024): the keys and values of
// all heads are made from one short row for each token, and pages hold that row. Every
// query is brought into the row's space, so that it meets all positions as one KV head.
// This is the absorbed form, of prompts too: the plain form differs in the last bits.
type Latent struct {
	Rank      int // of the row that keys and values are made from; 0 means another attention
	QueryRank int // of the row that queries are made from; 0 means they are made directly
	KeyDim    int // of a head's query without its rotated part
	RopeDim   int // of the part that is rotated, whose key all heads share
	ValueDim  int // of what a head gives
}

// readDeepSeek2 reads DeepSeek V2 and V3, Kimi K2 and GLM-4.7-Flash.
func readDeepSeek2(k *keys, c *Config) {
	k.needExperts(c)
	l := &c.Latent
	l.Rank, l.QueryRank = k.size("attention.kv_lora_rank"), k.sizeOrZero("attention.q_lora_rank")
	l.RopeDim = k.size("rope.dimension_count")
	l.KeyDim = k.size("attention.key_length_mla") - l.RopeDim
	l.ValueDim = k.size("attention.value_length_mla")
	k.only("rope.scaling.yarn_attn_factor", 1)
	k.readRope(c, ropeKind{pairing: PairNeighbours})
	if k.err != nil {
		return
	}
	if l.KeyDim < 1 || c.HeadDim != l.Rank+l.RopeDim || c.KVHeads != 1 || k.sizeOr("attention.value_length", l.Rank) != l.Rank {
		k.fail("attention.key_length", "is %d, with %d KV heads; keys of %d numbers, of which %d are rotated, and a latent row of %d need %d and 1",
			c.HeadDim, c.KVHeads, l.KeyDim+l.RopeDim, l.RopeDim, l.Rank, l.Rank+l.RopeDim)
		return
	}
	if widest := max(l.KeyDim+l.RopeDim, l.ValueDim); widest > sizeMax/c.Heads || l.QueryRank > sizeMax {
		k.fail("attention.value_length_mla", "is %d and attention.key_length_mla %d in %d heads; allowed are up to %d numbers in all", l.ValueDim, l.KeyDim+l.RopeDim, c.Heads, sizeMax)
		return
	}
	// Both magnitudes of YaRN are equal in these models, so that the rope has none; one
	// of them scales the scores instead.
	c.Ropes[0].Magnitude = 1
	c.AttentionScale = headScale(l.KeyDim + l.RopeDim)
	if factor := k.numberOr("rope.scaling.factor", 1); factor > 1 {
		m := 1 + k.numberOr("rope.scaling.yarn_log_multiplier", 0)*math.Log(factor)
		c.AttentionScale *= float32(m * m)
	}
	// Early files of GLM-4.7-Flash do not say that its scores are sigmoids.
	flash := (len(c.Layers) == 47 || len(c.Layers) == 48) && c.Vocab == 154880
	k.readRouter(c, Router{Sigmoid: flash, SumAdd: 1e-20})
	k.readShared(c)
	k.readDenseBeside(c, 1)
}

// latentEps is what the norms of rows add, whatever the file says of the other norms; GLM-4.7-Flash has
// another there.
const latentEps = 1e-6

// latent are the weights of a layer's latent attention.
type latent struct {
	queryRow  linear // to the row that queries are made from, or no matrix
	queryNorm []float32
	queries   linear
	row       linear    // Rank and RopeDim
	rowNorm   []float32 // of Rank
	keys      []linear
	values    []linear // from what a head finds
	output    linear
}

func (l *loader) latent(to *latent, prefix string) {
	c, a := l.config, &l.config.Latent
	queries := c.Heads * (a.KeyDim + a.RopeDim)
	if a.QueryRank > 0 {
		l.linear(&to.queryRow, prefix+"attn_q_a", c.Embed, a.QueryRank)
		to.queryNorm = l.vector(prefix+"attn_q_a_norm.weight", a.QueryRank)
		l.linear(&to.queries, prefix+"attn_q_b", a.QueryRank, queries)
	} else {
		l.linear(&to.queries, prefix+"attn_q", c.Embed, queries)
	}
	l.linear(&to.row, prefix+"attn_kv_a_mqa", c.Embed, a.Rank+a.RopeDim)
	to.rowNorm = l.vector(prefix+"attn_kv_a_norm.weight", a.Rank)
	to.keys = l.several(prefix+"attn_k_b.weight", a.KeyDim, a.Rank, c.Heads)
	to.values = l.several(prefix+"attn_v_b.weight", a.Rank, a.ValueDim, c.Heads)
	l.linear(&to.output, prefix+"attn_output", c.Heads*a.ValueDim, c.Embed)
}

// several takes a tensor that has n matrices, one after another.
func (l *loader) several(name string, cols, rows, n int) []linear {
	t := l.take(name, cols, rows, n)
	if t == nil {
		return nil
	}
	all, job := make([]linear, n), packJob{tensor: t}
	for i := range all {
		job.parts = append(job.parts, part{&all[i].Matrix, rows})
	}
	l.jobs = append(l.jobs, job)
	return all
}

// latentScratch holds the activations of latent attention. What a head's matrix is
// multiplied with lies together, head by head.
type latentScratch struct {
	queryRow activations // [token][QueryRank]
	queries  []float32   // [token][Heads][KeyDim+RopeDim]
	keyed    activations // [head][token][KeyDim]
	found    activations // [head][token][Rank]
	output   activations // [token][Heads][ValueDim]
}

func newLatentScratch(c *Config, set *kernels.Set, n int, rows func(n, width int) []float32) (s latentScratch) {
	a := &c.Latent
	if a.Rank == 0 {
		return s
	}
	if a.QueryRank > 0 {
		s.queryRow = newActivations(set, n, a.QueryRank, rows)
	}
	s.queries = rows(n, c.Heads*(a.KeyDim+a.RopeDim))
	s.keyed, s.found = newActivations(set, n*c.Heads, a.KeyDim, rows), newActivations(set, n*c.Heads, a.Rank, rows)
	s.output = newActivations(set, n, c.Heads*a.ValueDim, rows)
	return s
}

// attendLatent is attention up to its output in sum; its input is normed.
func (p *pass) attendLatent() {
	f := &p.phases
	p.do(KernelQKV, f.projectLatent)
	if p.m.config.Latent.QueryRank > 0 {
		p.do(KernelNormRope, f.normQueryRow)
		p.do(KernelQKV, f.projectQueries)
	}
	p.do(KernelNormRope, f.placeLatent)
	p.do(KernelQKV, f.absorb)
	if p.layer == p.m.lastStore {
		p.dropRows()
	}
	if p.rows == 0 {
		return
	}
	p.attention()
	p.do(KernelOutput, f.gatherFound, f.expand, f.roundExpanded, f.projectLatentOut)
}

// projectLatent computes the row of each token, and the queries or their row.
func (p *pass) projectLatent(int) {
	l, s := &p.m.weights.layers[p.layer].latent, &p.scratch
	first, dst := &l.queries, s.latent.queries
	if l.queryRow.Matrix != nil {
		first, dst = &l.queryRow, s.latent.queryRow.numbers
	}
	for lo, hi := range p.portions(kernels.RowTile * (tiles(first) + tiles(&l.row))) {
		lo, hi = p.multiplyPart(dst, first, lo, hi)
		p.multiplyPart(s.k, &l.row, lo, hi)
	}
}

func (p *pass) normQueryRow(worker int) {
	x, l := &p.scratch.latent.queryRow, &p.m.weights.layers[p.layer].latent
	for i, hi := p.share(worker); i < hi; i++ {
		p.m.set.RMSNorm(x.row(i), x.row(i), l.queryNorm, latentEps)
		x.round(i, 0, x.width)
	}
}

func (p *pass) projectQueries(int) {
	w, s := &p.m.weights.layers[p.layer].latent.queries, &p.scratch.latent
	for lo, hi := range p.portions(w.Rows) {
		p.multiply(s.queries, w, s.queryRow.from(0), p.rows, lo, hi)
	}
}

// placeLatent norms and rotates the rows and stores them: as keys, and as values, whose
// numbers beyond Rank nobody reads. It rotates queries and lays out what is to be absorbed.
func (p *pass) placeLatent(worker int) {
	c, a, s, shape := &p.m.config, &p.m.config.Latent, &p.scratch, &p.m.shapes[p.layer]
	l, pages, rope := &p.m.weights.layers[p.layer].latent, &p.m.pools[p.layer], &p.m.config.Ropes[0]
	width, query, pageTokens := a.Rank+a.RopeDim, a.KeyDim+a.RopeDim, shape.layout.PageTokens
	for i, hi := p.share(worker); i < hi; i++ {
		angles, latent := row(s.angles[0], i, rope.Dims), row(s.k, i, width)
		p.m.set.RMSNorm(latent[:a.Rank], latent[:a.Rank], l.rowNorm, latentEps)
		p.m.set.Rotate(latent[a.Rank:], angles, a.RopeDim, true)
		position := p.batch.positions[i]
		p.m.set.Place(&shape.layout, pages.keys, pages.values, int(p.batch.pages[i][position/pageTokens]), position%pageTokens, latent, latent)
		for h := range c.Heads {
			q := row(row(s.latent.queries, i, c.Heads*query), h, query)
			p.m.set.Rotate(q[a.KeyDim:], angles, a.RopeDim, true)
			copy(row(row(s.q, i, c.Heads*width), h, width)[a.Rank:], q[a.KeyDim:])
			copy(s.latent.keyed.row(h*p.rows+i), q)
			s.latent.keyed.round(h*p.rows+i, 0, a.KeyDim)
		}
	}
}

// absorb brings each head's queries into the space of the rows.
func (p *pass) absorb(int) {
	c, a, s := &p.m.config, &p.m.config.Latent, &p.scratch
	width := a.Rank + a.RopeDim
	for h := int(p.taken.Add(1)) - 1; h < c.Heads; h = int(p.taken.Add(1)) - 1 {
		w := p.m.weights.layers[p.layer].latent.keys[h].Matrix
		p.m.set.MatMul(s.q[h*width:], c.Heads*width, w, s.latent.keyed.from(h*p.rows), p.rows, 0, w.Rows)
	}
}

// gatherFound lays out what the heads have found.
func (p *pass) gatherFound(worker int) {
	c, a, s := &p.m.config, &p.m.config.Latent, &p.scratch
	heads := p.heads()
	for i, hi := p.share(worker); i < hi; i++ {
		for h := range c.Heads {
			copy(s.latent.found.row(h*p.rows+i), row(heads.row(i), h, a.Rank+a.RopeDim))
			s.latent.found.round(h*p.rows+i, 0, a.Rank)
		}
	}
}

// expand makes each head's values of what it has found.
func (p *pass) expand(int) {
	c, a, s := &p.m.config, &p.m.config.Latent, &p.scratch.latent
	for h := int(p.taken.Add(1)) - 1; h < c.Heads; h = int(p.taken.Add(1)) - 1 {
		w := p.m.weights.layers[p.layer].latent.values[h].Matrix
		p.m.set.MatMul(s.output.numbers[h*a.ValueDim:], s.output.width, w, s.found.from(h*p.rows), p.rows, 0, w.Rows)
	}
}

func (p *pass) roundExpanded(worker int) {
	x := &p.scratch.latent.output
	for i, hi := p.share(worker); i < hi; i++ {
		x.round(i, 0, x.width)
	}
}

func (p *pass) projectLatentOut(int) {
	p.multiplySum(&p.m.weights.layers[p.layer].latent.output, &p.scratch.latent.output)
}
