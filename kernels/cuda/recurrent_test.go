//go:build cuda

package cuda

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/forebay-io/forebay/internal/cudrv"
)

// TestConvolve: the rows of several sequences are convolved with those before them, in the batch or in their states, and
// the states and the checkpoints that are kept have the last inputs.
func TestConvolve(t *testing.T) {
	b, r := newBench(t), rand.New(rand.NewPCG(10, 0))
	const channels, stateLen, slots = 300, 2000, 6
	for _, taps := range []int{3, 5} {
		x := batch{
			positions: make([]int32, 12), firsts: []int32{0, 0, 0, 0, 0, 0, 0, 7, 8, 8, 8, 8}, states: []int32{4, 4, 4, 4, 4, 4, 4, 0, 2, 2, 2, 2},
			runs: []int32{0, 7, 8}, runRows: []int32{7, 1, 4}, checkpointRows: []int32{0, 5, 10}, checkpointSlots: []int32{5, 1, 3},
		}
		n := len(x.positions)
		projected, weights, states := random(r, n*3*channels), random(r, taps*channels), random(r, slots*stateLen)
		want, after := make([]float32, 0, n*channels), slices.Clone(states)
		for i, first := range x.runs {
			state := states[int(x.states[first])*stateLen:][:(taps-1)*channels]
			inputs := slices.Clone(state)
			for row := first; row < first+x.runRows[i]; row++ {
				p := projected[int(row)*3*channels:]
				for c := range channels {
					inputs = append(inputs, p[c]*p[2*channels+c])
				}
				at := len(inputs) - taps*channels
				for c := range channels {
					sum := float32(0)
					for tap := range taps {
						sum += float32(inputs[at+tap*channels+c] * weights[tap*channels+c])
					}
					want = append(want, sum*p[channels+c])
				}
				keep := func(slot int32) { copy(after[int(slot)*stateLen:], inputs[at+channels:]) }
				if k := slices.Index(x.checkpointRows, row); k >= 0 {
					keep(x.checkpointSlots[k])
				}
				if row == first+x.runRows[i]-1 {
					keep(x.states[first])
				}
			}
		}
		got := b.inOrders(func() []float32 {
			in, out, at, dstates := b.batch(x), b.alloc(4*n*channels), b.numbers(projected), b.numbers(states)
			b.args.Reset().At(out, at, b.numbers(weights), dstates).Int(stateLen, channels, taps).At(in)
			b.launch("convolve", cudrv.Grid{2, n + 1, 1}, 256, 0)
			b.args.Reset().At(dstates, at).Int(stateLen, channels, taps).At(in)
			b.launch("keep_inputs", cudrv.Grid{2, len(x.runs) + 1, 1}, 256, 0)
			return append(b.get(out, n*channels), b.get(dstates, len(states))...)
		})
		b.near(got, append(want, after...), func(int) float64 { return 1e-6 })
	}
}
