package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/kernels"
)

// weights are a model's tensors, packed for one kernel set. Matrices are
// outputs×inputs.
type weights struct {
	embedding  embedding
	perLayer   perLayer
	altUpEnds  altUpEnds
	encoder    encoderWeights
	ranker     rankerWeights
	outputNorm norm
	output     linear // no matrix in an embedder
	layers     []layer
	vectors    int // numbers in all vectors
	matrices   []PackedMatrix
	reused     bool // the matrices are from Options.Packed
}

// embedding is read by rows, as tokens ask for them: it stays as the file has it.
type embedding struct {
	Type kernels.Type
	Data []byte
}

// linear is a matrix, and the bias of its product or nil.
type linear struct {
	*kernels.Matrix
	bias []float32
}

// norm is a norm's weight, and what is added after it or nil. Without a weight there
// is no norm.
type norm struct{ weight, bias []float32 }

type layer struct {
	attentionNorm norm
	q, k, v, out  linear
	qNorm, kNorm  []float32
	vNorm         []float32
	sinks         []float32 // Heads
	postAttention norm
	ffNorm        norm
	dense         feedForward // of a mixture, the expert that every token uses
	sharedGate    linear      // of that expert: one row
	router        linear      // of a mixture: its outputs make the experts' scores
	routerBias    []float32   // for the choice
	experts       []feedForward
	postFF        norm
	recurrent     recurrent
	latent        latent
	altUp         altUp

	beside       besideNorms
	expertScales []float32 // multiply what experts weigh
	perLayerGate linear
	perLayerOut  linear
	postPerLayer norm
	outputScale  float32
}

// besideNorms are the norms of a mixture that stands beside a dense layer.
type besideNorms struct {
	dense, experts norm      // of their outputs
	input          norm      // of the experts' input
	router         []float32 // of the router's
}

// perLayer makes each layer's own part of a token's embedding.
type perLayer struct {
	rows    embedding // [PerLayer of each layer]
	project linear    // from the token's embedding
	norm    []float32 // PerLayer
}

// feedForward is a feed-forward layer of some width, which is 0 where there is none.
type feedForward struct {
	width          int
	gate, up, down linear
}

const (
	embeddingName = "token_embd.weight"
	perLayerName  = "per_layer_token_embd.weight"
	expertsMark   = "_exps."
)

// isExpert reports whether a tensor belongs to experts: to all of a layer, or to
// one in the files of early mixtures.
func isExpert(name string) bool {
	return strings.Contains(name, expertsMark) || earlyExpert.MatchString(name)
}

// loader takes tensors out of a file. The first failure stays in err; packing
// waits in jobs until every tensor has been checked.
type loader struct {
	file    *gguf.File
	config  *Config
	taken   map[string]bool
	vectors int
	jobs    []packJob
	err     error
}

func (l *loader) fail(name, format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf("%s: tensor %s: %s", l.file.Name(), name, fmt.Sprintf(format, args...))
	}
}

