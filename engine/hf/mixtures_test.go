package hf

import "testing"

// TestMixturesOfOtherKindsAreRefusedByName: what a mixture's config.json says and the forward pass would not
// compute, and tensors that its sizes do not ask for.
func TestMixturesOfOtherKindsAreRefusedByName(t *testing.T) {
	for _, c := range []struct {
		folder  string
		changes map[string]any
		want    string
	}{
		{"olmoe", map[string]any{"clip_qkv": 8.0}, "clip_qkv: is 8; only null is supported"},
		{"olmoe", map[string]any{"num_local_experts": 3}, "num_experts: is 4, and num_local_experts is 3"},
		{"olmoe", map[string]any{"num_experts": 5}, `mlp.gate.weight": has the shape [4 16]; config.json asks for [5 16]`},
		{"qwen2_moe", map[string]any{"shared_expert_intermediate_size": 13}, `mlp.shared_expert.gate_proj.weight": has the shape [12 16]`},
		{"qwen2_moe", map[string]any{"moe_intermediate_size": 21}, `mlp.experts.0.gate_proj.weight": has the shape [20 16]`},
		{"qwen3_next", map[string]any{"mlp_only_layers": []int{0}}, "mlp_only_layers: names 1 layers"},
		{"qwen3_next", map[string]any{"linear_num_value_heads": 4}, `linear_attn.in_proj_qkvz.weight": has the shape`},
		{"granitemoe", map[string]any{"intermediate_size": 20}, `block_sparse_moe.input_linear.weight": has the shape [4 48 16]; config.json asks for [4 40 16]`},
		{"granitemoeshared", map[string]any{"shared_intermediate_size": 0}, `shared_mlp.input_linear.weight": is not understood`},
		{"glm4_moe", map[string]any{"n_group": 3}, "n_group: is 3, of which 1 are used: that does not fit 4 experts"},
		{"glm4_moe", map[string]any{"first_k_dense_replace": 0}, `layers.0.mlp.gate.weight": is missing`},
		{"glm4_moe", map[string]any{"scoring_func": "softmax"}, `scoring_func: is "softmax"; supported: ["sigmoid"]`},
		{"glm4_moe", map[string]any{"use_qk_norm": false}, `_norm.weight": is not understood`},
		{"minimax_m2", map[string]any{"attn_type_list": []int{1, 0}}, "attn_type_list: is 0 for layer 1"},
		{"minimax_m2", map[string]any{"use_routing_bias": false}, `e_score_correction_bias": is not understood`},
		{"ernie4_5_moe", map[string]any{"moe_layer_end_index": 1}, "moe_layer_end_index: is 1; supported are -1 and the last of 4 layers"},
		{"ernie4_5_moe", map[string]any{"moe_norm_min": 1e-6}, "moe_norm_min: is 1e-06; only 1e-12"},
		{"phimoe", map[string]any{"router_jitter_noise": 0.02}, "router_jitter_noise: is 0.02; only 0.01"},
		{"deepseek_v2", map[string]any{"norm_topk_prob": true}, "norm_topk_prob: is true; only false"},
		{"deepseek_v2", map[string]any{"topk_method": "noaux_tc"}, `topk_method: is "noaux_tc"`},
		{"deepseek_v3", map[string]any{"rope_interleave": false}, "rope_interleave: is false; only true"},
		{"deepseek_v3", map[string]any{"kv_lora_rank": 9}, `self_attn.kv_a_proj_with_mqa.weight": has the shape [12 16]; config.json asks for [13 16]`},
		{"deepseek_v3", map[string]any{"rope_parameters": map[string]any{"rope_type": "yarn", "factor": 8, "mscale": 1, "mscale_all_dim": 0.5}}, "supported are equal ones of the first two"},
		{"glm4_moe_lite", map[string]any{"mlp_layer_types": []string{"sparse", "dense", "sparse"}}, `mlp_layer_types: has "dense" in layer 1`},
		{"gemma4-moe", map[string]any{"enable_moe_block": false}, `experts.down_proj": is not understood`},
		{"llama4_text", map[string]any{"attention_chunk_size": 16}, "attention_chunk_size: is 16; only 8192"},
		{"llama4_text", map[string]any{"moe_layers": []int{0, 2}}, "moe_layers: has layer 0 in place of 1"},
		{"llama4_text", map[string]any{"no_rope_layers": []int{1, 1, 1, 1}}, "no_rope_layers: and layer_types give layer 3 others"},
	} {
		wantRefused(t, copyFolder(t, "testdata/"+c.folder, c.changes), c.want)
	}
}

