package model

import (
	"fmt"
	"math"

	"github.com/forebay-io/forebay/kernels"
)

// AltUp (Baykal et al., 2023) widens the residual stream to several streams, of which a
// layer computes one. Before a layer all are predicted from each other; after it they are
// corrected by what the layer has changed in its own. Gemma 3n has it, and LAuReL beside: a
// second, narrow path around attention.

// AltUp describes it.
type AltUp struct {
	Streams    int // 0 means that there is one stream, as in other models
	LaurelRank int
	// Sparsity is, layer by layer, how many deviations above its mean a number of the gate
	// must be to count; −∞ leaves all.
	Sparsity []float64
}

// readGemma3n reads Gemma 3n.
func readGemma3n(k *keys, c *Config) {
	k.readGemma(c)
	k.refuseExperts(c)
	c.LogitSoftCap = k.softCap("final_logit_softcapping", 0)
	c.QKNorm, c.VNorm, c.AttentionScale = NormEachHead, true, 1
	k.windows(c, 5)
	k.readRope(c, ropeKind{pairing: PairHalves, theta: 1e6})
	local := k.theta("rope.freq_base_swa", 10000)
	c.PerLayer = k.size("embedding_length_per_layer_input")
	k.zero("altup.active_idx", false, "only the first stream may be the layers' own")
	c.AltUp.Streams = k.size("altup.num_inputs")
	if c.AltUp.Streams < 2 || c.AltUp.Streams > streamsMax {
		k.fail("altup.num_inputs", "is %d; allowed are 2 to %d", c.AltUp.Streams, streamsMax)
	}
	if k.err == nil && c.PerLayer > sizeMax/len(c.Layers) {
		k.fail("embedding_length_per_layer_input", "is %d in each of %d layers; allowed are up to %d in all", c.PerLayer, len(c.Layers), sizeMax)
	}
	const name = "activation_sparsity_scale"
	each, present, err := k.file.Floats(k.name(name))
	switch {
	case err != nil:
		k.keep(err)
	case present && len(each) < len(c.Layers):
		k.fail(name, "has %d values for %d layers", len(each), len(c.Layers))
	}
	c.AltUp.Sparsity = make([]float64, len(c.Layers))
	for i := range c.AltUp.Sparsity {
		if c.AltUp.Sparsity[i] = math.Inf(-1); k.err == nil && present {
			c.AltUp.Sparsity[i] = float64(each[i])
		}
	}
	const laurel = "blk.0.laurel_l.weight"
	if t, ok := k.file.Tensor(laurel); ok && len(t.Dims) == 2 && t.Dims[1] <= sizeMax {
		c.AltUp.LaurelRank = t.Dims[1]
	} else {
		k.keep(fmt.Errorf("%s: tensor %s is missing or not a matrix", k.file.Name(), laurel))
	}
	if k.err != nil {
		return
	}
	k.localRope(c, local)
	// The files have keys and values of layers that share others', which nobody uses.
	k.shareKeys(c, k.sizeOrZero("attention.shared_kv_layers"))
	for i := range c.Layers {
		if c.Layers[i].KeysOf != i {
			for _, part := range []string{"attn_k.", "attn_v.", "attn_k_norm."} {
				k.passOver(fmt.Sprintf("blk.%d.%s", i, part))
			}
		}
	}
}

const streamsMax = 16

// altUp are the weights of a layer.
type altUp struct {
	routerNorm   norm
	router       linear
	predict      linear // of each stream from each
	correct      linear
	correctScale []float32
	laurelLeft   linear
	laurelRight  linear
	laurelNorm   norm
}

// altUpEnds are the matrices that make the streams, and one of them again.
type altUpEnds struct{ begin, end []linear }

