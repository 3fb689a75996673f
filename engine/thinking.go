package engine

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/forebay-io/forebay/engine/chat/calls"
	"github.com/forebay-io/forebay/engine/tokenizer"
	"github.com/forebay-io/forebay/internal/wire"
)

// thinking is what a template lets a request choose about reasoning.
type thinking struct {
	toggle  string   // the variable that turns reasoning on and off, or ""
	efforts []string // values of reasoning_effort that it takes, from little to much
	closing []int32  // the tokens that end reasoning
}

// The variables that templates know, and the efforts that they tell apart.
var (
	toggles = []string{"enable_thinking", "thinking"}
	efforts = []string{"low", "medium", "high"}
)

// newThinking renders examples. render returns "" where that fails.
func newThinking(render func(options string) string, f *calls.Format, t *tokenizer.Tokenizer) thinking {
	var k thinking
	for _, name := range toggles {
		if on, off := render(`{"`+name+`":true}`), render(`{"`+name+`":false}`); on != off && on != "" && off != "" {
			k.toggle = name
			break
		}
	}
	var seen []string
	for _, effort := range efforts {
		if text := render(`{"reasoning_effort":"` + effort + `"}`); text != "" {
			k.efforts, seen = append(k.efforts, effort), append(seen, text)
		}
	}
	if slices.Sort(seen); len(slices.Compact(seen)) < 2 {
		k.efforts = nil
	}
	end := f.ThinkClose
	if f.Shape == calls.Harmony {
		end = "<|end|>"
	}
	if id, ok := t.Special(end); ok {
		k.closing = []int32{id}
	} else if end != "" {
		k.closing = t.Encode(nil, end, tokenizer.EncodeOptions{})
	}
	return k
}

// options are the template's options for a request, whose own come last and win.
func (k *thinking) options(r *wire.Request) json.RawMessage {
	var own []string
	if k.toggle != "" && r.Think != wire.ThinkDefault {
		value := "true"
		if r.Think == wire.ThinkOff {
			value = "false"
		}
		own = append(own, `"`+k.toggle+`":`+value)
	}
	if len(k.efforts) > 0 && r.Effort != "" {
		own = append(own, `"reasoning_effort":"`+k.effort(r.Effort)+`"`)
	}
	return withOptions(r.TemplateOptions, own)
}

// effort is the value nearest to what was asked for, the larger of two.
func (k *thinking) effort(asked string) string {
	want := slices.Index(efforts, asked)
	for i := max(want, 0); i < len(efforts); i++ {
		if slices.Contains(k.efforts, efforts[i]) {
			return efforts[i]
		}
	}
	return k.efforts[len(k.efforts)-1]
}

// withOptions puts members before those of an object of options.
func withOptions(options json.RawMessage, members []string) json.RawMessage {
	if len(members) == 0 {
		return options
	}
	text := strings.TrimSpace(string(options))
	if inner, ok := strings.CutPrefix(text, "{"); ok && !strings.HasPrefix(strings.TrimSpace(inner), "}") {
		return json.RawMessage("{" + strings.Join(members, ",") + "," + inner)
	}
	return json.RawMessage("{" + strings.Join(members, ",") + "}")
}
