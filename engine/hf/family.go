package hf

import (
	"maps"
	"slices"
	"strings"
)

// family describes a model type: its special features, and transformers' defaults
// for keys that its config.json lacks.
type family struct {
	arch    string // in GGUF files
	classes []string
	gelu    bool // the activation is GELU, not SiLU
	gemma   bool // norms around each block, with weights stored minus 1, and other features of gemma 3
	permute bool // the converter reorders the rows of queries and keys
	qkNorm  bool
	mixture *expertNames // nil: every layer is dense
	bias    bias
	sizes   sizes
	theta   float64
	tied    bool
}

// bias says which matrices have a bias.
type bias int

const (
	noBias       bias = iota
	qkvBias           // queries, keys and values always have one, the output of attention never
	asAttnBias        // all four matrices of attention, if attention_bias is true
	asBothBiases      // as asAttnBias, and those of the feed-forward layer if mlp_bias does
)

// sizes holds the dimensions of a model.
type sizes struct {
	embed, ff, layers, heads, kvHeads int // kvHeads 0: as heads
	headDim                           int // 0: embed/heads
	context                           int
	window                            int // 0: none
	experts, expertsUsed, expertFF    int
	eps                               float64
}

// families has a row for each model_type.
var families = map[string]*family{
	"llama": {arch: "llama", classes: []string{"LlamaForCausalLM", "LLaMAForCausalLM"}, permute: true, bias: asBothBiases, theta: 1e4,
		sizes: sizes{embed: 4096, ff: 11008, layers: 32, heads: 32, context: 2048, eps: 1e-6}},
	"mistral": {arch: "llama", classes: []string{"MistralForCausalLM"}, permute: true, theta: 1e4,
		sizes: sizes{embed: 4096, ff: 14336, layers: 32, heads: 32, kvHeads: 8, context: 131072, window: 4096, eps: 1e-6}},
	"mixtral": {arch: "llama", classes: []string{"MixtralForCausalLM"}, permute: true, theta: 1e6, mixture: &mixtralExperts,
		sizes: sizes{embed: 4096, ff: 14336, layers: 32, heads: 32, kvHeads: 8, context: 131072, eps: 1e-5, experts: 8, expertsUsed: 2}},
	"qwen2": {arch: "qwen2", classes: []string{"Qwen2ForCausalLM"}, bias: qkvBias, theta: 1e4,
		sizes: sizes{embed: 4096, ff: 22016, layers: 32, heads: 32, kvHeads: 32, context: 32768, window: 4096, eps: 1e-6}},
	"qwen3": {arch: "qwen3", classes: []string{"Qwen3ForCausalLM"}, qkNorm: true, bias: asAttnBias, theta: 1e4,
		sizes: sizes{embed: 4096, ff: 22016, layers: 32, heads: 32, kvHeads: 32, headDim: 128, context: 32768, window: 4096, eps: 1e-6}},
	"qwen3_moe": {arch: "qwen3moe", classes: []string{"Qwen3MoeForCausalLM"}, qkNorm: true, bias: asAttnBias, theta: 1e4, mixture: &qwenExperts,
		sizes: sizes{embed: 2048, ff: 6144, layers: 24, heads: 32, kvHeads: 4, context: 32768, window: 4096, eps: 1e-6, experts: 128, expertsUsed: 8, expertFF: 768}},
	"gemma3_text": {arch: "gemma3", classes: []string{"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"}, qkNorm: true, gelu: true, gemma: true, bias: asAttnBias, theta: 1e6, tied: true,
		sizes: sizes{embed: 2304, ff: 9216, layers: 26, heads: 8, kvHeads: 4, headDim: 256, context: 131072, window: 4096, eps: 1e-6}},
}

// ModelTypes lists the values of model_type that can be opened.
func ModelTypes() []string {
	return slices.Sorted(maps.Keys(families))
}

// description is a family with the dimensions of one model.
type description struct {
	*family
	sizes
	attnBias, mlpBias bool
	tied              bool
	slides            []bool // true for layers with the window; nil if none has it
	queryScale        float64
	logitSoftCap      float64
	rope, localRope   rope
}

