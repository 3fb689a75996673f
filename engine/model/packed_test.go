package model

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/forebay-io/forebay/kernels"
)

// before has the matrices of another load, by name.
type before map[string]*kernels.Matrix

func (b before) Matrix(name string, t kernels.Type, rows, cols, bytes int) *kernels.Matrix {
	m := b[name]
	if m == nil || m.Type != t || m.Rows != rows || m.Cols != cols || len(m.Data) != bytes {
		return nil
	}
	return &kernels.Matrix{Type: t, Rows: rows, Cols: cols, Data: m.Data}
}

// TestPackedBefore: with the matrices of an earlier load nothing is packed and the
// bits are the same, whatever the tensors are that they come from; with all but
// one, everything is packed.
func TestPackedBefore(t *testing.T) {
	team := newTeam(t, 2)
	tokens := randomTokens(rand.New(rand.NewPCG(5, 5)), 20, 50)
	for arch := range families {
		f := familyFile(t, arch, kernels.Q8_0)
		first := load(t, f, kernels.Best(), team, Options{})
		want := runAlone(first, tokens).rows
		matrices, reused := first.Packed()
		kept := before{}
		for _, m := range matrices {
			kept[m.Name] = &kernels.Matrix{Type: m.Type, Rows: m.Rows, Cols: m.Cols, Data: bytes.Clone(m.Data)}
		}
		if reused || len(kept) != len(matrices) || len(kept) < 3*7 {
			t.Errorf("%s: %d matrices of %d names, reused: %v", arch, len(matrices), len(kept), reused)
		}
		second := load(t, f, kernels.Best(), team, Options{Packed: kept})
		wantSameBits(t, arch, runAlone(second, tokens).rows, want)
		if again, reused := second.Packed(); !reused || len(again) != len(matrices) {
			t.Errorf("%s: %d of %d matrices, reused: %v", arch, len(again), len(matrices), reused)
		}
		delete(kept, matrices[len(matrices)/2].Name)
		third := load(t, f, kernels.Best(), team, Options{Packed: kept})
		if _, reused := third.Packed(); reused {
			t.Errorf("%s: a matrix is missing, and the others were used", arch)
		}
		wantSameBits(t, arch, runAlone(third, tokens).rows, want)
	}
}
