package sample

import (
	"math"
	"testing"

	"github.com/forebay-io/forebay/kernels"
)

func TestTopLogprobs(t *testing.T) {
	row := []float32{1, 3, -inf, 3, 2, -50}
	norm := math.Log(math.Exp(1) + 2*math.Exp(3) + math.Exp(2) + math.Exp(-50))
	near := func(got float32, logit float64) bool { return math.Abs(float64(got)-(logit-norm)) < 1e-6 }
	got := TopLogprobs(kernels.Best(), row, 0, 4)
	if got.ID != 0 || !near(got.Logprob, 1) {
		t.Errorf("token 0: %+v", got)
	}
	wantIDs, wantLogits := []int32{1, 3, 4, 0}, []float64{3, 3, 2, 1}
	if len(got.Top) != 4 {
		t.Fatalf("%d rivals, want 4", len(got.Top))
	}
	for i, top := range got.Top {
		if top.ID != wantIDs[i] || !near(top.Logprob, wantLogits[i]) {
			t.Errorf("rival %d: %+v, want token %d", i, top, wantIDs[i])
		}
	}
	for id, want := range []int{4, 1, 6, 1, 3, 5} {
		if got := Rank(row, int32(id)); got != want {
			t.Errorf("token %d has rank %d, want %d", id, got, want)
		}
	}
	if got := TopLogprobs(kernels.Best(), row, 2, 20); len(got.Top) != 5 || !math.IsInf(float64(got.Logprob), -1) {
		t.Errorf("a masked token: %+v, want −Inf and five rivals", got)
	}
	if row[0] != 1 || TopLogprobs(kernels.Best(), row, 1, 0).Top != nil {
		t.Error("the row is changed, or rivals are listed unasked")
	}
	if got := TopLogprobs(kernels.Best(), []float32{3e38, 3e38, -3e38}, 0, 0); math.Abs(float64(got.Logprob)+math.Ln2) > 1e-6 {
		t.Errorf("huge logits: %v, want −ln 2", got.Logprob)
	}
	for _, row := range [][]float32{{1, nan, 2}, {1, inf, 2}, {inf, inf, 1}, {-inf, -inf, -inf}, {}} {
		if got := TopLogprobs(kernels.Best(), row, 0, 2); !math.IsInf(float64(got.Logprob), -1) || got.Top != nil || got.ID != 0 {
			t.Errorf("%v is no distribution: %+v, want −Inf and no rivals", row, got)
		}
	}
}
