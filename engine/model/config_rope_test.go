package model

import (
	"math"
	"testing"
)

// ropeOf is the first rope of a model with heads of 16, a context of 512 and, unless
// they are nil, factors in the tensors of long rope.
func ropeOf(t *testing.T, arch string, keys map[string]any, short, long []float32) Rope {
	t.Helper()
	changes, vectors := map[string]any{}, map[string][]float32{}
	for key, v := range keys {
		changes["rope."+key] = v
	}
	if short != nil {
		vectors[shortFactors], vectors[longFactors] = short, long
	}
	c, err := configOf(t, arch, changes, vectors)
	if err != nil {
		t.Fatal(err)
	}
	return c.Ropes[0]
}

func steps(first, step float32) []float32 {
	x := make([]float32, 8)
	for i := range x {
		x[i] = first + step*float32(i)
	}
	return x
}

// TestRopeSchemes compares with the inverse frequencies and the attention factor
// that transformers 5 computes (modeling_rope_utils), in float32.
func TestRopeSchemes(t *testing.T) {
	yarn := func(theta, factor float32, original uint32, more map[string]any) map[string]any {
		keys := map[string]any{"freq_base": theta, "scaling.type": "yarn", "scaling.factor": factor, "scaling.original_context_length": original}
		for key, v := range more {
			keys[key] = v
		}
		return keys
	}
	for _, c := range []struct {
		name, arch string
		keys       map[string]any
		speeds     []float64
		magnitude  float64
	}{
		{"none", "llama", map[string]any{"scaling.type": "none", "scaling.factor": float32(4)}, []float64{1, 0.316227766, 0.1, 0.0316227766, 0.01, 0.00316227766, 0.001, 0.000316227766}, 1},
		{"linear", "llama", map[string]any{"scaling.type": "linear", "scaling.factor": float32(4)},
			[]float64{0.25, 0.079056941, 0.0250000004, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05}, 1},
		{"linear by the old key", "llama", map[string]any{"scale_linear": float32(4)},
			[]float64{0.25, 0.079056941, 0.0250000004, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05}, 1},
		{"yarn from 64", "llama", yarn(10000, 4, 64, nil),
			[]float64{1, 0.237170815, 0.049999997, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05}, 1.13862944},
		{"yarn from 4096", "qwen2", yarn(10000, 40, 4096, nil),
			[]float64{1, 0.316227764, 0.100000001, 0.0239147246, 0.00512499968, 0.000849862176, 2.49999994e-05, 7.90569447e-06}, 1.36888795},
		{"yarn with other betas", "llama", yarn(1e5, 8, 128, map[string]any{"scaling.yarn_beta_fast": float32(16), "scaling.yarn_beta_slow": float32(2)}),
			[]float64{1, 0.133389771, 0.0070292661, 0.00166690187, 0.000395284733, 9.37367731e-05, 2.22284925e-05, 5.27120665e-06}, 1.20794415},
		{"yarn with mscale 1 and mscale_all_dim 0.5", "llama", yarn(1e5, 40, 128, map[string]any{"scaling.yarn_log_multiplier": float32(0.5)}),
			[]float64{1, 0.160067707, 0.0196819454, 0.000333380391, 7.90569466e-05, 1.87473543e-05, 4.44569832e-06, 1.05424135e-06}, 1.15572199},
		{"yarn by a factor of 1", "llama", yarn(10000, 1, 4096, nil), speeds(1e4, 16), 1},
		{"yarn by a factor below 1", "llama", yarn(10000, 0.5, 64, nil),
			[]float64{1, 0.421637021, 0.166666667, 0.0632455532, 0.02, 0.00632455532, 0.002, 0.000632455532}, 1},
		{"no factor, written as 0", "llama", map[string]any{"scaling.type": "linear", "scaling.factor": float32(0)}, speeds(1e4, 16), 1},
		{"yarn with an exact ramp", "gpt-oss", yarn(150000, 8, 4096, nil),
			[]float64{1, 0.225418001, 0.0508132726, 0.00724585587, 0.000662177918, 7.27533479e-05, 1.63999139e-05, 3.69683585e-06}, 1.20794415},
	} {
		got := ropeOf(t, c.arch, c.keys, nil, nil)
		wantSpeeds(t, c.name, got.speedsFor(512), c.speeds)
		if math.Abs(float64(got.Magnitude)/c.magnitude-1) > 1e-6 {
			t.Errorf("%s: magnitude %v, want %v", c.name, got.Magnitude, c.magnitude)
		}
	}
}

func wantSpeeds(t *testing.T, name string, got, want []float64) {
	t.Helper()
	for i := range want {
		if len(got) != len(want) || math.Abs(got[i]/want[i]-1) > 2e-6 {
			t.Errorf("%s: speeds %v, want %v", name, got, want)
			return
		}
	}
}

// TestLongRopeIsChosenByTheContext: 64 tokens are the last with the short factors;
// the numbers are transformers', as above.
func TestLongRopeIsChosenByTheContext(t *testing.T) {
	keys := map[string]any{"scaling.original_context_length": uint32(64), "scaling.attn_factor": float32(1.22474487)}
	r := ropeOf(t, "phi3", keys, steps(1, 0.25), steps(1.5, 0.5))
	short := []float64{1, 0.252982229, 0.0666666701, 0.0180701576, 0.00499999989, 0.0014054568, 0.00039999999, 0.000114991912}
	long := []float64{0.666666687, 0.158113882, 0.0399999991, 0.010540925, 0.00285714283, 0.000790569466, 0.000222222225, 6.32455558e-05}
	wantSpeeds(t, "1 token", r.speedsFor(1), short)
	wantSpeeds(t, "64 tokens", r.speedsFor(64), short)
	wantSpeeds(t, "65 tokens", r.speedsFor(65), long)
	if r.Magnitude != 1.22474487 {
		t.Errorf("magnitude %v", r.Magnitude)
	}
	// The rope that turns takes the same side.
	angles := make([]float32, 16)
	for context, speed := range map[int]float64{64: short[1], 65: long[1]} {
		turn := newRope(&r, context)
		turn.angles(angles, 10)
		if want := math.Cos(10*speed) * 1.22474487; math.Abs(float64(angles[1])-want) > 1e-5 {
			t.Errorf("context of %d: cosine %v, want %v", context, angles[1], want)
		}
	}
}
