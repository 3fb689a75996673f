package model

import "math"

// Encoder describes what encoders have beyond other transformers: a token sees those
// after it too, so that a text is computed whole, in one Chunk.
type Encoder struct {
	On            bool
	Positions     bool // every position has a row that is added to the embedding
	TokenTypes    bool // so has the token's type, the first but in a ranker's second text
	Norm          bool // the embedding is normed
	FirstUnnormed bool // the first layer has no norm before attention
	// Dense are the widths of the outputs of the matrices that the pooled hidden
	// states go through, one after another.
	Dense []int
}

// readEncoder sets what encoders have in common.
func (k *keys) readEncoder(c *Config) {
	c.Encoder.On = true
	k.name("attention.layer_norm_rms_epsilon") // beside layer_norm_epsilon, which counts
	k.name("classifier.pooling_type")          // of a classifier, which is not here
	k.name("hidden_activation")                // known from the architecture
}

// readBERT reads BERT (Devlin et al., NAACL 2019), with its norms after each sum.
func readBERT(k *keys, c *Config) {
	k.readEncoder(c)
	c.Encoder.Positions, c.Encoder.TokenTypes, c.Encoder.Norm = true, true, true
	c.CentredNorms, c.NoPreNorms, c.SumNorms = true, true, true
	c.Ungated, c.Activation = true, ExactGELU
	for i := range c.Layers {
		c.Layers[i].Rope = NoRope
	}
}

// readNomicBERT reads nomic-embed: BERT with a rope in place of positions, and a gate.
func readNomicBERT(k *keys, c *Config) {
	k.readEncoder(c)
	c.Encoder.TokenTypes, c.Encoder.Norm = true, true
	c.CentredNorms, c.NoPreNorms, c.SumNorms = true, true, true
	k.readRope(c, ropeKind{pairing: PairHalves})
}

// readModernBERT reads ModernBERT (Warner et al., 2024). Every third layer, from the
// first on, sees the whole text.
func readModernBERT(k *keys, c *Config) {
	k.readEncoder(c)
	c.Encoder.Norm, c.Encoder.FirstUnnormed = true, true
	c.CentredNorms, c.FusedGateUp, c.Activation = true, true, ExactGELU
	k.readRope(c, ropeKind{pairing: PairHalves})
	window, period := k.size("attention.sliding_window"), k.sizeOr("attention.sliding_window_pattern", 3)
	for i := range c.Layers {
		if i%period != 0 {
			c.Layers[i].WindowTokens = window
		}
	}
	k.localRope(c, k.theta("rope.freq_base_swa", 10000))
}

// readGemmaEmbedding reads EmbeddingGemma: gemma 3 that looks both ways, and two matrices
// after pooling.
func readGemmaEmbedding(k *keys, c *Config) {
	readGemma3(k, c)
	k.readEncoder(c)
}

// readDenseModules reads the matrices behind the pooling.
func (k *keys) readDenseModules(c *Config) {
	width := c.Embed
	for _, name := range []string{"dense_2", "dense_3"} {
		if k.file.Text(k.prefix+name+"_feat_out") == "" {
			continue
		}
		if in := k.size(name + "_feat_in"); in != width {
			k.fail(name+"_feat_in", "is %d; %d numbers come in", in, width)
		}
		width = k.size(name + "_feat_out")
		c.Encoder.Dense = append(c.Encoder.Dense, width)
	}
}

// encoderWeights are the tensors of an Encoder.
type encoderWeights struct {
	positions []float32    // rows of Embed
	tokenType [2][]float32 // Embed each, of a text and of a pair's second text
	norm      norm
	dense     []linear
}

func (l *loader) encoder(to *encoderWeights) {
	c := l.config
	if c.Encoder.Positions {
		to.positions = l.numbers("position_embd.weight", c.Embed, c.ContextTokens)
	}
	if c.Encoder.TokenTypes {
		const name = "token_types.weight"
		types := 1
		if t, ok := l.file.Tensor(name); ok && len(t.Dims) == 2 {
			types = t.Dims[1]
		}
		if all := l.numbers(name, c.Embed, types); all != nil {
			to.tokenType[0] = all[:c.Embed]
			to.tokenType[1] = row(all, min(1, types-1), c.Embed)
		}
	}
	if c.Encoder.Norm {
		to.norm = l.norm("token_embd_norm", c.Embed)
	}
	to.dense = make([]linear, len(c.Encoder.Dense))
	width := c.Embed
	for i, out := range c.Encoder.Dense {
		l.linear(&to.dense[i], [...]string{"dense_2", "dense_3"}[i], width, out)
		width = out
	}
}

// encode adds to a token's embedding, that of row i, what encoders add.
func (p *pass) encode(x []float32, i int) {
	w, width := &p.m.weights.encoder, p.m.config.Embed
	switch {
	case w.tokenType[0] == nil:
	case p.second(i):
		p.m.set.Add(x, w.tokenType[1])
	default:
		p.m.set.Add(x, w.tokenType[0])
	}
	if w.positions != nil {
		p.m.set.Add(x, row(w.positions, p.batch.positions[i], width))
	}
	if w.norm.weight != nil {
		p.normTo(x, x, &w.norm)
	}
}

// sees is what the token of a row sees: window keys up to to, both before and after
// the token; a window of 0 is all.
func (p *pass) sees(i int) (to, window int) {
	position, end := p.batch.positions[i], p.batch.ends[i]
	half := p.m.config.Layers[p.layer].WindowTokens / 2
	if half == 0 {
		return end, 0
	}
	to = min(position+half+1, end)
	return to, to - max(0, position-half)
}

// exactGELU computes x·Φ(x) in place.
func exactGELU(x []float32) {
	for i, v := range x {
		x[i] = float32(0.5 * float64(v) * (1 + math.Erf(float64(v)/math.Sqrt2)))
	}
}