// TestLayersOfPredictionsAreLeftOut: the layers behind the last one, as far as config.json counts them.
func TestLayersOfPredictionsAreLeftOut(t *testing.T) {
	const folder = "testdata/deepseek_v3"
	fewer := open(t, copyFolder(t, folder, map[string]any{"num_hidden_layers": 2, "num_nextn_predict_layers": 1})).File
	if n, _, _ := fewer.Uint("deepseek2.block_count"); n != 2 {
		t.Errorf("%d layers", n)
	}
	if _, has := fewer.Tensor("blk.2.attn_norm.weight"); has {
		t.Error("a layer of predictions is there")
	}
	wantRefused(t, copyFolder(t, folder, map[string]any{"num_hidden_layers": 2, "num_nextn_predict_layers": 0}), `layers.2.input_layernorm.weight": is not understood`)
}

func TestHybridsThatDifferAreRefusedByName(t *testing.T) {
	for want, changes := range map[string]map[string]any{
		"mamba_n_groups: is 2; only 1":                         {"mamba_n_groups": 2},
		"mamba_n_heads: is 3 of 8 numbers each; needed are 32": {"mamba_n_heads": 3},
		"time_step_limit: is [0.1,1]; only 0 to infinity":      {"time_step_limit": []any{0.1, 1}},
		`mamba.conv1d.weight": has the shape [44 1 3]`:         {"mamba_d_conv": 4},
		`mamba.in_proj.weight": has the shape [80 16]`:         {"mamba_d_state": 5},
		`layers.1.mamba.in_proj.weight": is missing`:           {"layer_types": []string{"mamba", "mamba", "mamba"}},
		`layer_types: has "sliding_attention"; supported`:      {"layer_types": []string{"mamba", "sliding_attention", "mamba"}},
	} {
		wantRefused(t, copyFolder(t, "testdata/granitemoehybrid", changes), want)
	}
	open(t, copyFolder(t, "testdata/granitemoehybrid", map[string]any{"layer_types": []string{"mamba", "attention", "mamba"}, "time_step_limit": nil}))
}

