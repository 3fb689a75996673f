package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	templates "github.com/forebay-io/forebay/engine/chat"
	"github.com/forebay-io/forebay/engine/checkpoint"
	"github.com/forebay-io/forebay/engine/tokenizer"
)

// runModelTokenize encodes texts without escaping. With parse_special, a control
// string in a text becomes the control token.
func runModelTokenize(c *console, args []string) error {
	path, err := c.oneModel(newFlagSet("model tokenize MODEL < LINES"), args)
	if err != nil {
		return err
	}
	t, err := checkpoint.OpenTokenizer(path)
	if err != nil {
		return err
	}
	return c.answerLines(func(line []byte) (any, error) {
		var r struct {
			Text         *string `json:"text"`
			AddSpecial   bool    `json:"add_special"`
			ParseSpecial bool    `json:"parse_special"`
		}
		const example = `{"text": "…", "add_special": false, "parse_special": false}`
		if err := decodeLine(line, &r, example); err != nil {
			return nil, err
		}
		if r.Text == nil {
			return nil, errors.New("text is missing; a line is " + example)
		}
		text := *r.Text
		if r.ParseSpecial {
			text = tokenizer.Escape(text)
		}
		ids := t.Encode([]int32{}, text, tokenizer.EncodeOptions{AddSpecial: r.AddSpecial, ParseSpecial: r.ParseSpecial})
		return map[string][]int32{"ids": ids}, nil
	})
}

// runModelRender renders conversations as transformers' apply_chat_template does.
func runModelRender(c *console, args []string) error {
	set := newFlagSet("model render MODEL [--bos TEXT] [--eos TEXT] [--served] < LINES")
	bos := set.String("bos", "", "text of bos_token; empty takes the model's")
	eos := set.String("eos", "", "text of eos_token; empty takes the model's")
	served := set.Bool("served", false, "give messages the shape that serving gives them, instead of handing them over as they are")
	path, err := c.oneModel(set, args)
	if err != nil {
		return err
	}
	config, err := checkpoint.OpenChat(path)
	if err != nil {
		return err
	}
	if config.Template == "" {
		return fmt.Errorf("%s: has no chat template", path)
	}
	if *bos != "" {
		config.BOS = *bos
	}
	if *eos != "" {
		config.EOS = *eos
	}
	t, err := templates.New(config.Template, templates.Options{BOS: config.BOS, EOS: config.EOS, ToolUse: config.ToolUse})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return c.answerLines(func(line []byte) (any, error) { return renderLine(t, line, *served) })
}

func renderLine(t *templates.Template, line []byte, served bool) (any, error) {
	var r struct {
		Messages json.RawMessage            `json:"messages"`
		Tools    json.RawMessage            `json:"tools"`
		Options  map[string]json.RawMessage `json:"chat_template_kwargs"`
		Prompt   json.RawMessage            `json:"add_generation_prompt"`
		Now      string                     `json:"now"`
	}
	const example = `{"messages": […], "tools": […], "chat_template_kwargs": {…}, "now": "2006-01-02T15:04:05"}`
	if err := decodeLine(line, &r, example); err != nil {
		return nil, err
	}
	if r.Messages == nil {
		return nil, errors.New("messages is missing; a line is " + example)
	}
	if err := checkShapes(r.Messages, r.Tools); err != nil {
		return nil, fmt.Errorf("%w; a line is %s", err, example)
	}
	in := templates.Input{Messages: r.Messages, Tools: r.Tools, Verbatim: !served}
	var err error
	if in.Now, err = parseNow(r.Now); err != nil {
		return nil, err
	}
	if _, both := r.Options["add_generation_prompt"]; r.Prompt != nil && !both {
		if r.Options == nil {
			r.Options = map[string]json.RawMessage{}
		}
		r.Options["add_generation_prompt"] = r.Prompt
	}
	if r.Options != nil {
		if in.Options, err = json.Marshal(r.Options); err != nil {
			return nil, err
		}
	}
	text, err := t.Render(context.Background(), in)
	if err != nil && in.Verbatim && !errors.As(err, new(*templates.Raised)) {
		// A template that takes only strings fails on content in parts. Serving
		// joins the parts first.
		in.Verbatim = false
		if shaped, again := t.Render(context.Background(), in); again == nil {
			text, err = shaped, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return map[string]string{"text": tokenizer.Unguard(text)}, nil
}

// checkShapes refuses messages and tools of a wrong JSON type.
func checkShapes(messages, tools json.RawMessage) error {
	var objects []map[string]json.RawMessage
	if err := json.Unmarshal(messages, &objects); err != nil {
		return errors.New("messages is not an array of objects")
	}
	var list []json.RawMessage
	if err := json.Unmarshal(tools, &list); tools != nil && err != nil {
		return errors.New("tools is not an array")
	}
	return nil
}

// parseNow reads the time for strftime_now; "" means now.
func parseNow(text string) (time.Time, error) {
	if text == "" {
		return time.Now(), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", time.DateTime, "2006-01-02T15:04", time.DateOnly} {
		if now, err := time.Parse(layout, text); err == nil {
			return now, nil
		}
	}
	return time.Time{}, fmt.Errorf("now: %q is not a time such as 2006-01-02T15:04:05", text)
}
