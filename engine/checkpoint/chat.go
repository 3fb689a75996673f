package checkpoint

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/forebay-io/forebay/engine/chat"
	"github.com/forebay-io/forebay/engine/gguf"
)

// Chat reads the model's templates, and the texts of the tokens that they use.
func (c *Checkpoint) Chat() (chat.Config, error) {
	if f := c.folder; f != nil {
		return readChat(c.Name(), f.TokenizerConfig, f.ChatTemplate)
	}
	return ggufChat(c.File)
}

// OpenChat reads the templates alone: of a model as Open takes it, of a
// tokenizer_config.json, or of a file that is a template, whose tokens a
// tokenizer_config.json beside it says.
func OpenChat(path string) (chat.Config, error) {
	kind, at, err := look(path)
	switch {
	case err != nil:
		return chat.Config{}, err
	case kind == kindFolder:
		return folderChat(at)
	case kind == kindGGUF:
		f, err := gguf.Open(at)
		if err != nil {
			return chat.Config{}, err
		}
		c, err := ggufChat(f)
		return c, errors.Join(err, f.Close())
	}
	own, err := readText(at)
	if err != nil {
		return chat.Config{}, err
	}
	other := templateName
	template := hasSuffixFold(at, ".jinja") || hasSuffixFold(at, ".j2") || hasSuffixFold(at, ".txt")
	if template {
		other = configName
	} else if !hasSuffixFold(at, ".json") {
		return chat.Config{}, fmt.Errorf("%s: is neither a GGUF file nor a %s nor a template that ends in .jinja", at, configName)
	}
	beside, err := readBeside(filepath.Dir(at), other)
	if err != nil {
		return chat.Config{}, err
	}
	if template {
		own, beside = beside, own
	}
	return readChat(at, own, beside)
}

func folderChat(dir string) (chat.Config, error) {
	config, err := readBeside(dir, configName)
	if err != nil {
		return chat.Config{}, err
	}
	template, err := readBeside(dir, templateName)
	if err != nil {
		return chat.Config{}, err
	}
	return readChat(dir, config, template)
}

func readChat(name string, config, template []byte) (chat.Config, error) {
	c, err := chat.ReadConfig(config, template)
	if err != nil {
		return chat.Config{}, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// ggufChat reads what a GGUF file has of templates: one, and perhaps one for tools.
func ggufChat(f *gguf.File) (c chat.Config, err error) {
	const key, tokens = "tokenizer.chat_template", "tokenizer.ggml.tokens"
	if c.Template, _, err = f.String(key); err != nil {
		return chat.Config{}, err
	}
	if c.ToolUse, _, err = f.String(key + ".tool_use"); err != nil {
		return chat.Config{}, err
	}
	texts, _, err := f.Strings(tokens)
	if err != nil {
		return chat.Config{}, err
	}
	for name, to := range map[string]*string{"bos": &c.BOS, "eos": &c.EOS} {
		id, present, err := f.Uint("tokenizer.ggml." + name + "_token_id")
		if err != nil {
			return chat.Config{}, err
		}
		if present && id < uint64(len(texts)) { // 2^32-1 is how files say none
			*to = texts[id]
		}
	}
	return c, nil
}
