package tokenizer

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf"
)

const english = `The tide comes in twice a day, and the miller opens the gate before dawn. "We'll hold it back,"
he says, "until the wheel can use it." In 1887 there were 42 mills on this river; today there are three.
`

const code = `func (q *queue) push(v int64) error {
	if len(q.items) >= q.max { // full
		return fmt.Errorf("queue holds %d items: %w", q.max, errFull)
	}
	q.items = append(q.items, v)
	return nil
}
`

func BenchmarkEncode(b *testing.B) {
	for _, vocab := range []string{"gguf-llama-bpe", "gguf-qwen2", "gguf-gpt-2", "gguf-starcoder", "gguf-llama-spm"} {
		tok := load(b, sharedFile(b, "conformance", "tokenizers", vocab, "vocab.gguf"))
		for name, text := range map[string]string{"english": strings.Repeat(english, 500), "code": strings.Repeat(code, 500)} {
			b.Run(strings.TrimPrefix(vocab, "gguf-")+"/"+name, func(b *testing.B) {
				dst := make([]int32, 0, len(text))
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				for b.Loop() {
					dst = tok.Encode(dst[:0], text, EncodeOptions{})
				}
			})
		}
	}
}

// BenchmarkCache is a short prompt behind the same system prompt as thousands of others.
func BenchmarkCache(b *testing.B) {
	tok := load(b, sharedFile(b, "conformance", "tokenizers", "gguf-qwen2", "vocab.gguf"))
	c := NewCache(tok, 16<<20)
	system := "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
	i := 0
	encode := func() {
		i++
		text := system + strconv.Itoa(i) + english + "<|im_end|>\n<|im_start|>assistant\n"
		if _, err := c.Encode(context.Background(), text, EncodeOptions{ParseSpecial: true}); err != nil {
			b.Fatal(err)
		}
	}
	for range 20000 {
		encode()
	}
	b.ReportAllocs()
	for b.Loop() {
		encode()
	}
}

// BenchmarkLoad is the time from a file's bytes to a Tokenizer.
func BenchmarkLoad(b *testing.B) {
	for _, name := range []string{"llama3", "qwen3", "gptoss", "gemma3"} {
		src := JSONSource{Tokenizer: unzip(b, sharedFile(b, "conformance", "tokenizers", name, "tokenizer.json.gz"))}
		b.Run("json-"+name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(src.Tokenizer)))
			for b.Loop() {
				if _, err := FromJSON(name, src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, name := range []string{"gguf-llama-bpe", "gguf-qwen2"} {
		path := sharedFile(b, "conformance", "tokenizers", name, "vocab.gguf")
		f, err := gguf.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := FromGGUF(f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
