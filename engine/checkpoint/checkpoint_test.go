package checkpoint

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/chat"
	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/gguf/gguftest"
)

// write makes files in a new folder; a name may hold folders.
func write(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func tiny() string { return string(gguftest.TinyModel(gguftest.Tiny{})) }

// part is one of two files that are a model together.
func part(t *testing.T, no int) string {
	t.Helper()
	whole, err := gguf.Parse("whole", []byte(tiny()))
	if err != nil {
		t.Fatal(err)
	}
	d := gguf.NewDraft("part")
	if no == 0 {
		d.Copy(whole)
	}
	d.Set("split.no", uint32(no))
	d.Set("split.count", uint32(2))
	d.Set("split.tensors.count", uint32(len(whole.Tensors)))
	half := len(whole.Tensors) / 2
	for _, tensor := range [][]gguf.Tensor{whole.Tensors[:half], whole.Tensors[half:]}[no] {
		d.Add(tensor)
	}
	f, err := d.File("", false)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := gguf.Write(&b, f, nil); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestOpenFindsTheModel(t *testing.T) {
	const first, second = "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"
	split := map[string]string{first: part(t, 0), second: part(t, 1), "notes.txt": "x"}
	for name, c := range map[string]struct {
		files    map[string]string
		path, id string
	}{
		"file":           {map[string]string{"a.b.gguf": tiny()}, "a.b.gguf", "a.b"},
		"other name":     {map[string]string{"model.bin": tiny()}, "model.bin", "model"},
		"capitals":       {map[string]string{"M.GGUF": tiny()}, "", "M"},
		"folder":         {map[string]string{"sub/m.gguf": tiny(), "sub/config.json": "{}", "sub/old/other.gguf": tiny()}, "sub", "m"},
		"first part":     {split, first, "m"},
		"second part":    {split, second, "m"},
		"folder of them": {split, "", "m"},
	} {
		t.Run(name, func(t *testing.T) {
			c2, err := Open(filepath.Join(write(t, c.files), c.path))
			if err != nil {
				t.Fatal(err)
			}
			defer c2.Close()
			if c2.ID() != c.id {
				t.Errorf("it is called %q, want %q", c2.ID(), c.id)
			}
			tok, err := c2.Tokenizer()
			if err != nil || tok.Size() != gguftest.TinyTokens {
				t.Errorf("tokenizer: %v", err)
			}
			if ch, err := c2.Chat(); err != nil || ch.Template != gguftest.TinyTemplate || ch.EOS != "<|im_end|>" {
				t.Errorf("chat: %+v, %v", ch, err)
			}
			wantFiles := 1
			if strings.Contains(name, "part") || strings.Contains(name, "them") {
				wantFiles = 2
			}
			if files := c2.Files(); len(files) != wantFiles {
				t.Errorf("its files are %q", files)
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		path  string
		want  string
	}{
		"nothing there": {nil, "m.gguf", "m.gguf"},
		"no model":      {map[string]string{"m.txt": "text"}, "m.txt", "is no model; a model is"},
		"by name alone": {map[string]string{"m.gguf": "text"}, "m.gguf", `is "text", so this is not a GGUF file`},
		"empty":         {map[string]string{"m.gguf": ""}, "m.gguf", "is empty"},
		"two models":    {map[string]string{"b.gguf": tiny(), "a.gguf": tiny()}, "", "has 2 models: a.gguf, b.gguf; name one"},
		"model and set": {map[string]string{"b.gguf": tiny(), "a-00001-of-00001.gguf": tiny()}, "", "has 2 models"},
		"empty folder":  {nil, "", "has no *.gguf, no *.safetensors"},
		"lost part":     {map[string]string{"m-00001-of-00002.gguf": part(t, 0)}, "", "m-00002-of-00002.gguf"},
	} {
		t.Run(name, func(t *testing.T) {
			c2, err := Open(filepath.Join(write(t, c.files), c.path))
			if err == nil {
				t.Fatal("it is open, ", c2.Close())
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q, want %q", err, c.want)
			}
		})
	}
}

func TestOpenChat(t *testing.T) {
	const config = `{"chat_template": "from config", "bos_token": "<b>", "eos_token": {"content": "<e>"}}`
	for name, c := range map[string]struct {
		files map[string]string
		path  string
		want  chat.Config
		err   string
	}{
		"config":           {map[string]string{"tokenizer_config.json": config}, "tokenizer_config.json", chat.Config{Template: "from config", BOS: "<b>", EOS: "<e>"}, ""},
		"file beside it":   {map[string]string{"tokenizer_config.json": config, "chat_template.jinja": "own"}, "tokenizer_config.json", chat.Config{Template: "own", BOS: "<b>", EOS: "<e>"}, ""},
		"folder":           {map[string]string{"tokenizer_config.json": config, "chat_template.jinja": "own"}, "", chat.Config{Template: "own", BOS: "<b>", EOS: "<e>"}, ""},
		"template":         {map[string]string{"t.jinja": "alone"}, "t.jinja", chat.Config{Template: "alone"}, ""},
		"template, config": {map[string]string{"tokenizer_config.json": config, "t.jinja": "own"}, "t.jinja", chat.Config{Template: "own", BOS: "<b>", EOS: "<e>"}, ""},
		"model":            {map[string]string{"m.gguf": tiny()}, "m.gguf", chat.Config{Template: gguftest.TinyTemplate, BOS: "<|endoftext|>", EOS: "<|im_end|>"}, ""},
		"neither":          {map[string]string{"t.html": "x"}, "t.html", chat.Config{}, "is neither a GGUF file nor a tokenizer_config.json nor a template"},
		"broken":           {map[string]string{"tokenizer_config.json": "{"}, "tokenizer_config.json", chat.Config{}, "tokenizer_config.json"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := OpenChat(filepath.Join(write(t, c.files), c.path))
			if c.err == "" && (err != nil || got != c.want) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("got %+v, %v; want %+v, %q", got, err, c.want, c.err)
			}
		})
	}
}

// The template for tools has a key of its own.
func TestChatOfTools(t *testing.T) {
	whole, err := gguf.Parse("whole", []byte(tiny()))
	if err != nil {
		t.Fatal(err)
	}
	d := gguf.NewDraft("m")
	d.Copy(whole)
	d.Set("tokenizer.chat_template.tool_use", "with tools")
	d.Set("tokenizer.ggml.bos_token_id", uint32(1<<32-1)) // none
	f, err := d.File("", false)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := ggufChat(f); err != nil || c.ToolUse != "with tools" || c.Template != gguftest.TinyTemplate || c.BOS != "" {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestOpenTokenizerOfPackedText(t *testing.T) {
	const source = `{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}, "decoder": {"type": "ByteLevel"}}`
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte(source)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dir := write(t, map[string]string{"tokenizer.json": source, "packed.json.gz": packed.String(), "cut.json.gz": packed.String()[:20], "text.md": "x"})
	for path, want := range map[string]string{"tokenizer.json": "", "packed.json.gz": "", "": "", "cut.json.gz": "cut.json.gz: unexpected EOF", "text.md": "is neither a GGUF file"} {
		tok, err := OpenTokenizer(filepath.Join(dir, path))
		if want == "" && (err != nil || tok.Size() != 3) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v; want %q", path, err, want)
		}
	}
}
