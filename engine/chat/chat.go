package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/forebay-io/forebay/engine/chat/calls"
	"github.com/forebay-io/forebay/engine/jinja"
)

// Options describes the model to its template.
type Options struct {
	BOS, EOS string
	// Controls are the texts of control tokens that users must not produce.
	Controls []string
	// ToolUse is the model's own template for requests with tools, if it has one.
	ToolUse string
}

// Template is a model's chat template.
type Template struct {
	template *jinja.Template
	toolUse  *Template // for requests with tools, or nil
	options  Options
	guard    *guard

	contents       map[string]contentShape // by role
	takesDeveloper bool
	takesNull      bool // content null beside tool calls
	takesTextArgs  bool // tool call arguments as text only
	takesSystem    bool
	wantsWhole     bool // tools with description and parameters only
	sourceBytes    int
}

// Raised is an error that the template raised, with its own message.
type Raised struct{ Message string }

func (e *Raised) Error() string { return e.Message }

// OptionsError reports a mistake in Input.Options.
type OptionsError struct{ Reason string }

func (e *OptionsError) Error() string { return "template options: " + e.Reason }

// Input is one conversation. Only Messages is required.
type Input struct {
	Messages json.RawMessage // array of objects
	Tools    json.RawMessage // array
	Options  json.RawMessage // object: further variables of the template
	Now      time.Time       // what strftime_now sees
	// Format, where set, is the one in which the model calls tools: ids and results of
	// calls get the form that it needs. Polyfill needs it.
	Format   *calls.Format
	Polyfill Polyfill
	// Continue ends the prompt where the text of the last message ends, so that the
	// answer goes on with it.
	Continue bool
	// Verbatim passes messages to the template unchanged.
	Verbatim bool
}

// New parses a template. Its error says why the model cannot chat.
func New(source string, o Options) (*Template, error) {
	t, err := parse(source, o, nil)
	if err != nil || o.ToolUse == "" {
		return t, err
	}
	if t.toolUse, err = parse(o.ToolUse, o, json.RawMessage(exampleTools)); err != nil {
		return nil, fmt.Errorf("tool_use: %w", err)
	}
	return t, nil
}

// parse makes a template whose examples are rendered with tools.
func parse(source string, o Options, tools json.RawMessage) (*Template, error) {
	if strings.TrimSpace(source) == "" {
		return nil, errors.New("the chat template is empty")
	}
	parsed, err := jinja.Parse(source)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	t := &Template{template: parsed, options: o, guard: newGuard(o.Controls), sourceBytes: len(source)}
	parsed.FromJSON = t.guard.json
	t.takesDeveloper = strings.Contains(source, "developer")
	t.probe(tools)
	return t, nil
}

// reserved are the variables that options cannot replace.
var reserved = []string{
	"messages", "tools", "bos_token", "eos_token", "chat_template",
	"raise_exception", "strftime_now", "range", "namespace", "dict", "joiner",
}

// Render returns the prompt for a conversation, up to the place where the model
// answers. The text may contain Guards. The error is a *Raised if the template
// refused the input, and otherwise names the line that failed.
func (t *Template) Render(ctx context.Context, in Input) (string, error) {
	if t.toolUse != nil && in.Tools != nil && string(in.Tools) != "null" && !in.Polyfill.Tools {
		return t.toolUse.Render(ctx, in)
	}
	vars, err := t.variables(in)
	if err == nil && in.Continue {
		err = open(vars)
	}
	if err != nil {
		return "", err
	}
	// A template reads its input often, and most of its own text once.
	input := len(in.Messages) + len(in.Tools) + len(in.Options) + t.sourceBytes/8
	text, err := t.template.Render(ctx, vars, jinja.Limits{
		Steps: stepsBase + 64*input,
		Bytes: bytesBase + 64*input,
		Out:   outBase + 8*input,
	})
	if err != nil || !in.Continue {
		return text, err
	}
	at := strings.LastIndex(text, openEnd)
	if at < 0 {
		return "", &ContinueError{"the chat template does not write its text"}
	}
	return text[:at], nil
}