func TestModelsOfSpacesThatDifferAreRefusedByName(t *testing.T) {
	infinite := []any{0, "Infinity"}
	for _, c := range []struct {
		folder  string
		changes map[string]any
		want    string
	}{
		{"nemotron_h", map[string]any{"n_groups": 3}, "mamba_num_heads: is 4 of 10 numbers each, in 3 groups"},
		{"nemotron_h", map[string]any{"mlp_hidden_act": "silu"}, `mlp_hidden_act: is "silu"; supported: ["relu2"]`},
		{"nemotron_h", map[string]any{"mlp_bias": false}, `mixer.down_proj.bias": is not understood`},
		{"nemotron_h", map[string]any{"use_bias": true}, "use_bias: is true; only false"},
		{"nemotron_h", map[string]any{"layers_block_type": nil, "hybrid_override_pattern": "M-M*"}, `backbone.layers.4.mixer.down_proj.bias": is not understood`},
		{"nemotron_h", map[string]any{"layers_block_type": nil, "hybrid_override_pattern": "M-M*X"}, `layers_block_type: has "X"; supported`},
		{"nemotron_h", map[string]any{"num_hidden_layers": 4}, "name 5 layers; needed is one of them"},
		{"nemotron_h", map[string]any{"time_step_limit": []any{0.1, "Infinity"}}, "only 0 to infinity"},
		{"nemotron_h-moe", map[string]any{"moe_latent_size": 8}, "moe_latent_size: is 8; only null"},
		{"nemotron_h-moe", map[string]any{"n_shared_experts": 2}, "n_shared_experts: is 2; only 1"},
		{"nemotron_h-moe", map[string]any{"layers_block_type": []string{"mamba", "moe", "attention", "mlp"}}, "only one of the two is supported"},
		{"falcon_h1", map[string]any{"mamba_norm_before_gate": true}, "mamba_norm_before_gate: is true; only false is supported where mamba_rms_norm"},
		{"falcon_h1", map[string]any{"mamba_rms_norm": false}, `mamba.norm.weight": is not understood`},
		{"falcon_h1", map[string]any{"ssm_multipliers": []float64{1, 2}}, "ssm_multipliers: has 2 numbers; needed are 5"},
		{"falcon_h1", map[string]any{"mlp_multipliers": []float64{1, 0}}, "mlp_multipliers: has 0; allowed are numbers over 0"},
		{"falcon_h1", map[string]any{"key_multiplier": 0}, "key_multiplier: is 0; allowed"},
		{"falcon_h1", map[string]any{"mamba_d_state": 5}, `mamba.in_proj.weight": has the shape`},
		{"falcon_h1", map[string]any{"mamba_d_ssm": 30}, "mamba_n_heads: is 4 of 6 numbers each; needed are the 30"},
		{"falcon_h1", map[string]any{"projectors_bias": true}, "projectors_bias: is true; only false"},
		{"falcon_h1-plain", map[string]any{"mamba_conv_bias": true}, `mamba.conv1d.bias": is missing`},
		{"mamba2", map[string]any{"expand": 3}, "num_heads: is 4 of 8 numbers each; needed are expand times hidden_size"},
		{"mamba2", map[string]any{"use_conv_bias": false}, `mixer.conv1d.bias": is not understood`},
		{"mamba2", map[string]any{"state_size": 5}, `mixer.in_proj.weight": has the shape [92 16]`},
	} {
		wantRefused(t, copyFolder(t, "testdata/"+c.folder, c.changes), c.want)
	}
	open(t, copyFolder(t, "testdata/nemotron_h", map[string]any{"layers_block_type": nil, "hybrid_override_pattern": "M-M*-", "num_hidden_layers": 5, "time_step_limit": infinite}))
}

func TestGemma3nThatDiffersIsRefusedByName(t *testing.T) {
	for want, changes := range map[string]map[string]any{
		"altup_active_idx: is 1; only 0":                                   {"altup_active_idx": 1},
		"altup_correct_scale: is false; only true":                         {"altup_correct_scale": false},
		"altup_num_inputs: is 1, and hidden_size_per_layer_input 4":        {"altup_num_inputs": 1},
		`altup_projections.2.weight": is missing`:                          {"altup_num_inputs": 4},
		"activation_sparsity_pattern: is 1 for layer 1":                    {"activation_sparsity_pattern": []float64{0, 1, 0, 0, 0, 0}},
		"activation_sparsity_pattern: has 1 layers of 6":                   {"activation_sparsity_pattern": []float64{0}},
		"intermediate_size: has 1 layers of 6":                             {"intermediate_size": []int{24}},
		"intermediate_size: has a layer of 0":                              {"intermediate_size": []int{24, 0}},
		"num_kv_shared_layers: is 6 of 6 layers":                           {"num_kv_shared_layers": 6},
		`self_attn.k_proj.weight": is missing`:                             {"num_kv_shared_layers": 1},
		`embed_tokens_per_layer.weight": has the shape [36 24]`:            {"vocab_size_per_layer_input": 40},
		`laurel.linear_left.weight": has the shape [3 16]; config.json as`: {"laurel_rank": 4},
	} {
		wantRefused(t, copyFolder(t, "testdata/gemma3n_text", changes), want)
	}
	wantRefused(t, copyFolder(t, "testdata/llama", map[string]any{"intermediate_size": []int{24, 24}}), "intermediate_size: is [24,24], not a number")
	open(t, copyFolder(t, "testdata/gemma3n_text", map[string]any{"num_kv_shared_layers": 3})) // with keys that nobody uses
}
