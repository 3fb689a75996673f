package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/gguf/gguftest"
	"github.com/forebay-io/forebay/kernels"
)

// odd is a model whose sizes are no multiples of a row tile or a vector.
var odd = gguftest.Tiny{Layers: 2, Embed: 40, FF: 104, Heads: 6, KVHeads: 2, HeadDim: 10, Vocab: 277, Seed: 3, Untied: true}

func parseTiny(t *testing.T, shape gguftest.Tiny) *gguf.File {
	t.Helper()
	f, err := gguf.Parse("tiny", gguftest.TinyModel(shape))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func randomTokens(rng *rand.Rand, n, vocab int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = rng.Int32N(int32(vocab))
	}
	return tokens
}

var kvTypes = []kernels.KVType{kernels.KVF32, kernels.KVF16, kernels.KVInt8}

// runner is a sequence on its way through random calls.
type runner struct {
	tokens []int32
	done   int
	pages  []int32
	state  int32
	kept   []Checkpoint // After counts all tokens
	moves  int
	rows   [][]float32 // logits of each token, where they were asked for
}

// keep stores the logits of a chunk's last tokens and returns the rest.
func (r *runner) keep(s Chunk, logits []float32, vocab int) []float32 {
	for i := range s.Logits {
		r.rows[s.Start+len(s.Tokens)-s.Logits+i] = append([]float32(nil), logits[i*vocab:(i+1)*vocab]...)
	}
	r.done += len(s.Tokens)
	return logits[s.Logits*vocab:]
}

// runAlone gives the logits of every token, from one call for the whole.
func runAlone(m *Model, tokens []int32) *runner {
	r := &runner{tokens: tokens, rows: make([][]float32, len(tokens)), pages: firstPages(m.Options().Pages)}
	s := Chunk{Tokens: tokens, Pages: r.pages, Logits: len(tokens)}
	m.ClearState(0)
	r.keep(s, m.Forward([]Chunk{s}), m.Config().Vocab)
	return r
}

// runTogether computes sequences in one random schedule: chunks of any size,
// batches of any sequences in any order, pages anywhere, copied at times. States are
// anywhere too, where another's was; they move, and at times a sequence goes back to one
// that was kept on its way.
func runTogether(m *Model, rng *rand.Rand, sequences [][]int32) []*runner {
	free := make([]int32, m.Options().Pages)
	for i, p := range rng.Perm(len(free)) {
		free[i] = int32(p)
	}
	for i := range m.states { // what others have left
		m.states[i] = float32(rng.NormFloat64())
	}
	states := rng.Perm(m.Options().States)
	runners := make([]*runner, len(sequences))
	for i, tokens := range sequences {
		n := (len(tokens) + m.Options().PageTokens - 1) / m.Options().PageTokens
		runners[i] = &runner{tokens: tokens, rows: make([][]float32, len(tokens)), pages: free[:n:n]}
		free = free[n:]
		if m.stateLen > 0 {
			runners[i].state, states = int32(states[0]), states[1:]
			m.ClearState(runners[i].state)
		}
	}
	singles := rng.IntN(4) == 0
	for {
		var chunks []Chunk
		var of []*runner
		room := m.Options().BatchTokensMax
		for _, i := range rng.Perm(len(runners)) {
			r := runners[i]
			n := min(len(r.tokens)-r.done, room)
			if n == 0 || len(chunks) > 0 && rng.IntN(3) == 0 {
				continue
			}
			if m.stateLen > 0 && r.moves < 3 && rng.IntN(6) == 0 {
				r.moves++
				states = r.move(m, rng, states)
				n = min(len(r.tokens)-r.done, room)
			}
			if n = 1 + rng.IntN(n); singles {
				n = 1
			}
			if rng.IntN(4) == 0 && len(free) > 0 { // a page moves, as copy-on-write moves it
				at := rng.IntN(len(r.pages))
				m.CopyPage(free[0], r.pages[at])
				r.pages[at], free[0] = free[0], r.pages[at]
			}
			logits := []int{0, 1, n}[rng.IntN(3)]
			s := Chunk{Tokens: r.tokens[r.done : r.done+n], Start: r.done, Pages: r.pages, Logits: logits, State: r.state}
			if m.stateLen > 0 && len(states) > 1 && rng.IntN(3) == 0 {
				s.Checkpoints = []Checkpoint{{1 + rng.IntN(n), int32(states[0])}}
				r.kept, states = append(r.kept, Checkpoint{r.done + s.Checkpoints[0].After, int32(states[0])}), states[1:]
			}
			chunks = append(chunks, s)
			of, room = append(of, r), room-n
		}
		if len(chunks) == 0 {
			return runners
		}
		logits := m.Forward(chunks)
		for i, s := range chunks {
			logits = of[i].keep(s, logits, m.Config().Vocab)
		}
	}
}

