package engine

import (
	"testing"
)

// newPausing is a lab that pauses each generation whose name begins with q once, after
// two steps of it.
func newPausing(t *testing.T, setup labSetup) *lab {
	paused := map[string]bool{}
	setup.onTurn = func(b *lab) {
		for _, s := range b.loop.supply.running {
			if id := s.gen.id; id[0] == 'q' && s.gen.account.timings.Steps == 2 && !paused[id] {
				paused[id] = true
				s.gen.Pause()
			}
		}
	}
	return newLab(t, setup)
}

func TestPauseKeepsPagesAndResumes(t *testing.T) {
	b := newPausing(t, labSetup{cfg: Config{StreamEventsMax: 1 << 16}})
	q := question{id: "q", tokens: prompt(1, 40), options: greedy(400)}
	s, notify := b.begin(q)
	waitFor(t, func() bool { return b.State().Paused == 1 && b.State().Running == 0 })
	step := b.State().Step
	if step != 2 || s.Waiting() != 2 || b.State().PagesUsed == 0 {
		t.Errorf("paused after %d steps with %d events and %d pages", step, s.Waiting(), b.State().PagesUsed)
	}
	if other := b.ask(question{id: "other", tokens: prompt(2, 10), options: greedy(5)}); other.end.Err != nil {
		t.Error(other.end.Err)
	}
	if got := b.State().Step - step; got != 5 {
		t.Errorf("%d steps beside a paused generation; want the other's 5", got)
	}
	s.Resume()
	a := b.read(s, notify, 1)
	mustEnd(t, q, a)
	if alone := newLab(t, labSetup{}).ask(q); alone.texts[0] != a.texts[0] {
		t.Error("pausing changed the answer")
	}
}

func TestPausedPrefillHoldsNobodyOff(t *testing.T) {
	b := newPausing(t, labSetup{cfg: Config{BatchTokensMax: 7}}) // so two steps leave a block half done
	q := question{id: "q", tokens: prompt(1, 200), options: greedy(3)}
	s, notify := b.begin(q)
	waitFor(t, func() bool { return b.State().Paused == 1 })
	same := question{id: "same", tokens: q.tokens, options: q.options}
	first := b.ask(same) // whose next block the paused one had begun
	mustEnd(t, same, first)
	s.Resume()
	if a := b.read(s, notify, 1); a.end.Err != nil || a.texts[0] != first.texts[0] {
		t.Errorf("the paused one answered %q, error %v; want %q", a.texts[0], a.end.Err, first.texts[0])
	}
}

func TestSlowReaderParksOnlyItself(t *testing.T) {
	b := newLab(t, labSetup{cfg: Config{StreamEventsMax: 4}})
	slow, notify := b.begin(question{id: "slow", tokens: prompt(1, 10), options: greedy(50)})
	waitFor(t, func() bool { return b.State().Paused == 1 })
	if slow.Waiting() != 4 {
		t.Errorf("%d events wait; want 4", slow.Waiting())
	}
	if a := b.ask(question{id: "quick", tokens: prompt(2, 10), options: greedy(50)}); a.counts[0] != 50 {
		t.Errorf("the quick one got %d tokens; want 50", a.counts[0])
	}
	if a := b.read(slow, notify, 1); a.counts[0] != 50 {
		t.Errorf("the slow one got %d tokens; want 50", a.counts[0])
	}
}
