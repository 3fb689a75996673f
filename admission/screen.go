package admission

import (
	"fmt"
	"time"
)

// screen refuses a newcomer for what is known without a forecast, and settles in
// which class it waits.
func (s *Scheduler) screen(e *Entry, t *tenant) *Refusal {
	d := &e.demand
	t.arrived(d.Retry, s.now)
	switch {
	case d.Sequences > s.cfg.RunningSequencesMax:
		return never(TooLarge, "it asks for %d sequences at once and at most %d run; send fewer prompts or choices", d.Sequences, s.cfg.RunningSequencesMax)
	case s.engine.kvTokens > 0 && d.PromptTokens+d.Sequences > s.engine.memoryHolds(d.Sequences):
		return never(TooLarge, "it needs memory for %d tokens and there is room for %d in all; send a shorter prompt, or raise engine.kv_bytes", d.PromptTokens+d.Sequences, s.engine.memoryHolds(d.Sequences))
	}
	if r := s.screenSize(e); r != nil {
		return r
	}
	k := e.class
	full := k.full(e) || s.count >= s.cfg.WaitingRequestsMax || s.count > 0 && (s.bytes+d.Bytes > s.cfg.WaitingBytesMax || s.tokens+e.uncached() > s.cfg.WaitingTokensMax)
	switch {
	case k.mode == Drained:
		return s.later(e, ClassClosed, "class "+k.Name+" takes no new requests: its operator drains it")
	case full:
		return s.later(e, QueueFull, fmt.Sprintf("no more requests of class %s may wait; try again later", k.Name))
	case d.Retry && s.count > 0 && s.overRetries(t):
		return s.later(e, RetryBudget, "more than a tenth of this tenant's requests of the last seconds were retries, and others wait; wait longer between them")
	case k.level == levelInteractive && s.load.sheds(e, s.now):
		return s.later(e, Overloaded, "the server is overloaded, and a part of the requests is shed; try again later")
	}
	if s.load.rung >= rungAnswers && k.BusyOutputTokens > 0 {
		e.output = k.BusyOutputTokens
		e.demand.DecodeTokens = min(e.demand.DecodeTokens, e.output*d.Sequences)
		s.price(e)
	}
	return nil
}

// screenSize does with a prompt that takes too long what its class says. Prompts
// with too many tokens never come here: Policy.Fit sees to them.
func (s *Scheduler) screenSize(e *Entry) *Refusal {
	k, last := e.class, s.classes[len(s.classes)-1]
	if limit := s.cfg.OversizedPrefill; limit == 0 || e.prefill <= limit {
		return nil
	}
	switch {
	case k.Oversized == "refuse":
		return never(TooLarge, "the prompt would take %v of engine time before its first token and class %s takes at most %v; shorten it, or use a class that takes more", e.prefill.Round(time.Millisecond), k.Name, s.cfg.OversizedPrefill)
	case k.Oversized == "demote" && k != last:
		e.class = last
		e.expires = s.expiresAt(e)
		s.price(e)
		last.demoted++
	}
	return nil
}

// full tells that k has no room for e to wait.
func (k *class) full(e *Entry) bool {
	return k.waiting >= k.WaitingRequestsMax || k.waiting > 0 && int64(k.bytes+e.demand.Bytes) > k.WaitingBytesMax
}

// The retry budget: a tenant may send retryShare of its requests as retries, over
// a time of retryMemory, once it has sent retryLeast.
const (
	retryMemory = 10 * time.Second
	retryShare  = 0.1
	retryLeast  = 10
)

// arrived counts a request of t.
func (t *tenant) arrived(retry bool, now time.Duration) {
	t.arrivals.addOver(1, now, retryMemory)
	if retry {
		t.retries.addOver(1, now, retryMemory)
	}
}

func (s *Scheduler) overRetries(t *tenant) bool {
	all := t.arrivals.valueOver(s.now, retryMemory)
	return all >= retryLeast && t.retries.valueOver(s.now, retryMemory) > retryShare*all
}

// never is the refusal of a request that can never be served.
func never(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// later is the refusal of a request that may be served later.
func (s *Scheduler) later(e *Entry, reason Reason, message string) *Refusal {
	return &Refusal{Reason: reason, Message: message, RetryAfter: s.retryAfter(e), Predicted: e.predicted}
}
