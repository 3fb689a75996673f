//go:build cuda

package gpu

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/kernels"
)

// TestStatesDoNotDependOnSchedule: a sequence of a model with states has the same bits alone, in any batch and in any
// chunks, and from each checkpoint on, in any order in which a GPU may run threads.
func TestStatesDoNotDependOnSchedule(t *testing.T) {
	d := openDevice(t)
	for _, name := range []string{"lfm2", "lfm2moe"} {
		r := read(t, shared(t, "arch2", name+".gguf"))
		t.Run(name, func(t *testing.T) {
			const length, sequences, spare = 24, 3, 5 // spare is a slot for checkpoints
			m := load(t, r.file, model.Options{ContextTokens: 64, PageTokens: 8, Pages: 8 * (sequences + 1), States: spare + 1, KVType: kernels.KVF16, Device: d})
			ids, vocab, tables := r.IDs[:length], m.Config().Vocab, make([][]int32, sequences)
			for s := range tables {
				tables[s] = inOrder(8 * (sequences + 1))[8*s:][:8]
			}
			own := inOrder(8 * (sequences + 1))[8*sequences:]
			const ownState = sequences
			alone := slices.Clone(m.Forward([]model.Chunk{{Tokens: ids, Pages: own, Logits: length, State: ownState}}))
			check := func(position int, logits []float32) {
				t.Helper()
				if !slices.Equal(logits, alone[position*vocab:(position+1)*vocab]) {
					t.Fatalf("position %d has other bits", position)
				}
			}
			for round, order := range []string{"forward", "reverse", "random"} {
				t.Setenv("FOREBAY_EMU_ORDER", order)
				for s := range tables {
					m.ClearState(int32(s))
				}
				checkSchedule(t, m, ids, tables, rand.New(rand.NewPCG(uint64(round), 2)), check)
				at := 1 + 7*round // 1, 8 and 15
				m.ClearState(ownState)
				m.Forward([]model.Chunk{{Tokens: ids, Pages: own, State: ownState, Checkpoints: []model.Checkpoint{{After: at, Slot: spare}, {After: length, Slot: spare - 1}}}})
				m.CopyState(ownState, spare)
				for i, end := range []int{at + 2, length} {
					from := []int{at, at + 2}[i]
					check(end-1, m.Forward([]model.Chunk{{Tokens: ids[from:end], Start: from, Pages: own, Logits: 1, State: ownState}}))
				}
			}
			// The checkpoint at the end is the state there: a token after it has the same bits as one after the sequence.
			next := model.Chunk{Tokens: r.IDs[length : length+1], Start: length, Pages: own, Logits: 1, State: ownState}
			want := slices.Clone(m.Forward([]model.Chunk{next}))
			if next.State = spare - 1; !slices.Equal(m.Forward([]model.Chunk{next}), want) {
				t.Error("the checkpoint at the end is another state")
			}
		})
	}
}
