package hf

import (
	"math"
	"testing"
)

// TestLlama3Factors compares with the inverse frequencies that transformers 5
// computes (modeling_rope_utils), in float32.
func TestLlama3Factors(t *testing.T) {
	want := []float64{1, 0.079403013, 0.00470075384, 0.000911583134, 0.000176776681, 3.42810235e-05, 6.64786967e-06, 1.28917316e-06}
	r := rope{kind: "llama3", theta: 5e5, factor: 8, original: 64, low: 1, high: 4}
	for i, factor := range r.llama3Factors(16) {
		got := math.Pow(r.theta, -float64(2*i)/16) / float64(factor)
		if math.Abs(got/want[i]-1) > 1e-6 {
			t.Errorf("pair %d turns by %v a position, want %v", i, got, want[i])
		}
	}
}