// move puts the state into another slot: a copy of what it is, or of one that was kept,
// from which the sequence then goes on. It returns the slots that are free.
func (r *runner) move(m *Model, rng *rand.Rand, states []int) []int {
	from, old := r.state, r.state
	if len(r.kept) > 0 {
		back := r.kept[rng.IntN(len(r.kept))]
		from, r.done = back.Slot, back.After
	}
	if len(states) == 0 || r.done == len(r.tokens) {
		return r.restart(m, states)
	}
	r.state = int32(states[0])
	m.CopyState(r.state, from)
	return append(states[1:], int(old))
}

// restart begins with the first token again, in the same slot.
func (r *runner) restart(m *Model, states []int) []int {
	r.done = 0
	m.ClearState(r.state)
	return states
}

func TestLogitsAreBitInvariantOverSchedules(t *testing.T) {
	shapes := []gguftest.Tiny{odd}
	for _, tp := range []kernels.Type{kernels.F16, kernels.BF16, kernels.Q8_0, kernels.Q4_0} {
		shapes = append(shapes, gguftest.Tiny{Type: tp, Seed: uint64(tp), Embed: 64, FF: 96, Heads: 4, KVHeads: 1, HeadDim: 16, Vocab: 270})
	}
	// KV heads that share blocks
	shapes = append(shapes, gguftest.Tiny{Type: kernels.Q4_0, Seed: 11, Embed: 64, FF: 96, Heads: 4, KVHeads: 4, HeadDim: 16, Vocab: 270})
	for _, set := range kernels.Sets() {
		for _, shape := range shapes {
			rounds := 12
			if underRace || !set.InAssembly(shape.Type) {
				rounds = 4
			}
			t.Run(fmt.Sprintf("%s/%s", set.Name, shape.Type), func(t *testing.T) {
				f := parseTiny(t, shape)
				rng := rand.New(rand.NewPCG(7, uint64(shape.Type)))
				for round := range rounds {
					kv := kvTypes[round%len(kvTypes)]
					alone := load(t, f, set, newTeam(t, 1), Options{KVType: kv})
					together := load(t, f, set, newTeam(t, 1+rng.IntN(4)),
						Options{PageTokens: 1 + rng.IntN(20), Pages: 400, BatchTokensMax: 20 + rng.IntN(60), KVType: kv})
					var sequences [][]int32
					for range 1 + rng.IntN(4) {
						sequences = append(sequences, randomTokens(rng, 1+rng.IntN(80), shape.Vocab))
					}
					for i, got := range runTogether(together, rng, sequences) {
						wantSameBits(t, fmt.Sprintf("round %d, keys and values in %v, sequence %d", round, kv, i), got.rows, runAlone(alone, sequences[i]).rows)
					}
				}
			})
		}
	}
}

// wantSameBits compares the rows that got has.
func wantSameBits(t *testing.T, name string, got, want [][]float32) {
	t.Helper()
	for i := range got {
		for j := range got[i] {
			if math.Float32bits(got[i][j]) != math.Float32bits(want[i][j]) {
				t.Fatalf("%s: token %d, logit %d is %v, alone %v", name, i, j, got[i][j], want[i][j])
			}
		}
	}
}

// TestScheduleTestSeesAWrongPage is the control: a page table with two pages
// swapped must change the logits.
func TestScheduleTestSeesAWrongPage(t *testing.T) {
	m := load(t, parseTiny(t, odd), kernels.Sets()[0], newTeam(t, 1), Options{})
	tokens := randomTokens(rand.New(rand.NewPCG(1, 1)), 40, odd.Vocab)
	want := append([]float32(nil), runAlone(m, tokens).rows[39]...)
	pages := firstPages(m.Options().Pages)
	again := func() float64 {
		return nmse(m.Forward([]Chunk{{Tokens: tokens[39:], Start: 39, Pages: pages, Logits: 1}}), want)
	}
	if d := again(); d != 0 {
		t.Fatalf("NMSE %g with the right pages", d)
	}
	pages[0], pages[1] = pages[1], pages[2]
	if again() == 0 {
		t.Error("wrong pages give the same logits")
	}
}
