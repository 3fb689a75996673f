package hf

import (
	"fmt"
	"math"

	"github.com/forebay-io/forebay/engine/gguf"
)

// This file has gemma 3n: several residual streams (AltUp), a narrow path beside attention (LAuReL),
// gates of which only the largest numbers count, keys and values that the last layers share, and a part of
// each token's embedding for every layer, as gemma 4 has it.

// gemma3n has what its config.json says beyond gemma 3's.
type gemma3n struct {
	streams, laurel int
	shared          int   // of the last layers, without keys
	perLayer        int   // numbers of a token in each layer
	perLayerRows    int   // tokens that have such numbers; the others have the first one's
	widths          []int // of each layer's feed-forward layer
	deviations      []float32
}

// readWidth reads a width, of which there may be one for each layer.
func (d *description) readWidth(c *config, key string, absent int) int {
	if raw := c.values[key]; d.family.widths && len(raw) > 0 && raw[0] == '[' {
		d.gemma3n.widths = value[[]int](c, key, "a number, or a list of them", nil)
		absent = 1
		for _, n := range d.gemma3n.widths {
			if n < 1 || n > sizeMax {
				c.fail(key, "has a layer of %d; allowed are 1 to %d", n, sizeMax)
				return 1
			}
			absent = max(absent, n)
		}
		return absent
	}
	return c.size(key, absent)
}

func readGemma3n(d *description, c *config) {
	n := &d.gemma3n
	d.logitSoftCap = c.softCap("final_logit_softcapping", 30)
	n.streams, n.laurel = c.size("altup_num_inputs", 4), c.size("laurel_rank", 64)
	n.shared, n.perLayer = c.count("num_kv_shared_layers", 15), c.size("hidden_size_per_layer_input", 256)
	n.perLayerRows = c.size("vocab_size_per_layer_input", 262144)
	if active := c.number("altup_active_idx", 0); active != 0 {
		c.fail("altup_active_idx", "is %v; only 0 is supported", active)
	}
	c.only("altup_correct_scale", true)
	c.ignore("altup_coef_clip") // of training
	if n.widths != nil && len(n.widths) != d.layers {
		c.fail("intermediate_size", "has %d layers of %d", len(n.widths), d.layers)
	}
	if n.shared >= d.layers {
		c.fail("num_kv_shared_layers", "is %d of %d layers", n.shared, d.layers)
	}
	if most := 1 << 10; n.streams < 2 || n.streams > most || n.perLayer > sizeMax/max(1, d.layers) {
		c.fail("altup_num_inputs", "is %d, and hidden_size_per_layer_input %d in each of %d layers; allowed are 2 to %d streams, and %d numbers in all", n.streams, n.perLayer, d.layers, most, sizeMax)
		n.streams, n.perLayer = 2, 1
	}
	n.readSparsity(c, d.layers)
}

// readSparsity reads which part of each layer's gate does not count, and makes of it how many deviations above
// their mean a number must be that does.
func (n *gemma3n) readSparsity(c *config, layers int) {
	const key = "activation_sparsity_pattern"
	parts := make([]float64, layers)
	switch raw := c.values[key]; {
	case len(raw) > 0 && raw[0] == '[':
		if parts = value[[]float64](c, key, "a list of numbers", nil); len(parts) != layers {
			c.fail(key, "has %d layers of %d", len(parts), layers)
			return
		}
	case c.has(key):
		for i := range parts {
			parts[i] = c.number(key, 0)
		}
	case layers > 10:
		for i := range 10 {
			parts[i] = 0.95
		}
	}
	n.deviations = make([]float32, layers)
	for i, part := range parts {
		switch n.deviations[i] = float32(math.Inf(-1)); {
		case part >= 1 || part < 0:
			c.fail(key, "is %v for layer %d; allowed are numbers from 0 and under 1", part, i)
		case part > 0:
			n.deviations[i] = float32(math.Sqrt2 * math.Erfinv(2*float64(float32(part))-1))
		}
	}
}

func setGemma3n(d *description, to *gguf.Draft) {
	n := &d.gemma3n
	to.Set("gemma3n.rope.freq_base_swa", float32(d.localRope.theta))
	if d.logitSoftCap != 0 {
		to.Set("gemma3n.final_logit_softcapping", float32(d.logitSoftCap))
	}
	for key, size := range map[string]int{"altup.active_idx": 0, "altup.num_inputs": n.streams, "embedding_length_per_layer_input": n.perLayer, "attention.shared_kv_layers": n.shared} {
		to.Set("gemma3n."+key, uint32(size))
	}
	to.Set("gemma3n.activation_sparsity_scale", n.deviations)
	if n.widths == nil {
		return
	}
	widths := make([]uint32, len(n.widths))
	for i, w := range n.widths {
		widths[i] = uint32(w)
	}
	to.Set("gemma3n.feed_forward_length", widths)
}

func (d *description) gemma3nSizes(i int) layerSizes {
	n := &d.gemma3n
	own := i < d.layers-n.shared
	l := layerSizes{d.headDim, d.kvHeads, d.ff, own, own}
	if n.widths != nil {
		l.ff = n.widths[i]
	}
	return l
}

// gemma3nInputs adds the tensors that belong to no layer.
func (b *builder) gemma3nInputs() {
	n := &b.gemma3n
	b.perLayerInputs(n.perLayer, n.perLayerRows)
	b.stack("altup_proj.weight", b.root+"altup_projections.%d.weight", n.streams-1, b.embed, b.embed)
	b.stack("altup_unembd_proj.weight", b.root+"altup_unembed_projections.%d.weight", n.streams-1, b.embed, b.embed)
	for i := b.layers - n.shared; i < b.layers; i++ { // nobody uses them
		for _, part := range []string{"k_proj.", "v_proj.", "k_norm."} {
			b.passed = append(b.passed, fmt.Sprintf("%slayers.%d.self_attn.%s", b.root, i, part))
		}
	}
}

// gemma3nLayer adds what a layer has beside attention and feed-forward.
func (b *builder) gemma3nLayer(to, from string) {
	n := &b.gemma3n
	b.norm(to+"altup_router_norm", from+"altup.router_norm")
	b.linear(to+"altup_router", from+"altup.modality_router", n.streams, b.embed, false, asIs)
	b.linear(to+"altup_predict_coef", from+"altup.prediction_coefs", n.streams*n.streams, n.streams, false, asIs)
	b.linear(to+"altup_correct_coef", from+"altup.correction_coefs", n.streams, n.streams, false, asIs)
	b.vector(to+"altup_correct_scale.weight", from+"altup.correct_output_scale", b.embed, asIs)
	b.linear(to+"laurel_l", from+"laurel.linear_left", n.laurel, b.embed, false, asIs)
	b.linear(to+"laurel_r", from+"laurel.linear_right", b.embed, n.laurel, false, asIs)
	b.norm(to+"laurel_post_norm", from+"laurel.post_laurel_norm")
	b.perLayerGate(to, from, n.perLayer)
}
