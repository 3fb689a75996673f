package hf

// This file has the families of mixtures of experts, and what single ones of them have.

var (
	mixtralExperts = &expertNames{router: "block_sparse_moe.gate", each: "block_sparse_moe.experts.%d.", gate: "w1", down: "w2", up: "w3"}
	minimaxExperts = &expertNames{router: "block_sparse_moe.gate", bias: "block_sparse_moe.e_score_correction_bias", each: "block_sparse_moe.experts.%d.", gate: "w1", down: "w2", up: "w3"}
	lfmExperts     = &expertNames{router: "feed_forward.gate", bias: "feed_forward.expert_bias", each: "feed_forward.experts.%d.", gate: "w1", down: "w2", up: "w3"}
	qwenExperts    = &expertNames{router: "mlp.gate", each: "mlp.experts.%d.", gate: "gate_proj", down: "down_proj", up: "up_proj",
		together: mlpTogether, shared: "mlp.shared_expert.", sharedGate: "mlp.shared_expert_gate"}
	glmExperts = &expertNames{router: "mlp.gate", bias: "mlp.gate.e_score_correction_bias", each: "mlp.experts.%d.", gate: "gate_proj", down: "down_proj", up: "up_proj",
		together: mlpTogether, shared: "mlp.shared_experts."}
	deepSeek2Experts = &expertNames{router: "mlp.gate", each: "mlp.experts.%d.", gate: "gate_proj", down: "down_proj", up: "up_proj",
		together: mlpTogether, shared: "mlp.shared_experts."}
	ernieExperts = &expertNames{router: "mlp.gate", bias: "mlp.moe_statics.e_score_correction_bias", each: "mlp.experts.%d.", gate: "gate_proj", down: "down_proj", up: "up_proj",
		together: mlpTogether, shared: "mlp.shared_experts."}
	graniteExperts = &expertNames{router: "block_sparse_moe.router.layer", together: together{gateUp: "block_sparse_moe.input_linear.weight", down: "block_sparse_moe.output_linear.weight"},
		shared: "shared_mlp.", sharedGateUp: "input_linear", sharedDown: "output_linear"}
	gemma4Experts = &expertNames{router: "router.proj", together: together{gateUp: "experts.gate_up_proj", down: "experts.down_proj"}}
	llama4Experts = &expertNames{router: "feed_forward.router", together: together{gateUp: "feed_forward.experts.gate_up_proj", down: "feed_forward.experts.down_proj", transposed: true},
		shared: "feed_forward.shared_expert."}

	mlpTogether = together{gateUp: "mlp.experts.gate_up_proj", down: "mlp.experts.down_proj"}
)

