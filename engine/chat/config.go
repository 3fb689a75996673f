package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Config is the chat template of a Hugging Face folder, with its tokens.
type Config struct {
	Template string // "" where there is none
	ToolUse  string // Options.ToolUse: the template for requests with tools, "" where Template serves them
	Rank     string // the template of NewPair, "" where there is none
	BOS, EOS string // "" where there is none
}

// configBytesMax bounds tokenizer_config.json, which has long token tables, and
// chat_template.jinja.
const configBytesMax = 64 << 20

// ReadConfig reads a tokenizer_config.json and a chat_template.jinja. Either may
// be nil; the template of chat_template.jinja wins. In tokenizer_config.json the
// template is a string or a list of named strings, and a token is a string or an
// object with its content, as in transformers' PreTrainedTokenizerBase.
func ReadConfig(tokenizerConfig, jinjaFile []byte) (Config, error) {
	if len(tokenizerConfig) > configBytesMax || len(jinjaFile) > configBytesMax {
		return Config{}, fmt.Errorf("tokenizer_config.json or chat_template.jinja has more than %d bytes", configBytesMax)
	}
	var c Config
	if tokenizerConfig != nil {
		var file struct {
			Template json.RawMessage `json:"chat_template"`
			BOS      token           `json:"bos_token"`
			EOS      token           `json:"eos_token"`
		}
		if err := json.Unmarshal(tokenizerConfig, &file); err != nil {
			return Config{}, fmt.Errorf("tokenizer_config.json: %w", err)
		}
		c.BOS, c.EOS = string(file.BOS), string(file.EOS)
		if jinjaFile == nil {
			if err := c.readTemplates(file.Template); err != nil {
				return Config{}, fmt.Errorf("tokenizer_config.json: chat_template: %w", err)
			}
		}
	}
	if jinjaFile != nil {
		c.Template = string(jinjaFile)
	}
	return c, nil
}

// readTemplates reads one template, or the templates named default and tool_use
// of a list.
func (c *Config) readTemplates(data json.RawMessage) error {
	if len(data) == 0 || string(data) == "null" {
		return nil
	}
	if json.Unmarshal(data, &c.Template) == nil {
		return nil
	}
	var list []struct {
		Name     string  `json:"name"`
		Template *string `json:"template"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return errors.New("must be a text or a list of objects with name and template")
	}
	names := make([]string, 0, len(list))
	for i, named := range list {
		if named.Template == nil {
			return fmt.Errorf("item %d has no template", i)
		}
		names = append(names, named.Name)
		switch named.Name {
		case "default":
			c.Template = *named.Template
		case "tool_use":
			c.ToolUse = *named.Template
		}
	}
	if len(names) > 0 && !slices.Contains(names, "default") {
		return fmt.Errorf("none is named default, only %s", strings.Join(names, ", "))
	}
	return nil
}

// token is a special token: a text, an object with its content, or null.
type token string

// UnmarshalJSON implements json.Unmarshaler.
func (t *token) UnmarshalJSON(data []byte) error {
	var object struct{ Content *string }
	var text *string
	switch {
	case json.Unmarshal(data, &text) == nil:
	case json.Unmarshal(data, &object) == nil && object.Content != nil:
		text = object.Content
	default:
		return fmt.Errorf("a special token must be a text or an object with content, not %.60s", data)
	}
	*t = ""
	if text != nil {
		*t = token(*text)
	}
	return nil
}
