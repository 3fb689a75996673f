package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// stateScript plays the model for a pool with states: a slot holds what contents gives of
// the tokens that it has seen, or garbage.
type stateScript struct {
	pool  *Pool
	slots []string
	seqs  []*scriptSeq
}

func newStateScript(t testing.TB, c Config) *stateScript {
	t.Helper()
	pool, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	x := &stateScript{pool: pool, slots: make([]string, c.States)}
	for i := range x.slots {
		x.slots[i] = "garbage"
	}
	return x
}

func (x *stateScript) open(salt string, tokens []int32) *scriptSeq {
	if !x.pool.HasState() {
		return nil
	}
	s := &scriptSeq{Seq: x.pool.Open(salt, tokens), tokens: tokens}
	x.seqs = append(x.seqs, s)
	return s
}

func (x *stateScript) close(s *scriptSeq) {
	x.pool.Close(s.Seq)
	x.seqs = slices.DeleteFunc(x.seqs, func(o *scriptSeq) bool { return o == s })
}

// compute reserves, computes and commits the next n tokens of a sequence.
func (x *stateScript) compute(s *scriptSeq, n int) error {
	if _, ok := x.pool.Reserve(s.Seq, n, nil); !ok {
		return nil
	}
	return x.step([]*scriptSeq{s}, n)
}

// step computes n tokens of each sequence, as one step of the model.
func (x *stateScript) step(seqs []*scriptSeq, n int) error {
	for _, c := range x.pool.StateCopies() {
		if x.slots[c.Dst] = ""; c.Src != NoState {
			x.slots[c.Dst] = x.slots[c.Src]
		}
	}
	for _, s := range seqs {
		if want := seen(s.tokens[:s.Len()]); x.slots[s.State()] != want {
			return fmt.Errorf("a state of %d tokens is %q", s.Len(), x.slots[s.State()])
		}
		for i := s.Len(); i < s.Len()+n; i++ {
			x.slots[s.State()] += seen(s.tokens[i : i+1])
			for _, c := range s.Checkpoints() {
				if c.Tokens == i+1 {
					x.slots[c.Slot] = x.slots[s.State()]
				}
			}
		}
		x.pool.Commit(s.Seq, s.tokens[s.Len():s.Len()+n])
	}
	return x.pool.Check()
}

func seen(tokens []int32) (text string) {
	for _, t := range tokens {
		text += fmt.Sprint(t, " ")
	}
	return text
}

// TestStatesFollowTheirSequences runs random operations: whatever is opened, forked,
// preempted, pinned or evicted, a sequence computes from the state of its own tokens.
func TestStatesFollowTheirSequences(t *testing.T) {
	attached, pinned := 0, 0
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 16))
		c := Config{Pages: 8 + r.IntN(30), PageTokens: 1 + r.IntN(5), States: 1 + r.IntN(8), StateTokens: r.IntN(3) * 7}
		c.Pins = PinLimits{Pins: 1 + r.IntN(4), Pages: c.Pages / 2, States: c.States - 1}
		x := newStateScript(t, c)
		prompts := [][]int32{randomPrompt(r, 40), randomPrompt(r, 40)}
		for op := range 200 {
			var err error
			switch k := r.IntN(12); {
			case k < 3 || len(x.seqs) == 0:
				prompt := prompts[r.IntN(2)][:1+r.IntN(40)]
				if s := x.open("", append(slices.Clone(prompt), randomPrompt(r, r.IntN(4))...)); s != nil && s.Len() > 0 {
					attached++
				}
				if len(x.seqs) == 0 {
					t.Fatalf("seed %d: no sequence can be opened", seed)
				}
			case k < 7:
				s := x.seqs[r.IntN(len(x.seqs))]
				if s.Len() == len(s.tokens) {
					s.tokens = append(slices.Clip(s.tokens), r.Int32N(3))
				}
				if x.pool.Claim(s.Seq, s.tokens) {
					err = x.compute(s, 1+r.IntN(len(s.tokens)-s.Len()))
				}
			case k < 8:
				s := x.seqs[r.IntN(len(x.seqs))]
				if x.pool.HasState() && s.Len() > 0 {
					x.seqs = append(x.seqs, &scriptSeq{Seq: x.pool.Fork(s.Seq), tokens: slices.Clone(s.tokens)})
				}
			case k < 9:
				x.close(x.seqs[r.IntN(len(x.seqs))])
			case k < 10:
				s := x.seqs[r.IntN(len(x.seqs))]
				if _, why := x.pool.Pin("", append(s.tokens[:s.Len():s.Len()], 0), time.Duration(op+r.IntN(60)), 100); why == PinDone {
					pinned++
				}
			case k < 11:
				x.pool.Unpin("", prompts[r.IntN(2)][:1+r.IntN(40)])
				x.pool.ExpirePins(time.Duration(op))
			default: // reserved, and not computed
				x.pool.Reserve(x.seqs[r.IntN(len(x.seqs))].Seq, 1+r.IntN(9), nil)
			}
			if err == nil {
				err = x.pool.Check()
			}
			if err != nil {
				t.Fatalf("seed %d, operation %d, %+v: %v", seed, op, c, err)
			}
		}
	}
	if attached < 100 || pinned < 100 {
		t.Errorf("only %d sequences began with what others had computed, and %d prompts were pinned", attached, pinned)
	}
}

