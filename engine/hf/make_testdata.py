"""Makes folders of small models with random weights, and the logits of transformers.

    pip install torch transformers safetensors
    cd testdata && python3 ../make_testdata.py [NAME...]

Each folder has config.json, model.safetensors in BF16, reference.json with the ids, and
logits.f32: raw little-endian float32, a row for each id, computed in float32 from the weights
as they were written.
"""
import json
import os
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForSequenceClassification
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

IDS = [3, 17, 29, 5, 11, 23, 7, 38, 2, 19, 31, 13, 37, 1, 26, 9, 33, 21, 4, 15, 28, 35, 6, 39]
COMMON = dict(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
LONG = dict(rope_type="longrope", rope_theta=1e4, original_max_position_embeddings=16)
GPT_OSS = dict(hidden_size=32, intermediate_size=64, head_dim=8, num_local_experts=3, num_experts_per_tok=2, sliding_window=6,
               rope_parameters=dict(rope_type="yarn", rope_theta=1.5e5, factor=8.0, beta_fast=4.0, beta_slow=1.0, truncate=False, original_max_position_embeddings=8))
EXPERTS = dict(num_experts_per_tok=2, moe_intermediate_size=20, num_experts=4)
ROUTED = dict(num_experts_per_tok=2, moe_intermediate_size=20, n_routed_experts=4, n_shared_experts=2)
GROUPS = dict(n_group=2, topk_group=1, num_hidden_layers=3, first_k_dense_replace=1)
LATENT = dict(num_key_value_heads=4, kv_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=10)
QWEN_NEXT = EXPERTS | dict(num_hidden_layers=4, head_dim=8, linear_conv_kernel_dim=3, linear_key_head_dim=4, linear_num_key_heads=2, linear_num_value_heads=6,
                           layer_types=["linear_attention", "full_attention"] * 2, tie_word_embeddings=False, shared_expert_intermediate_size=12,
                           rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.5))
