package hf

import (
	"maps"
	"slices"

	"github.com/forebay-io/forebay/engine/gguf"
)

// family describes a model type: its special features, and transformers' defaults
// for keys that its config.json lacks.
type family struct {
	arch           string // in GGUF files
	classes        []string
	gelu           bool // the activation is GELU, not SiLU
	plusOne        bool // weights of norms are stored minus 1
	permute        bool // the converter reorders the rows of queries and keys
	norms          []norm
	qkNorm         *qkNorm
	fused          fused
	names          *names                                   // nil: usualNames
	mixer          func(b *builder, to, from string)        // adds what layers without attention have in its place
	mixture        func(b *builder, to, from string)        // adds a layer's experts
	part           func(b *builder, i int, to, from string) // adds a layer's tensors beside the norms, where a layer is one part alone
	beside         func(b *builder)                         // adds tensors that belong to no layer, beside the usual ones
	inLayer        func(b *builder, to, from string)        // adds a layer's tensors beside the usual ones
	epsOfCentred   bool                                     // the norms' epsilon has the name of one that subtracts the mean
	centred        bool                                     // the norms subtract the mean
	gatedQ         bool                                     // a head's gate follows its queries, in one tensor
	mxfp4          bool                                     // folders of MXFP4 are known
	all            func(b *builder)                         // adds all tensors, where they are others than a decoder's
	activations    []string                                 // nil: SiLU, or GELU
	attend         func(b *builder, to, from string)        // adds attention's tensors where they are others than usual
	dense          func(b *builder, to, from string)        // adds a dense layer's tensors where they are others than usual
	besideDense    bool                                     // a layer with experts has a dense part too
	normBias       bool                                     // the norms have a bias
	widths         bool                                     // config.json may have a list of the feed-forward layers' widths
	uneven         func(*description, int) layerSizes       // the sizes of each layer, where they differ
	mayBothWays    bool                                     // config.json may say that a token sees those after it too
	imagesBothWays bool                                     // images see what follows them, which text does not
	ropes          ropeKeys
	bias           biasKeys
	windows        windows
	sizes          sizes
	theta          float64
	rotated        float64 // the part of a head that is rotated, where config.json does not say; 0: always all
	tied           bool
	read           func(*description, *config)     // keys of this family alone
	set            func(*description, *gguf.Draft) // and what becomes of them
}

// ropeKeys are what a family's keys of the rope have beyond those of others.
type ropeKeys struct {
	read       func(*description, *config) // reads all of it
	local      bool                        // layers with windows have one of their own
	localTheta float64                     // of theirs, where rope_local_base_freq is absent; 0: as the others
	long       bool                        // two sets of divisors
	mscales    bool                        // their magnitudes are given
	unrounded  bool                        // YaRN's borders are not rounded
	alpha      bool                        // the kind dynamic with alpha is a fixed base
	ignored    []string                    // keys that others read, or that have no effect on text
}

// norm is a norm of a layer: its names in GGUF and in safetensors.
type norm struct{ to, from string }

var (
	preNorms  = []norm{{"attn_norm", "input_layernorm"}, {"ffn_norm", "post_attention_layernorm"}}
	postNorms = []norm{{"post_attention_norm", "post_attention_layernorm"}, {"post_ffw_norm", "post_feedforward_layernorm"}}
	bothNorms = []norm{{"attn_norm", "input_layernorm"}, {"post_attention_norm", "post_attention_layernorm"},
		{"ffn_norm", "pre_feedforward_layernorm"}, {"post_ffw_norm", "post_feedforward_layernorm"}}
	glm4Norms = []norm{{"attn_norm", "input_layernorm"}, {"post_attention_norm", "post_self_attn_layernorm"},
		{"ffn_norm", "post_attention_layernorm"}, {"post_ffw_norm", "post_mlp_layernorm"}}
	lfmNorms  = []norm{{"attn_norm", "operator_norm"}, {"ffn_norm", "ffn_norm"}}
	seedNorms = []norm{{"attn_norm", "input_layernorm"}, {"post_attention_norm", "post_attention_layernorm"}}
	oneNorm   = []norm{{"attn_norm", "input_layernorm"}}
)

// qkNorm are the norms of queries and keys: their names in safetensors, and whether
// one spans all heads.
type qkNorm struct {
	q, k string
	all  bool
}

var (
	headNorms  = &qkNorm{q: "q_norm", k: "k_norm"}
	layerNorms = &qkNorm{q: "q_norm", k: "k_norm", all: true}
)

