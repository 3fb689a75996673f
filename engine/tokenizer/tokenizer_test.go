package tokenizer

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/forebay-io/forebay/engine/gguf"
	"github.com/forebay-io/forebay/engine/gguf/gguftest"
)

// file is the metadata of a small tokenizer, to be changed by tests.
type file map[string]any

func (m file) with(key string, v any) file {
	out := file{}
	for k, v := range m {
		out[k] = v
	}
	if v == nil {
		delete(out, "tokenizer.ggml."+key)
	} else {
		out["tokenizer.ggml."+key] = v
	}
	return out
}

func (m file) tokenizer(t testing.TB) (*Tokenizer, error) {
	t.Helper()
	b := &gguftest.Builder{}
	for k, v := range m {
		b.Set(k, v)
	}
	f, err := gguf.Parse("small.gguf", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return FromGGUF(f)
}

func (m file) must(t testing.TB) *Tokenizer {
	t.Helper()
	tok, err := m.tokenizer(t)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// smallBPE has the 256 bytes, some merges, and special tokens.
func smallBPE() file {
	tokens := []string{"<|s|>", "<|end|>", "<think>"}
	kinds := []int32{3, 3, 4}
	for _, r := range byteAlphabet {
		tokens, kinds = append(tokens, string(r)), append(kinds, 1)
	}
	var merges []string
	for _, m := range [][2]string{{"a", "a"}, {"aa", "aa"}, {"b", "c"}, {"a", "b"}, {"aa", "b"}, {"Ġ", "a"}, {"aaaa", "aaaa"}, {"bc", "bc"}} {
		merges = append(merges, m[0]+" "+m[1])
		tokens, kinds = append(tokens, m[0]+m[1]), append(kinds, 1)
	}
	return file{}.with("model", "gpt2").with("pre", "gpt-2").with("tokens", tokens).with("token_type", kinds).
		with("merges", merges).with("bos_token_id", uint32(0)).with("eos_token_id", uint32(1))
}

// smallSPM has the bytes, a few pieces with scores, and special tokens.
func smallSPM() file {
	tokens := []string{"<unk>", "<s>", "</s>"}
	kinds := []int32{2, 3, 3}
	scores := []float32{0, 0, 0}
	for c := range 256 {
		tokens, kinds, scores = append(tokens, fmt.Sprintf("<0x%02X>", c)), append(kinds, 6), append(scores, 0)
	}
	for i, text := range []string{"▁", "a", "b", "c", "ab", "bc", "▁a", "abc", "aa", "▁▁", "é", "cc"} {
		tokens, kinds = append(tokens, text), append(kinds, 1)
		scores = append(scores, float32(i%5)-3)
	}
	return file{}.with("model", "llama").with("tokens", tokens).with("token_type", kinds).with("scores", scores).
		with("bos_token_id", uint32(1)).with("eos_token_id", uint32(2)).with("unknown_token_id", uint32(0))
}

func TestFromGGUFRefusesByName(t *testing.T) {
	nan := []float32{float32(math.NaN())}
	one := file{}.with("model", "llama").with("tokens", []string{"a"}).with("scores", []float32{0})
	for _, c := range []struct {
		file file
		want string
	}{
		{smallBPE().with("model", nil), "tokenizer.ggml.model is missing"},
		{smallBPE().with("model", "rwkv"), `"rwkv" is not supported`},
		{smallBPE().with("model", "bert"), "unknown_token_id is missing"},
		{smallBPE().with("model", uint32(1)), "has type u32"},
		{smallBPE().with("pre", nil), "tokenizer.ggml.pre is missing"},
		{smallBPE().with("pre", "novel"), `"novel" is not supported`},
		{smallBPE().with("tokens", nil), "has 0 tokens"},
		{smallBPE().with("token_type", []int32{1}), "has 1 values for"},
		{smallBPE().with("bos_token_id", uint32(9999)), "is 9999, but there are"},
		{smallBPE().with("eot_token_id", uint32(9999)), "eot_token_id: is 9999"},
		{smallBPE().with("tokens", []string{strings.Repeat("<", 513)}).with("token_type", []int32{3}).with("merges", nil).with("bos_token_id", nil).with("eos_token_id", nil), "token 0 is special and has 513 bytes"},
		{smallBPE().with("merges", []string{"a"}), `merge 0: "a" is not two parts`},
		{smallBPE().with("merges", []string{""}), `merge 0: "" is not two parts`},
		{smallBPE().with("merges", []string{"aa bc"}), "no token"},
		{smallBPE().with("merges", []string{"a z", "az b"}), "no token"},
		{smallBPE().with("bos_token_id", nil).with("add_bos_token", true), "add_bos_token: asks for a token"},
		{smallBPE().with("add_bos_token", "yes"), "has type string"},
		{smallSPM().with("scores", nil), "has 0 values for"},
		{one.with("scores", nan), "token 0 has no number as score"},
		{one.with("token_type", []int32{7}), "has type 7"},
		{one.with("token_type", []int32{6}), `called "a"`},
	} {
		_, err := c.file.tokenizer(t)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "small.gguf: ") {
			t.Errorf("got %v, want one with %q", err, c.want)
		}
	}
	// 2^32-1 means that there is none.
	if tok := smallBPE().with("bos_token_id", uint32(math.MaxUint32)).must(t); tok.BOS() != none || tok.Text(tok.BOS()) != "" {
		t.Errorf("BOS is %d", tok.BOS())
	}
}

// TestMergesThatCannotStandAreLeftOut: of two characters into no token, of no token.
func TestMergesThatCannotStandAreLeftOut(t *testing.T) {
	plain := smallBPE().with("merges", []string{"a a"}).must(t)
	odd := smallBPE().with("merges", []string{"a z", "qqq b", "a a"}).must(t)
	for _, text := range []string{"az", "aaz", "qqqb"} {
		if a, b := plain.Encode(nil, text, EncodeOptions{}), odd.Encode(nil, text, EncodeOptions{}); !slices.Equal(a, b) {
			t.Errorf("%s: %v, with odd merges %v", text, a, b)
		}
	}
}

func TestDuplicateTokensGiveTheLowestID(t *testing.T) {
	m := smallBPE()
	tokens := append(slices.Clone(m[keyTokens].([]string)), "a", "<|end|>")
	kinds := append(slices.Clone(m["tokenizer.ggml.token_type"].([]int32)), 1, 3)
	tok := m.with("tokens", tokens).with("token_type", kinds).must(t)
	got := tok.Encode(nil, "a<|end|>", EncodeOptions{ParseSpecial: true})
	if want := smallBPE().must(t).Encode(nil, "a<|end|>", EncodeOptions{ParseSpecial: true}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if b := tok.Bytes(int32(len(tokens) - 2)); string(b) != "a" {
		t.Errorf("the duplicate stands for %q", b)
	}
}

func TestOneBOS(t *testing.T) {
	tok := load(t, sharedFile(t, "conformance", "tokenizers", "gguf-llama-bpe", "vocab.gguf"))
	bos := tok.Text(tok.BOS())
	for _, c := range []struct {
		text string
		o    EncodeOptions
	}{
		{bos + "hi", EncodeOptions{ParseSpecial: true}}, // a template that writes it
		{"hi", EncodeOptions{AddSpecial: true, ParseSpecial: true}},
		{bos + "hi", EncodeOptions{AddSpecial: true}}, // a raw prompt that looks like it
		{"hi", EncodeOptions{AddSpecial: true}},
	} {
		ids := tok.Encode(nil, c.text, c.o)
		n := 0
		for _, id := range ids {
			if id == tok.BOS() {
				n++
			}
		}
		if n != 1 || ids[0] != tok.BOS() || !tok.AddsBOS() {
			t.Errorf("%q %+v: %v has %d BOS", c.text, c.o, ids, n)
		}
	}
}

// TestLongWordsStayLinear counts the pairs looked at, which bound the heap's size.
func TestLongWordsStayLinear(t *testing.T) {
	vocabs := map[string]*Tokenizer{"smallBPE": smallBPE().must(t), "smallSPM": smallSPM().must(t)}
	letters := func(n int) string {
		rng := rand.New(rand.NewPCG(3, 4))
		b := make([]byte, n)
		for i := range b {
			b[i] = "abc"[rng.IntN(3)]
		}
		return string(b)
	}
	texts := map[string]string{"letters": letters(100_000), "digits": strings.Repeat("1234567890", 10_000)}
	for _, unit := range []string{"a", "_", " ", "\n", "中", "ab", "🙂", "'", " a", "\t ", "<", "e\u0301\u0323"} {
		texts[unit] = strings.Repeat(unit, 100_000/len(unit))
	}
	for name, tok := range vocabs {
		for text, s := range texts {
			scratch := &scratch{}
			ids := tok.encoder.encode(nil, s, scratch)
			if limit := 4 * len(s); scratch.merges > limit || len(ids) == 0 {
				t.Errorf("%s, %q: %d pairs looked at for %d bytes", name, text, scratch.merges, len(s))
			}
		}
	}
	seen := map[string]bool{} // many names share their splitters
	for name, p := range pretokenizers {
		for i, split := range p.splitters {
			if id := fmt.Sprintf("%p", split); seen[id] {
				continue
			} else {
				seen[id] = true
			}
			for text, s := range texts {
				n := 0
				for rest := s; rest != ""; n++ {
					k := split(rest)
					if k <= 0 || k > len(rest) {
						t.Fatalf("%s: splitter %d of %q takes %d of %d bytes", name, i, text, k, len(rest))
					}
					rest = rest[k:]
				}
				if n == 0 {
					t.Errorf("%s: splitter %d gives no piece", name, i)
				}
			}
		}
	}
}

// naive merges the leftmost best pair until there is none, by the text of symbols.
func naive(symbols []string, rank func(pair string) (uint32, bool)) []string {
	for {
		best, bestRank := -1, uint32(0)
		for i := 0; i+1 < len(symbols); i++ {
			if r, ok := rank(symbols[i] + "\x00" + symbols[i+1]); ok && (best < 0 || r < bestRank) {
				best, bestRank = i, r
			}
		}
		if best < 0 {
			return symbols
		}
		symbols[best] += symbols[best+1]
		symbols = slices.Delete(symbols, best+1, best+2)
	}
}

func TestMergesEqualNaive(t *testing.T) {
	bpeFile, spmTok, bpeTok := smallBPE(), smallSPM().must(t), smallBPE().must(t)
	ranks := map[string]uint32{}
	for i, m := range bpeFile["tokenizer.ggml.merges"].([]string) {
		ranks[strings.Replace(m, " ", "\x00", 1)] = uint32(i)
	}
	spmModel := spmTok.encoder.(*spm)
	rng := rand.New(rand.NewPCG(5, 6))
	for range 1000 {
		n := 1 + rng.IntN(120) // on both sides of shortBytesMax
		var b strings.Builder
		for range n {
			b.WriteString([]string{"a", "a", "b", "c", "d"}[rng.IntN(5)])
		}
		word := b.String()
		want := naive(strings.Split(word, ""), func(pair string) (uint32, bool) { r, ok := ranks[pair]; return r, ok })
		if got := pieces(bpeTok, word); !slices.Equal(got, want) {
			t.Fatalf("BPE %q: got %q, want %q", word, got, want)
		}
		word = strings.ReplaceAll(word, "d", "▁")
		want = naive(strings.Split(word, ""), func(pair string) (uint32, bool) {
			id, ok := spmModel.ids[strings.Replace(pair, "\x00", "", 1)]
			return spmModel.priorities[max(id, 0)], ok
		})
		got := pieces(spmTok, strings.ReplaceAll(word, "▁", " "))
		for i := range got {
			got[i] = strings.ReplaceAll(got[i], " ", "▁")
		}
		if !slices.Equal(got, want) {
			t.Fatalf("SPM %q: got %q, want %q", word, got, want)
		}
	}
}

// pieces are the texts of a word's tokens, with no space put before.
func pieces(tok *Tokenizer, word string) (list []string) {
	for _, id := range tok.encoder.encode(nil, word, &scratch{}) {
		list = append(list, string(tok.Bytes(id)))
	}
	return list
}

// ends are the texts of the tokens that end an answer.
func ends(tok *Tokenizer) (list []string) {
	for id := range tok.Size() {
		if tok.IsEnd(int32(id)) {
			list = append(list, tok.Text(int32(id)))
		}
	}
	return list
}

func TestEndsAreFoundByKeyAndText(t *testing.T) {
	with := func(texts ...string) *Tokenizer {
		m := smallBPE()
		tokens, kinds := slices.Clone(m[keyTokens].([]string)), slices.Clone(m["tokenizer.ggml.token_type"].([]int32))
		for _, text := range texts {
			tokens, kinds = append(tokens, text), append(kinds, 3)
		}
		return m.with("tokens", tokens).with("token_type", kinds).with("eos_token_id", uint32(0)).must(t)
	}
	if got := ends(with("<|im_end|>", "<|other|>")); !slices.Equal(got, []string{"<|s|>", "<|end|>", "<|im_end|>"}) {
		t.Errorf("got %q", got)
	}
	m := smallBPE()
	tokens := append(slices.Clone(m[keyTokens].([]string)), "<|return|>", "<|call|>")
	kinds := append(slices.Clone(m["tokenizer.ggml.token_type"].([]int32)), 3, 3)
	m = m.with("tokens", tokens).with("token_type", kinds).with("eos_token_id", uint32(0)).with("eot_token_id", uint32(1))
	if got := ends(m.must(t)); !slices.Equal(got, []string{"<|s|>", "<|return|>", "<|call|>"}) {
		t.Errorf("gpt-oss that names <|end|>: got %q", got)
	}
	if got := ends(with("<|return|>", "<|call|>")); !slices.Equal(got, []string{"<|s|>", "<|return|>", "<|call|>"}) {
		t.Errorf("gpt-oss: got %q", got)
	}
}

func TestNFCOfLongRuns(t *testing.T) {
	// 40 marks, more than the stream-safe format lets stand.
	text := "e" + strings.Repeat("\u0316", 20) + strings.Repeat("\u0301", 20)
	if got, want := nfc(text), "\u00e9"+strings.Repeat("\u0316", 20)+strings.Repeat("\u0301", 19); got != want {
		t.Errorf("got %+q, want %+q", got, want)
	}
	if got, want := nfc("\xff"+text+"\xe2\x80"), "\xff"+nfc(text)+"\xe2\x80"; got != want {
		t.Errorf("with broken bytes: got %+q, want %+q", got, want)
	}
	if got := nfcLong("\u1100\u1161\u11a8e\u0301" + joiner); got != "\uac01\u00e9"+joiner {
		t.Errorf("got %+q", got)
	}
}

func TestEncodeIsConcurrentAndAllocatesNothing(t *testing.T) {
	tok := smallBPE().must(t)
	text := strings.Repeat("a quick brown fox, 12345 times; aaaaaaaab "+strings.Repeat("ab", 60), 20)
	want := tok.Encode(nil, text, EncodeOptions{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				if got := tok.Encode(nil, text, EncodeOptions{}); !slices.Equal(got, want) {
					t.Error("ids differ between goroutines")
				}
			}
		})
	}
	wg.Wait()
	dst, s := make([]int32, 0, len(text)), &scratch{}
	if n := testing.AllocsPerRun(100, func() { dst = tok.encoder.encode(dst[:0], text, s) }); n != 0 {
		t.Errorf("encode allocates %v times", n)
	}
}

