package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/forebay-io/forebay/engine/chat"
	"github.com/forebay-io/forebay/engine/chat/calls"
	"github.com/forebay-io/forebay/engine/tokenizer"
	"github.com/forebay-io/forebay/internal/wire"
)

// speech is how the model writes reasoning and tool calls, as its template shows. It
// is found once, when the model is loaded.
type speech struct {
	found   calls.Found
	noPlace error        // why tools cannot be used; nil where they can
	calls   *calls.Bound // of an answer that may call
	plain   *calls.Bound // of one that may not
	held    *calls.Bound // of one that is held to a form: the form is not searched for markers
	banned  []int32      // tokens that begin a call
	thinks  bool         // the template speaks of reasoning
	special func(text string) (id int32, ok bool)
	thinking
	// polyfill says what is written into the messages for the template.
	polyfill chat.Polyfill
}

// detectLimit bounds the time in which examples are rendered.
const detectLimit = 2 * time.Second

// newSpeech finds the format of a template. toolFormat is the name of the format that the
// configuration chose for templates without a place for tools, or "".
func newSpeech(template *chat.Template, source string, t *tokenizer.Tokenizer, toolFormat string) speech {
	ctx, cancel := context.WithTimeout(context.Background(), detectLimit)
	defer cancel()
	render := func(messages, tools, options json.RawMessage) (string, error) {
		text, err := template.Render(ctx, chat.Input{Messages: messages, Tools: tools, Options: options})
		return tokenizer.Unguard(text), err
	}
	s := speech{found: calls.Detect(render)}
	s.noPlace = s.found.Check()
	if chosen := calls.Lookup(toolFormat); chosen != nil && s.noPlace != nil {
		s.noPlace = nil
		if s.found.Format.Shape == 0 {
			s.found.Format = chosen
		}
		s.polyfill.Tools = !s.found.TellsTools
		s.polyfill.Results = s.found.HistoryCalls == 0 && s.polyfill.Tools
	}
	f := s.found.Format
	s.special = t.Special
	s.thinks = f.ThinkClose != "" && strings.Contains(source, strings.TrimSpace(f.ThinkClose))
	s.held = f.WithoutCalls().WithoutDrops().Bind(t.Special)
	s.polyfill.Calls = s.found.HistoryCalls == 0 && s.noPlace == nil
	s.polyfill.Single = s.found.HistoryCalls == 1
	s.calls, s.plain = f.Bind(t.Special), f.WithoutCalls().Bind(t.Special)
	s.thinking = newThinking(func(options string) string {
		text, err := render(json.RawMessage(`[{"role":"user","content":"hi"}]`), nil, json.RawMessage(options))
		if err != nil {
			return ""
		}
		return text
	}, f, t)
	for _, text := range f.Open {
		if id, ok := t.Special(text); ok {
			s.banned = append(s.banned, id)
		}
	}
	return s
}

// place puts tools where the template takes them.
func (s *speech) place(in *chat.Input) *wire.Error {
	if in.Tools == nil {
		return nil
	}
	if s.noPlace != nil {
		return wire.InvalidParam("tools", "%v; set engine.tool_format to have them told in the system message, or leave tools out", s.noPlace)
	}
	if name := s.found.ToolsOption; name != "" && !s.polyfill.Tools {
		in.Options = withOptions(in.Options, []string{`"` + name + `":` + string(in.Tools)})
		in.Tools = nil
	}
	return nil
}

// forbid adds to o what keeps the model from calling, where the format has tokens
// for it.
func (s *speech) forbid(o *wire.Options) {
	for _, id := range s.banned {
		o.LogitBias = append(o.LogitBias, wire.LogitBias{Token: id, Bias: float32(math.Inf(-1))})
	}
}

// parser returns the parser of a choice's answer to prompt, nil for answers that
// stay whole.
func (s *speech) parser(g *generation, choice int, prompt *wire.Prompt, tools []calls.Tool) *calls.Parser {
	if !g.options.Split || s.calls == nil {
		return nil
	}
	format := s.plain
	switch {
	case len(tools) > 0:
		format = s.calls
	case g.options.Grammar != nil:
		format = s.held
	}
	held := g.options.Grammar != nil && g.options.Grammar.Calls != nil
	return calls.NewParser(format, calls.Options{
		Certain: held,
		Tools:   tools, InReasoning: format.OpensReasoning(prompt.Text), FirstCall: prompt.Calls,
		Seed: g.id + "/" + string(rune('0'+choice)),
	})
}

// callsOf counts the tool calls that messages have.
func callsOf(messages []json.RawMessage) (n int) {
	for _, raw := range messages {
		var m struct {
			Calls []json.RawMessage `json:"tool_calls"`
		}
		if bytes.Contains(raw, []byte("tool_calls")) && json.Unmarshal(raw, &m) == nil {
			n += len(m.Calls)
		}
	}
	return n
}
