package engine

import (
	"math"
	"slices"
	"testing"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/wire"
)

func scored(n int) wire.Options {
	o := greedy(n)
	o.Logprobs, o.PromptLogprobs = true, true
	return o
}

func TestScoredPromptIsReusedAfterPreemption(t *testing.T) {
	preempted := false
	b := newLab(t, labSetup{onTurn: func(b *lab) {
		for _, s := range slices.Clone(b.loop.running) {
			if s.generated == 5 && !preempted {
				preempted = true
				b.loop.preempt(s)
			}
		}
	}})
	q := question{id: "q", tokens: prompt(1, 100), options: scored(20)}
	mustEnd(t, q, b.ask(q))
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	// The prompt, 19 tokens fed back, and those beyond the last whole page again.
	if rows, want := b.loop.model.(*pagedModel).rows, 100+19+104%16; !preempted || rows != want {
		t.Errorf("%d tokens computed, preempted %v; want %d", rows, preempted, want)
	}
}

// spoiledModel gives NaN as one logit of the token at a position.
type spoiledModel struct {
	*pagedModel
	at int
}

func (m *spoiledModel) Forward(spans []model.Span) []float32 {
	logits, row := m.pagedModel.Forward(spans), 0
	for _, s := range spans {
		first := s.Start + len(s.Tokens) - s.Logits
		if i := m.at - first; i >= 0 && i < s.Logits {
			logits[(row+i)*m.vocab+7] = float32(math.NaN())
		}
		row += s.Logits
	}
	return logits
}

func TestF02InAScoredPrompt(t *testing.T) {
	b := newLab(t, labSetup{onTurn: func(b *lab) {
		if m, ok := b.loop.model.(*pagedModel); ok {
			b.loop.model = &spoiledModel{m, 30}
		}
	}})
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

func (m *logitsModel) Forward(spans []model.Span) []float32 {
	rows := 0
	for _, s := range spans {
		rows += s.Logits
	}
	m.most = max(m.most, rows)
	return m.pagedModel.Forward(spans)
}

func TestScoredPromptsShareAStepsRows(t *testing.T) {
	gate := make(chan struct{})
	var counted *logitsModel
	b := newLab(t, labSetup{onTurn: func(b *lab) {
		<-gate
		if counted == nil {
			counted = &logitsModel{pagedModel: b.loop.model.(*pagedModel)}
			b.loop.model = counted
		}
		b.loop.cost = stepCost{prefillToken: 1, known: true}
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
