package engine

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/forebay-io/forebay/engine/model"
	"github.com/forebay-io/forebay/internal/wire"
)

// together asks all questions before the first turn.
func together(t *testing.T, set labSetup, qs []question) (*lab, []answer) {
	gate := make(chan struct{})
	set.onTurn = func(*lab) { <-gate }
	b := newLab(t, set)
	streams, notifies := make([]*wire.Stream, len(qs)), make([]chan struct{}, len(qs))
	for i, q := range qs {
		streams[i], notifies[i] = b.begin(q)
	}
	close(gate)
	answers := make([]answer, len(qs))
	for i, q := range qs {
		answers[i] = b.read(streams[i], notifies[i], max(1, q.options.N))
		mustEnd(t, q, answers[i])
	}
	return b, answers
}

func TestOnlyYoungerOnesArePreempted(t *testing.T) {
	var qs []question
	for i := range 3 {
		qs = append(qs, question{id: fmt.Sprint(i), tokens: prompt(uint64(i), 50+5*i), options: greedy(110), key: int64(-i)})
	}
	_, answers := together(t, labSetup{pages: 12}, qs)
	if first, last := answers[0].end.Timings.Preempted, answers[2].end.Timings.Preempted; first > 0 || last == 0 {
		t.Errorf("the oldest was preempted %d times, the youngest %d times; want the youngest alone", first, last)
	}
}

func TestPagesPromisedToAPrefillLetNobodyIn(t *testing.T) {
	qs := []question{
		{id: "first", tokens: prompt(1, 100), options: greedy(50)},
		{id: "second", tokens: prompt(2, 100), options: greedy(50)},
	}
	b, _ := together(t, labSetup{pages: 10, cfg: Config{BatchTokensMax: 20}}, qs)
	if n := b.State().Preempted; n != 0 {
		t.Errorf("%d preempted: the second was let in beside the first", n)
	}
}

func TestWaitingOnesPreemptOnlyWhenOldest(t *testing.T) {
	qs := []question{
		{id: "oldest", tokens: prompt(1, 60), options: greedy(60)},
		{id: "large", tokens: prompt(2, 140), options: greedy(10)},
		{id: "small", tokens: prompt(3, 20), options: greedy(30)},
	}
	b, answers := together(t, labSetup{pages: 12}, qs)
	if n := b.State().Preempted; n != 0 {
		t.Errorf("%d preempted; want the large one to wait", n)
	}
	if answers[2].end.Timings.Finished > answers[1].end.Timings.Scheduled {
		t.Error("the small one did not pass the large one")
	}
}

func TestOldestNeedsNoPlace(t *testing.T) {
	qs := []question{{id: "running", tokens: prompt(0, 10), options: greedy(20)}, {id: "oldest", tokens: prompt(1, 10), options: greedy(20), key: 100}}
	for i := range 4 {
		qs = append(qs, question{id: fmt.Sprint("younger", i), tokens: prompt(uint64(2+i), 10), options: greedy(20)})
	}
	_, answers := together(t, labSetup{cfg: Config{SequencesMax: 1}}, qs)
	for i, a := range answers[2:] {
		if a.end.Timings.Finished < answers[1].end.Timings.Finished {
			t.Errorf("younger one %d with a smaller key ended before the oldest", i)
		}
	}
}

func TestSmallerKeysGoFirst(t *testing.T) {
	qs := []question{{id: "running", tokens: prompt(0, 10), options: greedy(20)}}
	for i := range 5 {
		qs = append(qs, question{id: fmt.Sprint(i), tokens: prompt(uint64(2+i), 10), options: greedy(20), key: int64(-i)})
	}
	for _, sequencesMax := range []int{2, 64} { // at the door, and in the step
		_, answers := together(t, labSetup{cfg: Config{SequencesMax: sequencesMax, BatchTokensMax: 24}}, qs)
		var first []int64
		for _, a := range answers[2:] { // the first two are each the oldest once
			first = append(first, -a.end.Timings.FirstToken)
		}
		if !slices.IsSorted(first) {
			t.Errorf("%d places: first tokens in another order than by key: %v", sequencesMax, first)
		}
	}
}

// countedModel knows the most sequences that one step had.
type countedModel struct {
	*pagedModel
	most int
}

func (m *countedModel) Forward(chunks []model.Chunk) []float32 {
	m.most = max(m.most, len(chunks))
	return m.pagedModel.Forward(chunks)
}

func TestHeldOnesGiveTheirPlaces(t *testing.T) {
	for name, cfg := range map[string]Config{
		"paused": {SequencesMax: 2, StreamEventsMax: 1 << 16},
		"parked": {SequencesMax: 2, StreamEventsMax: 8},
	} {
		t.Run(name, func(t *testing.T) {
			together, posted, stopped := false, make(chan struct{}), make(chan struct{})
			var busy *wire.Stream
			b := newLab(t, labSetup{cfg: cfg, onTurn: func(b *lab) {
				<-posted
				if b.loop.ledger.total.Step >= 20 {
					<-stopped
				}
				for busy.Waiting() > 0 { // it never parks
					time.Sleep(10 * time.Microsecond)
				}
				together = together || len(b.loop.supply.running) == 3
			}})
			held, _ := b.begin(question{id: "held", tokens: prompt(1, 10), options: greedy(300)})
			s, busyNotify := b.begin(question{id: "busy", tokens: prompt(2, 10), options: greedy(300)})
			busy = s
			third, notify := b.begin(question{id: "third", tokens: prompt(3, 10), options: greedy(2)})
			var wg sync.WaitGroup
			wg.Go(func() { b.read(busy, busyNotify, 1) })
			close(posted)
			if name == "paused" {
				waitFor(t, func() bool { return held.Waiting() > 0 })
				held.Pause()
			}
			close(stopped)
			b.read(third, notify, 1)
			wg.Wait()
			held.Close()
			b.mustIdle()
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if !together {
				t.Error("the third started only when another had ended")
			}
		})
	}
}

