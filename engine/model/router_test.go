package model

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// took is what a router chooses of scores, and the weights in hundredths.
func took(r Router, used int, bias []float32, scores ...float32) string {
	x := choice{chosen: make([]int32, used), shares: make([]float32, used), scores: scores, rank: make([]float32, len(scores))}
	x.take(&r, bias)
	hundredths := make([]int, used)
	for i, s := range x.shares {
		hundredths[i] = int(math.Round(100 * float64(s)))
	}
	return fmt.Sprint(x.chosen, hundredths)
}

func TestRoutersChooseAndWeigh(t *testing.T) {
	ln := func(x float64) float32 { return float32(math.Log(x)) }
	nan := float32(math.NaN())
	eight := []float32{ln(8), ln(1), ln(5), ln(5), ln(1), ln(1), ln(4), ln(1)} // of 26; as softmax 31, 4, 19, 19, 4, 4, 15, 4 %
	for _, c := range []struct {
		name   string
		router Router
		used   int
		bias   []float32
		scores []float32
		want   string
	}{
		{"softmax over all", Router{Scale: 1}, 2, nil, eight, "[0 2] [31 19]"},
		{"scaled", Router{Scale: 4}, 2, nil, eight, "[0 2] [123 77]"},
		{"renormalised", Router{Normed: true, SumAdd: 1e-12, Scale: 1}, 2, nil, eight, "[0 2] [62 38]"},
		{"bias chooses and does not weigh", Router{Scale: 1}, 2, []float32{0, 1, 0, 0, 0, 0, 0, 0}, eight, "[1 0] [4 31]"},
		{"sigmoid", Router{Sigmoid: true, Scale: 1}, 1, nil, []float32{0, ln(3)}, "[1] [75]"},
		{"sigmoid tells great outputs apart", Router{Sigmoid: true, Scale: 1}, 1, nil, []float32{50, 60}, "[1] [100]"},
		{"a group by its best", Router{Groups: 4, GroupsUsed: 1, Scale: 1}, 2, nil, eight, "[0 1] [31 4]"},
		{"a group by its best two", Router{Groups: 4, GroupsUsed: 1, GroupByTwo: true, Scale: 1}, 2, nil, eight, "[2 3] [19 19]"},
		{"two groups", Router{Groups: 4, GroupsUsed: 2, GroupByTwo: true, Scale: 1}, 3, nil, eight, "[0 2 3] [31 19 19]"},
		{"of equal groups the first", Router{Groups: 2, GroupsUsed: 1, Scale: 1}, 1, nil, []float32{1, 0, 0, 1}, "[0] [37]"},
		{"sparse, alone", Router{Sparse: true}, 2, nil, []float32{10, 5, 1}, "[0 1] [100 100]"},
		{"sparse, near", Router{Sparse: true}, 2, nil, []float32{10, 9.9, 1}, "[0 1] [52 100]"},
		{"no numbers", Router{Groups: 2, GroupsUsed: 1, GroupByTwo: true, Scale: 1}, 1, nil, []float32{nan, nan, nan, nan}, "[0] "},
		{"infinite", Router{Sigmoid: true, Groups: 2, GroupsUsed: 1, Scale: 1}, 1, []float32{dropped, dropped, dropped, dropped}, []float32{1, 1, 1, 1}, "[0] [73]"},
	} {
		scores := append([]float32(nil), c.scores...)
		if got := took(c.router, c.used, c.bias, scores...); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestRouterKeys: what a file may say of a router, and what is refused.
func TestRouterKeys(t *testing.T) {
	mixture := map[string]any{"expert_count": uint32(8), "expert_used_count": uint32(2), "expert_feed_forward_length": uint32(8)}
	read := func(arch string, changes map[string]any) (Config, error) {
		all := map[string]any{}
		for _, keys := range []map[string]any{mixture, changes} {
			for k, v := range keys {
				all[k] = v
			}
		}
		return configOf(t, arch, all, nil)
	}
	c, err := read("glm4moe", map[string]any{"block_count": uint32(4), "nextn_predict_layers": uint32(1), "leading_dense_block_count": uint32(1), "expert_shared_count": uint32(2)})
	if err != nil || len(c.Layers) != 3 || c.Layers[0].Mixture || c.Layers[0].FF != 8 || !c.Layers[1].Mixture || c.SharedFF != 16 || !c.Router.Sigmoid || !c.Router.Normed {
		t.Errorf("glm4moe: %+v, %v", c, err)
	}
	if c, err = read("llama4", map[string]any{"interleave_moe_layer_step": uint32(2), "context_length": uint32(8192)}); err != nil || c.Layers[0].Mixture || !c.Layers[1].Mixture || !c.Layers[1].Chunked {
		t.Errorf("llama4: %+v, %v", c, err)
	}
	for _, bad := range []struct {
		arch string
		keys map[string]any
		want string
	}{
		{"glm4moe", map[string]any{"expert_gating_func": uint32(3)}, "only softmax (1) and sigmoid (2)"},
		{"glm4moe", map[string]any{"nextn_predict_layers": uint32(3)}, "is 3 of 3 layers"},
		{"glm4moe", map[string]any{"expert_group_count": uint32(3)}, "does not fit 8 experts"},
		{"bailingmoe2", map[string]any{"expert_group_count": uint32(2), "expert_group_used_count": uint32(3)}, "of which 3 are used"},
		{"bailingmoe2", map[string]any{"expert_group_count": uint32(8)}, "does not fit 8 experts"}, // of one expert, which are no two
		{"glm4moe", map[string]any{"expert_shared_count": uint32(1 << 20)}, "allowed are up to"},
		{"phimoe", map[string]any{"expert_used_count": uint32(3)}, "only 2 are supported"},
		{"minimax-m2", map[string]any{"expert_shared_count": uint32(1)}, "is not supported"},
		{"mistral3", nil, "experts are not supported"},
		{"seed_oss", map[string]any{"nextn_predict_layers": uint32(1)}, "is not supported"},
	} {
		if _, err := read(bad.arch, bad.keys); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s with %v: %v, want %q", bad.arch, bad.keys, err, bad.want)
		}
	}
}