var mixtureFamilies = map[string]*family{
	"mixtral": {arch: "llama", classes: []string{"MixtralForCausalLM"}, norms: preNorms, permute: true, windows: allWindows, theta: 1e6, mixture: mixtralExperts.tensors,
		sizes: sizes{embed: 4096, ff: 14336, layers: 32, heads: 32, kvHeads: 8, context: 131072, eps: 1e-5, experts: 8, expertsUsed: 2}},
	"qwen2_moe": {arch: "qwen2moe", classes: []string{"Qwen2MoeForCausalLM"}, norms: preNorms, bias: biasKeys{qkv: "qkv_bias", absent: true}, windows: qwenWindows, theta: 1e4, mixture: qwenExperts.tensors,
		sizes: sizes{embed: 2048, ff: 5632, layers: 24, heads: 16, kvHeads: 16, context: 32768, window: 4096, eps: 1e-6, experts: 60, expertsUsed: 4, expertFF: 1408, sharedFF: 5632}, read: readQwen2MoE},
	"qwen3_moe": {arch: "qwen3moe", classes: []string{"Qwen3MoeForCausalLM"}, norms: preNorms, qkNorm: headNorms, bias: attnBias, windows: qwenWindows, theta: 1e4, mixture: qwenExperts.tensors,
		sizes: sizes{embed: 2048, ff: 6144, layers: 24, heads: 32, kvHeads: 4, context: 32768, window: 4096, eps: 1e-6, experts: 128, expertsUsed: 8, expertFF: 768}, read: readQwen3MoE},
	"qwen3_next": {arch: "qwen3next", gatedQ: true, classes: []string{"Qwen3NextForCausalLM"}, norms: seedNorms, qkNorm: headNorms, plusOne: true, bias: attnBias, theta: 1e4, rotated: 0.25,
		mixer: (*builder).groupedDeltaNet, mixture: qwenExperts.tensors, read: readQwen3Next, set: setQwen35,
		sizes: sizes{embed: 2048, ff: 5632, layers: 48, heads: 16, kvHeads: 2, headDim: 256, context: 32768, eps: 1e-6, experts: 512, expertsUsed: 10, expertFF: 512, sharedFF: 512}},
	"qwen3_5_moe_text": {arch: "qwen35moe", gatedQ: true, ropes: ropeKeys{ignored: []string{"mrope_section", "mrope_interleaved"}}, classes: []string{"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"},
		norms: seedNorms, qkNorm: headNorms, plusOne: true, bias: attnBias, theta: 1e4, rotated: 0.25, mixer: (*builder).deltaNet, mixture: qwenExperts.tensors, read: readQwen35MoE, set: setQwen35,
		sizes: sizes{embed: 2048, ff: 5632, layers: 40, heads: 16, kvHeads: 2, headDim: 256, context: 32768, eps: 1e-6, experts: 256, expertsUsed: 8, expertFF: 512, sharedFF: 512}},
	"olmoe": {arch: "olmoe", classes: []string{"OlmoeForCausalLM"}, norms: preNorms, qkNorm: layerNorms, bias: attnBias, theta: 1e4, mixture: qwenExperts.tensors, read: readOLMoE,
		sizes: sizes{embed: 2048, ff: 2048, layers: 16, heads: 16, context: 4096, eps: 1e-5, experts: 64, expertsUsed: 8}},
	"granitemoe": {arch: "granitemoe", classes: []string{"GraniteMoeForCausalLM"}, norms: preNorms, permute: true, bias: attnBias, theta: 1e4, mixture: graniteExperts.tensors, read: readGranite, set: setGranite,
		sizes: sizes{embed: 4096, ff: 11008, layers: 32, heads: 32, context: 2048, eps: 1e-6, experts: 8, expertsUsed: 2}},
	"granitemoeshared": {arch: "granitemoe", classes: []string{"GraniteMoeSharedForCausalLM"}, norms: preNorms, permute: true, bias: attnBias, theta: 1e4, mixture: graniteExperts.tensors, read: readGraniteShared, set: setGranite,
		sizes: sizes{embed: 4096, ff: 11008, layers: 32, heads: 32, context: 2048, eps: 1e-6, experts: 8, expertsUsed: 2}},
	"granitemoehybrid": {arch: "granitehybrid", classes: []string{"GraniteMoeHybridForCausalLM"}, norms: preNorms, permute: true, bias: attnBias, theta: 1e4,
		mixer: (*builder).stateSpace, mixture: graniteExperts.tensors, dense: (*builder).graniteDense, read: readGraniteHybrid, set: setGraniteHybrid,
		sizes: sizes{embed: 4096, ff: 11008, layers: 32, heads: 32, context: 2048, eps: 1e-6}},
	"glm4_moe": {arch: "glm4moe", classes: []string{"Glm4MoeForCausalLM"}, norms: seedNorms, bias: biasKeys{qkv: "attention_bias", absent: false}, theta: 1e4, rotated: 0.5, mixture: glmExperts.tensors, read: readGLM4MoE,
		sizes: sizes{embed: 4096, ff: 10944, layers: 46, heads: 96, kvHeads: 8, context: 131072, eps: 1e-5, experts: 128, expertsUsed: 8, expertFF: 1408}},
	"minimax_m2": {arch: "minimax-m2", classes: []string{"MiniMaxM2ForCausalLM"}, norms: preNorms, qkNorm: layerNorms, theta: 5e6, rotated: 1, mixture: minimaxExperts.tensors, read: readMiniMaxM2,
		sizes: sizes{embed: 3072, ff: 1536, layers: 62, heads: 48, kvHeads: 8, headDim: 128, context: 196608, eps: 1e-6, experts: 256, expertsUsed: 8}},
	"ernie4_5_moe": {arch: "ernie4_5-moe", classes: []string{"Ernie4_5_MoeForCausalLM"}, norms: preNorms, theta: 5e5, tied: true, mixture: ernieExperts.tensors, read: readERNIEMoE,
		sizes: sizes{embed: 2560, ff: 12288, layers: 28, heads: 20, kvHeads: 4, context: 131072, eps: 1e-5, experts: 64, expertsUsed: 6, expertFF: 1536}},
	"lfm2_moe": {arch: "lfm2moe", classes: []string{"Lfm2MoeForCausalLM"}, norms: lfmNorms, qkNorm: &qkNorm{q: "q_layernorm", k: "k_layernorm"}, names: &lfmNames, theta: 1e6, tied: true,
		mixer: (*builder).shortConvolution, mixture: lfmExperts.tensors, read: readLFM2MoE, set: setLFM2,
		sizes: sizes{embed: 2048, ff: 7168, layers: 32, heads: 32, kvHeads: 8, context: 128000, eps: 1e-5, experts: 32, expertsUsed: 4, expertFF: 1792}},
	"phimoe": {arch: "phimoe", ropes: ropeKeys{long: true, mscales: true}, classes: []string{"PhimoeForCausalLM", "PhiMoEForCausalLM"}, norms: preNorms, normBias: true, bias: attnBias, windows: allWindows, theta: 1e6,
		mixture: mixtralExperts.tensors, read: readPhiMoE, set: setPhi3,
		sizes: sizes{embed: 4096, ff: 6400, layers: 32, heads: 32, kvHeads: 8, context: 131072, eps: 1e-5, experts: 16, expertsUsed: 2}},
	"llama4_text": {arch: "llama4", classes: []string{"Llama4ForCausalLM", "Llama4ForConditionalGeneration"}, norms: preNorms, bias: attnBias, names: &llama4Names, theta: 5e5, mixture: llama4Experts.tensors, read: readLlama4,
		sizes: sizes{embed: 5120, ff: 8192, layers: 48, heads: 40, kvHeads: 8, headDim: 128, context: 131072, eps: 1e-5, experts: 16, expertsUsed: 1}},

	"deepseek_v2": {arch: "deepseek2", classes: []string{"DeepseekV2ForCausalLM"}, norms: preNorms, theta: 1e4, attend: (*builder).latentAttention, mixture: deepSeek2Experts.tensors, read: readDeepSeek2, set: setDeepSeek,
		ropes: ropeKeys{read: (*description).readLatentRope},
		sizes: sizes{embed: 4096, ff: 11008, layers: 32, heads: 32, context: 2048, eps: 1e-6, experts: 64, expertsUsed: 6, expertFF: 1407}},
	"deepseek_v3": deepSeek3,
	"kimi_k2":     deepSeek3,
	"glm4_moe_lite": {arch: "deepseek2", classes: []string{"Glm4MoeLiteForCausalLM"}, norms: preNorms, theta: 1e4, attend: (*builder).latentAttention, mixture: glmExperts.tensors, read: readGLM4Lite, set: setDeepSeek,
		ropes: ropeKeys{read: (*description).readLatentRope},
		sizes: sizes{embed: 2048, ff: 10240, layers: 47, heads: 20, context: 202752, eps: 1e-5, experts: 64, expertsUsed: 4, expertFF: 1536}},
}