// loadWeights checks every tensor of the model that c describes, and packs the
// matrices or takes them from before, which may be nil.
func loadWeights(f *gguf.File, c *Config, set *kernels.Set, team *kernels.Team, before Packed) (*weights, error) {
	l := &loader{file: f, config: c, taken: map[string]bool{}}
	for _, name := range c.read {
		l.taken[name] = true
	}
	w := &weights{layers: make([]layer, len(c.Layers))}
	rows, perLayerRows := l.take(embeddingName, c.Embed, c.Vocab), (*gguf.Tensor)(nil)
	if !c.SumNorms {
		w.outputNorm = l.norm(c.OutputNormName, c.Embed)
	}
	l.encoder(&w.encoder)
	l.ranker(&w.ranker)
	switch {
	case c.Pooling != PoolNone:
		l.taken["output.weight"] = true // which an embedder does not use
	case c.Tied:
		l.matrix(embeddingName, c.Embed, part{&w.output.Matrix, c.Vocab})
	default:
		l.linear(&w.output, "output", c.Embed, c.Vocab)
	}
	for i := range w.layers {
		l.layer(&w.layers[i], i, fmt.Sprintf("blk.%d.", i))
		if l.err != nil {
			break
		}
	}
	if width := c.PerLayer * len(c.Layers); width > 0 {
		rows := c.Vocab
		if t, ok := l.file.Tensor(perLayerName); ok && len(t.Dims) == 2 {
			rows = min(rows, t.Dims[1]) // tokens beyond, which are not of text, have the first row
		}
		perLayerRows = l.take(perLayerName, width, rows)
		l.linear(&w.perLayer.project, "per_layer_model_proj", c.Embed, width)
		w.perLayer.norm = l.vector("per_layer_proj_norm.weight", c.PerLayer)
	}
	if c.AltUp.Streams > 0 {
		l.altUpEnds(&w.altUpEnds)
	}
	l.checkAllTaken()
	if l.err != nil {
		return nil, l.err
	}
	w.embedding = l.rows(rows)
	if perLayerRows != nil {
		w.perLayer.rows = l.rows(perLayerRows)
	}
	if l.err != nil {
		return nil, l.err
	}
	w.vectors = l.vectors
	if w.reused = before != nil && l.reuse(before, set); !w.reused {
		if err := l.pack(set, team, rows); err != nil {
			return nil, err
		}
	}
	l.eachPart(func(name string, _ *gguf.Tensor, p part) { w.matrices = append(w.matrices, PackedMatrix{name, *p.dst}) })
	return w, nil
}

// rows reads a table with a row for each token, which was taken before.
func (l *loader) rows(t *gguf.Tensor) embedding {
	e := embedding{t.Type, t.Bytes()}
	if len(e.Data) != t.Type.Bytes(t.Elements()) && l.err == nil {
		l.err = l.notMade(t)
	}
	return e
}

func (l *loader) layer(to *layer, i int, prefix string) {
	c, d := l.config, &l.config.Layers[i]
	if d.mixes() && !c.NoPreNorms && (i > 0 || !c.Encoder.FirstUnnormed) {
		to.attentionNorm = l.norm(prefix+"attn_norm", c.Embed)
	}
	if d.feeds() && !c.NoPreNorms && !c.Parallel {
		to.ffNorm = l.norm(prefix+c.FFNormName, c.Embed)
	}
	if d.Recurrent {
		l.recurrent(&to.recurrent, prefix)
	}
	switch {
	case c.Latent.Rank > 0:
		l.latent(&to.latent, prefix)
	case d.KVHeads > 0:
		l.attention(to, i, prefix)
	}
	if c.PostNorms {
		to.postAttention = l.norm(prefix+"post_attention_norm", c.Embed)
		to.postFF = l.norm(prefix+"post_ffw_norm", c.Embed)
	}
	if c.SumNorms {
		to.postAttention = l.norm(prefix+"attn_output_norm", c.Embed)
		to.postFF = l.norm(prefix+"layer_output_norm", c.Embed)
	}
	if c.AltUp.Streams > 0 {
		l.altUp(&to.altUp, prefix)
	}
	if c.PerLayer > 0 {
		l.linear(&to.perLayerGate, prefix+"inp_gate", c.Embed, c.PerLayer)
		l.linear(&to.perLayerOut, prefix+"proj", c.PerLayer, c.Embed)
		to.postPerLayer = l.norm(prefix+"post_norm", c.Embed)
	}
	if to.outputScale = 1; c.OutputScales {
		if x := l.vector(prefix+"layer_output_scale.weight", 1); x != nil {
			to.outputScale = x[0]
		}
	}
	switch {
	case d.Mixture && c.BesideDense:
		l.experts(to, prefix)
		l.besideNorms(to, prefix)
		l.feedForward(&to.dense, d.FF, prefix, "")
	case d.Mixture:
		l.experts(to, prefix)
		l.feedForward(&to.dense, c.SharedFF, prefix, "_shexp")
		if c.SharedGated {
			l.matrix(prefix+"ffn_gate_inp_shexp.weight", c.Embed, part{&to.sharedGate.Matrix, 1})
		}
	case c.FusedGateUp:
		to.dense.width = d.FF
		l.matrix(prefix+"ffn_up.weight", c.Embed, part{&to.dense.gate.Matrix, d.FF}, part{&to.dense.up.Matrix, d.FF})
		l.linear(&to.dense.down, prefix+"ffn_down", d.FF, c.Embed)
	default:
		l.feedForward(&to.dense, d.FF, prefix, "")
	}
}

