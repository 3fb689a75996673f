package chars

import (
	"testing"
	"unicode/utf8"
)

// broken has byte sequences with their text by the WHATWG's decoder.
var broken = []struct{ bytes, text string }{
	{"", ""}, {"plain é✔🦜", "plain é✔🦜"}, {"\uFFFD", "\uFFFD"},
	{"\xff\xfe", "\uFFFD\uFFFD"},
	{"a\x80\x80b", "a\uFFFD\uFFFDb"},
	{"\xe2\x9c", "\uFFFD"}, {"\xe2\x9ca", "\uFFFDa"}, {"\xf0\x9f\xa6", "\uFFFD"}, {"\xf0\x9f\xa6\xf0\x9f", "\uFFFD\uFFFD"},
	{"\xc0\xaf", "\uFFFD\uFFFD"},                                          // overlong
	{"\xe0\x80\xaf", "\uFFFD\uFFFD\uFFFD"},                                // overlong
	{"\xed\xa0\x80", "\uFFFD\uFFFD\uFFFD"},                                // a surrogate
	{"\xf4\x91\x92\x93", "\uFFFD\uFFFD\uFFFD\uFFFD"},                      // above U+10FFFF
	{"\xf0\x80\x80\x41", "\uFFFD\uFFFD\uFFFDA"},                           // Unicode 3.9, table 3-8 and its neighbours
	{"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", "\uFFFD\uFFFD\uFFFD\uFFFDA"}, // table 3-11
}

func TestBrokenText(t *testing.T) {
	for _, c := range broken {
		if got := string(Append(nil, []byte(c.bytes))); got != c.text {
			t.Errorf("%q became %q, want %q", c.bytes, got, c.text)
		}
	}
}

func TestOpen(t *testing.T) {
	for s, want := range map[string]int{
		"": 0, "a": 0, "é": 0, "\xc3": 1, "a\xe2\x9c": 2, "\xf0\x9f\xa6": 3, "\xf0\x9f\xa6\x9c": 0, "\x80": 0, "\xe0\x80": 0, "\xf0\x9f\xa6a": 0, "\xff": 0, "\xed\xa0": 0,
	} {
		if got := Open(s); got != want {
			t.Errorf("%q: %d, want %d", s, got, want)
		}
	}
}

// FuzzCounter compares every piece's offset with the text of all bytes before it.
func FuzzCounter(f *testing.F) {
	for _, c := range broken {
		f.Add([]byte(c.bytes), uint64(0x5a5a5a5a5a5a5a5a))
		f.Add([]byte(c.bytes), ^uint64(0))
	}
	f.Fuzz(func(t *testing.T, text []byte, cuts uint64) {
		var c Counter
		start := 0
		for i := 1; i <= len(text); i++ {
			if i < len(text) && cuts>>(i%64)&1 == 0 {
				continue
			}
			at := c.Add(text[start:i])
			// The first byte's character: those of the text up to it, without its own.
			if want := utf8.RuneCount(Append(nil, text[:start+1])) - 1; at != want {
				t.Fatalf("%q: the piece at %d begins in character %d, want %d", text, start, at, want)
			}
			start = i
		}
	})
}

func TestNothingIsAllocated(t *testing.T) {
	p, dst, c := []byte("a\xe2\x9c \xf0\x9f\xa6\x9c\xff"), make([]byte, 0, 64), Counter{}
	if n := testing.AllocsPerRun(100, func() { dst = Append(dst[:0], p); c.Add(p) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