func FuzzTokenizerRoundTrip(f *testing.F) {
	toks := map[string]*Tokenizer{}
	for name := range pretokenizers {
		toks[name] = smallBPE().with("pre", name).must(f)
	}
	spmTok := smallSPM().must(f)
	for _, text := range []string{"", "a  b\r\n\r\n c", "It's  we'LL 1234567", "\xff\xfe é e\u0301", "<|end|><think>▁", "   \n  x\u00a0\u3000y", "가중 中文🙂"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name, tok := range toks {
			want := text
			if tok.encoder.(*bpe).nfc {
				// Every piece between special tokens is normalised alone.
				var b strings.Builder
				for i, part := range strings.Split(text, "<think>") {
					if i > 0 {
						b.WriteString("<think>")
					}
					b.WriteString(nfc(part))
				}
				want = b.String()
			}
			ids := tok.Encode(nil, text, EncodeOptions{})
			if got := tok.Decode(ids); got != want {
				t.Fatalf("%s: %q came back as %q", name, want, got)
			}
			if slices.ContainsFunc(ids, tok.IsControl) {
				t.Fatalf("%s: control tokens in %v", name, ids)
			}
		}
		want := strings.ReplaceAll(text, space, " ")
		if got := spmTok.Decode(spmTok.Encode(nil, text, EncodeOptions{})); got != want {
			t.Fatalf("SPM: %q came back as %q", want, got)
		}
	})
}

// TestTokensMinIsALowerBound holds on the demo vocabulary for texts that are
// nothing but its longest tokens, and for others.
func TestTokensMinIsALowerBound(t *testing.T) {
	tok := load(t, "../demo/forebay-demo-q8_0.gguf")
	longest := ""
	for id := range tok.Size() {
		if b := tok.Bytes(int32(id)); len(b) > len(longest) {
			longest = string(b)
		}
	}
	for _, text := range []string{"", "a", longest, strings.Repeat(longest, 1000), strings.Repeat("a", 100_000), strings.Repeat("<|im_start|>", 500)} {
		n := len(tok.Encode(nil, text, EncodeOptions{ParseSpecial: true}))
		if least := tok.TokensMin(len(text)); least > n {
			t.Errorf("%d bytes are %d tokens, and TokensMin says %d", len(text), n, least)
		}
	}
	if tok.TokensMin(1<<20) < 10_000 {
		t.Errorf("TokensMin of 1 MiB is %d: too weak to be of use", tok.TokensMin(1<<20))
	}
}
