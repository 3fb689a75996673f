package engine

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-io/forebay/engine/model"
)

// statefulModel is a paged model whose logits depend on a state as well, which is a hash
// of the tokens that it has seen. A state that is another sequence's, was not cleared, or
// has seen a token twice changes them all.
type statefulModel struct {
	*pagedModel
	states []uint64
}

func newStatefulModel(paged *pagedModel, states int) *statefulModel {
	m := &statefulModel{paged, make([]uint64, states)}
	for i := range m.states {
		m.states[i] = rand.Uint64() // what was there before
	}
	return m
}

func (m *statefulModel) CopyState(dst, src int32) { m.states[dst] = m.states[src] }
func (m *statefulModel) ClearState(slot int32)    { m.states[slot] = 0 }

// ForwardUnless cannot be stopped: a state that has moved on cannot be computed again.
func (m *statefulModel) ForwardUnless(_ *atomic.Bool, chunks []model.Chunk) ([]float32, bool) {
	m.Forward(chunks)
	m.logits = m.logits[:0]
	for _, s := range chunks {
		pages := uint64(1)
		for i := range s.Start {
			pages = pages*31 + uint64(*m.cell(s.Pages, i))
		}
		state := &m.states[s.State]
		for i, token := range s.Tokens {
			pages = pages*31 + uint64(*m.cell(s.Pages, s.Start+i))
			*state = (*state ^ uint64(token+1)) * 1099511628211
			for _, c := range s.Checkpoints {
				if c.After == i+1 {
					m.states[c.Slot] = *state
				}
			}
			if i >= len(s.Tokens)-s.Logits {
				m.fill(*state + pages)
			}
		}
	}
	return m.logits, true
}

// TestInvarianceOfSchedulesWithStates: with few states, sequences are preempted and forks
// wait for want of one, prompts go on from checkpoints, and some are pinned. No answer shows it.
func TestInvarianceOfSchedulesWithStates(t *testing.T) {
	schedules := 60
	if testing.Short() || underRace {
		schedules = 10
	}
	invariance(t, labSetup{states: 64}, pinSome(chaosQuestions(14, 25)), schedules)
}

// pinSome asks that every third prompt stays in memory.
func pinSome(qs []question) []question {
	for i := 0; i < len(qs); i += 3 {
		qs[i].pin = pinFor(time.Hour)
	}
	return qs
}

// TestInvarianceOfBitsWithStates runs small real models of each kind of recurrent layer.
func TestInvarianceOfBitsWithStates(t *testing.T) {
	names, schedules := []string{"lfm2", "granite-hybrid", "qwen35", "falcon-h1", "mamba2"}, 6
	if underRace {
		names, schedules = names[2:4], 3
	}
	for _, name := range names {
		path := filepath.Join("..", "..", "shared", "conformance", "arch2", name+".gguf")
		if _, err := os.Stat(path); err != nil {
			t.Skipf("reference data %s is not there", path)
		}
		t.Run(name, func(t *testing.T) {
			f, err := open(path)
			if err != nil {
				t.Fatal(err)
			}
			c, err := model.ReadConfig(f.File)
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
			cfg := Config{Model: path, Threads: 2, ContextTokens: 512, KVBytes: int64(40 * c.PageBytes(1, 16)), StateBytes: int64(6 * c.StateBytes()), StateTokens: 32}
			qs := chaosQuestions(8, 12)
			for i := range qs {
				for j := range qs[i].tokens {
					qs[i].tokens[j] %= 400
				}
			}
			invariance(t, labSetup{real: true, cfg: cfg}, pinSome(qs), schedules)
		})
	}
}

// TestPrefixesGoOnFromCheckpoints: the second time a prompt computes less than a page, and
// the next turn of a chat little more than its own tokens.
func TestPrefixesGoOnFromCheckpoints(t *testing.T) {
	var sampled []int32
	b := newLab(t, labSetup{states: 8, onLogits: func(s *sequence, _ []float32) {
		if s.gen.id == "first" {
			sampled = append([]int32(nil), s.tokens...)
		}
	}})
	first := question{id: "first", tokens: prompt(1, 100), options: greedy(40)}
	mustEnd(t, first, b.ask(first))
	again := b.ask(question{id: "again", tokens: first.tokens, options: greedy(1)})
	if got := again.end.Usage.Cached; got != 96 {
		t.Errorf("the same prompt finds %d tokens of 100, want 96", got)
	}
	turn := b.ask(question{id: "turn", tokens: append(sampled, prompt(9, 10)...), options: greedy(1)})
	if got := turn.end.Usage.Cached; got != 128 {
		t.Errorf("the next turn finds %d tokens of %d, want 128", got, len(sampled)+10)
	}
}

// TestOneStateServesAll: with a single state, sequences run one after another, choices of
// one request too.
func TestOneStateServesAll(t *testing.T) {
	qs := []question{{id: "a", tokens: prompt(1, 30), options: greedy(10)}, {id: "b", tokens: prompt(2, 40), options: greedy(10), level: 1}}
	qs[0].options.N = 3
	want, _ := reference(t, labSetup{states: 16}, qs)
	_, got := together(t, labSetup{states: 1}, qs)
	for i := range qs {
		sameAnswer(t, qs[i], got[i], want[i])
	}
}
