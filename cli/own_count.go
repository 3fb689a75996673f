package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	templates "github.com/forebay-io/forebay/engine/chat"
	"github.com/forebay-io/forebay/engine/checkpoint"
	"github.com/forebay-io/forebay/engine/tokenizer"
	"github.com/forebay-io/forebay/internal/wire"
	"github.com/forebay-io/forebay/upstream"
)

// ownCounter counts the prompts of another server by its model's tokenizer and
// template.
type ownCounter struct {
	tokens   *tokenizer.Tokenizer
	template *templates.Template // nil where the model has none that can be used
}

// openCounter opens upstream.tokenizer; nil for "".
func openCounter(path string) (upstream.Counter, error) {
	if path == "" {
		return nil, nil
	}
	t, err := checkpoint.OpenTokenizer(path)
	if err != nil {
		return nil, fmt.Errorf("upstream.tokenizer: %w", err)
	}
	c := &ownCounter{tokens: t}
	if config, err := checkpoint.OpenChat(path); err == nil && config.Template != "" {
		c.template, err = templates.New(config.Template, templates.Options{BOS: config.BOS, EOS: config.EOS, ToolUse: config.ToolUse, Controls: t.ControlStrings()})
		if err != nil {
			return nil, fmt.Errorf("upstream.tokenizer: %w", err)
		}
	}
	return c, nil
}

// Tokens implements upstream.Counter.
func (c *ownCounter) Tokens(ctx context.Context, r *wire.Request) ([]int32, bool) {
	if r.Text != nil {
		tokens, err := c.tokens.EncodeContext(ctx, nil, *r.Text, tokenizer.EncodeOptions{AddSpecial: true})
		return tokens, err == nil
	}
	if r.Messages == nil || c.template == nil {
		return nil, false
	}
	in := templates.Input{Messages: r.Messages, Tools: r.Tools, Now: time.Now()}
	var body struct {
		Options  json.RawMessage `json:"chat_template_kwargs"`
		Template json.RawMessage `json:"chat_template"`
		Continue bool            `json:"continue_final_message"`
		Prompt   *bool           `json:"add_generation_prompt"`
		Tools    json.RawMessage `json:"tools"`
	}
	if r.Body != nil && json.Unmarshal(r.Body, &body) != nil || body.Template != nil || body.Prompt != nil && !*body.Prompt {
		return nil, false
	}
	in.Options, in.Continue = body.Options, body.Continue
	if in.Tools == nil {
		in.Tools = body.Tools
	}
	text, err := c.template.Render(ctx, in)
	if err != nil {
		return nil, false
	}
	tokens, err := c.tokens.EncodeContext(ctx, nil, text, tokenizer.EncodeOptions{ParseSpecial: true})
	if err != nil {
		return nil, false
	}
	if c.tokens.AddsBOS() && (len(tokens) == 0 || tokens[0] != c.tokens.BOS()) {
		tokens = slices.Insert(tokens, 0, c.tokens.BOS())
	}
	return tokens, true
}
