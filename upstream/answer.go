package upstream

import (
	"io"
	"mime"
	"net/http"

	"github.com/forebay-io/forebay/internal/wire"
)

// answer gathers what must be known at the end of an answer: a choice is finished
// only once its reason was understood and the stream has ended.
type answer struct {
	choices []answerChoice
	usage   *usage   // the last one that came, of all choices together
	timings *timings // the last ones
	events  int
	// perChoice says that the server counts each choice by itself: the usage of a
	// choice comes with its finish, or after it.
	perChoice bool
	last      int    // the choice that finished last
	limit     int    // the most tokens of a choice, as was sent; 0 for no limit
	guessed   bool   // the reason of a choice's end is not the server's word
	request   string // its id, for the ids of calls
}

type answerChoice struct {
	tokens int
	said   int // its tokens by its own usage, where the server gives one
	finish wire.Finish
	calls  calls

	guessed bool // finish is not the server's word
}

func newAnswer(g *wire.Generation, d *dialect) *answer {
	a := &answer{choices: make([]answerChoice, g.Options.N), perChoice: d.usagePerChoice, request: g.ID}
	if limit, sent := g.Prompt.Relayed.(*relayed).sentLimit(g); sent {
		a.limit = limit
	}
	return a
}

// take returns the events that c brings.
func (a *answer) take(c *chunk) (events []wire.Event, _ *wire.Error) {
	if u := c.Usage; u != nil && (u.Prompt < 0 || u.Completion < 0 || u.Prompt > tokensMost || u.Completion > tokensMost) {
		return nil, wire.Errorf(wire.Internal, "the upstream counts %d and %d tokens", u.Prompt, u.Completion)
	}
	if c.Timings != nil && !c.Timings.valid() {
		c.Timings = nil
	}
	if c.Timings != nil {
		a.timings = c.Timings
	}
	for i := range c.Choices {
		from := &c.Choices[i]
		if from.Index < 0 || from.Index >= len(a.choices) {
			return nil, wire.Errorf(wire.Internal, "the upstream sent choice %d of %d", from.Index, len(a.choices))
		}
		to := &a.choices[from.Index]
		ev, err := a.event(from, to)
		if err != nil {
			return nil, err
		}
		if ev.Text != "" || len(ev.Relayed.Delta) > 0 || ev.Relayed.Logprobs != nil {
			a.count(to, c)
			if a.limit > 0 && to.tokens > 2*a.limit+limitSlack {
				return nil, wire.Errorf(wire.Internal, "the upstream goes on after %d tokens, although its limit is %d", to.tokens, a.limit)
			}
			ev.TokenCount = to.tokens
			events = append(events, ev)
			a.events++
		}
		if from.Finish == "" {
			continue
		}
		finish, ok := finishes[from.Finish]
		if !ok {
			return nil, wire.Errorf(wire.Internal, "the upstream ended a choice by %q", brief(from.Finish))
		}
		to.finish, a.last = finish, from.Index
	}
	a.bill(c.Usage)
	return events, nil
}

// bill takes in a usage; u is nil for none.
func (a *answer) bill(u *usage) {
	if u == nil {
		return
	}
	a.usage = u
	if a.perChoice {
		a.choices[a.last].said = u.Completion
		a.usage.Completion = 0
		for i := range a.choices {
			a.usage.Completion += a.choices[i].said
		}
	}
}

// limitSlack is how many tokens more than twice its limit a choice may have: servers
// count a little differently, but one that knows no limit must not spend a budget.
const limitSlack = 64

// tokensMost bounds what a server may say that it counted.
const tokensMost = 1 << 30

// count adds the tokens of an event: as many as the server says that there are by
// now, or one.
func (a *answer) count(to *answerChoice, c *chunk) {
	said := 0
	switch {
	case len(a.choices) > 1 && !a.perChoice:
	case c.Usage != nil:
		said = c.Usage.Completion
	case c.Timings != nil:
		said = c.Timings.Predicted
	}
	if said == 0 {
		said = to.tokens + 1
	}
	to.tokens = max(to.tokens, said)
}

// event is what a chunk brings of one choice.
func (a *answer) event(from *chunkChoice, to *answerChoice) (wire.Event, *wire.Error) {
	delta := from.Delta
	if delta == nil {
		delta = from.Message
	}
	text, rest, ok := message(delta, func(parts []byte) []byte { return to.calls.mend(parts, a.request, from.Index) })
	if !ok {
		return wire.Event{}, wire.Errorf(wire.Internal, "the upstream sent a delta that is not understood: %s", brief(string(delta)))
	}
	text += from.Text
	r := &wire.Relayed{Delta: rest}
	if given(from.Logprobs) {
		r.Logprobs = oneLine(from.Logprobs)
	}
	return wire.Event{Choice: from.Index, Text: text, Relayed: r}, nil
}

// finished tells that every choice has a reason for its end.
func (a *answer) finished() bool {
	for i := range a.choices {
		if a.choices[i].finish == wire.FinishNone {
			return false
		}
	}
	return true
}

// done judges an answer whose stream was closed in order. Some servers leave out the
// reason of the end; where they have given the usage nevertheless, which they count
// at the end, the reason follows from it.
func (a *answer) done() *wire.Error {
	if !a.finished() && a.usage != nil && a.events > 0 {
		a.guess()
	}
	if !a.finished() {
		return wire.Errorf(wire.Internal, "the upstream closed its answer without the reason of its end")
	}
	a.settle()
	return nil
}

// guess gives the choices that have no reason for their end the likely one.
func (a *answer) guess() {
	a.settle()
	for i := range a.choices {
		c := &a.choices[i]
		switch {
		case c.finish != wire.FinishNone:
			continue
		case len(c.calls) > 0:
			c.finish = wire.FinishCalls
		case a.limit > 0 && c.tokens >= a.limit:
			c.finish = wire.FinishLength
		default:
			c.finish = wire.FinishStop
		}
		c.guessed, a.guessed = true, true
	}
}

// over judges an answer whose stream ended without its last event. Some servers send
// none; where all choices are finished, nothing of them is missing.
func (a *answer) over(err error) *wire.Error {
	if a.finished() {
		a.settle()
		return nil
	}
	if err == io.EOF {
		return wire.Errorf(wire.Internal, "the upstream's answer ended before it was whole")
	}
	return wire.Errorf(wire.Internal, "the upstream's answer broke off: %v", err)
}

// settle gives the tokens of the usage that no event brought to the choices.
func (a *answer) settle() {
	if a.usage == nil {
		return
	}
	last := &a.choices[len(a.choices)-1]
	last.tokens += max(0, a.usage.Completion-a.made())
}

// made is how many tokens the events brought.
func (a *answer) made() (n int) {
	for i := range a.choices {
		n += a.choices[i].tokens
	}
	return n
}

// total is the usage of a whole or broken answer; prompt is what was counted before.
// How far the prompt of a broken one was computed is not known: it counts as whole.
func (a *answer) total(prompt int) wire.Usage {
	u := wire.Usage{Prompt: prompt, Completion: a.made()}
	if t := a.timings; t != nil && t.Cached+t.Prompt > 0 {
		u.Prompt, u.Cached = t.Cached+t.Prompt, t.Cached
	}
	if a.usage != nil {
		u = wire.Usage{Prompt: a.usage.Prompt, Cached: a.usage.cached(), Completion: a.usage.Completion, Reasoning: a.usage.reasoning()}
	}
	u.Computed = u.Prompt - u.Cached
	return u
}

// isWhole tells that an answer is one JSON object, from a server that does not stream.
func isWhole(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && kind == "application/json"
}