// attention takes the matrices of queries, keys, values and output, and what belongs
// to them.
func (l *loader) attention(to *layer, i int, prefix string) {
	c, d := l.config, &l.config.Layers[i]
	heads, kvHeads := c.Heads*d.HeadDim, d.KVHeads*d.HeadDim
	own := c.stores(i)
	// Some converters put the rows of several matrices into one tensor.
	if l.has(prefix + "attn_qkv.weight") {
		l.matrix(prefix+"attn_qkv.weight", c.Embed, part{&to.q.Matrix, heads}, part{&to.k.Matrix, kvHeads}, part{&to.v.Matrix, kvHeads})
		if bias := prefix + "attn_qkv.bias"; l.has(bias) {
			b := l.vector(bias, heads+2*kvHeads)
			if b != nil {
				to.q.bias, to.k.bias, to.v.bias = b[:heads], b[heads:heads+kvHeads], b[heads+kvHeads:]
			}
		}
	} else {
		queries := heads
		if c.GatedAttention {
			queries = 2 * heads
		}
		l.linear(&to.q, prefix+"attn_q", c.Embed, queries)
		if own {
			l.linear(&to.k, prefix+"attn_k", c.Embed, kvHeads)
		}
		if own && !d.KeysAsValues {
			l.linear(&to.v, prefix+"attn_v", c.Embed, kvHeads)
		}
	}
	if c.VNorm {
		to.vNorm = slices.Repeat([]float32{1}, d.HeadDim)
	}
	switch c.QKNorm {
	case NormEachHead:
		to.qNorm = l.vector(prefix+"attn_q_norm.weight", d.HeadDim)
		if own {
			to.kNorm = l.vector(prefix+"attn_k_norm.weight", d.HeadDim)
		}
	case NormAllHeads:
		to.qNorm = l.vector(prefix+"attn_q_norm.weight", heads)
		to.kNorm = l.vector(prefix+"attn_k_norm.weight", kvHeads)
	case NormPlain:
		to.qNorm = slices.Repeat([]float32{1}, d.HeadDim)
		to.kNorm = to.qNorm
	}
	if c.Sinks {
		to.sinks = l.vector(prefix+"attn_sinks.weight", c.Heads)
	}
	l.linear(&to.out, prefix+"attn_output", heads, c.Embed)
}

// feedForward takes the matrices of a feed-forward layer; a width of 0 has none.
func (l *loader) feedForward(to *feedForward, width int, prefix, suffix string) {
	if to.width = width; width == 0 {
		return
	}
	if !l.config.Ungated {
		l.linear(&to.gate, prefix+"ffn_gate"+suffix, l.config.Embed, width)
	}
	l.linear(&to.up, prefix+"ffn_up"+suffix, l.config.Embed, width)
	l.linear(&to.down, prefix+"ffn_down"+suffix, width, l.config.Embed)
}

// norm takes a norm's weight, and its bias where the file has one.
func (l *loader) norm(name string, n int) (to norm) {
	weight := name + ".weight"
	if !l.has(weight) && l.has(name) { // as Falcon-H1's files have it
		weight = name
	}
	to.weight = l.vector(weight, n)
	if l.has(name + ".bias") {
		to.bias = l.vector(name+".bias", n)
	}
	return to
}

func (l *loader) has(name string) bool {
	_, ok := l.file.Tensor(name)
	return ok
}