// ContinueError says why an answer cannot go on with the last message.
type ContinueError struct{ Reason string }

func (e *ContinueError) Error() string {
	return "the last message cannot be continued: " + e.Reason
}

// openEnd marks the end of a message that is continued. The prompt ends before it.
const openEnd = "\uE000end\uE001"

// open marks the end of the last message's text, and asks for no generation prompt.
func open(vars map[string]any) error {
	vars["add_generation_prompt"] = false
	messages := vars["messages"].(*jinja.List)
	if len(messages.Items) == 0 {
		return &ContinueError{"there is none"}
	}
	message, _ := messages.Items[len(messages.Items)-1].(*jinja.Dict)
	if message == nil {
		return &ContinueError{"it is no object"}
	}
	switch content, _ := message.Get("content"); content := content.(type) {
	case string:
		message.Set("content", content+openEnd)
		return nil
	case *jinja.List:
		if n := len(content.Items); n > 0 {
			part, _ := content.Items[n-1].(*jinja.Dict)
			if part != nil {
				if text, ok := part.Get("text"); ok {
					if s, ok := text.(string); ok {
						part.Set("text", s+openEnd)
						return nil
					}
				}
			}
		}
	}
	return &ContinueError{"it does not end with text"}
}

// Limits of a template's work, beside those that grow with its input.
const (
	stepsBase = 250_000
	bytesBase = 8 << 20
	outBase   = 1 << 20
)

func (t *Template) variables(in Input) (map[string]any, error) {
	vars := map[string]any{
		"bos_token": t.options.BOS, "eos_token": t.options.EOS,
		"add_generation_prompt": true, "tools": nil,
		"raise_exception": jinja.Func(raise),
		"strftime_now": jinja.Func(func(args []any) (any, error) {
			format, ok := "", len(args) == 1
			if ok {
				format, ok = args[0].(string)
			}
			if !ok {
				return nil, errors.New("strftime_now takes one format string")
			}
			return strftime(in.Now, format)
		}),
	}
	value, err := jinja.ParseJSON(in.Messages)
	if err != nil {
		return nil, fmt.Errorf("messages: %w", err)
	}
	messages, ok := value.(*jinja.List)
	if !ok {
		return nil, errors.New("messages: must be an array")
	}
	if !in.Verbatim {
		if err := t.shape(messages); err != nil {
			return nil, err
		}
		if in.Format != nil {
			link(messages, in.Format)
		}
	}
	// This comes last, because shaping joins strings and removes JSON's escapes.
	t.guard.value(messages)
	t.polyfill(messages, &in)
	vars["messages"] = messages
	if in.Tools != nil && !in.Polyfill.Tools {
		if value, err = jinja.ParseJSON(in.Tools); err != nil {
			return nil, fmt.Errorf("tools: %w", err)
		}
		if t.wantsWhole && !in.Verbatim {
			shapeTools(value)
		}
		vars["tools"] = t.guard.value(value)
	}
	return vars, t.addOptions(vars, in.Options)
}

func (t *Template) addOptions(vars map[string]any, options json.RawMessage) error {
	if options == nil {
		return nil
	}
	value, err := jinja.ParseJSON(options)
	if err != nil {
		return &OptionsError{err.Error()}
	}
	if value == nil {
		return nil
	}
	dict, ok := t.guard.value(value).(*jinja.Dict)
	if !ok {
		return &OptionsError{"must be an object"}
	}
	for _, key := range dict.Keys() {
		name := key.(string)
		for _, r := range reserved {
			if name == r {
				return &OptionsError{fmt.Sprintf("%.60q cannot be set", name)}
			}
		}
		vars[name], _ = dict.Get(key)
	}
	return nil
}

func raise(args []any) (any, error) {
	if len(args) == 1 {
		if message, ok := args[0].(string); ok {
			return nil, &Raised{message}
		}
	}
	return nil, &Raised{"no reason given"}
}
