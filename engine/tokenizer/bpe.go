package tokenizer

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/forebay-io/forebay/engine/gguf"
)

// bpe is byte-level BPE: text is cut by the pre-tokenizer, each piece begins
// as its bytes, and the neighbours whose merge comes first in the file are
// joined first.
type bpe struct {
	pretokenizer
	byteIDs [256]int32
	unknown int32            // for bytes that have no token; none leaves them out
	words   map[string]int32 // bytes of normal tokens; only with ignoreMerges
	merges  map[uint64]merge
}

// merge is what a pair of tokens becomes, and its place in the file.
type merge struct {
	id   int32
	rank uint32
}

// readBPE sets up the encoder and returns what each token stands for.
func (t *Tokenizer) readBPE(f *gguf.File) (bytes []string, err error) {
	const key = "tokenizer.ggml.pre"
	name, ok, err := f.String(key)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%s: key %s is missing, so how text is split is not known; set it when converting the model", f.Name(), key)
	}
	b := &bpe{}
	if b.pretokenizer, ok = pretokenizers[name]; !ok {
		return nil, fmt.Errorf("%s: key %s: pre-tokenizer %q is not supported", f.Name(), key, name)
	}
	t.addBOS = b.addBOS
	if b.unknown, err = t.readID(f, "unknown"); err != nil {
		return nil, err
	}
	bytes = t.setBPE(b)
	return bytes, t.readMergeKey(f, b.setMerges)
}

// readMergeKey hands the merges of a file to set.
func (t *Tokenizer) readMergeKey(f *gguf.File, set func([]mergeParts, *vocabulary) error) error {
	const key = "tokenizer.ggml.merges"
	list, _, err := f.Strings(key)
	if err != nil {
		return err
	}
	merges := make([]mergeParts, len(list))
	for rank, text := range list {
		if merges[rank], err = cutMerge(text); err != nil {
			return fmt.Errorf("%s: key %s: merge %d: %w", f.Name(), key, rank, err)
		}
	}
	if err := set(merges, &t.vocabulary); err != nil {
		return fmt.Errorf("%s: key %s: %w", f.Name(), key, err)
	}
	return nil
}

// setBPE makes b the encoder and gives what each token stands for.
func (t *Tokenizer) setBPE(b *bpe) (texts []string) {
	texts = make([]string, len(t.texts))
	if b.ignoreMerges {
		b.words = make(map[string]int32, len(t.texts))
	}
	for id, text := range t.texts {
		switch {
		case t.isControl(int32(id)):
		case t.kinds[id] == kindUser:
			texts[id] = text
		default:
			texts[id] = alphabetBytes(text)
			if _, dup := b.words[texts[id]]; b.ignoreMerges && !dup {
				b.words[texts[id]] = int32(id)
			}
		}
	}
	for c := range b.byteIDs {
		b.byteIDs[c] = b.unknown
		if id, ok := t.ids[string(byteAlphabet[c])]; ok && !t.isControl(id) {
			b.byteIDs[c] = id
		}
	}
	t.encoder = b
	return texts
}

func (b *bpe) setMerges(list []mergeParts, v *vocabulary) (err error) {
	b.merges, err = readMerges(list, v, nil)
	return err
}

// readMerges finds the tokens of merges; of a pair that comes twice the first
// counts. joined, if not nil, is told every result. A merge of two characters into
// what is no token would be undone in the end, unless more is made of it.
func readMerges(list []mergeParts, v *vocabulary, joined func(string)) (map[uint64]merge, error) {
	merges := make(map[uint64]merge, len(list))
	var parts map[string]bool // of all merges; needed for files that contradict themselves
	for rank, m := range list {
		text := m[0] + m[1]
		l, okL := v.ids[m[0]]
		r, okR := v.ids[m[1]]
		whole, okW := v.ids[text]
		if !okL || !okR || okW && v.isControl(whole) {
			continue // of what no text becomes, or into what plain text never becomes
		}
		if !okW && parts == nil {
			parts = map[string]bool{}
			for _, m := range list {
				parts[m[0]], parts[m[1]] = true, true
			}
		}
		if !okW && !parts[text] && utf8.RuneCountInString(m[0]) == 1 && utf8.RuneCountInString(m[1]) == 1 {
			continue
		}
		if !okW {
			return nil, fmt.Errorf("merge %d (%q and %q) is into something that is no token", rank, m[0], m[1])
		}
		if joined != nil {
			joined(text)
		}
		pair := uint64(l)<<32 | uint64(r)
		if _, dup := merges[pair]; !dup {
			merges[pair] = merge{whole, uint32(rank)}
		}
	}
	return merges, nil
}