MAMBA = dict(num_hidden_layers=3, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=6, mamba_d_conv=3, mamba_n_groups=1, mamba_expand=2)
SPACES = dict(ssm_state_size=6, mamba_num_heads=4, mamba_head_dim=10, n_groups=2, conv_kernel=3, head_dim=8)
GEMMA_3N = dict(num_hidden_layers=6, head_dim=8, sliding_window=6, hidden_size_per_layer_input=4, laurel_rank=3, final_logit_softcapping=4.0,
                activation_sparsity_pattern=[0.8, 0.5, 0.0, 0.0, 0.9, 0.0], layer_types=["sliding_attention", "full_attention"] * 3)
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=8.0, original_max_position_embeddings=8, beta_fast=4.0, beta_slow=1.0)
MODELS = {
    "smollm3": dict(num_hidden_layers=5, tie_word_embeddings=True),
    "granite": dict(attention_multiplier=0.02, embedding_multiplier=12.0, residual_multiplier=0.22, logits_scaling=8.0, attention_bias=True, mlp_bias=True),
    "gemma2": dict(head_dim=8, num_hidden_layers=3, query_pre_attn_scalar=12, sliding_window=6, final_logit_softcapping=4.0, attn_logit_softcapping=5.0),
    "phi3": dict(hidden_size=32, original_max_position_embeddings=16, partial_rotary_factor=0.5,
                 rope_parameters=LONG | dict(partial_rotary_factor=0.5, short_factor=[1.0, 1.1], long_factor=[1.5, 4.0])),
    "phi3-window": dict(model_type="phi3", sliding_window=6),
    "olmo2": dict(tie_word_embeddings=False),
    "olmo3": dict(num_hidden_layers=4, sliding_window=6, layer_types=["sliding_attention", "full_attention"] * 2,
                  rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=1e4),
                                       full_attention=dict(rope_type="yarn", rope_theta=5e5, factor=4.0, original_max_position_embeddings=16))),
    "seed_oss": dict(head_dim=8, attention_bias=True, attention_out_bias=True),
    "ernie4_5": dict(head_dim=8, use_bias=True, tie_word_embeddings=True),
    "exaone4": dict(num_hidden_layers=4, sliding_window=6, sliding_window_pattern=2),
    "exaone4-whole": dict(model_type="exaone4", sliding_window=None, layer_types=["full_attention"] * 2),
    "glm4": dict(head_dim=8, attention_bias=True),
    "cohere2": dict(num_hidden_layers=4, sliding_window=6, logit_scale=0.25),
    "ministral3": dict(head_dim=8, rope_parameters=dict(rope_type="yarn", rope_theta=1e6, factor=8.0, original_max_position_embeddings=8, beta_fast=4.0,
                                                        beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1)),
    "mistral3": dict(text_config=COMMON | dict(model_type="mistral", head_dim=8), image_token_index=39,
                     vision_config=dict(model_type="pixtral", hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=32, patch_size=16)),
    "gpt_oss": GPT_OSS,
    "gpt_oss-mxfp4": dict(model_type="gpt_oss") | GPT_OSS,
    "qwen3-fp8": dict(model_type="qwen3", head_dim=8),
    "mixtral-fp8": dict(model_type="mixtral", num_local_experts=3),
    "llama-fp8": dict(model_type="llama"),
    "llama-nvfp4": dict(model_type="llama", hidden_size=32, intermediate_size=48),
    "mixtral-nvfp4": dict(model_type="mixtral", intermediate_size=32, num_local_experts=3),
    "qwen3-nvfp4": dict(model_type="qwen3", intermediate_size=32, head_dim=8),
    "qwen3_5": dict(text_config=COMMON | dict(num_hidden_layers=4, head_dim=8, linear_conv_kernel_dim=3, linear_key_head_dim=4, linear_value_head_dim=6,
                                              linear_num_key_heads=2, linear_num_value_heads=6, tie_word_embeddings=False, full_attention_interval=2,
                                              rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.5, mrope_section=[1, 1, 0])),
                    image_token_id=39, vision_config=dict(hidden_size=16, intermediate_size=16, depth=1, num_heads=2, out_hidden_size=16, num_position_embeddings=16)),
    "gemma4_text": dict(num_hidden_layers=4, head_dim=8, global_head_dim=16, num_global_key_value_heads=1, attention_k_eq_v=True, sliding_window=6,
                        hidden_size_per_layer_input=0, final_logit_softcapping=4.0, layer_types=["sliding_attention", "full_attention"] * 2),
    "gemma4-shared": dict(model_type="gemma4_text", num_hidden_layers=4, head_dim=8, global_head_dim=16, sliding_window=6, hidden_size_per_layer_input=4,
                          vocab_size_per_layer_input=40, num_kv_shared_layers=2, use_double_wide_mlp=True, layer_types=["sliding_attention", "full_attention"] * 2),
    "gemma3n_text": GEMMA_3N | dict(num_kv_shared_layers=2, altup_num_inputs=3, vocab_size_per_layer_input=36),
    "gemma3n-deep": GEMMA_3N | dict(model_type="gemma3n_text", num_kv_shared_layers=0, altup_num_inputs=4, vocab_size_per_layer_input=40, final_logit_softcapping=20.0,
                                    num_attention_heads=2, num_key_value_heads=1, intermediate_size=[24, 20, 16, 24, 24, 12],
                                    activation_sparsity_pattern=[0.0, 0.95, 0.9, 0.0, 0.0, 0.3], layer_types=["full_attention"] + ["sliding_attention"] * 5),
    "lfm2": dict(num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], intermediate_size=96, block_multiple_of=8),
    "qwen2_moe": EXPERTS | dict(shared_expert_intermediate_size=12),
    "olmoe": dict(num_experts=4, num_experts_per_tok=2, tie_word_embeddings=False),
    "qwen3_next": QWEN_NEXT | dict(linear_value_head_dim=6),
    "qwen3_5_moe": dict(text_config=COMMON | QWEN_NEXT | dict(linear_value_head_dim=6), image_token_id=39,
                        vision_config=dict(hidden_size=16, intermediate_size=16, depth=1, num_heads=2, out_hidden_size=16, num_position_embeddings=16)),
    "granitemoe": dict(num_local_experts=4, num_experts_per_tok=2, attention_multiplier=0.3, embedding_multiplier=12.0, residual_multiplier=0.22, logits_scaling=0.5),
    "granitemoeshared": dict(num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=20, attention_multiplier=0.3),
    "glm4_moe": ROUTED | GROUPS | dict(head_dim=8, attention_bias=True, use_qk_norm=True, routed_scaling_factor=1.5),
    "glm4_moe-plain": ROUTED | dict(model_type="glm4_moe", head_dim=8, norm_topk_prob=False, first_k_dense_replace=0),
    "minimax_m2": dict(num_local_experts=4, num_experts_per_tok=2, head_dim=8, rotary_dim=4, rope_parameters=dict(rope_type="default", rope_theta=5e6, partial_rotary_factor=0.5)),
    "ernie4_5_moe": dict(num_hidden_layers=4, moe_num_experts=4, moe_k=2, moe_intermediate_size=20, moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_interval=2,
                         tie_word_embeddings=False),
    "lfm2_moe": EXPERTS | dict(num_hidden_layers=3, num_dense_layers=1, layer_types=["conv", "full_attention", "conv"], routed_scaling_factor=1.5),
    "phimoe": dict(num_local_experts=4, num_experts_per_tok=2, attention_bias=True, lm_head_bias=True, tie_word_embeddings=False, original_max_position_embeddings=32,
                   rope_parameters=LONG | dict(original_max_position_embeddings=32, short_factor=[1.0, 1.1], long_factor=[1.5, 4.0], short_mscale=1.25, long_mscale=1.25)),
    "deepseek_v2": ROUTED | GROUPS | LATENT | dict(q_lora_rank=None, topk_method="group_limited_greedy", routed_scaling_factor=1.5),
    "deepseek_v2-lite": ROUTED | LATENT | dict(model_type="deepseek_v2", q_lora_rank=12, first_k_dense_replace=1, rope_parameters=YARN | dict(mscale=0.7, mscale_all_dim=0.7)),
    "deepseek_v3": ROUTED | GROUPS | LATENT | dict(q_lora_rank=12, rope_parameters=YARN | dict(mscale=1.0, mscale_all_dim=1.0)),
    "glm4_moe_lite": ROUTED | LATENT | dict(num_hidden_layers=3, q_lora_rank=12, mlp_layer_types=["dense", "sparse", "sparse"]),
    "gemma4-moe": dict(model_type="gemma4_text", head_dim=8, global_head_dim=16, sliding_window=6, hidden_size_per_layer_input=0, enable_moe_block=True,
                       num_experts=4, top_k_experts=2, moe_intermediate_size=20, layer_types=["sliding_attention", "full_attention"]),
    "llama4_text": dict(num_hidden_layers=4, intermediate_size=20, intermediate_size_mlp=24, num_local_experts=4, num_experts_per_tok=1, interleave_moe_layer_step=2, head_dim=8),
    "granitemoehybrid": MAMBA | dict(num_local_experts=4, num_experts_per_tok=2, attention_multiplier=0.3, residual_multiplier=0.22, embedding_multiplier=12.0, logits_scaling=3.0,
                                     shared_intermediate_size=20, layer_types=["mamba", "attention", "mamba"], position_embedding_type="nope"),
    "granitemoehybrid-dense": MAMBA | dict(model_type="granitemoehybrid", num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=20,
                                           layer_types=["mamba", "mamba", "attention"], position_embedding_type="rope"),
    "falcon_h1": dict(head_dim=8, mamba_d_ssm=24, mamba_n_heads=4, mamba_d_head="auto", mamba_n_groups=2, mamba_d_state=6, mamba_d_conv=3, mamba_rms_norm=True,
                      mamba_norm_before_gate=False, tie_word_embeddings=True, embedding_multiplier=5.66, lm_head_multiplier=0.39, mlp_multipliers=[0.88, 0.59],
                      key_multiplier=0.39, attention_in_multiplier=1.3, attention_out_multiplier=0.94, ssm_in_multiplier=1.25, ssm_out_multiplier=0.24, ssm_multipliers=[0.35, 0.25, 0.18, 0.5, 0.36]),
    "falcon_h1-plain": dict(model_type="falcon_h1", num_hidden_layers=3, mamba_d_ssm=None, mamba_n_heads=8, mamba_d_head=4, mamba_n_groups=1, mamba_d_state=5, mamba_conv_bias=False,
                            rope_parameters=dict(rope_type="default", rope_theta=1e11), ssm_multipliers=[0.9, 0.8, 1.1, 1.2, 0.7]),
    "nemotron_h": SPACES | dict(layers_block_type=["linear_attention", "mlp", "linear_attention", "full_attention", "mlp"], mlp_bias=True),
    "nemotron_h-moe": SPACES | dict(model_type="nemotron_h", layers_block_type=["linear_attention", "moe", "full_attention", "moe"], n_routed_experts=4, num_experts_per_tok=2,
                                    moe_intermediate_size=20, moe_shared_expert_intermediate_size=12, routed_scaling_factor=2.5, use_conv_bias=False),
    "mamba2": dict(state_size=6, num_heads=4, head_dim=8, n_groups=2, conv_kernel=3, tie_word_embeddings=True),
    "mamba2-untied": dict(model_type="mamba2", num_hidden_layers=3, state_size=4, num_heads=8, head_dim=4, n_groups=1, use_conv_bias=False, tie_word_embeddings=False),
    "hunyuan_v1_dense": dict(head_dim=8, rope_parameters=dict(rope_type="dynamic", rope_theta=1e4, alpha=1000.0, factor=1.0)),
}


