package engine

import (
	"math"
	"slices"
	"testing"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/engine/tokenizer"
	"github.com/forebay-io/forebay/internal/cost"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/kernels"
)

func scored(n int) wire.Options {
	o := greedy(n)
	o.Logprobs, o.PromptLogprobs = true, true
	return o
}

func TestScoredPromptIsReusedAfterPreemption(t *testing.T) {
	preempted := false
	b := newLab(t, labSetup{onTurn: func(b *lab) {
		for _, s := range slices.Clone(b.loop.supply.running) {
			if s.generated == 5 && !preempted {
				preempted = true
				b.loop.supply.preempt(s)
			}
		}
	}})
	q := question{id: "q", tokens: prompt(1, 100), options: scored(20)}
	mustEnd(t, q, b.ask(q))
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	// The prompt, 19 tokens fed back, and those beyond the last whole page again.
	if rows, want := b.loop.model.(stoppable).computer.(*pagedModel).rows, 100+19+104%16; !preempted || rows != want {
		t.Errorf("%d tokens computed, preempted %v; want %d", rows, preempted, want)
	}
}

// spoiledModel gives NaN as one logit of the token at a position.
type spoiledModel struct {
	*pagedModel
	at int
}

func (m *spoiledModel) Forward(chunks []model.Chunk) []float32 {
	logits, row := m.pagedModel.Forward(chunks), 0
	for _, s := range chunks {
		first := s.Start + len(s.Tokens) - s.Logits
		if i := m.at - first; i >= 0 && i < s.Logits {
			logits[(row+i)*m.vocab+7] = float32(math.NaN())
		}
		row += s.Logits
	}
	return logits
}

func TestNumbersThatAreNotFiniteEndAScoredPrompt(t *testing.T) {
	b := newLab(t, labSetup{model: &spoiledModel{newPagedModel(1901, 16, 256), 30}})
	a := b.ask(question{id: "q", tokens: prompt(1, 50), options: scored(5)})
	if a.end.Err == nil || a.end.Err.Kind != wire.NonFinite {
		t.Errorf("ended with %v; want %v", a.end.Err, wire.NonFinite)
	}
	b.mustIdle()
	if n := b.State().NonFinite; n != 1 {
		t.Errorf("%d rows counted; want 1", n)
	}
}

// logitsModel knows the most logits that one step asked for.
type logitsModel struct {
	*pagedModel
	most int
}

func (m *logitsModel) Forward(chunks []model.Chunk) []float32 {
	rows := 0
	for _, s := range chunks {
		rows += s.Logits
	}
	m.most = max(m.most, rows)
	return m.pagedModel.Forward(chunks)
}

func TestScoredPromptsShareAStepsRows(t *testing.T) {
	gate := make(chan struct{})
	counted := &logitsModel{pagedModel: newPagedModel(1901, 16, 256)}
	b := newLab(t, labSetup{model: counted, onTurn: func(b *lab) {
		<-gate
		b.loop.ledger.fit.Restore(cost.Cost{PrefillToken: 1})
	}})
	const prompts = 6
	var qs []question
	for i := range prompts {
		qs = append(qs, question{id: string(rune('a' + i)), tokens: prompt(uint64(i), 100), options: scored(2)})
	}
	answers := b.askAllAfter(qs, func() { close(gate) })
	for i, a := range answers {
		mustEnd(t, qs[i], a)
		if len(a.prompt) != 100 {
			t.Errorf("%d log-probabilities of a prompt; want 100", len(a.prompt))
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if counted.most > promptRowsMax+prompts {
		t.Errorf("a step kept the logits of %d tokens; want at most %d and one for each prompt", counted.most, promptRowsMax)
	}
}

// newSpelling is a lab whose every choice says the characters of text, a
// token each, and then any token.
func newSpelling(t *testing.T, text string) *lab {
	var ids []int32
	b := newLab(t, labSetup{onLogits: func(s *sequence, x []float32) {
		if s.generated < len(ids) {
			x[ids[s.generated]] = 1e6
		}
	}})
	for _, c := range text {
		ids = append(ids, b.loaded.tokenizer.Encode(nil, string(c), tokenizer.EncodeOptions{})...)
	}
	if len(ids) != len(text) {
		t.Fatalf("%q has %d tokens; want one for each character", text, len(ids))
	}
	return b
}

func TestLogprobsOfHeldText(t *testing.T) {
	for name, c := range map[string]struct {
		maxTokens int
		stop      []string
		text      string
		finish    wire.Finish
		counted   int // tokens generated
		logprobs  int
	}{
		"no stop":                           {4, nil, "abcd", wire.FinishLength, 4, 4},
		"one token":                         {1, nil, "a", wire.FinishLength, 1, 1},
		"stop at the first token":           {4, []string{"a"}, "", wire.FinishStop, 1, 0},
		"stop at the last token":            {4, []string{"d"}, "abc", wire.FinishStop, 4, 3},
		"held to the end, no stop":          {4, []string{"bcdX"}, "abcd", wire.FinishLength, 4, 4},
		"held to the end, a stop within":    {4, []string{"abcdX", "c"}, "ab", wire.FinishStop, 4, 2},
		"held from the first token, a stop": {1, []string{"aX", "a"}, "", wire.FinishStop, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newSpelling(t, "abcd")
			o := wire.Options{N: 2, MaxTokens: c.maxTokens, Stop: c.stop, Logprobs: true, IgnoreEOS: true}
			a := b.ask(question{id: "q", tokens: prompt(1, 20), options: o})
			mustEnd(t, question{id: name}, a)
			for i := range 2 {
				if a.texts[i] != c.text || a.finishes[i] != c.finish || a.counts[i] != c.counted || len(a.logprobs[i]) != c.logprobs {
					t.Errorf("choice %d: %q, finish %v, %d tokens, %d log-probabilities; want %+v",
						i, a.texts[i], a.finishes[i], a.counts[i], len(a.logprobs[i]), c)
				}
			}
			if a.end.Usage.Completion != 2*c.counted || a.end.Timings.Steps != c.counted {
				t.Errorf("%d tokens counted in %d steps; want %d in %d", a.end.Usage.Completion, a.end.Timings.Steps, 2*c.counted, c.counted)
			}
			b.mustIdle()
		})
	}
}

func TestPaddingIsNoRival(t *testing.T) {
	b := newDemo(t, Config{})
	logits := make([]float32, 2048)
	for i := range logits {
		logits[i] = float32(i)
	}
	l := loop{set: kernels.Best(), info: &b.info, tokenizer: b.loaded.tokenizer}
	if top := l.logprob(from{logits: logits}, 3, 2).Top; len(top) != 2 || top[0].ID != 1900 || top[1].ID != 1899 {
		t.Errorf("the likeliest of 1,901 tokens are %v", top)
	}
}
