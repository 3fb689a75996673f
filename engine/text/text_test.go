package text

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// run pushes the pieces and returns the joined text.
func run(t testing.TB, stops []string, pieces ...string) (string, bool) {
	t.Helper()
	s := NewStream(stops)
	var out strings.Builder
	pushed := 0
	for _, p := range pieces {
		text, stopped := s.Push([]byte(p))
		pushed += len(p)
		if !utf8.ValidString(text) {
			t.Fatalf("Push(%q) = %q: not UTF-8", p, text)
		}
		if s.Released() > pushed {
			t.Fatalf("released %d of %d bytes", s.Released(), pushed)
		}
		out.WriteString(text)
		if stopped {
			break
		}
	}
	tail := s.Flush()
	out.WriteString(tail)
	if s.Stopped() != (s.Stop() != "") || s.Stop() != "" && !slices.Contains(stops, s.Stop()) {
		t.Fatalf("stopped %v, by %q", s.Stopped(), s.Stop())
	}
	return out.String(), s.Stopped()
}

// everyCut calls f with every way to cut text into pieces.
func everyCut(text string, f func(pieces []string)) {
	for mask := range 1 << max(len(text)-1, 0) {
		var pieces []string
		start := 0
		for i := 1; i < len(text); i++ {
			if mask>>(i-1)&1 == 1 {
				pieces = append(pieces, text[start:i])
				start = i
			}
		}
		f(append(pieces, text[start:]))
	}
}

// A kept stop is part of the text. Stops that begin before they count do not end it.
func TestKeepAndStops(t *testing.T) {
	everyCut("xyab", func(pieces []string) {
		s := NewStream([]string{"ab", "yz"})
		s.Keep()
		got := ""
		for _, p := range pieces {
			text, _ := s.Push([]byte(p))
			got += text
		}
		if got += s.Flush(); got != "xyab" || !s.Stopped() || s.Released() != 4 {
			t.Errorf("%q: %q, stopped %v", pieces, got, s.Stopped())
		}
	})
	s := NewStream([]string{"ab"})
	s.Stops(false)
	first, stopped := s.Push([]byte("abxa"))
	s.Stops(true)
	second, _ := s.Push([]byte("b"))
	third, over := s.Push([]byte("cab!"))
	if first != "abxa" || stopped || second != "b" || third != "c" || !over {
		t.Errorf("%q %v %q %q %v", first, stopped, second, third, over)
	}
}

// naive is the specification, on the whole output at once.
func naive(text string, stops []string) (string, bool) {
	at, found := len(text), false
	for _, stop := range stops {
		if i := strings.Index(text, stop); stop != "" && i >= 0 && i < at {
			at, found = i, true
		}
	}
	var out strings.Builder
	for p := text[:at]; p != ""; {
		r, size := utf8.DecodeRuneInString(p)
		if r == utf8.RuneError && size == 1 {
			for size < len(p) && !utf8.FullRuneInString(p[:size+1]) {
				size++
			}
		}
		out.WriteRune(r)
		p = p[size:]
	}
	return out.String(), found
}

// A stream that goes on with a character gives the text that it would have given
// had the character's first bytes been generated too, but for stops.
func TestContinue(t *testing.T) {
	for _, c := range []struct {
		open, rest string
		stops      []string
		text       string
		stopped    bool
	}{
		{"\xf0\x9f\xa6", "\x9cok", nil, "\U0001F99Cok", false},
		{"\xf0", "\x9f\xa6\x9c", nil, "\U0001F99C", false},
		{"\xf0\x9f", "ok", nil, "\uFFFDok", false},
		{"\xf0\x9f", "", nil, "\uFFFD", false},
		{"\xf0\x9f\xa6", "\x9cok", []string{"\U0001F99C"}, "\U0001F99Cok", false},
		{"\xf0\x9f\xa6", "\x9cok\U0001F99C", []string{"\U0001F99C"}, "\U0001F99Cok", true},
		{"\xf0\x9f", "ok", []string{"ok"}, "\uFFFD", true},
	} {
		everyCut(c.rest, func(pieces []string) {
			s := NewStream(c.stops)
			s.Continue(c.open)
			var got string
			for _, p := range pieces {
				text, _ := s.Push([]byte(p))
				got += text
			}
			got += s.Flush()
			if got != c.text || s.Stopped() != c.stopped {
				t.Errorf("%q goes on with %q, stops %q: %q, stopped %v; want %q, %v", c.open, pieces, c.stops, got, s.Stopped(), c.text, c.stopped)
			}
		})
	}
}

func TestCutCharacters(t *testing.T) {
	const want = "\u2705 \U0001F98Eok"
	everyCut(want, func(pieces []string) {
		if got, _ := run(t, nil, pieces...); got != want {
			t.Fatalf("pieces %q: got %q, want %q", pieces, got, want)
		}
	})
}