ENCODER = dict(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=4, num_attention_heads=4, max_position_embeddings=64, pad_token_id=0)
ENCODERS = {  # how their vectors are pooled, and the outputs of the matrices behind, with a bias or without
    "bert": (ENCODER | dict(num_hidden_layers=2), "cls"),
    "xlm-roberta": (ENCODER | dict(num_hidden_layers=2, pad_token_id=1, type_vocab_size=1), "mean"),
    "modernbert": (ENCODER | dict(local_attention=8), "mean"),
    "nomic_bert": (ENCODER | dict(num_hidden_layers=2, rope_parameters=dict(rope_type="default", rope_theta=50.0)), "mean"),
    "nomic-own": (ENCODER | dict(model_type="nomic_bert", num_hidden_layers=1), "mean"),
    "qwen3-embedding": (COMMON | dict(model_type="qwen3", head_dim=8, tie_word_embeddings=True), "lasttoken"),
    "qwen3-dense": (COMMON | dict(model_type="qwen3", num_hidden_layers=1, head_dim=8, tie_word_embeddings=True), "lasttoken", (12, True)),
    "gemma3-embedding": (COMMON | dict(model_type="gemma3_text", num_hidden_layers=3, head_dim=8, sliding_window=6, use_bidirectional_attention=True, query_pre_attn_scalar=12,
                                       layer_types=["sliding_attention", "full_attention", "sliding_attention"]), "mean", (24, False), (8, False)),
    "bert-ranker": (ENCODER | dict(model_type="bert", num_hidden_layers=2, num_labels=1), "rank"),
    "xlm-roberta-ranker": (ENCODER | dict(model_type="xlm-roberta", num_hidden_layers=2, pad_token_id=1, type_vocab_size=1, num_labels=1), "rank"),
}


