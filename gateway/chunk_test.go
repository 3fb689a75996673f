package gateway

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/forebay-io/forebay/internal/wire"
)

func TestStringsAreValidJSON(t *testing.T) {
	for s, want := range map[string]string{
		"": "", "plain": "plain", "q\"b\\s/": "q\"b\\s/", "\n\r\t\b\f\x00\x1f": "\n\r\t\b\f\x00\x1f", "é✔🦜": "é✔🦜", "\u2028\u2029\u0085\u2027": "\u2028\u2029\u0085\u2027",
		"cut \xe2\x9c": "cut \uFFFD", "\xe2\x9c\xe2\u2028\xff": "\uFFFD\uFFFD\u2028\uFFFD", "\xff\xfe": "\uFFFD\uFFFD", "\uFFFD": "\uFFFD",
	} {
		var got string
		b := appendString(nil, s)
		if json.Unmarshal(b, &got) != nil || got != want {
			t.Errorf("%q became %s", s, b)
		}
		// These are the line ends of Python's str.splitlines.
		if i := bytes.IndexAny(b, "\n\v\f\r\x1c\x1d\x1e\u0085\u2028\u2029"); i >= 0 {
			t.Errorf("%q: %s has a line end at %d", s, b, i)
		}
	}
}

// TestChunksAllocateNothing guards the per-token path.
func TestChunksAllocateNothing(t *testing.T) {
	a := answer{chat: true, id: "chatcmpl-1", model: "m", mark: "fp"}
	l := &logprobList{chat: true}
	tokens := []wire.TokenLogprob{{Bytes: []byte("tok"), Logprob: -1, Top: []wire.TopLogprob{{Bytes: []byte("x"), Logprob: -2}}}}
	buf := make([]byte, 0, 4096)
	for name, step := range map[string]func(){
		"text":     func() { buf = a.textChunk(buf[:0], 0, "tok \"en\"\n", nil) },
		"logprobs": func() { l.reset(); l.add(tokens); buf = a.textChunk(buf[:0], 0, "token", l) },
	} {
		step()
		if n := testing.AllocsPerRun(100, step); n != 0 {
			t.Errorf("%s: %v allocations a token", name, n)
		}
	}
}

func BenchmarkTextChunk(b *testing.B) {
	a := answer{chat: true, id: "chatcmpl-1", model: "m", mark: "fp"}
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		buf = a.textChunk(buf[:0], 0, " token", nil)
	}
}
