package engine

import (
	"fmt"
	"slices"
	"testing"

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