func (l *loader) altUp(to *altUp, prefix string) {
	c, n := l.config, l.config.AltUp.Streams
	to.routerNorm = l.norm(prefix+"altup_router_norm", c.Embed)
	l.linear(&to.router, prefix+"altup_router", c.Embed, n)
	l.linear(&to.predict, prefix+"altup_predict_coef", n, n*n)
	l.linear(&to.correct, prefix+"altup_correct_coef", n, n)
	to.correctScale = l.vector(prefix+"altup_correct_scale.weight", c.Embed)
	l.linear(&to.laurelLeft, prefix+"laurel_l", c.Embed, c.AltUp.LaurelRank)
	l.linear(&to.laurelRight, prefix+"laurel_r", c.AltUp.LaurelRank, c.Embed)
	to.laurelNorm = l.norm(prefix+"laurel_post_norm", c.Embed)
}

func (l *loader) altUpEnds(to *altUpEnds) {
	c := l.config
	to.begin = l.several("altup_proj.weight", c.Embed, c.Embed, c.AltUp.Streams-1)
	to.end = l.several("altup_unembd_proj.weight", c.Embed, c.Embed, c.AltUp.Streams-1)
}

// altUpScratch holds the streams.
type altUpScratch struct {
	streams   [][]float32 // each [token][Embed]
	predicted [][]float32
	routed    activations // [token][Embed]
	modes     activations // [token][Streams]
	each      []float32   // [token][Streams·Streams]
	laurel    []float32   // [token][Embed]
	narrow    activations // [token][LaurelRank]
	up        []float32   // [token][FF]
}

func newAltUpScratch(c *Config, set *kernels.Set, n int, rows func(n, width int) []float32) (s altUpScratch) {
	a := &c.AltUp
	if a.Streams == 0 {
		return s
	}
	for range a.Streams {
		s.streams, s.predicted = append(s.streams, rows(n, c.Embed)), append(s.predicted, rows(n, c.Embed))
	}
	s.routed, s.modes = newActivations(set, n, c.Embed, rows), newActivations(set, n, a.Streams, rows)
	s.each, s.laurel = rows(n, a.Streams*a.Streams), rows(n, c.Embed)
	s.narrow, s.up = newActivations(set, n, a.LaurelRank, rows), rows(n, c.largest().ff)
	return s
}

func meanSquare(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum / float64(len(x))
}

// magnitude is the root of the mean square.
func magnitude(x []float32) float64 { return math.Sqrt(meanSquare(x)) }

// meanSquareMin keeps a stream of zeros from being divided by its magnitude.
const meanSquareMin = 1e-5

// resize gives x another magnitude.
func resize(x []float32, size float64) {
	scale(x, float32(size/math.Sqrt(max(meanSquare(x), meanSquareMin))))
}

// beginStreams makes the streams of the embeddings, which are in x and, rounded, in normed.
func (p *pass) beginStreams(int) {
	s, ends := &p.scratch.altUp, p.m.weights.altUpEnds.begin
	all := 0
	for i := range ends {
		all += tiles(&ends[i])
	}
	for lo, hi := range p.portions(kernels.RowTile * all) {
		for i := range ends {
			lo, hi = p.multiplyPart(s.streams[i+1], &ends[i], lo, hi)
		}
	}
}

func (p *pass) sizeStreams(worker int) {
	s, width := &p.scratch.altUp, p.m.config.Embed
	for i, hi := p.share(worker); i < hi; i++ {
		x := row(p.scratch.x, i, width)
		copy(row(s.streams[0], i, width), x)
		for _, stream := range s.streams[1:] {
			resize(row(stream, i, width), magnitude(x))
		}
	}
}