func randomPrompt(r *rand.Rand, n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = r.Int32N(3)
	}
	return tokens
}

func upTo(n int) (tokens []int32) {
	for i := range n {
		tokens = append(tokens, int32(i))
	}
	return tokens
}

// TestWhereCheckpointsAre: at the prompt's last border, every so often, where prompts part,
// and where an answer ends.
func TestWhereCheckpointsAre(t *testing.T) {
	x := newStateScript(t, Config{Pages: 100, PageTokens: 4, States: 20, StateTokens: 16})
	run := func(tokens []int32, prompt, chunk int) {
		t.Helper()
		s := x.open("", tokens[:prompt])
		for s.Len() < len(tokens) {
			n := min(chunk, max(1, prompt-s.Len()))
			s.tokens = tokens
			if err := x.compute(s, n); err != nil {
				t.Fatal(err)
			}
		}
		x.close(s)
	}
	want := func(what string, tokens []int32, want int) {
		t.Helper()
		if got := x.pool.Match("", tokens); got != want {
			t.Errorf("%s finds %d tokens, want %d", what, got, want)
		}
	}
	run(upTo(54), 47, 13) // a prompt of 47 tokens in chunks of 13, and an answer of 7
	want("the same prompt", upTo(47), 44)
	want("the next turn", append(upTo(54), 7, 7, 7), 52)
	want("a prompt that parts at 30", append(upTo(30), 9, 9, 9, 9, 9), 16)
	other := append(upTo(30), 9, 9, 9, 9, 9)
	run(other, len(other), 100) // has seen that 28 tokens are known
	want("the third that parts at 30", append(upTo(30), 8, 8, 8, 8, 8), 28)
	if c := x.pool.StateCounts(); c.Used != 0 || c.Free+c.Cached != 20 || c.Cached > 10 {
		t.Errorf("%+v: checkpoints that follow a sequence are left behind", c)
	}
	if c := x.pool.StateCounts(); c.Restored != 1 || c.Unreached != 28-16 || c.Dropped != 0 || c.Made < uint64(c.Cached) {
		t.Errorf("%+v: of two prompts one went on from a checkpoint, at 16 of 28 known tokens", c)
	}
}

// TestStatesRunOut: sequences come before checkpoints, of which the oldest gives way.
func TestStatesRunOut(t *testing.T) {
	x := newStateScript(t, Config{Pages: 100, PageTokens: 4, States: 3})
	first := x.open("a", upTo(9))
	if err := x.compute(first, 9); err != nil {
		t.Fatal(err)
	}
	x.close(first)
	if got := x.pool.Match("a", upTo(9)); got != 8 {
		t.Fatalf("%d tokens are found, want 8", got)
	}
	var open []*scriptSeq
	for i := range 3 {
		open = append(open, x.open(fmt.Sprint(i), upTo(9)))
	}
	if x.pool.HasState() || x.open("more", upTo(3)) != nil {
		t.Error("a fourth state is there")
	}
	if got := x.pool.Match("a", upTo(9)); got != 0 {
		t.Errorf("%d tokens are found after their state was taken", got)
	}
	for _, s := range open {
		if err := x.compute(s, 9); err != nil {
			t.Fatal(err)
		}
	}
	x.close(open[0])
	if again := x.open("0", upTo(9)); again == nil || again.Len() != 0 {
		t.Error("a state that nobody kept is found")
	}
}