// names are those of tensors that most families call alike, and of a key of config.json.
type names struct {
	out, gate, up, down, outputNorm, eps string
	lastNorm                             string // in GGUF files
	embedding                            string // "": embed_tokens
}

var (
	usualNames = names{out: "o_proj", gate: "mlp.gate_proj", up: "mlp.up_proj", down: "mlp.down_proj", outputNorm: "norm", eps: "rms_norm_eps", lastNorm: "output_norm"}
	cohereName = names{out: "o_proj", gate: "mlp.gate_proj", up: "mlp.up_proj", down: "mlp.down_proj", outputNorm: "norm", eps: "layer_norm_eps", lastNorm: "output_norm"}
	lfmNames   = names{out: "out_proj", gate: "feed_forward.w1", up: "feed_forward.w3", down: "feed_forward.w2", outputNorm: "embedding_norm", eps: "norm_eps", lastNorm: "token_embd_norm"}
)

// fused says which matrices lie in one tensor.
type fused struct{ qkv, gateUp bool }

// biasKeys are the keys of config.json that say which matrices have a bias: queries, keys and
// values; the output of attention; the feed-forward layer. "" is none.
type biasKeys struct {
	qkv, out, ff string
	absent       bool // what the first key means where it is absent
}

// always in place of a key: there is a bias, whatever config.json says.
const always = "*"

var (
	attnBias = biasKeys{qkv: "attention_bias", out: "attention_bias"}
	bothBias = biasKeys{qkv: "attention_bias", out: "attention_bias", ff: "mlp_bias"}
)

// windows says which layers see only the last tokens.
type windows int

const (
	noWindows    windows = iota
	allWindows           // all layers, where config.json has a window
	qwenWindows          // the layers after max_window_layers, which no GGUF reader knows
	mostWindows          // all but every windowPeriod-th layer, or as layer_types says
	maybeWindows         // as mostWindows, and none where sliding_window is null
)

// sizes holds the dimensions of a model.
type sizes struct {
	embed, ff, layers, heads, kvHeads int // kvHeads 0: as heads
	headDim                           int // 0: embed/heads
	context                           int
	window                            int // 0: none
	windowPeriod                      int
	experts, expertsUsed, expertFF    int
	sharedFF                          int // of the experts that every token uses, together; 0: none
	eps                               float64
}

// families has a row for each model_type.
var families = func() map[string]*family {
	all := maps.Clone(denseFamilies)
	maps.Copy(all, mixtureFamilies)
	maps.Copy(all, encoderFamilies)
	maps.Copy(all, spaceFamilies)
	return all
}()

