package tokenizer

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// chatTokenizer has control tokens of which one begins another.
func chatTokenizer(t *testing.T) *Tokenizer {
	m := smallBPE()
	tokens := append(slices.Clone(m[keyTokens].([]string)), "<|e", "<|end|>>")
	kinds := append(slices.Clone(m["tokenizer.ggml.token_type"].([]int32)), 3, 3)
	return m.with("tokens", tokens).with("token_type", kinds).must(t)
}

// randomChat grows a text from pieces that make and break special tokens.
func randomChat(rng *rand.Rand, text string) string {
	pieces := []string{"<|end|>", "<|e", ">", "hello", " ", "nd|>", "<|", "\n", "aa", "b", guardText}
	text = text[:rng.IntN(len(text)+1)]
	for range 1 + rng.IntN(12) {
		text += pieces[rng.IntN(len(pieces))]
	}
	return text
}

func TestCacheGivesWhatEncodeGives(t *testing.T) {
	tok := chatTokenizer(t)
	rng := rand.New(rand.NewPCG(1, 2))
	check := func(c *Cache, after func()) (wrong int) {
		text := ""
		for range 3000 {
			text = randomChat(rng, text)
			o := EncodeOptions{AddSpecial: rng.IntN(2) == 0, ParseSpecial: rng.IntN(4) > 0}
			got, err := c.Encode(context.Background(), text, o)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, tok.Encode(nil, text, o)) {
				wrong++
			}
			after()
		}
		return wrong
	}
	if wrong := check(NewCache(tok, 1<<16), func() {}); wrong > 0 {
		t.Errorf("%d of 3000 texts differ", wrong)
	}
	// The control: where entries hold wrong ids, it shows.
	c := NewCache(tok, 1<<16)
	spoil := func() {
		if front := c.entries.Front(); front != nil && len(front.Value.(*entry).ids) > 0 {
			front.Value.(*entry).ids[0]++
		}
	}
	if wrong := check(c, spoil); wrong == 0 {
		t.Error("wrong ids in the entries go unnoticed: the test sees nothing")
	}
}

// TestCacheFindsTheLongestStart compares the index with a look at every entry.
func TestCacheFindsTheLongestStart(t *testing.T) {
	tok := chatTokenizer(t)
	rng := rand.New(rand.NewPCG(3, 4))
	c := NewCache(tok, 1<<30)
	text, shared := "", 0
	for range 2000 {
		text = randomChat(rng, text)
		e := &entry{text: text, starts: c.starts(context.Background(), text)}
		want := 0
		for n := c.entries.Front(); n != nil; n = n.Next() {
			other := n.Value.(*entry)
			for i, s := range e.starts {
				if i < len(other.starts) && other.starts[i] == s && strings.HasPrefix(other.text, text[:s.end]) {
					want = max(want, i+1)
				}
			}
		}
		if _, cuts := c.longest(e); cuts != want {
			t.Fatalf("%q shares %d cuts by the index and %d by a look at all", text, cuts, want)
		}
		if want > 0 {
			shared++
		}
		if _, err := c.Encode(context.Background(), text, EncodeOptions{ParseSpecial: true}); err != nil {
			t.Fatal(err)
		}
		kept := c.entries.Front().Value.(*entry)
		for i, s := range kept.starts {
			if kept.cuts[i].text != s.cut {
				t.Fatalf("%q: start %d is behind %d bytes, its cut behind %d", text, i, s.cut, kept.cuts[i].text)
			}
		}
	}
	if shared < 200 {
		t.Errorf("only %d of 2000 texts share anything", shared)
	}
}

// TestCacheEncodesOnlyWhatIsNew counts the bytes that reach the encoder.
func TestCacheEncodesOnlyWhatIsNew(t *testing.T) {
	tok := chatTokenizer(t)
	counted := &counting{encoder: tok.encoder}
	tok.encoder = counted
	c := NewCache(tok, 1<<20)
	turn := strings.Repeat("hello b ", 500) + "<|end|>"
	text := ""
	for i := range 6 {
		text += turn
		counted.bytes = 0
		if _, err := c.Encode(context.Background(), text, EncodeOptions{ParseSpecial: true}); err != nil {
			t.Fatal(err)
		}
		// The turn before ends where the text ended, too near to be a cut.
		if most := 2 * len(turn); counted.bytes > most {
			t.Errorf("turn %d: %d bytes were encoded of %d new ones", i, counted.bytes, len(turn))
		}
	}
	if c.bytes > c.bytesMax || c.entries.Len() == 0 {
		t.Errorf("%d bytes kept in %d entries", c.bytes, c.entries.Len())
	}
}

type counting struct {
	encoder
	bytes int
}

func (c *counting) encode(dst []int32, text string, s *scratch) []int32 {
	c.bytes += len(text)
	return c.encoder.encode(dst, text, s)
}

func TestCacheKeepsItsLimit(t *testing.T) {
	tok := chatTokenizer(t)
	c := NewCache(tok, 4000)
	var wait sync.WaitGroup
	for worker := range 4 {
		wait.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(worker), 1))
			for range 300 {
				text := randomChat(rng, "<|end|>"+strings.Repeat("aa", rng.IntN(400)))
				got, err := c.Encode(context.Background(), text, EncodeOptions{ParseSpecial: true})
				if err != nil || !slices.Equal(got, tok.Encode(nil, text, EncodeOptions{ParseSpecial: true})) {
					t.Errorf("%q: %v, %v", text, got, err)
				}
			}
		})
	}
	wait.Wait()
	sum, starts := 0, 0
	for n := c.entries.Front(); n != nil; n = n.Next() {
		sum += n.Value.(*entry).bytes()
		starts += len(n.Value.(*entry).starts)
	}
	if sum != c.bytes || sum > 4000 || sum == 0 {
		t.Errorf("%d bytes kept, %d counted, at most 4000 allowed", sum, c.bytes)
	}
	if len(c.index) > starts {
		t.Errorf("the index has %d starts where the entries have %d: evicted ones are left", len(c.index), starts)
	}
}

// TestEncodingStopsWhenAsked: in many words, in one word, and between specials.
func TestEncodingStopsWhenAsked(t *testing.T) {
	for name, tok := range map[string]*Tokenizer{"bpe": smallBPE().must(t), "spm": smallSPM().must(t)} {
		for _, unit := range []string{"hello b ", "ab", "<|end|>"} {
			text := strings.Repeat(unit, 400_000)
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if ids, err := tok.EncodeContext(ctx, nil, text, EncodeOptions{ParseSpecial: true}); !errors.Is(err, context.Canceled) || ids != nil {
				t.Errorf("%s of %q: %d ids, %v", name, unit, len(ids), err)
			}
			s := &scratch{ctx: ctx}
			tok.pieces(nil, text, true, EncodeOptions{ParseSpecial: true}, s, nil)
			if s.merges > len(text)/2 {
				t.Errorf("%s of %q: %d merges were looked at after the end", name, unit, s.merges)
			}
		}
	}
	if ids, err := smallBPE().must(t).EncodeContext(context.Background(), nil, "hello", EncodeOptions{}); err != nil || len(ids) == 0 {
		t.Errorf("%v, %v", ids, err)
	}
}
