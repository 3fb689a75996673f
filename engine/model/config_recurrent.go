package model

import "slices"

// Recurrent describes the layers that carry what they have seen in a state of fixed
// size. All of them begin with a causal convolution of each channel over the last
// tokens. Some then advance a matrix for each head, with a row for each of KeyDim keys
// and a column for each of ValueDim values.
type Recurrent struct {
	Kind     RecurrentKind
	Taps     int // of the convolution, the token's own included
	Channels int // of the convolution
	Heads    int
	Groups   int // of heads that share keys
	KeyDim   int
	ValueDim int
	// Unnormed says that what is read from the state is gated, and not normed.
	Unnormed bool
	// Tiled says that head h belongs to group h mod Groups, not to h/(Heads/Groups).
	Tiled bool
}

// RecurrentKind is what advances the state.
type RecurrentKind int

const (
	Stateless        RecurrentKind = iota
	ShortConvolution               // LFM2: two gates around the convolution, no matrix
	StateSpace                     // Mamba 2
	DeltaNet                       // gated delta net
)

// LayerNumbers is the numbers of one layer's state: the convolution's last inputs, and the
// matrices.
func (r *Recurrent) LayerNumbers() int {
	if r.Kind == Stateless {
		return 0
	}
	return (r.Taps-1)*r.Channels + r.Heads*r.matrixLen()
}

func (r *Recurrent) matrixLen() int { return r.KeyDim * r.ValueDim }

// group is the group of a head.
func (r *Recurrent) group(head int) int {
	if r.Tiled {
		return head % r.Groups
	}
	return head / (r.Heads / r.Groups)
}

// width is the numbers of a token that the layer's output is made from.
func (r *Recurrent) width() int {
	if r.Kind == ShortConvolution {
		return r.Channels
	}
	return r.Heads * r.ValueDim
}

// StateBytes is the memory of the state of one sequence, over all layers; 0 for a model
// without recurrent layers. States are float32: a rounded one would change what follows.
func (c *Config) StateBytes() int { return 4 * c.stateLen() }

func (c *Config) stateLen() int {
	n := 0
	for i := range c.Layers {
		if c.Layers[i].Recurrent {
			n += c.Recurrent.LayerNumbers()
		}
	}
	return n
}

const (
	tapsMax     = 64      // of a convolution
	stateLenMax = 1 << 26 // numbers of a layer's state
)

// withoutAttention are the architectures in which a layer may have no attention.
var withoutAttention = []string{"lfm2", "lfm2moe", "granitehybrid", "nemotron_h", "nemotron_h_moe", "mamba2"}

// readSSM reads the sizes of state spaces and delta nets.
func (k *keys) readSSM(c *Config, kind RecurrentKind) {
	inner, r := k.size("ssm.inner_size"), &c.Recurrent
	*r = Recurrent{Kind: kind, Taps: k.size("ssm.conv_kernel"), Heads: k.size("ssm.time_step_rank"),
		Groups: k.size("ssm.group_count"), KeyDim: k.size("ssm.state_size")}
	if k.err != nil {
		return
	}
	if inner%r.Heads != 0 || r.Heads%r.Groups != 0 || inner%r.Groups != 0 {
		k.fail("ssm.time_step_rank", "is %d, with an inner size of %d and %d groups: one does not divide the other", r.Heads, inner, r.Groups)
		return
	}
	r.ValueDim = inner / r.Heads
	r.Channels = inner + 2*r.Groups*r.KeyDim
	k.checkState(c, "ssm.state_size")
}

// checkState bounds the state, so that no product of its sizes overflows.
func (k *keys) checkState(c *Config, name string) {
	r := &c.Recurrent
	switch {
	case r.Taps < 2 || r.Taps > tapsMax:
		k.fail(name, "comes with a convolution of %d taps; allowed are 2 to %d", r.Taps, tapsMax)
	case r.KeyDim > headDimMax || r.ValueDim > headDimMax || r.Groups > sizeMax/max(1, r.KeyDim) || r.Channels > sizeMax || r.LayerNumbers() > stateLenMax:
		k.fail(name, "makes a state of %d heads of %d by %d and %d channels in a layer, which is more than is supported", r.Heads, r.KeyDim, r.ValueDim, r.Channels)
	}
}

// readLFM2 reads LFM2, whose norm at the end has another name.
func readLFM2(k *keys, c *Config) {
	c.QKNorm, c.OutputNormName = NormEachHead, "token_embd_norm"
	k.readRope(c, ropeKind{pairing: PairHalves})
	c.Recurrent = Recurrent{Kind: ShortConvolution, Taps: k.size("shortconv.l_cache"), Channels: c.Embed}
	if k.err == nil {
		k.checkState(c, "shortconv.l_cache")
	}
}

func readLFM2MoE(k *keys, c *Config) {
	k.needExperts(c)
	readLFM2(k, c)
	k.readRouter(c, Router{Sigmoid: true, Normed: true, SumAdd: 1e-6})
	k.readDenseBeside(c, 1)
}

func readMamba2(k *keys, c *Config) {
	k.refuseExperts(c)
	k.readSSM(c, StateSpace)
	for i := range c.Layers {
		c.Layers[i].Recurrent = true
	}
}

