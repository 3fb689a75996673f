package engine

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/wire"
)

// patientModel ends a pass when the masks of its sequences are found, and not before.
type patientModel struct {
	*pagedModel
	lab           *lab
	found, passes atomic.Int64
}

func (m *patientModel) Forward(chunks []model.Chunk) []float32 {
	a := &m.lab.loop.ahead
	a.mu.Lock()
	for len(a.list) > 0 || a.finding != nil {
		a.done.Wait()
	}
	a.mu.Unlock()
	for _, s := range m.lab.loop.supply.running {
		if s.masked {
			m.found.Add(1)
		}
	}
	m.passes.Add(1)
	return m.pagedModel.Forward(chunks)
}

// TestMasksAreFoundWhileTheModelComputes: a pass that waits for the masks of its
// sequences ends, so they are found beside it, one for each token; and the answers are
// those of masks that the loop finds after the pass.
func TestMasksAreFoundWhileTheModelComputes(t *testing.T) {
	form := schemaOf(`{"type":"array","items":{"type":"string","pattern":"^[a-z]+[0-9]{2,5}$"},"minItems":3}`)
	var qs []question
	for i := range 4 {
		q := question{id: fmt.Sprint(i), tokens: prompt(uint64(i), 20), options: wire.Options{N: 1, MaxTokens: 30}}
		q.options.Grammar = form
		if i == 3 {
			q.options.N, q.options.Temperature, q.options.Seed = 2, 1, 7
		}
		qs = append(qs, q)
	}
	patient := &patientModel{pagedModel: newPagedModel(1901, 16, 100)}
	b := newLab(t, labSetup{model: patient, pages: 100})
	patient.lab = b
	b.grammars.forgets = true // every mask is worth finding
	plain := newLab(t, labSetup{pages: 100})
	tokens := 0
	for i, a := range b.askAll(qs) {
		mustEnd(t, qs[i], a)
		sameAnswer(t, qs[i], a, plain.ask(qs[i]))
		for _, n := range a.counts {
			tokens += n
		}
	}
	if found := int(patient.found.Load()); found < tokens*9/10 || found > tokens {
		t.Errorf("%d masks of %d tokens were found during %d passes", found, tokens, patient.passes.Load())
	}
}

// TestTheLoopNeedsNoOtherGoroutine: where no core is free for masks during the pass, the
// loop finds them after it.
func TestTheLoopNeedsNoOtherGoroutine(t *testing.T) {
	l := manualLoop(t, "", 2)
	hold(t, l, `{"type":"array","items":{"type":"integer"},"minItems":100}`, false)
	l.ahead.wake, l.ahead.ended = make(chan struct{}, 1), make(chan struct{}) // it never gets a core
	var taken []wire.Event
	for range 30 {
		taken = l.turnTaking(taken)
	}
	for _, s := range l.supply.running {
		if s.generated < 25 || s.gen.ended {
			t.Errorf("%d tokens after 30 turns", s.generated)
		}
	}
	if len(l.supply.running) != 2 {
		t.Errorf("%d sequences run; want 2", len(l.supply.running))
	}
}
