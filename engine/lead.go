package engine

import (
	"strings"

	"github.com/forebay-io/forebay/engine/chat/calls"
	"github.com/forebay-io/forebay/engine/grammar"
	"github.com/forebay-io/forebay/internal/wire"
)

// lead is what a model may write before an answer that is held to a form: its
// reasoning, and the markers of its format. The grammar of the answer has it too, so
// that one grammar covers everything from the first token.
type lead uint8

const (
	noLead      lead = iota
	openLead         // the prompt has opened reasoning: it must be closed
	maybeLead        // reasoning may be opened, and is closed then
	harmonyLead      // the header of the final message, perhaps after an analysis

	// orCalls is added where tool calls may come in place of the answer.
	orCalls lead = 1 << 7
)

// lead is that of answers to a prompt.
func (s *speech) lead(prompt string) lead {
	f := s.found.Format
	switch {
	case f == nil:
		return noLead
	case f.Shape == calls.Harmony:
		return harmonyLead
	case f.OpensReasoning(prompt):
		return openLead
	case s.thinks && !strings.HasSuffix(strings.TrimSpace(prompt), strings.TrimSpace(f.ThinkClose)):
		return maybeLead
	}
	return noLead
}

// leadOf is the lead of the answers to p, with split saying that they are split into
// reasoning, content and calls, and tools that they may call.
func (e *Engine) leadOf(p *wire.Prompt, split, tools bool) lead {
	s := &e.loaded.speech
	if !split || s.calls == nil {
		return noLead
	}
	l := s.lead(p.Text)
	if tools {
		l |= orCalls
	}
	return l
}

// errBareCalls refuses what cannot be told apart.
func errBareCalls(format string) *wire.Error {
	return wire.InvalidParam("tools", "tools and a form of the answer cannot be combined with this model: its tool calls (%s) begin as a JSON answer does; leave one of them out", format)
}

// noAnswer stands for an answer that may not come: calls are required.
const noAnswer grammar.Expr = -1

// before puts l in front of an answer.
func (s *speech) before(b *grammar.Builder, l lead, answer grammar.Expr) grammar.Expr {
	return s.beforeCalls(b, l, answer, noAnswer)
}

// beforeCalls is before where held calls may come in place of the answer.
func (s *speech) beforeCalls(b *grammar.Builder, l lead, answer, held grammar.Expr) grammar.Expr {
	either := func(answer grammar.Expr) grammar.Expr {
		switch {
		case held == noAnswer:
			return answer
		case answer == noAnswer:
			return held
		}
		return b.Choice(answer, held)
	}
	f := s.found.Format
	marker := func(text string) grammar.Regex {
		if id, ok := s.special(text); ok {
			return b.Token(id)
		}
		return b.Literal(text)
	}
	// thought is reasoning up to its end and the empty lines after it.
	thought := func(end string) grammar.Regex {
		text := b.Text()
		if _, ok := s.special(end); !ok {
			text = b.And(text, b.Not(b.Cat(text, b.Literal(end), text)))
		}
		return b.Cat(text, marker(end))
	}
	if l&orCalls != 0 && held == noAnswer {
		var opened []grammar.Regex
		for _, text := range f.Open {
			opened = append(opened, marker(text))
		}
		answer = b.Choice(answer, b.Terminal("calls", b.Cat(b.Or(opened...), b.Everything())))
	}
	newlines := b.Times(b.Literal("\n"), 0, 2)
	if l&^orCalls != harmonyLead {
		answer = either(answer)
	}
	switch l &^ orCalls {
	case openLead:
		return b.Seq(b.Terminal("reasoning", b.Cat(thought(f.ThinkClose), newlines)), answer)
	case maybeLead:
		return b.Seq(b.Optional(b.Terminal("reasoning", b.Cat(marker(f.ThinkOpen), thought(f.ThinkClose), newlines))), answer)
	case harmonyLead:
		analysis := b.Cat(marker("<|channel|>"), b.Literal("analysis"), marker("<|message|>"), thought("<|end|>"), marker("<|start|>"), b.Literal("assistant"))
		final := b.Cat(marker("<|channel|>"), b.Literal("final"), b.Times(b.Cat(b.Times(b.Literal(" "), 0, 1), marker("<|constrain|>"), b.Literal("json")), 0, 1), marker("<|message|>"))
		if answer != noAnswer {
			answer = b.Seq(b.Terminal("channel", final), answer)
		}
		return b.Seq(b.Terminal("analysis", b.Times(analysis, 0, 1)), either(answer))
	}
	return answer
}
