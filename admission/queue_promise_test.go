package admission

import (
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/cost"
)

// TestTicketsTellThePromise: the goal with its slack and the prediction, as of the
// arrival, whatever the engine's steps cost later.
func TestTicketsTellThePromise(t *testing.T) {
	now := time.Duration(0)
	q, err := NewQueue(Config{RunningSequencesMax: 4}, func() time.Duration { return now })
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	report := func(each float64) {
		q.Report(Report{Up: true, At: now, Cost: cost.Cost{Base: 1e6, PrefillToken: each}, Room: cost.Room{Budget: 100 * time.Millisecond, TokensMin: 16, TokensMax: 512}, KVTokens: 1 << 20})
	}
	report(1e6)
	admit := func(class string) Ticket {
		ticket, err := q.Admit(Demand{Class: class, Sequences: 1, PromptTokens: 100, UncachedTokens: 100, DecodeTokens: 10})
		if err != nil {
			t.Fatal(err)
		}
		return ticket
	}
	ticket, aimless := admit("interactive"), admit("offline")
	p := ticket.Promise()
	if p.Goal < 2200*time.Millisecond || p.Goal > 2300*time.Millisecond || p.Predicted < 100*time.Millisecond || p.Predicted > 500*time.Millisecond {
		t.Errorf("%+v: the goal is 2 s and twice the prefill of 100 ms", p)
	}
	if p := aimless.Promise(); p.Goal != 0 || p.Predicted == 0 {
		t.Errorf("of no goal: %+v", p)
	}
	now += time.Millisecond
	report(5e6)
	if again := ticket.Promise(); again != p {
		t.Errorf("%+v became %+v", p, again)
	}
	ticket.Done(Spent{})
	aimless.Done(Spent{})
}
