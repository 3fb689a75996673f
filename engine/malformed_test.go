package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf/gguftest"
)

// le joins numbers and texts as they lie in a file.
func le(parts ...any) []byte {
	var b bytes.Buffer
	for _, p := range parts {
		if s, ok := p.(string); ok {
			b.WriteString(s)
		} else if err := binary.Write(&b, binary.LittleEndian, p); err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}

// malformed are files that claim more than they have, or what no model can be.
func malformed() map[string][]byte {
	const str, arr = uint32(8), uint32(9)
	header := func(tensors, keys uint64) []byte { return le("GGUF", uint32(3), tensors, keys) }
	key := func(parts ...any) []byte { return append(header(0, 1), append(le(uint64(1), "k"), le(parts...)...)...) }
	files := map[string][]byte{
		"no model":            []byte(strings.Repeat("text ", 1000)),
		"keys without end":    header(0, 1<<63),
		"tensors without end": header(1<<63, 0),
		"string of 2^62":      key(str, uint64(1)<<62),
		"string of 1 GiB":     key(str, uint64(1)<<30),
		"array of 2^40":       key(arr, str, uint64(1)<<40),
		"array of bytes":      key(arr, uint32(0), uint64(1)<<40),
		"nested arrays":       key(append([]any{arr}, nestedArrays(10000)...)...),
		"tensor of 2^42":      append(header(1, 0), le(uint64(1), "t", uint32(2), uint64(1)<<42, uint64(1)<<20, uint32(0), uint64(0))...),
	}
	for name, n := range map[string]uint32{
		"block_count": 1 << 24, "embedding_length": 1 << 24, "feed_forward_length": 1 << 24,
		"attention.head_count": 1 << 24, "attention.key_length": 1 << 24, "expert_count": 1 << 24, "rope.dimension_count": 1 << 24,
	} {
		files[name] = replaceKey(gguftest.TinyModel(gguftest.Tiny{}), "llama."+name, n)
	}
	whole := gguftest.TinyModel(gguftest.Tiny{})
	files["cut in the data"], files["cut in the header"] = whole[:len(whole)-1000], whole[:2000]

	// A million tokens in a file of which no tensor has as many rows: their tables
	// would take several times what they take in the file.
	b := gguftest.TinyBuilder(gguftest.Tiny{Vocab: 8})
	tokens := make([]string, 1<<20)
	for i := range tokens {
		tokens[i] = fmt.Sprint(i)
	}
	b.Set("tokenizer.ggml.tokenS", tokens)
	many := bytes.Replace(b.Bytes(), []byte("ggml.tokens"), []byte("ggml.t0kens"), 1)
	files["tokens without rows"] = bytes.Replace(many, []byte("ggml.tokenS"), []byte("ggml.tokens"), 1)
	return files
}

func nestedArrays(depth int) (parts []any) {
	for range depth {
		parts = append(parts, uint32(9), uint64(1))
	}
	return parts
}

// replaceKey gives a number another value, or adds it.
func replaceKey(file []byte, key string, n uint32) []byte {
	at := bytes.Index(file, le(uint64(len(key)), key, uint32(4)))
	if at < 0 { // in front of the others
		keys := binary.LittleEndian.Uint64(file[16:])
		return bytes.Join([][]byte{file[:16], le(keys + 1), le(uint64(len(key)), key, uint32(4), n), file[24:]}, nil)
	}
	file = bytes.Clone(file)
	binary.LittleEndian.PutUint32(file[at+8+len(key)+4:], n)
	return file
}

// Malformed files, up to the engine: an error of one line that names the file, and
// all that is allocated on the way, not only at a time, is little.
func TestMalformedModelsTakeLittleMemory(t *testing.T) {
	dir := t.TempDir()
	for name, file := range malformed() {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".gguf")
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		e, err := New(Config{Model: path})
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: it is served; %v", name, e.Close())
		} else if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: the error is %q", name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > uint64(len(file))+64<<20 {
			t.Errorf("%s: %d bytes allocated for a file of %d", name, n, len(file))
		}
	}
}