// readGraniteHybrid reads Granite 4: as granite, with layers of state space.
func readGraniteHybrid(k *keys, c *Config) {
	readGranite(k, c)
	k.readSSM(c, StateSpace)
	if c.Experts > 0 {
		k.readShared(c)
	}
}

// readFalconH1 has attention and a state space in every layer, which read the same norm.
func readFalconH1(k *keys, c *Config) {
	k.refuseExperts(c)
	k.readRope(c, ropeKind{pairing: PairHalves})
	k.readSSM(c, StateSpace)
	for i := range c.Layers {
		c.Layers[i].Recurrent = true
	}
	// Converters multiply the weights; the keys are of folders.
	c.EmbeddingScale, c.LogitScale, c.AttentionScale = k.scale("embedding_scale", 1), k.scale("logit_scale", 1), k.scale("attention.scale", c.AttentionScale)
	c.Multipliers = Multipliers{
		FFGate: k.scale("feed_forward_gate_scale", 1), FF: k.scale("feed_forward_scale", 1), Attention: k.scale("attention.output_scale", 1),
		StateGate: k.scale("ssm.gate_scale", 1), StateStep: k.scale("ssm.step_scale", 1), State: k.scale("ssm.output_scale", 1),
	}
	// In files of the converter none is there, and none of the smaller models has one.
	c.Recurrent.Unnormed = !k.boolOr("ssm.normed", false)
}

// Multipliers are those of Falcon-H1: of what matrices give, before anything else is done with it.
type Multipliers struct {
	FFGate, FF, Attention, StateGate, StateStep, State float32
}

var noMultipliers = Multipliers{1, 1, 1, 1, 1, 1}

// readNemotronH has one half in each layer: attention, a state space, or a feed-forward
// layer. Attention has no rope, and the feed-forward layer no gate.
func readNemotronH(k *keys, c *Config) {
	k.name("rope.dimension_count") // of a rope that is not there
	k.name("rope.freq_base")
	c.FFNormName, c.Activation, c.Ungated = "attn_norm", SquaredReLU, true
	k.readSSM(c, StateSpace)
	for i := range c.Layers {
		c.Layers[i].Rope = NoRope
	}
	if c.Experts > 0 {
		k.readRouter(c, Router{Sigmoid: true, Normed: true, SumAdd: 1e-20})
		k.readShared(c)
	}
	if k.err != nil {
		return
	}
	for i, ff := range k.perLayer("feed_forward_length", len(c.Layers), 0) {
		l := &c.Layers[i]
		l.FF, l.Mixture = ff, ff > 0 && c.Experts > 0
		if ff > 0 {
			l.Recurrent = false
		}
		if l.Mixture {
			l.FF = 0
		}
		if ff > 0 && l.KVHeads > 0 {
			k.fail("feed_forward_length", "is %d in layer %d, which has attention", ff, i)
		}
	}
}

// readDeltaNet reads what Qwen 3 Next and Qwen 3.5 share: gated attention in some layers,
// delta nets in the others.
func (k *keys) readDeltaNet(c *Config) {
	c.FFNormName, c.QKNorm, c.GatedAttention = "post_attention_norm", NormEachHead, true
	k.readRope(c, ropeKind{pairing: PairHalves})
	k.readSSM(c, DeltaNet)
	if c.Experts > 0 {
		k.readRouter(c, Router{Normed: true, SumAdd: 1e-20})
		k.readShared(c)
		if _, gated := k.file.Tensor("blk.0.ffn_gate_inp_shexp.weight"); c.SharedFF > 0 {
			c.SharedGated = gated
		}
	}
	const list = "attention.recurrent_layers"
	interval := k.sizeOr("full_attention_interval", everyFourth)
	for i := range c.Layers {
		c.Layers[i].Recurrent = (i+1)%interval != 0
	}
	if k.file.Text(k.name(list)) != "" {
		each, _, err := k.file.Bools(k.prefix + list)
		if err != nil {
			k.keep(err)
		} else if len(each) < len(c.Layers) {
			k.fail(list, "has %d values for %d layers", len(each), len(c.Layers))
		}
		for i := range c.Layers {
			c.Layers[i].Recurrent = k.err == nil && each[i]
		}
	}
	for i := range c.Layers {
		if l := &c.Layers[i]; l.Recurrent {
			l.KVHeads = 0
		}
	}
}

func readQwen3Next(k *keys, c *Config) {
	k.needExperts(c)
	k.readDeltaNet(c)
}

// readQwen35: its files have the heads of values in another order.
func readQwen35(k *keys, c *Config) {
	k.refuseExperts(c)
	k.readSections(c)
	k.readDeltaNet(c)
	c.Recurrent.Tiled = true
}

func readQwen35MoE(k *keys, c *Config) {
	k.needExperts(c)
	k.readSections(c)
	k.readDeltaNet(c)
	c.Recurrent.Tiled = true
}

// readSections reads how rope's pairs are shared between time, height and width. In text
// the three are equal, so that it changes nothing.
func (k *keys) readSections(c *Config) {
	const name = "rope.dimension_sections"
	if k.file.Count(k.name(name)) == 0 {
		return
	}
	if each, _, err := k.file.Ints(k.prefix + name); err != nil {
		k.keep(err)
	} else if slices.Min(each) < 0 {
		k.fail(name, "has a section of %d", slices.Min(each))
	}
}