func TestChoicesTakeAPlaceEach(t *testing.T) {
	counted := &countedModel{pagedModel: newPagedModel(1901, 16, 256)}
	several := question{id: "several", tokens: prompt(1, 20), options: greedy(30)}
	several.options.N = 3
	qs := []question{several, {id: "one", tokens: prompt(2, 20), options: greedy(30)}, {id: "fifth", tokens: prompt(3, 20), options: greedy(30)}}
	together(t, labSetup{model: counted, cfg: Config{SequencesMax: 4}}, qs)
	if counted.most != 4 {
		t.Errorf("%d sequences in one step; want 4", counted.most)
	}
}

func TestResumedSequencesWaitForPlaces(t *testing.T) {
	counted := &countedModel{pagedModel: newPagedModel(1901, 16, 256)}
	resumed := false
	b := newLab(t, labSetup{model: counted, cfg: Config{SequencesMax: 3, StreamEventsMax: 1 << 16}, onTurn: func(b *lab) {
		all := len(b.loop.supply.running) == 6 && !b.loop.supply.busy()
		for _, s := range b.loop.supply.running {
			switch { // each pauses at its 5th step, and goes on when all have
			case all:
				resumed = true
				s.gen.Resume()
			case s.gen.account.timings.Steps == 5 && !resumed:
				s.gen.Pause()
			}
		}
	}})
	var qs []question
	for i := range 6 {
		qs = append(qs, question{id: fmt.Sprint(i), tokens: prompt(uint64(i), 20), options: greedy(40)})
	}
	for i, a := range b.askAll(qs) {
		mustEnd(t, qs[i], a)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if counted.most != 3 || b.loop.ledger.total.Preempted > 0 || !resumed {
		t.Errorf("%d sequences in one step, %d preempted, resumed %v; want 3, 0 and true", counted.most, b.loop.ledger.total.Preempted, resumed)
	}
}

func TestPausedOnesYieldTheirPagesAsTheLastResort(t *testing.T) {
	b := newPausing(t, labSetup{pages: 16, cfg: Config{StreamEventsMax: 1 << 16}})
	var qs []question
	for i := range 3 {
		q := question{id: fmt.Sprint("q", i), tokens: prompt(uint64(i), 70), options: greedy(90)}
		q.options.N, q.options.Temperature, q.options.Seed = 2, 1, 9
		qs = append(qs, q)
	}
	var streams []*wire.Stream
	var notifies []chan struct{}
	for i, q := range qs {
		s, notify := b.begin(q)
		waitFor(t, func() bool { return b.State().Paused == 2*(i+1) })
		streams, notifies = append(streams, s), append(notifies, notify)
	}
	waitFor(t, func() bool { return b.State().Running == 0 && b.State().Waiting == 0 })
	big := question{id: "big", tokens: prompt(9, 200), options: greedy(56)} // all 16 pages
	mustEnd(t, big, b.ask(big))
	if b.State().Preempted == 0 {
		t.Error("nothing was preempted: the pool was not short")
	}
	for i := range qs {
		streams[i].Resume()
	}
	for i, q := range qs {
		a := b.read(streams[i], notifies[i], 2)
		mustEnd(t, q, a)
		if alone := newLab(t, labSetup{}).ask(q); !slices.Equal(a.texts, alone.texts) {
			t.Errorf("%s differs from its run alone", q.id)
		}
	}
	b.mustIdle()
}

func TestComputedPrefixLetsOthersIn(t *testing.T) {
	gate, together := make(chan struct{}), false
	b := newLab(t, labSetup{pages: 12, onTurn: func(b *lab) {
		<-gate
		together = together || len(b.loop.supply.running) == 2
	}})
	first := question{id: "first", tokens: prompt(1, 97), options: greedy(30)}
	second := question{id: "second", tokens: append(prompt(1, 97), 300), options: greedy(10)} // both prompts do not fit
	s1, n1 := b.begin(first)
	s2, n2 := b.begin(second)
	close(gate)
	a1, a2 := b.read(s1, n1, 1), b.read(s2, n2, 1)
	mustEnd(t, first, a1)
	mustEnd(t, second, a2)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if !together || a2.end.Usage.Cached != 96 {
		t.Errorf("ran together: %v, with %d tokens cached; want true and 96", together, a2.end.Usage.Cached)
	}
}

func TestPromptPreemptedHalfwayIsCountedOnce(t *testing.T) {
	preempted := false
	b := newLab(t, labSetup{cfg: Config{BatchTokensMax: 7}, onTurn: func(b *lab) {
		if b.loop.ledger.total.Step == 3 && !preempted { // 21 tokens, of which a block of 16 stays
			preempted = true
			b.loop.supply.preempt(b.loop.supply.running[0])
		}
	}})
	q := question{id: "q", tokens: prompt(1, 100), options: greedy(3)}
	a := b.ask(q)
	mustEnd(t, q, a)
	if a.end.Usage.Cached != 0 || a.end.Timings.Preempted != 1 || !preempted {
		t.Errorf("usage %+v, preempted %d times; want nothing cached, and once", a.end.Usage, a.end.Timings.Preempted)
	}
}
