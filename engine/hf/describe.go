package hf

import (
	"cmp"
	"slices"
	"strings"
)

// description is a family with the dimensions of one model.
type description struct {
	*family
	sizes
	qkvBias, outBias, ffBias  bool
	tied                      bool
	images                    bool   // the folder has tensors of a vision part, which are left out
	fp4                       *fp4   // what tensors of 4-bit floats are called; nil where there are none
	fp8                       *fp8   // how 8-bit floats are scaled; nil where there are none
	slides                    []bool // true for layers with the window; nil if none has it
	queryScale                float64
	attnSoftCap, logitSoftCap float64
	scales                    scales
	recurrent                 []bool // true for layers without attention; nil if all have it
	net                       deltaNet
	mamba                     mamba
	falcon                    falcon
	parts                     []part // nemotron's, one a layer
	gemma4                    gemma4
	gemma3n                   gemma3n
	latent                    latent
	routing                   *routing // nil where readers of GGUF assume it
	leading                   int      // layers of a mixture without experts, before the others
	step                      int      // of the others, every so many have experts; 0: all
	predictions               int      // layers behind the last one, which are left out
	headBias                  bool     // the output matrix has a bias
	still                     bool     // there is no rope
	pooling                   pooling
	bothWays                  bool    // a token sees those after it too
	firstPosition             int     // of roberta's table of positions
	unbiased                  bool    // the router has no bias, though the family may have one
	shortTaps                 int     // of lfm2's convolutions
	temperature               float64 // of ministral 3's queries
	rope, localRope           rope
}

// wrappers are the model types of models with images, whose text part is described in
// text_config, with the type of that part and the keys that are about images alone.
var wrappers = map[string]struct {
	inner   string // where text_config does not say
	ignored []string
}{
	"gemma3": {"gemma3_text", []string{"vision_config", "image_token_index", "boi_token_index", "eoi_token_index", "mm_tokens_per_image", "image_token_id", "boi_token_id", "eoi_token_id"}},
	"gemma4": {"gemma4_text", []string{"vision_config", "audio_config", "image_token_id", "boi_token_id", "eoi_token_id", "audio_token_id", "boa_token_id", "eoa_token_id",
		"eoa_token_index", "video_token_id", "vision_soft_tokens_per_image"}},
	"gemma3n": {"gemma3n_text", []string{"vision_config", "audio_config", "image_token_id", "boi_token_id", "eoi_token_id", "audio_token_id", "boa_token_id", "eoa_token_id",
		"audio_soft_tokens_per_image", "vision_soft_tokens_per_image"}},
	"qwen3_5":     {"qwen3_5_text", []string{"vision_config", "image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"}},
	"qwen3_5_moe": {"qwen3_5_moe_text", []string{"vision_config", "image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"}},
	"llama4":      {"llama4_text", []string{"vision_config", "boi_token_index", "eoi_token_index", "image_token_index"}},
	"mistral3":    {"mistral", []string{"vision_config", "image_token_index", "image_token_id", "projector_hidden_act", "vision_feature_layer", "multimodal_projector_bias", "spatial_merge_size"}},
}

// called is what the family calls its tensors.
func (f *family) called() *names { return cmp.Or(f.names, &usualNames) }

// describe reads a config.json.
func describe(c *config) *description {
	modelType := c.text("model_type", "")
	outer := c
	wrapper, wrapped := wrappers[modelType]
	if wrapped {
		if c = outer.object("text_config"); c == nil {
			outer.fail("text_config", "is missing")
			return nil
		}
		modelType = c.text("model_type", wrapper.inner)
		outer.ignore(wrapper.ignored...)
	}
	f, ok := families[modelType]
	if !ok {
		outer.fail("model_type", "is %.60q; supported: %s", modelType, strings.Join(append(TypesWithImages(), ModelTypes()...), ", "))
		return nil
	}
	own := *f // readers change it
	d := &description{family: &own, images: wrapped}
	d.readQuantised(outer)
	for _, class := range outer.texts("architectures") {
		if !slices.Contains(f.classes, class) {
			outer.fail("architectures", "has %.60q; supported for model_type %s: %s", class, modelType, strings.Join(f.classes, ", "))
		}
	}
	d.readSizes(c)
	d.readVariants(c)
	const tied = "tie_word_embeddings"
	d.tied = outer.flag(tied, c.flag(tied, f.tied))
	d.readWindows(c)
	if d.read != nil {
		d.read(d, c)
	}
	d.readRopes(c)
	for _, each := range []*config{outer, c} {
		each.ignore(harmless...)
		each.ignore("vocab_size", "architectures")
		each.checkAllRead()
	}
	return d
}