def write_own(name):
    """Writes nomic's config.json as its makers do."""
    with open(f"{name}/config.json") as f:
        c = json.load(f)
    own = dict(n_embd=c["hidden_size"], n_head=c["num_attention_heads"], n_inner=c["intermediate_size"], n_layer=c["num_hidden_layers"], n_positions=8192, max_trained_positions=64,
               layer_norm_epsilon=c["layer_norm_eps"], rotary_emb_base=1000, rotary_emb_fraction=1.0, rotary_emb_interleaved=False, rotary_emb_scale_base=None, rotary_scaling_factor=2,
               activation_function="swiglu", causal=False, qkv_proj_bias=False, mlp_fc1_bias=False, mlp_fc2_bias=False, prenorm=False, parallel_block=False, use_rms_norm=False,
               scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, use_flash_attn=True, summary_type="cls_index", pad_vocab_size_multiple=64)
    with open(f"{name}/config.json", "w") as f:
        json.dump({k: c[k] for k in ("architectures", "model_type", "vocab_size", "type_vocab_size")} | own, f, indent=1)


def make_dense(path, x, width, bias):
    """Writes a matrix behind the pooling, as sentence-transformers does, and returns what it makes of x."""
    tensors = {"linear.weight": torch.randn(width, len(x)) * 0.3} | ({"linear.bias": torch.randn(width) * 0.2} if bias else {})
    os.makedirs(path, exist_ok=True)
    save_file(tensors, f"{path}/model.safetensors")
    with open(f"{path}/config.json", "w") as f:
        json.dump({"in_features": len(x), "out_features": width, "bias": bias, "activation_function": "torch.nn.modules.linear.Identity"}, f)
    return torch.nn.functional.linear(x, *tensors.values())


