package admission

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

func (q *queue) check(t *testing.T, entries []*entry) {
	t.Helper()
	var runningCount, sequences, waitingCount, tokens, bytes int
	for _, e := range entries {
		switch e.state {
		case running:
			runningCount++
			sequences += e.work.Sequences
		case waiting:
			waitingCount++
			tokens += e.work.UncachedTokens
			bytes += e.work.Bytes
		}
	}
	if runningCount != q.running || sequences != q.runningSequences || waitingCount != len(q.waiting) || tokens != q.waitingTokens || bytes != q.waitingBytes {
		t.Fatalf("the sums differ: %+v, counted %d %d %d %d %d", q, runningCount, sequences, waitingCount, tokens, bytes)
	}
	if q.runningSequences > q.cfg.RunningSequencesMax || len(q.waiting) > q.cfg.WaitingRequestsMax {
		t.Fatalf("over the limit: %+v", q)
	}
	for i, e := range q.waiting {
		if i > 0 && e.arrived.Before(q.waiting[i-1].arrived) {
			t.Fatal("the waiting list is out of order")
		}
	}
	if len(q.waiting) > 0 && q.fits(q.waiting[0]) {
		t.Fatal("the head fits and waits")
	}
}

// TestQueueHoldsItsInvariants plays random arrivals, ends, cancels and
// expiries on a virtual clock.
func TestQueueHoldsItsInvariants(t *testing.T) {
	refused, started, late := 0, 0, 0
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		q := &queue{cfg: Config{RunningSequencesMax: 1 + rnd.IntN(8), WaitingRequestsMax: 1 + rnd.IntN(8), WaitingTokensMax: 100, WaitingBytesMax: 100, WaitLimit: time.Second}}
		now := time.Unix(0, 0)
		var live []*entry
		for range 300 {
			now = now.Add(time.Duration(rnd.IntN(200)) * time.Millisecond)
			switch rnd.IntN(3) {
			case 0, 1:
				e, refusal := q.enter(Work{Sequences: 1 + rnd.IntN(4), UncachedTokens: rnd.IntN(60), Bytes: rnd.IntN(60)}, now)
				if (e == nil) == (refusal == nil) {
					t.Fatal("neither or both of entry and refusal")
				}
				if e != nil {
					live = append(live, e)
				} else {
					refused++
				}
			default:
				if len(live) > 0 {
					i := rnd.IntN(len(live))
					e := live[i]
					live = append(live[:i], live[i+1:]...)
					started += len(q.leave(e, now))
					if again := q.leave(e, now); again != nil {
						t.Fatal("settling twice started something")
					}
				}
			}
			l, s := q.expire(now)
			late, started = late+len(l), started+len(s)
			q.check(t, live)
		}
		for _, e := range live {
			q.leave(e, now)
		}
		if q.load() != (Load{}) {
			t.Fatalf("not empty at the end: %+v", q.load())
		}
	}
	if refused < 100 || started < 100 || late < 100 {
		t.Fatalf("the test was idle: %d refused, %d started, %d late", refused, started, late)
	}
}

// TestPredictedWait follows the requests ahead and how long requests ran.
func TestPredictedWait(t *testing.T) {
	now := time.Unix(0, 0)
	q := &queue{cfg: Config{RunningSequencesMax: 2, WaitingRequestsMax: 3, WaitingTokensMax: 10, WaitingBytesMax: 10}}
	enter := func() *entry {
		e, refusal := q.enter(Work{Sequences: 1}, now)
		if refusal != nil {
			t.Fatal(refusal)
		}
		return e
	}
	refused := func(want time.Duration) {
		t.Helper()
		if _, refusal := q.enter(Work{Sequences: 1}, now); refusal == nil || refusal.RetryAfter != want {
			t.Errorf("%+v, want %v", refusal, want)
		}
	}
	first := enter()
	for range 4 {
		enter()
	}
	refused(2 * serviceGuess) // three wait and the newcomer, for two places
	now = now.Add(6 * time.Second)
	q.leave(first, now)
	enter()
	refused(12 * time.Second)
	now = now.Add(time.Hour)
	q.leave(q.waiting[0], now) // gives up, and teaches nothing
	enter()
	refused(12 * time.Second)
	for q.service = time.Hour; q.service > time.Minute; q.service /= 2 {
		refused(retryMax)
	}
}

func TestTheMeanFollowsSlowly(t *testing.T) {
	now := time.Unix(0, 0)
	q := &queue{cfg: Config{RunningSequencesMax: 1}, service: 8 * time.Second}
	e, _ := q.enter(Work{Sequences: 1}, now)
	q.leave(e, now.Add(16*time.Second))
	if q.service != 9*time.Second {
		t.Errorf("the mean is %v", q.service)
	}
}