func TestStopAcrossPieces(t *testing.T) {
	const text = "the north star home"
	everyCut(text, func(pieces []string) {
		s := NewStream([]string{"north star"})
		var out strings.Builder
		pushed := 0
		for _, p := range pieces {
			text, stopped := s.Push([]byte(p))
			out.WriteString(text)
			pushed += len(p)
			if stopped != (pushed >= len("the north star")) {
				t.Fatalf("pieces %q: stopped = %v after %d bytes", pieces, stopped, pushed)
			}
		}
		if out.String() != "the " || s.Flush() != "" || s.Released() != len("the ") {
			t.Fatalf("pieces %q: got %q, released %d", pieces, out.String(), s.Released())
		}
	})
	if got, stopped := run(t, []string{"north star"}, "follow the ", "nor", "th s", "tar", " home"); got != "follow the " || !stopped {
		t.Errorf("got %q, stopped %v", got, stopped)
	}
}

func TestStopInsideToken(t *testing.T) {
	for _, c := range []struct {
		stops  []string
		pieces []string
		want   string
	}{
		{[]string{"."}, []string{"done... next"}, "done"},
		{[]string{"###", "##"}, []string{"x ### y"}, "x "},
		{[]string{"abc", "b"}, []string{"xab", "c"}, "x"},
		{[]string{"abc", "b"}, []string{"xab", "d"}, "xa"},
		{[]string{"abc", "b"}, []string{"xab"}, "xa"},
		{[]string{""}, []string{"all"}, "all"},
	} {
		got, stopped := run(t, c.stops, c.pieces...)
		if got != c.want || stopped != (c.stops[0] != "") {
			t.Errorf("stops %q, pieces %q: got %q (stopped %v), want %q", c.stops, c.pieces, got, stopped, c.want)
		}
	}
}

// TestShortestStopCountsAtOnce: a longer stop at the same place is not waited for.
func TestShortestStopCountsAtOnce(t *testing.T) {
	s := NewStream([]string{"###", "##"})
	if text, stopped := s.Push([]byte("x ##")); text != "x " || !stopped {
		t.Errorf("got %q, stopped %v", text, stopped)
	}
}

// TestInvalidStopMatchesBytes: a stop is bytes, as tokens are; one that is no
// UTF-8 may end inside a character, which then counts as broken.
func TestInvalidStopMatchesBytes(t *testing.T) {
	everyCut("a\xe2\x9c\x85b", func(pieces []string) {
		if got, stopped := run(t, []string{"\x9c\x85"}, pieces...); got != "a\uFFFD" || !stopped {
			t.Fatalf("pieces %q: got %q, stopped %v", pieces, got, stopped)
		}
	})
}

// TestStreamEqualsNaive compares with the specification on random bytes from a
// small alphabet (so that stops and broken characters are frequent), cut at random.
func TestStreamEqualsNaive(t *testing.T) {
	alphabet := []string{"a", "b", "é", "✅", "\U0001F98E", "\xe2", "\x9c", "\xf0\x9f", "\xff", "\xc0"}
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func(n, from int) string {
		var b strings.Builder
		for range n {
			b.WriteString(alphabet[rng.IntN(from)])
		}
		return b.String()
	}
	for range 20000 {
		text := pick(rng.IntN(12), len(alphabet))
		var stops []string
		for range rng.IntN(4) {
			stops = append(stops, pick(1+rng.IntN(3), 5))
		}
		var pieces []string
		for rest := text; rest != ""; {
			n := 1 + rng.IntN(len(rest))
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		want, wantStopped := naive(text, stops)
		if got, stopped := run(t, stops, pieces...); got != want || stopped != wantStopped {
			t.Fatalf("pieces %q, stops %q: got %q (stopped %v), want %q (%v)", pieces, stops, got, stopped, want, wantStopped)
		}
	}
}

func TestPushToAllocatesNothing(t *testing.T) {
	s := NewStream([]string{"never seen", "nor this"})
	dst := make([]byte, 0, 64)
	token := []byte(" never ✅ no")
	if n := testing.AllocsPerRun(1000, func() { dst, _ = s.PushTo(dst[:0], token) }); n != 0 {
		t.Errorf("PushTo allocates %v times", n)
	}
}

func BenchmarkPush16Stops(b *testing.B) {
	stops := strings.Fields("User: Human: ### \n\n <|im_end|> </s> stop1 stop2 stop3 stop4 stop5 stop6 stop7 stop8 stop9 stop10")
	s := NewStream(stops)
	token := []byte(" stations")
	dst := make([]byte, 0, 64)
	b.SetBytes(int64(len(token)))
	for b.Loop() {
		dst, _ = s.PushTo(dst[:0], token)
	}
}
