package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/hf"
	"github.com/forebay-io/forebay/engine/quant"
	"github.com/forebay-io/forebay/engine/tokenizer"
)

// Checkpoint is an open model: its keys and tensors, independent of the format.
type Checkpoint struct {
	*gguf.File
	folder *hf.Folder // where File is made of one in the layout of Hugging Face
}

// Open opens the model at path: a GGUF file, any part of a split one, or a folder
// with one model.
func Open(path string) (*Checkpoint, error) {
	kind, at, err := look(path)
	switch {
	case err != nil:
		return nil, err
	case kind == kindGGUF:
		f, err := gguf.Open(at)
		if err != nil {
			return nil, err
		}
		return &Checkpoint{File: f}, nil
	case kind == kindFolder:
		folder, err := hf.Open(at)
		if err != nil {
			return nil, err
		}
		return &Checkpoint{File: folder.File, folder: folder}, nil
	}
	return nil, fmt.Errorf("%s: is no model; a model is a GGUF file, or a folder with one, or with config.json and *.safetensors", path)
}

// Parse reads a GGUF file that is in memory; see gguf.Parse.
func Parse(name string, data []byte) (*Checkpoint, error) {
	f, err := gguf.Parse(name, data)
	if err != nil {
		return nil, err
	}
	return &Checkpoint{File: f}, nil
}

// ID is the default name of the model for clients: the name of its file or
// folder, without the extension and the part number.
func (c *Checkpoint) ID() string {
	path, err := filepath.Abs(c.Name()) // the folder may be called "."
	if err != nil {
		path = c.Name()
	}
	base := filepath.Base(path)
	if c.folder == nil {
		base = partName.ReplaceAllString(stem(base), "")
	}
	return base
}

// Files lists the files that hold the weights.
func (c *Checkpoint) Files() []string {
	path := c.Name()
	if c.folder != nil {
		names, _ := filepath.Glob(filepath.Join(path, "*.safetensors"))
		return names
	}
	if whole := partName.ReplaceAllString(stem(path), ""); whole != stem(path) {
		dir, base := filepath.Dir(whole), filepath.Base(whole)
		entries, _ := os.ReadDir(dir)
		var names []string
		for _, e := range entries {
			if partName.ReplaceAllString(stem(e.Name()), "") == base {
				names = append(names, filepath.Join(dir, e.Name()))
			}
		}
		return names
	}
	return []string{path}
}

// Portable returns why the model cannot be written as a GGUF file, or nil.
func (c *Checkpoint) Portable() error {
	if c.folder != nil {
		return fmt.Errorf("%s: a folder's tokenizer cannot be written into a GGUF file; the weights can be quantised whenever the model is loaded, by engine.quantize", c.Name())
	}
	return nil
}

// Quantized returns the model with weights of another type: q8_0, q4_0, q4_k or
// q6_k, or "" for the types of the file. Each tensor is converted when it is
// read. The result must not be used after c is closed.
func (c *Checkpoint) Quantized(name string) (*gguf.File, error) {
	if name == "" {
		return c.File, nil
	}
	t, err := quant.ParseType(name)
	if err != nil {
		return nil, err
	}
	return quant.File(c.File, t)
}

// Tokenizer reads the model's tokenizer.
func (c *Checkpoint) Tokenizer() (*tokenizer.Tokenizer, error) {
	if f := c.folder; f != nil {
		if f.Tokenizer == nil {
			return nil, fmt.Errorf("%s: has no %s", c.Name(), tokenizerName)
		}
		return tokenizer.FromJSON(filepath.Join(c.Name(), tokenizerName), tokenizer.JSONSource{
			Tokenizer: f.Tokenizer, Config: f.TokenizerConfig, Generation: f.GenerationConfig,
		})
	}
	return tokenizer.FromGGUF(c.File)
}

// OpenTokenizer reads only the tokenizer. path is a model as for Open, a GGUF
// file with nothing but a vocabulary, or a tokenizer.json with its neighbour
// files. The file may be compressed with gzip (.gz).
func OpenTokenizer(path string) (*tokenizer.Tokenizer, error) {
	kind, at, err := look(path)
	switch {
	case err != nil:
		return nil, err
	case kind == kindGGUF:
		f, err := gguf.Open(at)
		if err != nil {
			return nil, err
		}
		t, err := tokenizer.FromGGUF(f)
		return t, errors.Join(err, f.Close())
	case kind == kindFolder:
		return jsonTokenizer(filepath.Join(at, tokenizerName))
	case hasSuffixFold(at, ".json") || hasSuffixFold(at, ".json.gz"):
		return jsonTokenizer(at)
	}
	return nil, fmt.Errorf("%s: is neither a GGUF file nor a %s nor a model's folder", at, tokenizerName)
}

func jsonTokenizer(path string) (t *tokenizer.Tokenizer, err error) {
	var source tokenizer.JSONSource
	if source.Tokenizer, err = readText(path); err != nil {
		return nil, err
	}
	if source.Config, err = readBeside(filepath.Dir(path), configName); err != nil {
		return nil, err
	}
	if source.Generation, err = readBeside(filepath.Dir(path), generationName); err != nil {
		return nil, err
	}
	return tokenizer.FromJSON(path, source)
}