// TestALargePromptMayWaitAlone: the limit on waiting tokens is for the many.
func TestALargePromptMayWaitAlone(t *testing.T) {
	f := newFIFO(t, Config{RunningSequencesMax: 1, WaitingTokensMax: 10})
	defer f.Close()
	holder := admit(t, f, 1)
	large, err := f.Admit(Work{Sequences: 1, UncachedTokens: 100})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Admit(Work{Sequences: 1, UncachedTokens: 1}); err == nil {
		t.Error("another one joined it")
	}
	holder.Done(Spent{})
	if !admitted(large) {
		t.Error("it did not start")
	}
	large.Done(Spent{})
}

func admitted(t Ticket) bool {
	select {
	case <-t.Ready():
		return t.Err() == nil
	default:
		return false
	}
}

func newFIFO(t *testing.T, cfg Config) *FIFO {
	t.Helper()
	f, err := NewFIFO(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func admit(t *testing.T, f *FIFO, sequences int) Ticket {
	t.Helper()
	ticket, err := f.Admit(Work{Sequences: sequences})
	if err != nil {
		t.Fatal(err)
	}
	return ticket
}

func TestWaitEndsAtItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFIFO(t, Config{RunningSequencesMax: 2, WaitLimit: 10 * time.Second})
		defer f.Close()
		holder := admit(t, f, 2)
		first := admit(t, f, 1)
		time.Sleep(4 * time.Second)
		second := admit(t, f, 1)
		time.Sleep(6*time.Second + time.Millisecond)
		var refusal *Refusal
		<-first.Ready()
		if !errors.As(first.Err(), &refusal) || refusal.Reason != TimedOut || refusal.RetryAfter <= 0 {
			t.Errorf("first: %v", first.Err())
		}
		if admitted(second) || f.Load().Waiting != 1 {
			t.Errorf("second should wait: %+v", f.Load())
		}
		holder.Done(Spent{})
		if !admitted(second) {
			t.Error("second was not admitted")
		}
		first.Done(Spent{})
		second.Done(Spent{})
		second.Done(Spent{})
		if f.Load() != (Load{}) {
			t.Errorf("load %+v", f.Load())
		}
	})
}

func TestSecondWaiterExpiresToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFIFO(t, Config{RunningSequencesMax: 1, WaitLimit: time.Second})
		defer f.Close()
		holder := admit(t, f, 1)
		gone := admit(t, f, 1)
		time.Sleep(500 * time.Millisecond)
		late := admit(t, f, 1)
		gone.Done(Spent{})
		start := time.Now()
		<-late.Ready()
		if late.Err() == nil || time.Since(start) != time.Second {
			t.Errorf("%v after %v", late.Err(), time.Since(start))
		}
		late.Done(Spent{})
		holder.Done(Spent{})
	})
}

func TestOrderIsArrivalEvenWhenASmallerOneWouldFit(t *testing.T) {
	f := newFIFO(t, Config{RunningSequencesMax: 4})
	defer f.Close()
	holder := admit(t, f, 3)
	big, small := admit(t, f, 4), admit(t, f, 1)
	if admitted(big) || admitted(small) {
		t.Error("someone passed the head")
	}
	big.Done(Spent{}) // gives up
	if !admitted(small) {
		t.Error("the head gave way and the next did not start")
	}
	small.Done(Spent{})
	holder.Done(Spent{})
}

func TestRefusals(t *testing.T) {
	f := newFIFO(t, Config{RunningSequencesMax: 2, WaitingRequestsMax: 1, WaitingTokensMax: 10, WaitingBytesMax: 10})
	defer f.Close()
	reason := func(w Work) Reason {
		t.Helper()
		var refusal *Refusal
		if _, err := f.Admit(w); !errors.As(err, &refusal) {
			t.Fatalf("%+v was not refused: %v", w, err)
		}
		if (refusal.RetryAfter > 0) != (refusal.Reason != TooLarge) {
			t.Errorf("retry after %v for %v", refusal.RetryAfter, refusal.Reason)
		}
		return refusal.Reason
	}
	if r := reason(Work{Sequences: 3}); r != TooLarge {
		t.Errorf("reason %v", r)
	}
	holder := admit(t, f, 2)
	if r := reason(Work{Sequences: 1, Bytes: 11}); r != QueueFull {
		t.Errorf("reason %v", r)
	}
	waiter := admit(t, f, 1)
	if r := reason(Work{Sequences: 1}); r != QueueFull {
		t.Errorf("reason %v", r)
	}
	waiter.Done(Spent{})
	holder.Done(Spent{})
	for _, bad := range []Config{{RunningSequencesMax: -1}, {WaitLimit: -1}} {
		if _, err := NewFIFO(bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}