var denseFamilies = map[string]*family{
	"llama": {arch: "llama", classes: []string{"LlamaForCausalLM", "LLaMAForCausalLM"}, norms: preNorms, permute: true, bias: bothBias, theta: 1e4,
		sizes: sizes{embed: 4096, ff: 11008, layers: 32, heads: 32, context: 2048, eps: 1e-6}},
	"mistral": {arch: "llama", classes: []string{"MistralForCausalLM", "Mistral3ForConditionalGeneration"}, norms: preNorms, permute: true, windows: allWindows, theta: 1e4,
		sizes: sizes{embed: 4096, ff: 14336, layers: 32, heads: 32, kvHeads: 8, context: 131072, window: 4096, eps: 1e-6}},
	"smollm3": {arch: "smollm3", classes: []string{"SmolLM3ForCausalLM"}, norms: preNorms, permute: true, bias: bothBias, theta: 2e6, tied: true,
		sizes: sizes{embed: 2048, ff: 11008, layers: 36, heads: 16, kvHeads: 4, context: 32768, eps: 1e-6}, read: readSmolLM3},
	"granite": {arch: "granite", classes: []string{"GraniteForCausalLM"}, norms: preNorms, permute: true, bias: bothBias, theta: 1e4,
		sizes: sizes{embed: 4096, ff: 11008, layers: 32, heads: 32, context: 2048, eps: 1e-6}, read: readGranite, set: setGranite},

	"ministral3": {arch: "mistral3", ropes: ropeKeys{ignored: []string{"llama_4_scaling_beta"}}, classes: []string{"Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"}, norms: preNorms, permute: true, windows: allWindows, theta: 1e6,
		sizes: sizes{embed: 4096, ff: 14336, layers: 34, heads: 32, kvHeads: 8, headDim: 128, context: 262144, eps: 1e-5}, read: readMinistral3, set: setMinistral3},

	"qwen2": {arch: "qwen2", classes: []string{"Qwen2ForCausalLM", "Qwen2Model"}, norms: preNorms, bias: biasKeys{qkv: always}, windows: qwenWindows, theta: 1e4,
		sizes: sizes{embed: 4096, ff: 22016, layers: 32, heads: 32, kvHeads: 32, context: 32768, window: 4096, eps: 1e-6}},
	"qwen3": {arch: "qwen3", classes: []string{"Qwen3ForCausalLM", "Qwen3Model"}, norms: preNorms, qkNorm: headNorms, bias: attnBias, windows: qwenWindows, theta: 1e4,
		sizes: sizes{embed: 4096, ff: 22016, layers: 32, heads: 32, kvHeads: 32, headDim: 128, context: 32768, window: 4096, eps: 1e-6}},
	"qwen3_5_text": {arch: "qwen35", gatedQ: true, ropes: ropeKeys{ignored: []string{"mrope_section", "mrope_interleaved"}}, classes: []string{"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"}, norms: seedNorms, qkNorm: headNorms, plusOne: true, bias: attnBias, theta: 1e7, rotated: 0.25,
		mixer: (*builder).deltaNet, read: readQwen35, set: setQwen35,
		sizes: sizes{embed: 4096, ff: 12288, layers: 32, heads: 16, kvHeads: 4, headDim: 256, context: 32768, eps: 1e-6}},
	"lfm2": {arch: "lfm2", classes: []string{"Lfm2ForCausalLM"}, norms: lfmNorms, qkNorm: &qkNorm{q: "q_layernorm", k: "k_layernorm"}, names: &lfmNames, theta: 1e6, tied: true,
		mixer: (*builder).shortConvolution, read: readLFM2, set: setLFM2,
		sizes: sizes{embed: 2560, ff: 12288, layers: 32, heads: 32, kvHeads: 8, context: 128000, eps: 1e-5}},

	"gemma2": {arch: "gemma2", classes: []string{"Gemma2ForCausalLM"}, norms: bothNorms, gelu: true, plusOne: true, bias: attnBias, windows: mostWindows, theta: 1e4, tied: true,
		sizes: sizes{embed: 2304, ff: 9216, layers: 26, heads: 8, kvHeads: 4, headDim: 256, context: 8192, window: 4096, windowPeriod: 2, eps: 1e-6}, read: readGemma2, set: setGemma2},
	"gemma3_text": {arch: "gemma3", ropes: ropeKeys{local: true, localTheta: 1e4}, classes: []string{"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration", "Gemma3TextModel"}, mayBothWays: true, norms: bothNorms, qkNorm: headNorms, gelu: true, plusOne: true, bias: attnBias, windows: mostWindows, theta: 1e6, tied: true,
		sizes: sizes{embed: 2304, ff: 9216, layers: 26, heads: 8, kvHeads: 4, headDim: 256, context: 131072, window: 4096, windowPeriod: 6, eps: 1e-6}, read: readGemma3, set: setGemma3},

	"gemma3n_text": {arch: "gemma3n", widths: true, uneven: (*description).gemma3nSizes, beside: (*builder).gemma3nInputs, inLayer: (*builder).gemma3nLayer, ropes: ropeKeys{local: true, localTheta: 1e4}, classes: []string{"Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"}, norms: bothNorms, qkNorm: headNorms, gelu: true, bias: attnBias, windows: mostWindows, theta: 1e6, tied: true,
		sizes: sizes{embed: 2048, ff: 16384, layers: 35, heads: 8, kvHeads: 2, headDim: 256, context: 32768, window: 512, windowPeriod: 5, eps: 1e-6}, read: readGemma3n, set: setGemma3n},

	"gemma4_text": {arch: "gemma4", mixture: (*builder).gemma4Experts, besideDense: true, uneven: (*description).gemma4Sizes, imagesBothWays: true, beside: (*builder).gemma4Inputs, inLayer: (*builder).gemma4Layer, ropes: ropeKeys{read: (*description).readGemma4Ropes}, classes: []string{"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"}, norms: bothNorms, qkNorm: headNorms, gelu: true, bias: attnBias, windows: mostWindows, tied: true,
		sizes: sizes{embed: 2304, ff: 9216, layers: 30, heads: 8, kvHeads: 4, headDim: 256, context: 131072, window: 512, windowPeriod: 6, eps: 1e-6}, read: readGemma4, set: setGemma4},

	"phi3": {arch: "phi3", ropes: ropeKeys{long: true}, classes: []string{"Phi3ForCausalLM"}, norms: preNorms, fused: fused{qkv: true, gateUp: true}, windows: allWindows, theta: 1e4, rotated: 1,
		sizes: sizes{embed: 3072, ff: 8192, layers: 32, heads: 32, context: 4096, eps: 1e-5}, read: readPhi3, set: setPhi3},
	"gpt_oss": {arch: "gpt-oss", mxfp4: true, ropes: ropeKeys{unrounded: true}, classes: []string{"GptOssForCausalLM"}, norms: seedNorms, bias: biasKeys{qkv: "attention_bias", out: "attention_bias", absent: true}, windows: mostWindows, theta: 1.5e5,
		mixture: (*builder).gptOSSExperts, read: readGPTOSS, set: setGPTOSS,
		sizes: sizes{embed: 2880, ff: 2880, layers: 36, heads: 64, kvHeads: 8, headDim: 64, context: 131072, window: 128, windowPeriod: 2, eps: 1e-5, experts: 128, expertsUsed: 4}},
	"olmo2": {arch: "olmo2", classes: []string{"Olmo2ForCausalLM"}, norms: postNorms, qkNorm: layerNorms, bias: attnBias, theta: 1e4,
		sizes: sizes{embed: 4096, ff: 11008, layers: 32, heads: 32, context: 2048, eps: 1e-5}},
	"olmo3": {arch: "olmo2", ropes: ropeKeys{local: true}, classes: []string{"Olmo3ForCausalLM"}, norms: postNorms, qkNorm: layerNorms, bias: attnBias, windows: mostWindows, theta: 5e5, set: setOLMo3,
		sizes: sizes{embed: 4096, ff: 11008, layers: 32, heads: 32, context: 2048, window: 4096, windowPeriod: 4, eps: 1e-5}},
	"seed_oss": {arch: "seed_oss", classes: []string{"SeedOssForCausalLM"}, norms: seedNorms, theta: 1e4,
		bias:  biasKeys{qkv: "attention_bias", out: "attention_out_bias", ff: "mlp_bias", absent: true},
		sizes: sizes{embed: 4096, ff: 27648, layers: 64, heads: 80, kvHeads: 8, headDim: 128, context: 524288, eps: 1e-6}},
	"ernie4_5": {arch: "ernie4_5", classes: []string{"Ernie4_5ForCausalLM"}, norms: preNorms, bias: biasKeys{qkv: "use_bias", out: "use_bias", ff: "use_bias"}, theta: 5e5, tied: true,
		sizes: sizes{embed: 1024, ff: 3072, layers: 18, heads: 16, kvHeads: 2, headDim: 128, context: 131072, eps: 1e-5}},
	"exaone4": {arch: "exaone4", classes: []string{"Exaone4ForCausalLM"}, norms: postNorms, qkNorm: headNorms, windows: maybeWindows, theta: 1e4,
		sizes: sizes{embed: 4096, ff: 16384, layers: 32, heads: 32, kvHeads: 32, context: 2048, window: 4096, windowPeriod: 4, eps: 1e-5}},
	"glm4": {arch: "glm4", classes: []string{"Glm4ForCausalLM"}, norms: glm4Norms, fused: fused{gateUp: true}, bias: biasKeys{qkv: "attention_bias", absent: true}, theta: 1e4, rotated: 0.5,
		sizes: sizes{embed: 4096, ff: 13696, layers: 40, heads: 32, kvHeads: 2, headDim: 128, context: 131072, eps: 1.5625e-7}},
	"cohere2": {arch: "cohere2", centred: true, classes: []string{"Cohere2ForCausalLM"}, norms: oneNorm, names: &cohereName, bias: attnBias, windows: mostWindows, theta: 1e4, tied: true,
		sizes: sizes{embed: 8192, ff: 22528, layers: 40, heads: 64, context: 8192, window: 4096, windowPeriod: 4, eps: 1e-5}, read: readCohere2, set: setCohere2},
	"hunyuan_v1_dense": {arch: "hunyuan-dense", ropes: ropeKeys{alpha: true}, classes: []string{"HunYuanDenseV1ForCausalLM"}, norms: preNorms, qkNorm: &qkNorm{q: "query_layernorm", k: "key_layernorm"}, bias: attnBias, theta: 1e4,
		sizes: sizes{embed: 4096, ff: 11008, layers: 32, heads: 32, context: 2048, eps: 1e-5}},
}

// ModelTypes lists the values of model_type that can be opened; TypesWithImages, those of which the text part
// can.
func ModelTypes() []string      { return slices.Sorted(maps.Keys(families)) }
func TypesWithImages() []string { return slices.Sorted(maps.Keys(wrappers)) }