def make_encoder(name):
    """Makes an embedder with the vector of the ids, or a ranker with their score: two texts, whose border is 23."""
    torch.manual_seed(sum(name.encode()))
    options, pooling, *dense = ENCODERS[name]
    config = AutoConfig.for_model(options.get("model_type", name), **{k: v for k, v in options.items() if k != "model_type"})
    kind = AutoModelForSequenceClassification if pooling == "rank" else AutoModel
    model = kind.from_config(config, attn_implementation="eager").to(torch.bfloat16)
    with torch.no_grad():
        for key, w in model.named_parameters():
            w.normal_(0, 0.3 if w.dim() > 1 else 0.2)
            if "norm" in key.lower() and "bias" not in key:
                w.add_(1)
    model.save_pretrained(name)
    model = kind.from_pretrained(name, dtype=torch.float32, attn_implementation="eager").eval()
    whole = [i for i in IDS if i != 1]  # without padding
    ids = torch.tensor([whole])
    with torch.no_grad():
        if pooling == "rank":
            second = torch.arange(len(whole)) > whole.index(23) if name == "bert-ranker" else torch.zeros(len(whole))
            out = torch.sigmoid(model(ids, token_type_ids=second.long()[None]).logits[0])
            with open(f"{name}/tokenizer.json", "w") as f:
                json.dump({"added_tokens": [{"id": 23, "content": "[SEP]"}]}, f)
        else:
            hidden = model(ids).last_hidden_state[0]
            out = {"cls": hidden[0], "mean": hidden.mean(0), "lasttoken": hidden[-1]}[pooling]
            for i, (width, bias) in enumerate(dense):
                out = make_dense(f"{name}/{i + 2}_Dense", out, width, bias)
            out = torch.nn.functional.normalize(out, dim=0)
            with open(f"{name}/modules.json", "w") as f:
                stages = [("", "Transformer"), ("1_Pooling", "Pooling"), *((f"{i + 2}_Dense", "Dense") for i in range(len(dense))), ("", "Normalize")]
                json.dump([{"idx": i, "name": str(i), "path": path, "type": "sentence_transformers.models." + t} for i, (path, t) in enumerate(stages)], f)
            os.makedirs(f"{name}/1_Pooling", exist_ok=True)
            modes = {"cls": "cls_token", "mean": "mean_tokens", "lasttoken": "lasttoken"}
            with open(f"{name}/1_Pooling/config.json", "w") as f:
                json.dump({"word_embedding_dimension": 16} | {"pooling_mode_" + m: k == pooling for k, m in modes.items()}, f)
    if name == "nomic-own":
        write_own(name)
    out.numpy().astype("<f4").tofile(f"{name}/vector.f32")
    with open(f"{name}/reference.json", "w") as f:
        json.dump({"ids": whole}, f)
    print(name, out)


