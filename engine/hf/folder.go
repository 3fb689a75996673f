package hf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/mapped"
	"github.com/forebay-io/forebay/engine/safetensors"
)

// Folder is a model's folder.
type Folder struct {
	// File has the model's metadata and tensors, like a GGUF file without a
	// tokenizer.
	File *gguf.File

	// The bytes of the other files; nil for a missing one.
	Tokenizer        []byte // tokenizer.json
	TokenizerConfig  []byte // tokenizer_config.json
	GenerationConfig []byte // generation_config.json
	SpecialTokens    []byte // special_tokens_map.json
	ChatTemplate     []byte // chat_template.jinja
}

// Files of a folder, and how large they may be.
const (
	configName        = "config.json"
	weightsName       = "model.safetensors"
	indexName         = "model.safetensors.index.json"
	configBytesMax    = 1 << 20
	tokenizerBytesMax = 256 << 20
	smallFileBytesMax = 16 << 20
)

// Open opens the folder dir. It never blocks on a FIFO or a device.
func Open(dir string) (*Folder, error) {
	config, err := read(dir, configName, configBytesMax)
	if err != nil {
		return nil, err
	}
	if config == nil {
		return nil, fmt.Errorf("%s: has no %s, so this is no folder of a Hugging Face model", dir, configName)
	}
	folder := &Folder{}
	if said, err := read(dir, modeloptName, configBytesMax); err != nil {
		return nil, err
	} else if said != nil {
		if config, err = addQuantization(filepath.Join(dir, modeloptName), config, said); err != nil {
			return nil, err
		}
	}
	for _, file := range []struct {
		name string
		to   *[]byte
		most int
	}{
		{"tokenizer.json", &folder.Tokenizer, tokenizerBytesMax},
		{"tokenizer_config.json", &folder.TokenizerConfig, smallFileBytesMax},
		{"generation_config.json", &folder.GenerationConfig, smallFileBytesMax},
		{"special_tokens_map.json", &folder.SpecialTokens, smallFileBytesMax},
		{"chat_template.jinja", &folder.ChatTemplate, smallFileBytesMax},
	} {
		if *file.to, err = read(dir, file.name, file.most); err != nil {
			return nil, err
		}
	}
	weights, err := openWeights(dir)
	if err != nil {
		return nil, err
	}
	p, err := readPooling(dir) // of which the File takes hold
	if id, ok := separator(folder.Tokenizer, folder.TokenizerConfig); ok {
		p.separator = &id
	}
	if err == nil {
		folder.File, err = convert(dir, config, weights, p)
	}
	if err != nil {
		return nil, errors.Join(err, weights.Close(), p.close())
	}
	return folder, nil
}

// exists reports whether the folder has an entry of this name, even a dangling link.
func exists(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return !errors.Is(err, fs.ErrNotExist)
}

// read reads a file of the folder; nil means that it does not exist.
func read(dir, name string, most int) ([]byte, error) {
	if !exists(dir, name) {
		return nil, nil
	}
	path := filepath.Join(dir, name)
	m, err := mapped.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open model folder: %w", err)
	}
	defer m.Close()
	if len(m.Data) > most {
		return nil, fmt.Errorf("%s: has %d bytes; allowed are %d", path, len(m.Data), most)
	}
	return append([]byte{}, m.Data...), nil
}

// openWeights opens the file with all weights, or else the files of the index.
func openWeights(dir string) (*safetensors.File, error) {
	for _, name := range []string{weightsName, indexName} {
		if exists(dir, name) {
			return safetensors.Open(filepath.Join(dir, name))
		}
	}
	return nil, fmt.Errorf("%s: has neither %s nor %s; weights in other files are not supported", dir, weightsName, indexName)
}
