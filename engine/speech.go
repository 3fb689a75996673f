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
}

// detectLimit bounds the time in which examples are rendered.
const detectLimit = 2 * time.Second

func newSpeech(template *chat.Template, source string, t *tokenizer.Tokenizer) speech {
	ctx, cancel := context.WithTimeout(context.Background(), detectLimit)
	defer cancel()
	s := speech{found: calls.Detect(func(messages, tools, options json.RawMessage) (string, error) {
		text, err := template.Render(ctx, chat.Input{Messages: messages, Tools: tools, Options: options})
		return tokenizer.Unguard(text), err
	})}
	f := s.found.Format
	s.noPlace = s.found.Check()
	s.special = t.Special
	s.thinks = f.ThinkClose != "" && strings.Contains(source, strings.TrimSpace(f.ThinkClose))
	s.held = f.WithoutCalls().WithoutDrops().Bind(t.Special)
	s.calls, s.plain = f.Bind(t.Special), f.WithoutCalls().Bind(t.Special)
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
		return wire.InvalidParam("tools", "%v; leave tools out, or describe them in a system message", s.noPlace)
	}
	if name := s.found.ToolsOption; name != "" {
		options := bytes.TrimSpace(in.Options)
		more := `{"` + name + `":` + string(in.Tools)
		if len(options) > 2 && options[0] == '{' {
			in.Options = append([]byte(more+","), options[1:]...)
		} else {
			in.Options = []byte(more + "}")
		}
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
	return calls.NewParser(format, calls.Options{
		Tools: tools, InReasoning: format.OpensReasoning(prompt.Text), FirstCall: prompt.Calls,
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
