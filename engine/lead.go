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

// leadOf is the lead of the answers to p, which are split into reasoning and content.
func (e *Engine) leadOf(p *wire.Prompt, split bool) lead {
	if !split || e.loaded.speech.calls == nil {
		return noLead
	}
	return e.loaded.speech.lead(p.Text)
}

// before puts l in front of an answer.
func (s *speech) before(b *grammar.Builder, l lead, answer grammar.Expr) grammar.Expr {
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
	newlines := b.Times(b.Literal("\n"), 0, 2)
	switch l {
	case openLead:
		return b.Seq(b.Terminal("reasoning", b.Cat(thought(f.ThinkClose), newlines)), answer)
	case maybeLead:
		return b.Seq(b.Optional(b.Terminal("reasoning", b.Cat(marker(f.ThinkOpen), thought(f.ThinkClose), newlines))), answer)
	case harmonyLead:
		analysis := b.Cat(marker("<|channel|>"), b.Literal("analysis"), marker("<|message|>"), thought("<|end|>"), marker("<|start|>"), b.Literal("assistant"))
		final := b.Cat(marker("<|channel|>"), b.Literal("final"), b.Times(b.Cat(b.Times(b.Literal(" "), 0, 1), marker("<|constrain|>"), b.Literal("json")), 0, 1), marker("<|message|>"))
		return b.Seq(b.Terminal("channels", b.Cat(b.Times(analysis, 0, 1), final)), answer)
	}
	return answer
}