// take finds a tensor and checks its type and shape; dims[0] is the row length.
func (l *loader) take(name string, dims ...int) *gguf.Tensor {
	t, ok := l.file.Tensor(name)
	if !ok {
		l.fail(name, "is missing; the model needs it with the shape %v", dims)
		return nil
	}
	l.taken[name] = true
	if !slices.Equal(t.Dims, dims) {
		l.fail(name, "has the shape %v; the model's keys ask for %v", t.Dims, dims)
		return nil
	}
	if !t.Type.Known() {
		l.fail(name, "has the type %s, which is not supported; supported: %s", t.Type, SupportedTypes())
		return nil
	}
	return t
}

// vector takes a tensor of one dimension as float32.
func (l *loader) vector(name string, n int) []float32 { return l.numbers(name, n) }

// numbers takes a whole tensor as float32.
func (l *loader) numbers(name string, dims ...int) []float32 {
	t := l.take(name, dims...)
	if t == nil {
		return nil
	}
	x := make([]float32, t.Elements())
	kernels.Dequantize(x, t.Type, t.Bytes())
	l.vectors += len(x)
	return x
}

// linear takes a matrix of rows×cols, and its bias where the file has one.
func (l *loader) linear(dst *linear, name string, cols, rows int) {
	l.matrix(name+".weight", cols, part{&dst.Matrix, rows})
	if l.has(name + ".bias") {
		dst.bias = l.vector(name+".bias", rows)
	}
}

// matrix takes a tensor whose rows are those of the parts, one after another.
func (l *loader) matrix(name string, cols int, parts ...part) {
	rows := 0
	for _, p := range parts {
		rows += p.rows
	}
	if t := l.take(name, cols, rows); t != nil {
		l.jobs = append(l.jobs, packJob{t, parts})
	}
}

// checkAllTaken refuses tensors that the described model does not use, such as
// another kind of norm: without them the numbers would be wrong.
func (l *loader) checkAllTaken() {
	for i := range l.file.Tensors {
		if name := l.file.Tensors[i].Name; !l.taken[name] {
			l.fail(name, "is not understood in architecture %s", l.config.Architecture)
		}
	}
}

// bytes is the memory of the packed weights; part of it may be the file's.
func (w *weights) bytes() int {
	n := 4 * w.vectors
	if w.output.Matrix != nil {
		n += len(w.output.Data)
	}
	if w.perLayer.project.Matrix != nil {
		n += len(w.perLayer.project.Data) + len(w.perLayer.rows.Data)
	}
	for _, m := range slices.Concat(w.altUpEnds.begin, w.altUpEnds.end) {
		n += len(m.Data)
	}
	for _, m := range slices.Concat(w.encoder.dense, []linear{w.ranker.hidden, w.ranker.output}) {
		if m.Matrix != nil {
			n += len(m.Data)
		}
	}
	for i := range w.layers {
		l := &w.layers[i]
		each := []linear{l.q, l.k, l.v, l.out, l.dense.gate, l.dense.up, l.dense.down, l.router, l.sharedGate, l.perLayerGate, l.perLayerOut,
			l.latent.queryRow, l.latent.queries, l.latent.row, l.latent.output,
			l.recurrent.in, l.recurrent.before, l.recurrent.gate, l.recurrent.alpha, l.recurrent.beta, l.recurrent.betaAlpha, l.recurrent.out}
		each = append(each, l.altUp.router, l.altUp.predict, l.altUp.correct, l.altUp.laurelLeft, l.altUp.laurelRight)
		each = slices.Concat(each, l.latent.keys, l.latent.values)
		for _, e := range l.experts {
			each = append(each, e.gate, e.up, e.down)
		}
		for _, m := range each {
			if m.Matrix != nil {
				n += len(m.Data)
			}
		}
	}
	return n
}

// SupportedTypes names the tensor types that can be computed with.
func SupportedTypes() string {
	var names []string
	for t := range kernels.Type(64) {
		if t.Known() {
			names = append(names, t.String())
		}
	}
	return strings.Join(names, ", ")
}