// predictStreams predicts all streams, and makes the layer's own the residual stream.
func (p *pass) predictStreams(worker int) {
	s, c, l := &p.scratch.altUp, &p.m.config, &p.m.weights.layers[p.layer].altUp
	n, width := c.AltUp.Streams, c.Embed
	for i, hi := p.share(worker); i < hi; i++ {
		p.addToOthers(i)
		p.modes(i, row(s.streams[0], i, width), l)
		each := row(s.each, i, n*n)
		p.m.set.MatMul(each, n*n, l.predict.Matrix, s.modes.from(i), 1, 0, n*n)
		for to := range n {
			predicted := row(s.predicted[to], i, width)
			copy(predicted, row(s.streams[to], i, width))
			for from, by := range each[to*n : (to+1)*n] {
				for j, v := range row(s.streams[from], i, width) {
					predicted[j] += float32(by * v)
				}
			}
		}
		copy(row(p.scratch.x, i, width), row(s.predicted[0], i, width))
		p.norm(i, &p.m.weights.layers[p.layer].attentionNorm)
	}
}

// addToOthers adds the sum that waits to all streams but the first.
func (p *pass) addToOthers(i int) {
	if p.waits == nil {
		return
	}
	width := p.m.config.Embed
	sum := row(p.scratch.sum, i, width)
	p.normTo(sum, sum, p.waits)
	for _, stream := range p.scratch.altUp.streams[1:] {
		p.m.set.Add(row(stream, i, width), sum)
	}
}

// modes computes from a stream what predicts and corrects.
func (p *pass) modes(i int, x []float32, l *altUp) {
	s, c := &p.scratch.altUp, &p.m.config
	routed, modes := s.routed.row(i), s.modes.row(i)
	p.normTo(routed, x, &l.routerNorm)
	scale(routed, 1/float32(c.Embed))
	s.routed.round(i, 0, c.Embed)
	p.m.set.MatMul(modes, c.AltUp.Streams, l.router.Matrix, s.routed.from(i), 1, 0, c.AltUp.Streams)
	for j, v := range modes {
		modes[j] = float32(math.Tanh(float64(v)))
	}
	s.modes.round(i, 0, c.AltUp.Streams)
}

func (p *pass) laurelLeft(int) {
	w, s := &p.m.weights.layers[p.layer].altUp.laurelLeft, &p.scratch.altUp
	for lo, hi := range p.portions(w.Rows) {
		p.multiply(s.narrow.numbers, w, p.scratch.normed.from(0), p.rows, lo, hi)
	}
}

func (p *pass) laurelRound(worker int) {
	narrow := &p.scratch.altUp.narrow
	for i, hi := p.share(worker); i < hi; i++ {
		narrow.round(i, 0, narrow.width)
	}
}

func (p *pass) laurelRight(int) {
	w, s := &p.m.weights.layers[p.layer].altUp.laurelRight, &p.scratch.altUp
	for lo, hi := range p.portions(w.Rows) {
		p.multiply(s.laurel, w, s.narrow.from(0), p.rows, lo, hi)
	}
}

// addLaurel adds the narrow path to row i of x, whose norm before attention is still there.
func (p *pass) addLaurel(i int) {
	x, laurel := row(p.scratch.x, i, p.m.config.Embed), row(p.scratch.altUp.laurel, i, p.m.config.Embed)
	p.normTo(laurel, laurel, &p.m.weights.layers[p.layer].altUp.laurelNorm)
	for j, v := range p.scratch.normed.row(i) {
		x[j] = (x[j] + v + laurel[j]) * (math.Sqrt2 / 2)
	}
}

// sparse reports whether only large numbers of the layer's gate count.
func (p *pass) sparse() bool {
	return p.m.config.AltUp.Streams > 0 && !math.IsInf(p.m.config.AltUp.Sparsity[p.layer], -1)
}

// sparseGateUp computes gate and up, which sparseActivate needs whole.
func (p *pass) sparseGateUp(int) {
	f, gate := &p.m.weights.layers[p.layer].dense, p.scratch.gate.of(p.m.weights.layers[p.layer].dense.width)
	for lo, hi := range p.portions(f.width) {
		p.multiply(gate.numbers, &f.gate, p.scratch.normed.from(0), p.rows, lo, hi)
		p.multiply(p.scratch.altUp.up, &f.up, p.scratch.normed.from(0), p.rows, lo, hi)
	}
}

