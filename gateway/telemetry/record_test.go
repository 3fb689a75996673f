package telemetry

import (
	"slices"
	"testing"
	"time"
	"unsafe"
)

func TestMissed(t *testing.T) {
	const goal = time.Second
	at := int64(time.Hour)
	whole := Record{Outcome: OK, Stream: true, Arrived: at, Prepared: at + 1e6, Admitted: at + 2e6, Dispatched: at + 2e6, FirstToken: at + 5e8, FirstWrite: at + 5e8, LastToken: at + 9e8,
		CompletionTokens: 5, Finished: at + 1e9, FirstTokenGoal: goal, TokenGoal: 100 * time.Millisecond}
	for name, c := range map[string]struct {
		change func(*Record)
		want   []string
	}{
		"nothing":          {func(*Record) {}, nil},
		"no goals":         {func(r *Record) { r.FirstTokenGoal, r.TokenGoal, r.FirstWrite, r.LastToken = 0, 0, at+5e9, at+9e9 }, nil},
		"late":             {func(r *Record) { r.FirstWrite = at + 1e9 + 1 }, []string{"first_token"}},
		"late by its wait": {func(r *Record) { r.Admitted, r.FirstWrite = at+2e9, at+21e8 }, []string{"first_token", "queue"}},
		"slow tokens":      {func(r *Record) { r.LastToken = at + 5e8 + 4e8 + 1 }, []string{"token"}},
		"left in time": {func(r *Record) {
			r.Outcome, r.FirstToken, r.FirstWrite, r.LastToken, r.Finished = ClientGone, 0, 0, 0, at+5e8
		}, nil},
		"left after the goal": {func(r *Record) {
			r.Outcome, r.FirstToken, r.FirstWrite, r.LastToken, r.Finished = ClientGone, 0, 0, 0, at+2e9
		}, []string{"first_token"}},
		"left its plain answer": {func(r *Record) {
			r.Outcome, r.Stream, r.FirstWrite, r.Finished = ClientGone, false, 0, at+9e9
		}, nil},
		"waited too long": {func(r *Record) {
			*r = Record{Outcome: QueueTimeout, Arrived: at, Prepared: at + 1, Finished: at + 3e9, FirstTokenGoal: goal}
		}, []string{"first_token", "queue"}},
		"refused, as it'd be late": {func(r *Record) {
			*r = Record{Outcome: Late, Arrived: at, Prepared: at + 1, Finished: at + 2e6, FirstTokenGoal: goal}
		}, []string{"queue"}},
		"wrong, and slow to come": {func(r *Record) { *r = Record{Outcome: Invalid, Arrived: at, Finished: at + 3e9, FirstTokenGoal: goal} }, nil},
	} {
		r := whole
		c.change(&r)
		if got := r.Missed(r.Finished).Names(); !slices.Equal(got, c.want) {
			t.Errorf("%s has missed %v, want %v", name, got, c.want)
		}
	}
}

// TestRecordsAllocateNothing guards what every request pays.
func TestRecordsAllocateNothing(t *testing.T) {
	g, r := NewRing(64), Record{ID: "x"}
	if n := testing.AllocsPerRun(1000, func() { g.Put(&r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if size := unsafe.Sizeof(r); size > 2048 {
		t.Errorf("a record has %d bytes", size)
	}
}

func BenchmarkRecord(b *testing.B) {
	g, r := NewRing(1024), Record{ID: "x"}
	b.ReportAllocs()
	for b.Loop() {
		g.Put(&r)
	}
}

// TestMistakesAreNoFailures: what is wrong with a request itself is not counted among
// what the service failed at.
func TestMistakesAreNoFailures(t *testing.T) {
	for o := range OutcomeCount {
		if o.Mistake() && (outcomes[o].ourFault || o.Failed() || o == OK) || outcomes[o].ourFault && !o.Failed() {
			t.Errorf("%v: mistake %v, failed %v", o, o.Mistake(), o.Failed())
		}
	}
	if !Invalid.Mistake() || !NotFound.Mistake() || RateLimited.Mistake() || !ClientGone.Failed() || OK.Failed() {
		t.Error("400 and 404 are mistakes, 429 and a client that left are not, and ok is no failure")
	}
}