func (b *bpe) pair(_ *scratch, left, right *symbol) (int32, uint32, bool) {
	m, ok := b.merges[uint64(left.id)<<32|uint64(uint32(right.id))]
	return m.id, m.rank, ok
}

func (b *bpe) encode(dst []int32, text string, s *scratch) []int32 {
	if b.nfc {
		text = nfc(text)
	}
	return cut(dst, text, b.splitters, s, b.piece)
}

func (b *bpe) piece(dst []int32, text string, s *scratch) []int32 { return s.cached(dst, text, b) }

// cut hands the pieces that splitters cut, one after another, to each.
func cut(dst []int32, text string, splitters []splitter, s *scratch, each func([]int32, string, *scratch) []int32) []int32 {
	if len(splitters) == 0 {
		return each(dst, text, s)
	}
	for text != "" && !s.stopped(len(text)) {
		n := splitters[0](text)
		if len(splitters) > 1 {
			dst = cut(dst, text[:n], splitters[1:], s, each)
		} else {
			dst = each(dst, text[:n], s)
		}
		text = text[n:]
	}
	return dst
}

func (b *bpe) merged(dst []int32, word string, s *scratch) []int32 {
	if id, ok := b.words[word]; ok {
		return append(dst, id)
	}
	if len(word) <= shortBytesMax {
		return b.mergedShort(dst, word)
	}
	s.symbols = slices.Grow(s.symbols[:0], len(word))
	for i := range len(word) {
		if id := b.byteIDs[word[i]]; id != none {
			at := int32(len(s.symbols))
			s.symbols = append(s.symbols, symbol{id, int32(i), int32(i + 1), at - 1, at + 1})
		}
	}
	if len(s.symbols) == 0 {
		return dst
	}
	s.symbols[len(s.symbols)-1].next = -1
	s.merge(b)
	for i := int32(0); i >= 0; i = s.symbols[i].next {
		dst = append(dst, s.symbols[i].id)
	}
	return dst
}

const shortBytesMax = 48

// mergedShort is merged for short words: the plain quadratic way, in place.
func (b *bpe) mergedShort(dst []int32, word string) []int32 {
	from := len(dst)
	for i := range len(word) {
		if id := b.byteIDs[word[i]]; id != none {
			dst = append(dst, id)
		}
	}
	var known [shortBytesMax]merge
	var is [shortBytesMax]bool
	look := func(ids []int32, i int) {
		if i >= 0 && i+1 < len(ids) {
			known[i], is[i] = b.merges[uint64(ids[i])<<32|uint64(uint32(ids[i+1]))]
		}
	}
	ids := dst[from:]
	for i := range ids {
		look(ids, i)
	}
	for {
		best := -1
		for i := range max(len(ids)-1, 0) {
			if is[i] && (best < 0 || known[i].rank < known[best].rank) {
				best = i
			}
		}
		if best < 0 {
			return dst[:from+len(ids)]
		}
		ids[best] = known[best].id
		copy(known[best+1:], known[best+2:len(ids)])
		copy(is[best+1:], is[best+2:len(ids)])
		ids = slices.Delete(ids, best+1, best+2)
		look(ids, best-1)
		look(ids, best)
	}
}

// byteAlphabet is GPT-2's: printable bytes stand for themselves, the others
// for the characters from U+0100 on.
var byteAlphabet = func() (table [256]rune) {
	next := rune(256)
	for c := range table {
		if c >= '!' && c <= '~' || c >= 0xa1 && c <= 0xac || c >= 0xae {
			table[c] = rune(c)
		} else {
			table[c] = next
			next++
		}
	}
	return table
}()

var alphabetByte = func() map[rune]byte {
	m := make(map[rune]byte, 256)
	for c, r := range byteAlphabet {
		m[r] = byte(c)
	}
	return m
}()

// alphabetBytes is the bytes that a token's text stands for; a text outside of
// the alphabet stands for itself.
func alphabetBytes(text string) string {
	b := make([]byte, 0, len(text))
	for _, r := range text {
		c, ok := alphabetByte[r]
		if !ok {
			return text
		}
		b = append(b, c)
	}
	return string(b)
}
