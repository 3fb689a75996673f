package checkpoint

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/forebay-io/forebay/engine/chat"
	"github.com/forebay-io/forebay/engine/gguf"
)

// Chat reads the model's chat templates and the texts of the tokens they use.
func (c *Checkpoint) Chat() (chat.Config, error) {
	if f := c.folder; f != nil {
		return readChat(c.Name(), f.TokenizerConfig, f.ChatTemplate)
	}
	return ggufChat(c.File)
}

// OpenChat reads only the templates. path is a model as for Open, a
// tokenizer_config.json, or a template file; for the last, a
// tokenizer_config.json in the same folder names the tokens.
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

// ggufChat reads the templates of a GGUF file: one, and sometimes one for tools.
func ggufChat(f *gguf.File) (c chat.Config, err error) {
	const key, tokens = "tokenizer.chat_template", "tokenizer.ggml.tokens"
	if c.Template, _, err = f.String(key); err != nil {
		return chat.Config{}, err
	}
	if c.ToolUse, _, err = f.String(key + ".tool_use"); err != nil {
		return chat.Config{}, err
	}
	if c.Rank, _, err = f.String(key + ".rerank"); err != nil {
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
		if present && id < uint64(len(texts)) { // files write 2^32-1 for none
			*to = texts[id]
		}
	}
	return c, nil
}