var deepSeek3 = &family{arch: "deepseek2", classes: []string{"DeepseekV3ForCausalLM"}, norms: preNorms, theta: 1e4, attend: (*builder).latentAttention, mixture: glmExperts.tensors, read: readDeepSeek3, set: setDeepSeek,
	ropes: ropeKeys{read: (*description).readLatentRope},
	sizes: sizes{embed: 7168, ff: 18432, layers: 61, heads: 128, context: 4096, eps: 1e-6, experts: 256, expertsUsed: 8, expertFF: 2048}}

// readQwenExperts refuses layers without experts.
func (d *description) readQwenExperts(c *config) {
	if n := c.number("decoder_sparse_step", 1); n != 1 {
		c.fail("decoder_sparse_step", "is %v; only 1 is supported", n)
	}
	if dense := value[[]int](c, "mlp_only_layers", "a list of layers", nil); len(dense) > 0 {
		c.fail("mlp_only_layers", "names %d layers; layers without experts are not supported", len(dense))
	}
}

func readQwen2MoE(d *description, c *config) {
	d.readQwenExperts(c)
	d.sharedFF = c.size("shared_expert_intermediate_size", d.sharedFF)
	d.readRouting(c, routing{})
}

func readQwen3MoE(d *description, c *config) {
	d.readQwenExperts(c)
	if !c.flag("norm_topk_prob", false) {
		c.fail("norm_topk_prob", "is false, as it is where it is absent; only true is supported")
	}
}

func readQwen3Next(d *description, c *config) {
	readQwen35(d, c)
	readQwen2MoE(d, c)
	c.only("use_sliding_window", false)
	if !c.has("norm_topk_prob") {
		d.routing.normed = true
	}
}

func readQwen35MoE(d *description, c *config) {
	readQwen35(d, c)
	d.sharedFF = c.size("shared_expert_intermediate_size", d.sharedFF)
	c.only("norm_topk_prob", true)
	d.readRouting(c, routing{normed: true})
}

func readOLMoE(d *description, c *config) {
	if c.has("clip_qkv") {
		c.fail("clip_qkv", "is %s; only null is supported", short(c.values["clip_qkv"]))
	}
	d.readRouting(c, routing{})
}

func readGraniteShared(d *description, c *config) {
	readGranite(d, c)
	d.sharedFF = c.count("shared_intermediate_size", 0)
}

