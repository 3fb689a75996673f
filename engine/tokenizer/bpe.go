package tokenizer

import (
	"fmt"
	"slices"

	"github.com/forebay-io/forebay/engine/gguf"
)

// bpe is byte-level BPE: the pre-tokenizer cuts the text, each piece begins as its
// bytes, and neighbours are merged in the order of the merges in the file.
type bpe struct {
	pretokenizer
	byteIDs [256]int32
	unknown int32            // for bytes that have no token; none leaves them out
	words   map[string]int32 // bytes of normal tokens; only with ignoreMerges
	merges  mergeTable
}

// readBPE sets up the encoder and returns the bytes of each token.
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
		return nil, fmt.Errorf("%s: key %s: pre-tokenizer %s is not supported", f.Name(), key, f.Text(key))
	}
	t.addBOS = b.addBOS
	if b.unknown, err = t.readID(f, "unknown"); err != nil {
		return nil, err
	}
	merges, err := t.readMerges(f)
	if err != nil {
		return nil, err
	}
	if bytes, err = t.setBPE(b, merges); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return bytes, nil
}

// setBPE makes b the encoder and returns the text of each token.
func (t *Tokenizer) setBPE(b *bpe, list []mergeParts) (texts []string, err error) {
	merges := make(chan error, 1)
	go func() { merges <- b.merges.read(list, &t.vocabulary, nil) }()
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
	return texts, <-merges
}

func (b *bpe) pair(_ *scratch, left, right *symbol) (int32, uint32, bool) {
	m, ok := b.merges.find(left.id, right.id)
	return m.id, m.rank, ok
}

func (b *bpe) encode(dst []int32, text string, s *scratch) []int32 {
	if b.nfc {
		text = nfc(text)
	}
	return cut(dst, text, b.splitters, s, b.piece)
}

func (b *bpe) piece(dst []int32, text string, s *scratch) []int32 { return s.cached(dst, text, b) }

// cut cuts text by splitters and calls each for every piece, in order.
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

// mergedShort is merged for short words, by a quadratic search in place.
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
			known[i], is[i] = b.merges.find(ids[i], ids[i+1])
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
