package sample

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/kernels"
)

// TestDrawIsInTheOrderOfIDs: a filter that drops nothing of weight changes no token: what is
// drawn depends on the tokens that are kept, and not on how they were found.
func TestDrawIsInTheOrderOfIDs(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	row := make([]float32, 3000)
	for i := range row {
		row[i] = float32(r.NormFloat64()) * 4
	}
	for seed := range uint64(40) {
		want, _ := one(wire.Options{Temperature: 1, Seed: seed}, row...)
		for name, o := range map[string]wire.Options{
			"top-p": {TopP: 0.9999999}, "top-k": {TopK: len(row) - 1}, "min-p": {MinP: 1e-9}, "typical-p": {TypicalP: 0.9999999},
		} {
			o.Temperature, o.Seed = 1, seed
			if got, _ := New(kernels.Best(), &o, 0, len(row)).Sample(slices.Clone(row)); got != want {
				t.Errorf("seed %d: %s that keeps all draws token %d, want %d", seed, name, got, want)
			}
		}
	}
}
