package engine

import (
	"math"
	"slices"

	"github.com/forebay-io/forebay/engine/sample"
	"github.com/forebay-io/forebay/internal/wire"
)

// next samples a sequence's next token from the logits of its last one, and
// puts what the reader may see of it.
func (l *loop) next(s *sequence, logits []float32) {
	mine := logits
	if len(l.siblings) > 1 || s.gen.options.Logprobs {
		mine = l.logits // the sampler may change it
		copy(mine, logits)
	}
	id, ok := s.sampler.Sample(mine)
	if !ok {
		l.failNonFinite(s, len(s.tokens))
		return
	}
	s.sampler.Accept(id)
	s.tokens = append(s.tokens, id)
	s.generated++
	s.gen.completion++
	l.total.DecodeTokens++
	l.emit(s, id, logits)
}

// emit puts the event of one sampled token, and ends its choice where the
// token ends it.
func (l *loop) emit(s *sequence, id int32, logits []float32) {
	e := wire.Event{Choice: s.choice, TokenCount: s.generated}
	ends := l.tokenizer.IsEnd(id) && !s.gen.options.IgnoreEOS
	stopped := false
	if !ends {
		piece := l.tokenizer.Bytes(id)
		if s.gen.options.Logprobs {
			s.logprobs = append(s.logprobs, heldLogprob{l.logprob(logits, id, s.gen.options.TopLogprobs), s.pushed})
		}
		s.pushed += len(piece)
		e.Text, stopped = s.text.Push(piece)
	}
	switch {
	case ends || stopped:
		e.Finish = wire.FinishStop
	case s.generated >= s.gen.options.MaxTokens:
		e.Finish = wire.FinishLength
	}
	if e.Finish != wire.FinishNone && !stopped {
		e.Text += s.text.Flush()
		if stopped = s.text.Stopped(); stopped {
			e.Finish = wire.FinishStop
		}
	}
	e.Logprobs = s.leave(e.Finish != wire.FinishNone && !stopped)
	if s.choice == 0 && s.generated == 1 {
		e.PromptLogprobs, s.gen.promptLogprobs = s.gen.promptLogprobs, nil
	}
	l.put(s.gen, e)
	if e.Finish != wire.FinishNone {
		l.finish(s)
	}
}

// leave takes the log-probabilities of the tokens whose text has begun to
// leave; all of them where the text ended without a stop.
func (s *sequence) leave(all bool) []wire.TokenLogprob {
	n := 0
	for n < len(s.logprobs) && (all || s.logprobs[n].start < s.text.Released()) {
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

// logprob is a token's log-probability with its rivals, from the model's own
// distribution.
func (l *loop) logprob(logits []float32, id int32, top int) wire.TokenLogprob {
	t := sample.TopLogprobs(l.set, logits[:l.info.VocabTokens], id, top) // rows of padding are no tokens
	t.Bytes = l.tokenizer.Bytes(id)
	for i := range t.Top {
		t.Top[i].Bytes = l.tokenizer.Bytes(t.Top[i].ID)
	}
	return t
}

// scorePrompt keeps the log-probabilities of the prompt tokens that follow
// the row's, which have just been computed.
func (l *loop) scorePrompt(r *row, logits []float32) {
	first := r.seq.computed() - r.count
	for i := range r.count {
		next := first + i + 1
		if next != len(r.seq.gen.promptLogprobs) || next >= r.seq.gen.promptTokens {
			continue
		}
		mine := logits[i*l.vocab : (i+1)*l.vocab]
		if slices.ContainsFunc(mine, func(x float32) bool { return !(x <= math.MaxFloat32) }) { // NaN too
			l.failNonFinite(r.seq, next)
			return
		}
		r.seq.gen.promptLogprobs = append(r.seq.gen.promptLogprobs, l.logprob(mine, r.seq.tokens[next], r.seq.gen.options.TopLogprobs))
	}
}

// put hands an event to the reader; wake tells it at the step's end.
func (l *loop) put(g *generation, e wire.Event) {
	g.stream.Put(e)
	if !g.eventsAdded {
		g.eventsAdded = true
		l.woken = append(l.woken, g)
	}
}

// finish ends a choice, and with the last one its generation.
func (l *loop) finish(s *sequence) {
	g := s.gen
	l.forget(s)
	g.choices = slices.DeleteFunc(g.choices, func(c *sequence) bool { return c == s })
	if len(g.choices) == 0 {
		l.close(g, &wire.End{Usage: wire.Usage{Prompt: g.promptTokens, Cached: g.cached(), Completion: g.completion}})
	}
}

// fail ends a generation with an error.
func (l *loop) fail(g *generation, err *wire.Error) { l.close(g, &wire.End{Err: err}) }

// failNonFinite ends a generation for whose next token after so many the
// model gave no numbers to choose by.
func (l *loop) failNonFinite(s *sequence, tokens int) {
	l.total.NonFinite++
	l.fail(s.gen, wire.Errorf(wire.NonFinite, "the model gave numbers that are not finite after %d tokens of prompt and choice %d", tokens, s.choice))
}

// drop ends a generation whose reader has left.
func (l *loop) drop(g *generation) { l.close(g, nil) }

// close frees what a generation holds and then puts its end, if it has one.
func (l *loop) close(g *generation, end *wire.End) {
	if g.ended {
		return
	}
	now := wire.Monotonic()
	l.settleEnd(g, now)
	g.ended = true
	for _, s := range g.choices {
		l.forget(s)
	}
	g.choices = nil
	if end != nil {
		g.account.timings.Finished = now
		end.Timings = g.account.timings
		l.put(g, wire.Event{End: end})
	}
	l.inbox.ended(!g.started)
}