// sparseActivate sets the gate's numbers to what they are above their mean and some
// deviations, or 0.
func (p *pass) sparseActivate(worker int) {
	width := p.m.weights.layers[p.layer].dense.width
	gate := p.scratch.gate.of(width)
	for i, hi := p.share(worker); i < hi; i++ {
		x := gate.row(i)
		mean, squares := 0.0, 0.0
		for _, v := range x {
			mean += float64(v)
		}
		mean /= float64(width)
		for _, v := range x {
			squares += (float64(v) - mean) * (float64(v) - mean)
		}
		cutoff := mean + p.m.config.AltUp.Sparsity[p.layer]*math.Sqrt(squares/float64(width))
		for j, v := range x {
			x[j] = max(0, float32(float64(v)-cutoff))
		}
		p.activate(x, row(p.scratch.altUp.up, i, width))
		gate.round(i, 0, width)
	}
}

// correctStreams corrects all streams by what the layer has changed, and makes the scaled
// first one the input of the layer's own part of the embedding.
func (p *pass) correctStreams(worker int) {
	s, c, l := &p.scratch.altUp, &p.m.config, &p.m.weights.layers[p.layer].altUp
	n, width := c.AltUp.Streams, c.Embed
	for i, hi := p.share(worker); i < hi; i++ {
		p.addSum(i)
		x, own := row(p.scratch.x, i, width), row(s.predicted[0], i, width)
		p.modes(i, x, l)
		each := row(s.each, i, n*n)[:n]
		p.m.set.MatMul(each, n, l.correct.Matrix, s.modes.from(i), 1, 0, n)
		for to := range n {
			stream := row(s.streams[to], i, width)
			for j, v := range row(s.predicted[to], i, width) {
				stream[j] = v + float32((x[j]-own[j])*(each[to]+1))
			}
		}
		for j, v := range row(s.streams[0], i, width) {
			x[j] = v * l.correctScale[j]
		}
		p.norm(i, &noNorm)
	}
}

// endStreams makes one residual stream of all: their mean, the others brought back by
// matrices of their own, to the first one's magnitude.
func (p *pass) endStreams() {
	f := &p.phases
	p.run(f.addToOthers)
	for p.stream = 1; p.stream < p.m.config.AltUp.Streams; p.stream++ {
		p.run(f.loadStream)
		p.run(f.unembedStream)
	}
	p.do(KernelNormRope, f.joinStreams)
	p.waits = nil
}

func (p *pass) addToAllOthers(worker int) {
	for i, hi := p.share(worker); i < hi; i++ {
		p.addToOthers(i)
	}
}

func (p *pass) loadStream(worker int) {
	width := p.m.config.Embed
	for i, hi := p.share(worker); i < hi; i++ {
		copy(p.scratch.normed.row(i), row(p.scratch.altUp.streams[p.stream], i, width))
		p.scratch.normed.round(i, 0, width)
	}
}

func (p *pass) unembedStream(int) {
	w := &p.m.weights.altUpEnds.end[p.stream-1]
	for lo, hi := range p.portions(w.Rows) {
		p.multiply(p.scratch.altUp.predicted[p.stream], w, p.scratch.normed.from(0), p.rows, lo, hi)
	}
}

func (p *pass) joinStreams(worker int) {
	s, width := &p.scratch.altUp, p.m.config.Embed
	for i, hi := p.share(worker); i < hi; i++ {
		x, first := row(p.scratch.x, i, width), row(s.streams[0], i, width)
		copy(x, first)
		for _, stream := range s.predicted[1:] {
			other := row(stream, i, width)
			resize(other, magnitude(first))
			p.m.set.Add(x, other)
		}
		scale(x, 1/float32(len(s.predicted)))
	}
}
