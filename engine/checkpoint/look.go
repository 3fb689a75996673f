package checkpoint

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/forebay-io/forebay/engine/mapped"
)

// kind is the kind of model that a path leads to.
type kind int

const (
	kindOther  kind = iota // a regular file that is not GGUF
	kindGGUF               // a GGUF file, or a folder with one
	kindFolder             // a Hugging Face folder
)

// Names of the files that a folder is searched for.
const (
	tokenizerName  = "tokenizer.json"
	configName     = "tokenizer_config.json"
	generationName = "generation_config.json"
	templateName   = "chat_template.jinja"
)

// look finds the kind of path. at is the GGUF file if path is a folder with one,
// and path otherwise.
func look(path string) (k kind, at string, err error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		k, err = lookFile(path)
		return k, path, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return kindOther, path, err
	}
	var models []string
	parts := map[string]bool{}
	for _, e := range entries {
		name := e.Name()
		switch {
		case hasSuffixFold(name, ".safetensors"):
			return kindFolder, path, nil
		case !hasSuffixFold(name, ggufExt) || e.IsDir():
		case partName.MatchString(stem(name)):
			if whole := partName.ReplaceAllString(stem(name), ""); !parts[whole] {
				parts[whole] = true
				models = append(models, name)
			}
		default:
			models = append(models, name)
		}
	}
	switch {
	case len(models) == 1:
		return kindGGUF, filepath.Join(path, models[0]), nil
	case len(models) > 1:
		return kindOther, path, fmt.Errorf("%s: has %d models: %s; name one of them", path, len(models), someOf(models))
	case slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return slices.Contains([]string{"config.json", tokenizerName, configName, templateName}, e.Name())
	}):
		return kindFolder, path, nil
	}
	return kindOther, path, fmt.Errorf("%s: has no *.gguf, no *.safetensors and no %s, so this is no model's folder", path, tokenizerName)
}

const ggufExt = ".gguf"

// partName matches the end of a part's name, without its extension.
var partName = regexp.MustCompile(`-[0-9]{5}-of-[0-9]{5}$`)

func hasSuffixFold(name, suffix string) bool {
	return len(name) > len(suffix) && strings.EqualFold(name[len(name)-len(suffix):], suffix)
}

func stem(name string) string { return strings.TrimSuffix(name, filepath.Ext(name)) }

// someOf lists the first few names.
func someOf(names []string) string {
	const most = 8
	if len(names) > most {
		return strings.Join(names[:most], ", ") + " and others"
	}
	return strings.Join(names, ", ")
}

// lookFile recognises a GGUF file by its first bytes, or by its name.
func lookFile(path string) (kind, error) {
	m, err := mapped.Open(path)
	if err != nil {
		return kindOther, fmt.Errorf("open model file: %w", err)
	}
	defer m.Close()
	if bytes.HasPrefix(m.Data, []byte("GGUF")) || hasSuffixFold(path, ggufExt) {
		return kindGGUF, nil
	}
	return kindOther, nil
}

// textBytesMax bounds the files of tokenizers and templates. The largest
// tokenizers have about 30 MB.
const textBytesMax = 256 << 20

// readText reads a file, and decompresses it if its name ends in .gz.
func readText(path string) ([]byte, error) {
	m, err := mapped.Open(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	in := io.Reader(bytes.NewReader(m.Data))
	if hasSuffixFold(path, ".gz") {
		if in, err = gzip.NewReader(in); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	text, err := io.ReadAll(io.LimitReader(in, textBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(text) > textBytesMax {
		return nil, fmt.Errorf("%s: has more than %d bytes", path, textBytesMax)
	}
	return text, nil
}

// readBeside reads the named file in a folder; nil if there is none.
func readBeside(dir, name string) ([]byte, error) {
	path := filepath.Join(dir, name)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return readText(path)
}
