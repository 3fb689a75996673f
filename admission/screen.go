package admission

import (
	"fmt"
	"time"
)

// screen refuses a newcomer for what is known without looking at the others'
// goals, and settles in which class it waits.
func (s *Scheduler) screen(e *Entry, t *tenant) *Refusal {
	w := &e.demand
	t.arrivals.addOver(1, s.now, retryMemory)
	if w.Retry {
		t.retries.addOver(1, s.now, retryMemory)
	}
	switch {
	case w.Sequences > s.cfg.RunningSequencesMax:
		return never(TooLarge, "it asks for %d sequences at once and at most %d run; send fewer prompts or choices", w.Sequences, s.cfg.RunningSequencesMax)
	case s.engine.kvTokens > 0 && w.PromptTokens+w.Sequences > s.engine.kvTokens:
		return never(TooLarge, "it needs memory for %d tokens and there is room for %d in all; send a shorter prompt, or raise engine.kv_bytes", w.PromptTokens+w.Sequences, s.engine.kvTokens)
	}
	if r := s.screenSize(e); r != nil {
		return r
	}
	k := e.class
	full := k.full(e) || s.count >= s.cfg.WaitingRequestsMax || s.count > 0 && (s.bytes+w.Bytes > s.cfg.WaitingBytesMax || s.tokens+e.uncached() > s.cfg.WaitingTokensMax)
	switch {
	case k.mode == Drained:
		return s.later(e, ClassClosed, "class "+k.Name+" takes no new requests: its operator drains it")
	case full:
		return s.later(e, QueueFull, fmt.Sprintf("as many requests of class %s wait as may; try again later", k.Name))
	case w.Retry && s.count > 0 && s.overRetries(t):
		return s.later(e, RetryBudget, "more than a tenth of this tenant's requests of the last seconds were retries, and others wait; wait longer between them")
	case k.level == levelInteractive && s.load.sheds(e, s.now):
		return s.later(e, Overloaded, "there is more to do than foretold, and a part of the requests is shed; try again later")
	}
	if s.load.rung >= rungAnswers && k.BusyOutputTokens > 0 {
		e.output = k.BusyOutputTokens
		e.demand.DecodeTokens = min(e.demand.DecodeTokens, e.output*w.Sequences)
		s.price(e)
	}
	return nil
}

// screenSize follows what the class says of prompts that take too long; those
// with too many tokens the Policy has looked at.
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

func (k *class) full(e *Entry) bool {
	return k.waiting >= k.WaitingRequestsMax || k.waiting > 0 && int64(k.bytes+e.demand.Bytes) > k.WaitingBytesMax
}

// The retry budget: so much of a tenant's requests of the last seconds may be
// retries, once there are enough to tell.
const (
	retryMemory = 10 * time.Second
	retryShare  = 0.1
	retryLeast  = 10
)

func (s *Scheduler) overRetries(t *tenant) bool {
	all := t.arrivals.valueOver(s.now, retryMemory)
	return all >= retryLeast && t.retries.valueOver(s.now, retryMemory) > retryShare*all
}

func never(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func (s *Scheduler) later(e *Entry, reason Reason, message string) *Refusal {
	return &Refusal{Reason: reason, Message: message, RetryAfter: s.retryAfter(e), Predicted: e.predicted}
}
