package hf

import (
	"math"
	"slices"
	"strings"

	"github.com/forebay-io/forebay/engine/gguf"
)

// layersMax bounds the lists with one element for each layer.
const layersMax = 1 << 16

// gemmaPeriod is the default period of gemma 3's layers without a window.
const gemmaPeriod = 6

// readWindows sets window and slides: the layers that see only the last tokens. A
// window that is not shorter than the context is ignored.
func (d *description) readWindows(c *config) {
	d.layers = min(d.layers, layersMax) // the tensors of more layers will be missing
	slides := make([]bool, d.layers)
	isQwen := strings.HasPrefix(d.arch, "qwen")
	switch {
	case d.gemma:
		period := c.size("sliding_window_pattern", gemmaPeriod)
		c.ignore("_sliding_window_pattern") // layer_types was made from it
		for i := range slides {
			slides[i] = (i+1)%period != 0
		}
		d.readLayerTypes(c, slides)
	case isQwen:
		first := int(c.number("max_window_layers", 28))
		for i := range slides {
			slides[i] = i >= first
		}
		d.readLayerTypes(c, slides)
		if !c.flag("use_sliding_window", false) {
			slides = nil
		}
	case d.family.sizes.window == 0 && d.mixture == nil:
		return // llama has no such keys
	default:
		for i := range slides {
			slides[i] = true
		}
	}
	if c.isNull("sliding_window") {
		d.window = 0
	} else if c.has("sliding_window") {
		d.window = c.size("sliding_window", 1)
	}
	if !slices.Contains(slides, true) || d.window >= d.context {
		return
	}
	switch {
	case d.window == 0 && d.gemma:
		c.fail("sliding_window", "is null, though layers have a window")
	case isQwen && d.window > 0:
		c.fail("use_sliding_window", "is true; a window (of %d tokens) is not supported in this model type", d.window)
	case d.window > 0:
		d.slides = slides
	}
}

// readLayerTypes reads which layers have a window where config.json lists them.
func (d *description) readLayerTypes(c *config, slides []bool) {
	types := c.texts("layer_types")
	if types == nil {
		return
	}
	if len(types) < len(slides) {
		c.fail("layer_types", "has %d layers of %d", len(types), len(slides))
		return
	}
	for i := range slides {
		slides[i] = types[i] == slidingAttention
		if !slides[i] && types[i] != fullAttention {
			c.fail("layer_types", "has %.60q; supported: %s, %s", types[i], fullAttention, slidingAttention)
		}
	}
}

// setKeys writes d's keys as the GGUF converter does.
func (d *description) setKeys(to *gguf.Draft) {
	size := func(key string, n int) { to.Set(d.arch+"."+key, uint32(n)) }
	number := func(key string, x float64) { to.Set(d.arch+"."+key, float32(x)) }
	size("block_count", d.layers)
	size("context_length", d.context)
	size("embedding_length", d.embed)
	size("feed_forward_length", d.ff)
	size("attention.head_count", d.heads)
	size("attention.head_count_kv", d.kvHeads)
	size("attention.key_length", d.headDim)
	size("attention.value_length", d.headDim)
	number("attention.layer_norm_rms_epsilon", d.eps)
	d.rope.set(to, d.arch)
	if d.mixture != nil {
		size("expert_count", d.experts)
		size("expert_used_count", d.expertsUsed)
	}
	if d.expertFF > 0 {
		size("expert_feed_forward_length", d.expertFF)
	}
	if d.permute {
		size("rope.dimension_count", d.headDim)
	}
	if d.slides != nil {
		size("attention.sliding_window", d.window)
	}
	if d.gemma {
		d.setGemmaKeys(to, number)
	}
}

// setGemmaKeys writes the keys of gemma 3. The converter has no keys for the
// pattern of windows and the scale of queries, because readers assume the values
// of Google's models. They are written only for models with other values.
func (d *description) setGemmaKeys(to *gguf.Draft, number func(key string, x float64)) {
	number("rope.freq_base_swa", d.localRope.theta)
	if d.logitSoftCap != 0 {
		number("final_logit_softcapping", d.logitSoftCap)
	}
	assumed := float64(d.headDim)
	if d.layers == 62 {
		assumed = float64(d.embed / d.heads)
	}
	if d.queryScale != assumed {
		number("attention.scale", 1/math.Sqrt(d.queryScale))
	}
	for i, slides := range d.slides {
		if slides != ((i+1)%gemmaPeriod != 0) {
			to.Set(d.arch+".attention.sliding_window_pattern", d.slides)
			break
		}
	}
}
