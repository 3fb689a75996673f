package engine

import (
	"math"
	"slices"

	"github.com/forebay-io/forebay/engine/sample"
	"github.com/forebay-io/forebay/internal/wire"
)

// outbox is the only way out of the loop: events, and at the end of a turn one
// wake-up for each reader that got some.
type outbox struct{ woken []*generation }

// put adds an event to g's stream; wake tells the reader.
func (o *outbox) put(g *generation, e wire.Event) {
	g.stream.Put(e)
	if !g.eventsAdded {
		g.eventsAdded = true
		o.woken = append(o.woken, g)
	}
}

// wake tells every reader whose stream was put to.
func (o *outbox) wake() {
	for i, g := range o.woken {
		g.eventsAdded = false
		g.stream.Wake()
		o.woken[i] = nil
	}
	o.woken = o.woken[:0]
}

// next samples a sequence's next token from the logits of its last one, and
// puts the event of it. Where others sample from the same logits, shared is true.
func (l *loop) next(s *sequence, logits []float32, shared bool) {
	mine := logits
	if shared || s.gen.options.Logprobs {
		mine = l.scratch.logits // the sampler may change it
		copy(mine, logits)
	}
	if r := s.gen.restriction; r != nil {
		r.apply(s.tokens[len(s.tokens)-s.generated:], mine[:l.info.VocabTokens])
	}
	if s.matcher != nil && !l.constrain(s, mine) {
		return
	}
	id, ok := s.sampler.Sample(mine)
	if !ok && s.gen.restriction != nil && noneLeft(mine[:l.info.VocabTokens]) {
		l.failRestricted(s)
		return
	}
	if !ok {
		l.failNonFinite(s, len(s.tokens))
		return
	}
	l.take(s, id, from{logits: logits})
}

// take makes id, which was sampled, the sequence's next token, and puts the event of it.
func (l *loop) take(s *sequence, id int32, at from) {
	id = s.out.choose(id)
	s.sampler.Accept(id)
	s.tokens = append(s.tokens, id)
	s.generated++
	s.gen.completion++
	l.ledger.total.DecodeTokens++
	if whole, ok := l.accept(s, id); ok {
		l.emit(s, id, at, whole)
	}
}

// emit puts the event of one sampled token, and ends its choice where the token
// ends it, or where the answer is whole.
func (l *loop) emit(s *sequence, id int32, source from, whole bool) {
	e := wire.Event{Choice: s.choice, TokenCount: s.generated}
	o := &s.gen.options
	stopToken := slices.Contains(o.StopTokens, id)
	ends := stopToken || l.tokenizer.IsEnd(id) && !o.IgnoreEOS
	var piece []byte // an end token is no text, but may be a marker
	if s.generated == o.MinTokens+1 {
		s.out.text.Stops(true)
	}
	if !ends || stopToken && o.KeepStop {
		piece = l.tokenizer.Bytes(id)
	}
	at := s.out.at()
	over := s.out.push(&e, id, piece)
	if s.gen.options.Logprobs && !ends {
		s.logprobs = append(s.logprobs, heldLogprob{l.logprob(source, id, s.gen.options.TopLogprobs), at})
		s.settle()
	}
	switch {
	case ends || over || whole:
		e.Finish = wire.FinishStop
	case s.generated >= s.gen.options.MaxTokens:
		e.Finish = wire.FinishLength
	}
	if e.Finish != wire.FinishNone {
		l.ledger.total.CallFallbacks += uint64(s.out.finish(&e, e.Finish == wire.FinishLength))
		e.Finish, e.StopText = s.out.why(e.Finish), s.out.text.Stop()
		s.gen.reasoning += s.out.reasoning
	}
	e.Logprobs = s.leave(e.Finish != wire.FinishNone && !s.out.text.Stopped())
	if s.choice == 0 && s.generated == 1 {
		e.PromptLogprobs, s.gen.promptLogprobs = s.gen.promptLogprobs, nil
		e.Cached = s.gen.account.cached
	}
	l.outbox.put(s.gen, e)
	if e.Finish != wire.FinishNone {
		l.finish(s)
	}
}

// settle marks the tokens that turned out not to be content: their log-probabilities
// need not wait for text.
func (s *sequence) settle() {
	if s.out.parser == nil {
		return
	}
	for i := len(s.logprobs) - 1; i >= 0 && s.logprobs[i].start >= s.out.at(); i-- {
		s.logprobs[i].start = -1
	}
}

// leave takes the log-probabilities of the tokens whose text has begun to
// leave, or of all where the text ended without a stop.
func (s *sequence) leave(all bool) []wire.TokenLogprob {
	n := 0
	for n < len(s.logprobs) && (all || s.logprobs[n].start < s.out.text.Released()) {
		n++
	}
	if n == 0 {
		return nil
	}
	left := make([]wire.TokenLogprob, n)
	for i := range left {
		left[i] = s.logprobs[i].TokenLogprob
	}
	s.logprobs = slices.Delete(s.logprobs, 0, n)
	return left
}

// scorePrompt keeps the log-probabilities of the prompt tokens that follow the
// row's tokens.
func (l *loop) scorePrompt(r *row, logits []float32) {
	first := r.seq.computed() - r.count
	for i := range r.count {
		next := first + i + 1
		if next != len(r.seq.gen.promptLogprobs) || next >= r.seq.gen.promptTokens {
			continue
		}
		mine := logits[i*l.width : (i+1)*l.width]
		if slices.ContainsFunc(mine, func(x float32) bool { return !(x <= math.MaxFloat32) }) { // NaN too
			l.failNonFinite(r.seq, next)
			return
		}
		id := r.seq.tokens[next]
		scored := l.logprob(from{logits: mine}, id, r.seq.gen.options.PromptTop)
		scored.Rank = sample.Rank(mine[:l.info.VocabTokens], id)
		r.seq.gen.promptLogprobs = append(r.seq.gen.promptLogprobs, scored)
	}
}

// finish ends a choice, and with the last one its generation.
func (l *loop) finish(s *sequence) {
	g := s.gen
	l.supply.forget(s)
	g.choices = slices.DeleteFunc(g.choices, func(c *sequence) bool { return c == s })
	if len(g.choices) == 0 {
		l.close(g, nil)
	}
}

// fail ends a generation with an error.
func (l *loop) fail(g *generation, err *wire.Error) { l.close(g, err) }

// failNonFinite ends a generation whose next token has logits that are not
// finite; tokens is the number of tokens before it.
func (l *loop) failNonFinite(s *sequence, tokens int) {
	l.ledger.total.NonFinite++
	l.fail(s.gen, wire.Errorf(wire.NonFinite, "the model gave numbers that are not finite after %d tokens of prompt and choice %d", tokens, s.choice))
}

// drop ends a generation whose reader has cancelled it.
func (l *loop) drop(g *generation) { l.close(g, wire.Errorf(wire.Canceled, "the reader left")) }

// close frees what a generation holds and then puts its end; err is nil after
// success.
func (l *loop) close(g *generation, err *wire.Error) {
	if g.ended {
		return
	}
	l.ledger.closed(g)
	g.ended = true
	for _, s := range g.choices {
		g.reasoning += s.out.reasoning
		l.supply.forget(s)
	}
	g.choices = nil
	a := &g.account
	l.outbox.put(g, wire.Event{End: &wire.End{
		Err: err, Timings: a.timings,
		Usage: wire.Usage{Prompt: g.promptTokens, Cached: a.cached, Computed: a.computed, Completion: g.completion, Reasoning: g.reasoning, Pinned: g.pinned, PinRefused: g.pinRefused},
	}})
	l.inbox.ended(!g.started)
}
