package admission

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// fullScheduler has requests of 50 tenants waiting, which can all keep their goals,
// and an engine that takes one more at each step.
func fullScheduler(tb testing.TB, waiting int) (*Scheduler, *rand.Rand, time.Duration) {
	s, err := NewScheduler(Config{
		RunningSequencesMax: 128, WaitingRequestsMax: 2 * waiting, WaitingTokensMax: 1 << 40, WaitingBytesMax: 1 << 40,
		Classes: []Class{{Name: "interactive", FirstTokenGoal: 100 * time.Hour, WaitLimit: 1000 * time.Hour, WaitingRequestsMax: 1 << 20, WaitingBytesMax: 1 << 40}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	now := time.Second
	s.Report(Report{Up: true, At: now, Cost: testCost, Room: cost.Room{TokensMax: 512}, KVTokens: 1 << 20}, now)
	for range waiting {
		now += time.Millisecond
		if _, refusal := s.Arrive(benchDemand(rnd), now); refusal != nil {
			tb.Fatal(refusal)
		}
	}
	return s, rnd, now
}

var benchTenants = func() (names [50]string) {
	for i := range names {
		names[i] = fmt.Sprint("tenant", i)
	}
	return names
}()

func benchDemand(rnd *rand.Rand) Demand {
	n := 50 + rnd.IntN(400)
	return Demand{
		Tenant: benchTenants[rnd.IntN(50)], Class: "interactive", Route: "chat_completions", Sequences: 1,
		PromptTokens: n, UncachedTokens: n, DecodeTokens: 256, Bytes: 4 * n,
	}
}

// BenchmarkDecision is all that admission does for one request: it arrives, another
// starts, and one ends.
func BenchmarkDecision(b *testing.B) {
	for _, waiting := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			s, rnd, now := fullScheduler(b, waiting)
			b.ReportAllocs()
			for b.Loop() {
				now += time.Millisecond
				decide(b, s, rnd, now)
			}
		})
	}
}

func decide(tb testing.TB, s *Scheduler, rnd *rand.Rand, now time.Duration) {
	s.Report(Report{Up: true, At: now, Cost: testCost, Room: cost.Room{TokensMax: 512}, KVTokens: 1 << 20}, now)
	if _, refusal := s.Arrive(benchDemand(rnd), now); refusal != nil {
		tb.Fatal(refusal)
	}
	e := s.Next(now)
	if e == nil {
		tb.Fatal("nothing starts")
	}
	s.Progress(e, 1, now)
	s.Done(e, Spent{CompletionTokens: 20, Whole: true}, now)
}

// BenchmarkNext is a decision without an arrival.
func BenchmarkNext(b *testing.B) {
	for _, waiting := range []int{1000, 10000} {
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			s, _, now := fullScheduler(b, waiting)
			b.ReportAllocs()
			for b.Loop() {
				s.Report(Report{Up: true, At: now, Cost: testCost, Room: cost.Room{TokensMax: 512}, KVTokens: 1 << 20, ShortPrefill: 1 << 20}, now)
				if e := s.Next(now); e != nil {
					for s.Next(now) != nil {
					}
				}
			}
		})
	}
}

// TestDecisionsAllocateTheEntryAlone: a request is one allocation, its Entry.
func TestDecisionsAllocateTheEntryAlone(t *testing.T) {
	s, rnd, now := fullScheduler(t, 1000)
	for range 2000 { // until every histogram and list has its size
		now += time.Millisecond
		decide(t, s, rnd, now)
	}
	if n := testing.AllocsPerRun(500, func() {
		now += time.Millisecond
		decide(t, s, rnd, now)
	}); n > 1 {
		t.Errorf("%v allocations for a request", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		now += time.Millisecond
		s.Report(Report{Up: true, At: now, Cost: testCost, Room: cost.Room{TokensMax: 512}, KVTokens: 1 << 20, ShortPrefill: 1 << 20}, now)
		s.Next(now)
	}); n > 0 {
		t.Errorf("%v allocations for a step", n)
	}
}

// BenchmarkRefusal is what admission does for a request that is refused: on arrival, and
// before its prompt is prepared.
func BenchmarkRefusal(b *testing.B) {
	for _, early := range []bool{false, true} {
		b.Run(map[bool]string{false: "prepared", true: "unprepared"}[early], func(b *testing.B) {
			s, rnd, now := fullScheduler(b, 1000)
			d := benchDemand(rnd)
			d.BodyBytes = 4 * d.PromptTokens
			s.classes[0].FirstTokenGoal = time.Second // which all that waits now takes far longer than
			for range 2 * bodiesSpan {
				now += time.Millisecond
				s.Arrive(d, now)
			}
			b.ReportAllocs()
			refused := 0
			for b.Loop() {
				now += time.Millisecond
				next := d
				if early {
					if s.Refuse(&next, now) != nil {
						refused++
					}
				} else if _, r := s.Arrive(next, now); r != nil {
					refused++
				}
			}
			if b.N > 100 && refused < b.N/2 {
				b.Fatalf("%d of %d refused", refused, b.N)
			}
		})
	}
}
