package avx512bf16_test

import (
	"slices"
	"testing"

	"github.com/forebay-io/forebay/kernels"
	"github.com/forebay-io/forebay/kernels/kerneltest"
)

func TestSet(t *testing.T) { kerneltest.Run(t, "avx512bf16") }

// TestRoundsWhereItMay: with Round the same numbers give other bits, only for halves.
func TestRoundsWhereItMay(t *testing.T) {
	set, err := kernels.Lookup("avx512bf16")
	if err != nil {
		t.Skip(err)
	}
	for _, kv := range []kernels.KVType{kernels.KVF32, kernels.KVF16, kernels.KVInt8} {
		l := kernels.KVLayout{KVType: kv, PageTokens: 4, KVHeads: 1, HeadDim: 3}
		a := &kernels.Attention{
			KVLayout: l, K: make([]byte, l.PoolBytes(1)), V: make([]byte, l.PoolBytes(1)), Pages: []int32{0},
			Q: []float32{0.3, 0.2, 0.1}, Out: make([]float32, 3), Group: 1, Queries: 1, To: 2, Scale: 1,
			Scores: make([]float32, kernels.AttentionScratch(1, 3, 2)),
		}
		set.Place(&l, a.K, a.V, 0, 0, []float32{1.1, 1.2, 1.3}, []float32{0.7, 0.8, 0.9})
		set.Place(&l, a.K, a.V, 0, 1, []float32{2.1, 2.2, 2.3}, []float32{1.7, 1.8, 1.9})
		set.Attend(a)
		exact := slices.Clone(a.Out)
		a.Round = true
		set.Attend(a)
		if rounds := !slices.Equal(exact, a.Out); rounds != (kv == kernels.KVF16) {
			t.Errorf("%v: rounds %v", kv, rounds)
		}
	}
}
