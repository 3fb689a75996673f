package chat

import (
	"encoding/json"
	"testing"

	"github.com/forebay-io/forebay/engine/chat/calls"
)

// TestDetect finds the format of every real template, and whether it has a place
// for tools at all.
func TestDetect(t *testing.T) {
	want := map[string]string{
		"Apertus-8B-Instruct": "apertus", "Apriel-1.6-15b-Thinker-fixed": "apriel", "unsloth-Apriel-1.5": "apriel",
		"ByteDance-Seed-OSS": "seed-oss", "Cohere2MoE": "command-r7b", "GigaChat3.1-10B-A1.8B": "gigachat3",
		"GLM-4.6": "glm-4.5", "GLM-4.7-Flash": "glm-4.5", "Spark2.5": "glm-4.5", "poolside-Laguna-S-2.1": "glm-4.5", "poolside-Laguna-XS-2.1": "glm-4.5",
		"Kimi-K2-Instruct": "kimi-k2", "moonshotai-Kimi-K2": "kimi-k2", "Kimi-K3": "kimi-k3",
		"LFM2-8B-A1B": "lfm2", "LFM2.5-Instruct": "lfm2", "MiniMax-M2": "minimax-m2",
		"MiMo-VL": "hermes", "Qwen-Qwen2.5-7B-Instruct": "hermes", "Qwen-Qwen3-0.6B": "hermes",
		"ibm-granite-granite-4.0": "hermes", "ibm-granite-granite-4.1": "hermes", "ibm-granite-granite-3.3-2B-Instruct": "granite3",
		"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "qwen3-coder", "Qwen3-Coder": "qwen3-coder", "Qwen3.5-4B": "qwen3-coder", "StepFun3.5-Flash": "qwen3-coder",
		"NVIDIA-Nemotron-Nano-v2": "nemotron-v2", "deepseek-ai-DeepSeek-V3.2": "deepseek-v3.2", "deepseek-ai-DeepSeek-V4": "deepseek-v3.2",
		"llama-cpp-deepseek-r1": "deepseek-v3", "google-gemma-4-31B-it-interleaved": "gemma4",
		"meta-llama-Llama-3.1-8B-Instruct": "llama3-json", "meta-llama-Llama-3.2-3B-Instruct": "llama3-json", "meta-llama-Llama-3.3-70B-Instruct": "llama3-json",
		"mistralai-Mistral-Nemo-Instruct-2407": "mistral-v3", "openai-gpt-oss-120b": "harmony", "tencent-Hy3": "hy3", "upstage-Solar-Open-100B": "solar-open",
	}
	refused := map[string]string{
		// These render calls, but show the model no tools.
		"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "deepseek-v3", "deepseek-ai-DeepSeek-V3.1": "deepseek-v3.1",
		// These have no place at all: SmolLM3's is a conversion that lost it.
		"HuggingFaceTB-SmolLM3-3B": "none", "google-gemma-2-2b-it": "none", "llama-cpp-rwkv-world": "none", "microsoft-Phi-3.5-mini-instruct": "none",
		// These show tools and have formats that no row reads.
		"MiniMax-M3": "none", "meetkai-functionary-medium-v3.2": "none", "muse-glimmer": "none",
	}
	for _, r := range references(t) {
		tmpl, now := r.compile(t), r.now(t)
		found := calls.Detect(func(messages, tools, options json.RawMessage) (string, error) {
			return tmpl.Render(t.Context(), Input{Messages: messages, Tools: tools, Options: options, Now: now})
		})
		name, takes := want[r.Name]
		if !takes {
			name = refused[r.Name]
		}
		if err := found.Check(); found.Format.Name != name || (err == nil) != takes {
			t.Errorf("%s: found %s, %v; want %q", r.Name, found.Format.Name, err, name)
		}
	}
}