// readQuantised reads how the weights are quantised, if they are.
func (d *description) readQuantised(c *config) {
	if !c.has("quantization_config") && !c.has("compression_config") {
		return
	}
	q := c.object("quantization_config")
	if d.mxfp4 && q != nil && q.text("quant_method", "") == "mxfp4" {
		return
	}
	if !d.readQuantization(c) {
		c.fail("quantization_config", "says that the weights are quantised already; of such folders those of FP8 (e4m3) and NVFP4 are supported, and of gpt-oss MXFP4; take the model's BF16 or F16 weights, or a GGUF file")
	}
}

// readSizes reads the keys that every model has.
func (d *description) readSizes(c *config) {
	s := d.family.sizes
	s.embed = c.size("hidden_size", s.embed)
	s.ff = d.readWidth(c, "intermediate_size", s.ff)
	s.layers = c.size("num_hidden_layers", s.layers)
	s.heads = c.size("num_attention_heads", s.heads)
	if s.kvHeads == 0 || c.isNull("num_key_value_heads") {
		s.kvHeads = s.heads
	}
	s.kvHeads = c.size("num_key_value_heads", s.kvHeads)
	if s.headDim == 0 {
		s.headDim = max(1, s.embed/s.heads)
	}
	s.headDim = c.size("head_dim", s.headDim)
	s.context = c.size("max_position_embeddings", s.context)
	eps := d.called().eps
	s.eps = c.number(eps, s.eps)
	if !(s.eps > 0 && s.eps < 1) {
		c.fail(eps, "is %v; allowed are numbers over 0 and under 1", s.eps)
	}
	s.readExperts(c)
	if s.heads > sizeMax/s.headDim {
		c.fail("head_dim", "is %d with %d heads; allowed are up to %d numbers in all heads", s.headDim, s.heads, sizeMax)
	}
	d.sizes = s
}

// readVariants reads the keys that say of every model what it has and what not.
func (d *description) readVariants(c *config) {
	if d.activations != nil {
		c.oneOf("hidden_activation", d.activations...)
		c.oneOf("hidden_act", d.activations...)
	} else if d.gelu {
		c.oneOf("hidden_activation", "gelu_pytorch_tanh")
		c.oneOf("hidden_act", "gelu_pytorch_tanh")
	} else {
		c.oneOf("hidden_act", "silu", "swish")
	}
	d.qkvBias, d.outBias, d.ffBias = d.hasBias(c, d.bias.qkv, d.bias.absent), d.hasBias(c, d.bias.out, d.bias.absent && d.bias.out == d.bias.qkv), d.hasBias(c, d.bias.ff, false)
	c.ignore("attention_bias") // transformers does not read it for other families; the tensors decide
	c.only("mlp_bias", d.ffBias)
	if d.imagesBothWays {
		c.oneOf("use_bidirectional_attention", "vision")
	} else if !d.mayBothWays {
		c.only("use_bidirectional_attention", false)
	}
	for _, key := range []string{"is_encoder_decoder", "add_cross_attention", "rope_interleaved"} {
		c.only(key, false)
	}
	c.only("is_causal", true)
}

func (d *description) hasBias(c *config, key string, absent bool) bool {
	switch key {
	case "":
		return false
	case always:
		return true
	}
	return c.flag(key, absent)
}