def pack(name):
    """Replaces the experts' matrices by random ones of MXFP4, and returns what transformers reads of them."""
    path, plain = f"{name}/model.safetensors", {}
    tensors = load_file(path)
    for key in [k for k in tensors if k.endswith("experts.gate_up_proj") or k.endswith("experts.down_proj")]:
        experts, cols, rows = tensors.pop(key).shape
        blocks = torch.randint(0, 256, (experts, rows, cols // 32, 16), dtype=torch.uint8)
        scales = torch.randint(122, 126, (experts, rows, cols // 32), dtype=torch.uint8)
        tensors |= {key + "_blocks": blocks, key + "_scales": scales}
        plain[key] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    save_file(tensors, path, {"format": "pt"})
    with open(f"{name}/config.json") as f:
        config = json.load(f)
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    with open(f"{name}/config.json", "w") as f:
        json.dump(config, f, indent=1)
    return plain


FP8 = {  # the block of a scale, the name of the scale, and what config.json says
    "qwen3-fp8": ((8, 5), "weight_scale_inv", {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [8, 5]}),
    "mixtral-fp8": ((None, None), "weight_scale_inv", {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}),
    "llama-fp8": ((1, None), "weight_scale", {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"], "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}}),
}


def round8(name):
    """Rounds the matrices of all layers to FP8, and returns what they then stand for, rounded to BF16."""
    (height, width), suffix, quantization = FP8[name]
    path, plain = f"{name}/model.safetensors", {}
    tensors = load_file(path)
    for key in [k for k in tensors if tensors[k].dim() == 2 and "layers" in k and "block_sparse_moe.gate" not in k]:
        w = tensors[key].float()
        h, v = height or w.shape[0], width or w.shape[1]
        padded = torch.zeros(-(-w.shape[0] // h) * h, -(-w.shape[1] // v) * v)
        padded[:w.shape[0], :w.shape[1]] = w
        blocks = padded.unflatten(0, (-1, h)).unflatten(2, (-1, v))
        scale = blocks.abs().amax((1, 3)) / 448
        small = (blocks / scale[:, None, :, None]).to(torch.float8_e4m3fn)
        cut = lambda b: b.flatten(2, 3).flatten(0, 1)[:w.shape[0], :w.shape[1]].contiguous()
        tensors[key] = cut(small.view(torch.uint8)).view(torch.float8_e4m3fn)
        tensors[key.removesuffix("weight") + suffix] = scale if height or width else scale[0, 0]
        plain[key] = cut(small.float() * scale[:, None, :, None]).bfloat16().float()
    save_file(tensors, path, {"format": "pt"})
    with open(f"{name}/config.json") as f:
        config = json.load(f)
    config["quantization_config"] = quantization
    with open(f"{name}/config.json", "w") as f:
        json.dump(config, f, indent=1)
    return plain


MODELOPT = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head"]}
FP4 = {  # the file that says it, and what that says
    "llama-nvfp4": ("hf_quant_config.json", {"producer": {"name": "modelopt", "version": "0.33.0"}, "quantization": MODELOPT}),
    "mixtral-nvfp4": ("config.json", {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"], "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}}}}),
    "qwen3-nvfp4": ("config.json", {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "ignore": ["lm_head"], "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}}}}),
}
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def round4(name):
    """Rounds the matrices of all layers to NVFP4, and returns what they then stand for, rounded to BF16."""
    file, quantization = FP4[name]
    path, plain = f"{name}/model.safetensors", {}
    tensors = load_file(path)
    for key in [k for k in tensors if tensors[k].dim() == 2 and "layers" in k and "block_sparse_moe.gate" not in k]:
        blocks = tensors.pop(key).float().unflatten(1, (-1, 16))
        whole = blocks.abs().max() / (448 * 6)
        scale = (blocks.abs().amax(2) / 6 / whole).to(torch.float8_e4m3fn)
        if name == "qwen3-nvfp4":
            names, whole = ("weight_packed", "weight_global_scale", "input_global_scale"), (1 / whole)[None]
            step = scale.float() / whole
        else:
            names, step = ("weight", "weight_scale_2", "input_scale"), scale.float() * whole
        codes = ((blocks / step[:, :, None]).abs()[..., None] - E2M1).abs().argmin(-1)
        plain[key] = (E2M1[codes] * blocks.sign() * step[:, :, None]).flatten(1).bfloat16()
        codes = (codes + 8 * (blocks < 0)).flatten(1).to(torch.uint8)
        of = key.removesuffix("weight")
        tensors |= {of + names[0]: codes[:, ::2] | codes[:, 1::2] << 4, of + "weight_scale": scale, of + names[1]: whole, of + names[2]: torch.ones_like(whole)}
        if "k_proj" in key and name == "llama-nvfp4":
            tensors[of + "k_scale"] = torch.tensor(0.5)
    save_file(tensors, path, {"format": "pt"})
    with open(f"{name}/config.json") as f:
        config = json.load(f)
    with open(f"{name}/{file}", "w") as f:
        json.dump(quantization if file != "config.json" else config | {"quantization_config": quantization}, f, indent=1)
    with open(f"{name}/attn_output.bf16", "wb") as f:
        f.write(next(w for k, w in plain.items() if "o_proj" in k).view(torch.uint8).numpy().tobytes())
    return plain


def stack(name):
    """Puts the matrices of a layer's experts into one tensor of each kind, as some makers give them out."""
    path, parts = f"{name}/model.safetensors", {}
    tensors = load_file(path)
    for key in [k for k in tensors if ".experts." in k]:
        prefix, _, _, kind, _ = key.rsplit(".", 4)
        parts.setdefault(prefix, {}).setdefault(kind, {})[int(key.split(".")[-3])] = tensors.pop(key)
    for prefix, kinds in parts.items():
        gate, up, down = ([kinds[kind][i] for i in range(len(kinds[kind]))] for kind in ("gate_proj", "up_proj", "down_proj"))
        tensors[prefix + ".experts.gate_up_proj"] = torch.stack([torch.cat(both) for both in zip(gate, up)])
        tensors[prefix + ".experts.down_proj"] = torch.stack(down)
    save_file(tensors, path, {"format": "pt"})


def make(name):
    torch.manual_seed(sum(name.encode()))
    options = MODELS[name] if "text_config" in MODELS[name] else COMMON | MODELS[name]
    config = AutoConfig.for_model(options.get("model_type", name), **{k: v for k, v in options.items() if k != "model_type"})
    kind = AutoModelForImageTextToText if "text_config" in options else AutoModelForCausalLM
    model = kind.from_config(config, attn_implementation="eager").to(torch.bfloat16)
    with torch.no_grad():
        for key, w in model.named_parameters():
            w.normal_(0, 0.3 if w.dim() > 1 else 0.2)
            if "norm" in key and name != "gemma2":
                w.add_(1)
        for key, w in model.named_buffers():  # what is added to experts' scores for their choice
            if "bias" in key:
                w.normal_(0, 0.3)
    model.save_pretrained(name)
    model = kind.from_pretrained(name, dtype=torch.float32, attn_implementation="eager").eval()
    if name == "qwen3_5_moe":
        stack(name)
    if name in FP8 or name in FP4:
        path, config = f"{name}/model.safetensors", open(f"{name}/config.json").read()
        plain = round8(name) if name in FP8 else round4(name)
        packed, said = open(path, "rb").read(), open(f"{name}/config.json").read()
        tensors = {k: v for k, v in load_file(path).items() if not k.endswith(("_scale", "_scale_inv", "_scale_2", "_packed"))} | {k: v.bfloat16() for k, v in plain.items()}
        save_file(tensors, path, {"format": "pt"})
        open(f"{name}/config.json", "w").write(config)
        model = kind.from_pretrained(name, dtype=torch.float32, attn_implementation="eager").eval()
        open(path, "wb").write(packed)
        open(f"{name}/config.json", "w").write(said)
    if name.endswith("mxfp4"):
        parameters = dict(model.named_parameters())
        for key, w in pack(name).items():
            parameters[key].data = w
    with torch.no_grad():
        logits = model(torch.tensor([IDS]), use_cache=False).logits[0]
    logits.numpy().astype("<f4").tofile(f"{name}/logits.f32")
    with open(f"{name}/reference.json", "w") as f:
        json.dump({"ids": IDS}, f)
    for extra in ("generation_config.json",):
        if os.path.exists(f"{name}/{extra}"):
            os.remove(f"{name}/{extra}")
    print(name, "standard deviation of the logits", float(logits.std()))


for name in sys.argv[1:] or [*MODELS, *ENCODERS]:
    make(name) if name in MODELS else make_encoder(name)
