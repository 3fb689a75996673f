package model

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/gguf/gguftest"
	"github.com/forebay-io/forebay/kernels"
)

// configOf reads the description of a model of one family, 4 heads of 16 and a
// context of 512, with changed keys, where nil removes one, and vectors beside it.
func configOf(t *testing.T, arch string, changes map[string]any, vectors map[string][]float32) (Config, error) {
	t.Helper()
	keys := map[string]any{"context_length": uint32(512), "embedding_length": uint32(64), "block_count": uint32(3),
		"feed_forward_length": uint32(8), "attention.head_count": uint32(4), "attention.layer_norm_rms_epsilon": float32(1e-5)}
	maps.Copy(keys, families[arch])
	maps.Copy(keys, changes)
	b := (&gguftest.Builder{}).Set("general.architecture", arch)
	for key, v := range keys {
		if v != nil {
			b.Set(arch+"."+key, v)
		}
	}
	b.Tensor("token_embd.weight", kernels.F32, []int{64, 1}, make([]byte, 4*64))
	for name, x := range vectors {
		b.Tensor(name, kernels.F32, []int{len(x)}, gguftest.Encode(kernels.F32, x))
	}
	for i := range 80 { // so that there may be as many layers
		b.Tensor(fmt.Sprint("other", i), kernels.F32, []int{1}, make([]byte, 4))
	}
	f, err := gguf.Parse(arch, b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return ReadConfig(f)
}

// TestWhatNoKeySays is what files leave to their readers, by the models' own code.
func TestWhatNoKeySays(t *testing.T) {
	read := func(arch string, changes map[string]any) Config {
		c, err := configOf(t, arch, changes, nil)
		if err != nil {
			t.Error(err)
		}
		return c
	}
	windows := func(c Config) (out []int) {
		for _, a := range c.Layers {
			out = append(out, a.WindowTokens)
		}
		return out
	}
	want := func(what string, got, want any) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	old := read("gemma2", map[string]any{"attention.sliding_window": nil, "attn_logit_softcapping": nil, "final_logit_softcapping": nil})
	want("gemma 2's window without its key", windows(old), []int{4096, 0, 4096})
	want("gemma 2's caps without keys", []float32{old.AttentionSoftCap, old.LogitSoftCap}, []float32{50, 30})
	for arch, layers := range map[string]uint32{"gemma2": 46, "gemma3": 62} { // the 27B models
		longer := map[string]any{"attention.key_length": uint32(64), "attention.value_length": uint32(64), "attention.sliding_window_pattern": nil}
		want(arch+"'s scale", read(arch, longer).AttentionScale, float32(0.125))
		longer["block_count"] = layers
		want(arch+"'s scale at 27B", read(arch, longer).AttentionScale, float32(0.25))
		longer["attention.scale"] = float32(0.5)
		want(arch+"'s scale with its key", read(arch, longer).AttentionScale, float32(0.5))
	}
	gemma3 := read("gemma3", map[string]any{"attention.sliding_window_pattern": nil, "block_count": uint32(7)})
	want("gemma 3's windows", windows(gemma3), []int{9, 9, 9, 9, 9, 0, 9})
	wantSpeeds(t, "gemma 3", gemma3.Ropes[0].Speeds, speeds(1e6, 16))
	wantSpeeds(t, "gemma 3 with a window", gemma3.Ropes[1].Speeds, speeds(1e4, 16))
	want("gemma 3's ropes", []int{gemma3.Layers[4].Rope, gemma3.Layers[5].Rope}, []int{1, 0})
	want("gpt-oss's windows", windows(read("gpt-oss", map[string]any{"block_count": uint32(4)})), []int{9, 0, 9, 0})
	smollm := read("smollm3", map[string]any{"block_count": uint32(8)})
	for i, a := range smollm.Layers {
		want("smollm 3's rope", a.Rope == NoRope, i == 3 || i == 7)
	}
	want("windows by period", windows(read("gemma2", map[string]any{"attention.sliding_window_pattern": uint32(1)})), []int{9, 9, 9})
}

// TestKeysThatNeedOneValue: a key is taken where it changes nothing, and refused where it would.
func TestKeysThatNeedOneValue(t *testing.T) {
	for _, c := range []struct {
		arch, key string
		good, bad any
		want      string
	}{
		{"qwen2", "expert_group_count", uint32(1), uint32(2), "is 2; only 0 and 1"},
		{"qwen2", "moe_every_n_layers", uint32(0), uint32(2), "is 2; only 0 and 1"},
		{"qwen3moe", "expert_gating_func", uint32(3), uint32(4), "only softmax"},
		{"qwen3moe", "expert_gating_func", uint32(1), uint32(2), "only softmax"},
		{"qwen3moe", "expert_weights_scale", float32(1), float32(2.5), "is 2.5; only 1"},
		{"qwen3moe", "expert_weights_scale", float32(0), float32(-1), "is -1; only 1"},
		{"qwen3moe", "expert_weights_norm", true, false, "is false; only true"},
		{"qwen3moe", "expert_count", uint32(5), nil, "the experts to use"},
		{"qwen2", "use_parallel_residual", false, true, "is true; only false"},
		{"qwen2", "attention.sliding_window", uint32(512), uint32(511), "a window is not supported in architecture qwen2"},
		{"gemma3", "attention.key_length_swa", uint32(16), uint32(32), "only the 16 of the other layers"},
		{"gemma3", "attention.value_length_swa", uint32(16), uint32(8), "only the 16 of the other layers"},
		{"gemma3", "attention.sliding_window_pattern", []bool{true, false, true}, []bool{true, false}, "has 2 values for 3 layers"},
		{"gpt-oss", "rope.freq_base_swa", float32(10000), float32(20000), "only the rope.freq_base of the other"},
		{"qwen2", "nextn_predict_layers", uint32(0), uint32(1), "not supported"},
		{"qwen2", "pooling_type", uint32(0), uint32(5), "supported are"},
		{"qwen2", "pooling_type", uint32(3), uint32(4), "supported in bert and qwen3"},
		{"gpt-oss", "rope.scaling.yarn_ext_factor", float32(1), float32(2), "only 1 is supported"},
		{"phi3", "rope.scaling.type", "longrope", "su", "supported: none, linear, yarn, longrope"},
	} {
		if _, err := configOf(t, c.arch, map[string]any{c.key: c.good}, nil); err != nil {
			t.Errorf("%s: %s of %v: %v", c.arch, c.key, c.good, err)
		}
		if _, err := configOf(t, c.arch, map[string]any{c.key: c.bad}, nil); c.bad != nil && (err == nil || !strings.Contains(err.Error(), c.key) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %s of %v: error %v, want %q", c.arch, c.key, c.bad, err, c.want)
		}
	}
	one := []float32{1, 1, 1, 1, 1, 1, 1, 1}
	for want, vectors := range map[string]map[string][]float32{
		"rope_factors_short.weight only one is there":                            {longFactors: one},
		"tensor rope_factors_long.weight is F32 [7]; needed is F32 or F16 [8]":   {longFactors: one[:7], shortFactors: one},
		"tensor rope_factors_short.weight: element 7 is NaN; factors are over 0": {longFactors: one, shortFactors: append(one[:7:7], float32(math.NaN()))},
	} {
		if _, err := configOf(t, "phi3", nil, vectors); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if _, err := configOf(t, "gpt-oss", map[string]any{"rope.freq_base": float32(1)}, nil); err == nil || !strings.Contains(err.Error(), "the base over 1") {
		t.Errorf("a yarn whose speeds are all the same: %v", err)
	}
	if _, err := configOf(t, "phi3", map[string]any{"rope.scaling.type": "yarn"}, map[string][]float32{longFactors: one, shortFactors: one}); err == nil || !strings.Contains(err.Error(), "only one scaling") {
		t.Errorf("two scalings: %v", err)
	}
}

// TestChoiceOfExperts: of equal scores the first expert is chosen, and the best comes first.
func TestChoiceOfExperts(t *testing.T) {
	chosen, best := make([]int32, 3), make([]float32, 3)
	choose(chosen, best, []float32{-1, 2, 0.5, 2, 0.5})
	if fmt.Sprint(chosen, best) != "[1 3 2] [2 2 0.5]" {
		t.Errorf("chosen are %v with %v", chosen, best)
	}
	choose(chosen, best, []float32{float32(math.NaN()), float32(math.NaN()), 1})
	if chosen[0] == chosen[1] || chosen[1] == chosen[2] || chosen[0] == chosen[2] {
		t.Errorf("of scores that are no numbers, %v are chosen", chosen)
	}
}