// describe reads a config.json.
func describe(c *config) *description {
	modelType := c.text("model_type", "")
	outer := c
	if modelType == "gemma3" {
		modelType = "gemma3_text"
		if c = outer.object("text_config"); c == nil {
			outer.fail("text_config", "is missing")
			return nil
		}
		outer.ignore("vision_config", "image_token_index", "boi_token_index", "eoi_token_index", "mm_tokens_per_image", "image_token_id", "boi_token_id", "eoi_token_id")
	}
	f, ok := families[modelType]
	if !ok {
		outer.fail("model_type", "is %.60q; supported: gemma3, %s", modelType, strings.Join(ModelTypes(), ", "))
		return nil
	}
	d := &description{family: f}
	d.checkQuantised(outer)
	for _, class := range outer.texts("architectures") {
		if !slices.Contains(f.classes, class) {
			outer.fail("architectures", "has %.60q; supported for model_type %s: %s", class, modelType, strings.Join(f.classes, ", "))
		}
	}
	d.readSizes(c)
	d.readVariants(c)
	d.tied = c.flag("tie_word_embeddings", outer.flag("tie_word_embeddings", f.tied))
	d.readWindows(c)
	d.readRopes(c)
	for _, each := range []*config{outer, c} {
		each.ignore(harmless...)
		each.ignore("vocab_size", "architectures")
		each.checkAllRead()
	}
	return d
}

func (d *description) checkQuantised(c *config) {
	if c.has("quantization_config") || c.has("compression_config") {
		c.fail("quantization_config", "says that the weights are quantised already, which is not supported in safetensors; take the model's BF16 or F16 weights, or a GGUF file")
	}
}

// readSizes reads the keys that every model has.
func (d *description) readSizes(c *config) {
	s := d.family.sizes
	s.embed = c.size("hidden_size", s.embed)
	s.ff = c.size("intermediate_size", s.ff)
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
	s.eps = c.number("rms_norm_eps", s.eps)
	if !(s.eps > 0 && s.eps < 1) {
		c.fail("rms_norm_eps", "is %v; allowed are numbers over 0 and under 1", s.eps)
	}
	if s.experts > 0 {
		count := "num_local_experts"
		if !c.has(count) {
			count = "num_experts"
		}
		s.experts = c.size(count, s.experts)
		s.expertsUsed = c.size("num_experts_per_tok", s.expertsUsed)
		if s.expertsUsed > s.experts {
			c.fail("num_experts_per_tok", "is %d of %d experts", s.expertsUsed, s.experts)
		}
	}
	if s.expertFF > 0 {
		s.expertFF = c.size("moe_intermediate_size", s.expertFF)
	}
	if s.heads > sizeMax/s.headDim {
		c.fail("head_dim", "is %d with %d heads; allowed are up to %d numbers in all heads", s.headDim, s.heads, sizeMax)
	}
	d.sizes = s
}

// readVariants reads the keys that differ within a family.
func (d *description) readVariants(c *config) {
	if d.gelu {
		c.oneOf("hidden_activation", "gelu_pytorch_tanh")
		c.oneOf("hidden_act", "gelu_pytorch_tanh")
	} else {
		c.oneOf("hidden_act", "silu", "swish")
	}
	if d.bias == asAttnBias || d.bias == asBothBiases {
		d.attnBias = c.flag("attention_bias", false)
	}
	c.ignore("attention_bias") // transformers does not read it for this family; the tensors decide
	if d.bias == asBothBiases {
		d.mlpBias = c.flag("mlp_bias", false)
	} else {
		c.only("mlp_bias", false)
	}
	for _, key := range []string{"is_encoder_decoder", "add_cross_attention", "use_bidirectional_attention", "rope_interleaved"} {
		c.only(key, false)
	}
	c.only("is_causal", true)
	if d.gemma {
		d.queryScale = c.number("query_pre_attn_scalar", 256)
		if d.queryScale <= 0 {
			c.fail("query_pre_attn_scalar", "is %v; allowed are numbers over 0", d.queryScale)
		}
		d.logitSoftCap = c.number("final_logit_softcapping", 0)
		if c.has("attn_logit_softcapping") {
			c.fail("attn_logit_softcapping", "is %s; it is not supported in gemma 3", short(c.values["attn_logit_softcapping"]))
		}
	}
	if d.expertFF > 0 {
		if !c.flag("norm_topk_prob", false) {
			c.fail("norm_topk_prob", "is false, as it is where it is absent; only true is supported")
		}
		if n := c.number("decoder_sparse_step", 1); n != 1 {
			c.fail("decoder_sparse_step", "is %v; only 1 is supported", n)
		}
		if dense := value[[]int](c, "mlp_only_layers", "a list of layers", nil); len(dense) > 0 {
			c.fail("mlp_only_layers", "names %d layers; layers without experts are not supported", len(dense))
		}
	}
}