func readGLM4MoE(d *description, c *config) {
	d.readRouting(c, routing{sigmoid: true, normed: true})
	d.readShared(c, "n_shared_experts", 1)
	d.leading, d.predictions = c.count("first_k_dense_replace", 1), c.predictions()
	if c.flag("use_qk_norm", false) {
		d.qkNorm = headNorms
	}
}

func readMiniMaxM2(d *description, c *config) {
	c.only("use_qk_norm", true)
	c.oneOf("qk_norm_type", "per_layer")
	c.oneOf("scoring_func", "sigmoid")
	d.unbiased = !c.flag("use_routing_bias", true)
	for key, want := range map[string]float64{"shared_intermediate_size": 0, "moe_layer_freq": 1} {
		if x := c.number(key, want); x != want {
			c.fail(key, "is %v; only %v is supported", x, want)
		}
	}
	for i, kind := range value[[]int](c, "attn_type_list", "a list of numbers", nil) {
		if kind != 1 {
			c.fail("attn_type_list", "is %d for layer %d; only 1, attention, is supported", kind, i)
			break
		}
	}
	// Of other widths, and of layers that predict more tokens.
	c.ignore("mlp_intermediate_size", "shared_moe_mode", "max_model_len", "use_mtp", "num_mtp_modules", "mtp_transformer_layers")
	d.routing = &routing{sigmoid: true, normed: true, scale: 1, groups: 1}
}

func readERNIEMoE(d *description, c *config) {
	c.only("use_bias", false)
	c.only("moe_use_aux_free", true)
	c.oneOf("moe_gate", "topk")
	c.ignore("moe_capacity", "num_nextn_predict_layers") // of training, and of layers under other names
	if least := c.number("moe_norm_min", 1e-12); least != 1e-12 {
		c.fail("moe_norm_min", "is %v; only 1e-12 is supported", least)
	}
	d.readShared(c, "moe_num_shared_experts", 2)
	d.leading, d.step = c.count("moe_layer_start_index", 1), c.size("moe_layer_interval", 1)
	if last := int(c.number("moe_layer_end_index", -1)); last != -1 && last != d.layers-1 {
		c.fail("moe_layer_end_index", "is %d; supported are -1 and the last of %d layers", last, d.layers)
	}
	d.routing = &routing{normed: true, scale: 1, groups: 1}
}

func readLFM2MoE(d *description, c *config) {
	d.readShortConvolutions(c)
	d.readRouting(c, routing{sigmoid: true, normed: true})
	d.leading, d.unbiased = c.count("num_dense_layers", 2), !c.flag("use_expert_bias", true)
}

// readPhiMoE refuses other sizes of what is added to training's routers, which bounds the choice here
// as well.
func readPhiMoE(d *description, c *config) {
	if x := c.number("router_jitter_noise", 0.01); x != 0.01 {
		c.fail("router_jitter_noise", "is %v; only 0.01 is supported", x)
	}
	c.ignore("input_jitter_noise")
	d.headBias = c.flag("lm_head_bias", false)
}

var llama4Names = names{out: "o_proj", gate: "feed_forward.gate_proj", up: "feed_forward.up_proj", down: "feed_forward.down_proj", outputNorm: "norm", eps: "rms_norm_eps", lastNorm: "output_norm"}

// readLlama4 refuses what GGUF's readers would not know: which layers see chunks, and how queries
// without rope are scaled.
func readLlama4(d *description, c *config) {
	d.expertFF, d.sharedFF = d.ff, d.ff
	d.ff = c.size("intermediate_size_mlp", 16384)
	d.step = c.size("interleave_moe_layer_step", 1)
	for i, layer := range value[[]int](c, "moe_layers", "a list of layers", nil) {
		if want := (i+1)*d.step - 1; layer != want {
			c.fail("moe_layers", "has layer %d in place of %d; supported is every %dth alone", layer, want, d.step)
			break
		}
	}
	for key, want := range map[string]float64{"attention_chunk_size": 8192, "floor_scale": 8192, "attn_scale": 0.1, "no_rope_layer_interval": 4} {
		if x := c.number(key, want); x != want {
			c.fail(key, "is %v; only %v is supported", x, want)
		}
	}
	c.only("attn_temperature_tuning", true)
	c.only("use_qk_norm", d.experts != 128)
	rotated := value[[]int](c, "no_rope_layers", "a list of 0 and 1", nil)
	types := c.texts("layer_types")
	for i := range d.layers {
		whole := (i+1)%4 == 0
		if i < len(rotated) && (rotated[i] == 0) != whole || i < len(types) && (types[i] == fullAttention) != whole {
			c.fail("no_rope_layers", "and layer_types give layer %d others than every fourth has; only that is supported", i)
			break
		}
	}
	c.ignore("for_llm_compressor")
}
