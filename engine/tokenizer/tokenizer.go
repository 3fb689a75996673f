package tokenizer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/forebay-io/forebay/engine/gguf"
)

// Guard, put before a position in a text, keeps a control string from beginning
// there; inside a control string it breaks it. See the package comment. It is a
// noncharacter.
const Guard = '\uFDD0'

const guardText = string(Guard)

// escapeText begins the escapes of Guards in a user's text. It is a noncharacter.
const escapeText = "\uFDD1"

var (
	escapes   = strings.NewReplacer(guardText, escapeText+"\uFDD2", escapeText, escapeText+"\uFDD3")
	unescapes = strings.NewReplacer(guardText, "", escapeText+"\uFDD2", guardText, escapeText+"\uFDD3", escapeText)
)

// Escape escapes the Guards in a user's text, so that they are normal characters.
func Escape(text string) string { return escapes.Replace(text) }

// Unguard returns the text that the model reads: without Guards and unescaped.
func Unguard(text string) string { return unescapes.Replace(text) }

// Tokenizer is the tokenizer of one model. It never changes and is safe for
// concurrent use.
type Tokenizer struct {
	vocabulary
	bytes    []byte   // the bytes of all tokens, one after another
	ends     []uint32 // the end of each token in bytes
	specials specials
	stops    map[int32]bool
	bos, eos int32
	addBOS   bool // while a GGUF file is read
	addEOS   bool // the same
	before   []int32
	after    []int32 // the ids that AddSpecial puts around the text
	between  []int32 // those that stand between two texts; nil: after

	bytesMax int // the most bytes of text in one token; 0 if unbounded

	prefix  prefix
	strip   bool // decoding drops a space at the beginning
	encoder encoder
	scratch sync.Pool
}

// prefix says when a space is put before a piece of text between special tokens.
type prefix struct {
	everywhere  bool // before every piece
	first       bool // before the first one, if the text begins with it
	unlessSpace bool // but not before a space
}

func (p prefix) of(piece string, atStart bool) bool {
	if !p.everywhere && !(p.first && atStart) || piece == "" {
		return false
	}
	return !p.unlessSpace || piece[0] != ' ' && !strings.HasPrefix(piece, space)
}

// encoder is one of the tokenizer models, for text without special tokens.
type encoder interface {
	encode(dst []int32, text string, s *scratch) []int32
}

// EncodeOptions controls special tokens.
type EncodeOptions struct {
	// AddSpecial adds the tokens that the file defines for the beginning and end.
	AddSpecial bool
	// ParseSpecial recognises control tokens in the text, and removes Guards.
	ParseSpecial bool
}

// FromGGUF reads the tokenizer of a file. It refuses an unknown tokenizer model or
// pre-tokenizer by name, and tables that contradict each other.
func FromGGUF(f *gguf.File) (*Tokenizer, error) {
	const key = "tokenizer.ggml.model"
	model, ok, err := f.String(key)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, fmt.Errorf("%s: key %s is missing", f.Name(), key)
	}
	readers := map[string]func(*Tokenizer, *gguf.File) ([]string, error){
		"gpt2": (*Tokenizer).readBPE, "llama": (*Tokenizer).readSPM, "gemma4": (*Tokenizer).readGemma4, "bert": (*Tokenizer).readWordPiece, "t5": (*Tokenizer).readUnigram,
	}
	read, ok := readers[model]
	if !ok {
		return nil, fmt.Errorf("%s: key %s: tokenizer model %s is not supported; supported: %s",
			f.Name(), key, f.Text(key), strings.Join(slices.Sorted(maps.Keys(readers)), ", "))
	}
	v, err := readVocabulary(f, model == "llama" || model == "t5")
	if err != nil {
		return nil, err
	}
	t := newTokenizer(v)
	bytes, err := read(t, f)
	if err != nil {
		return nil, err
	}
	if t.stops, err = v.readEnds(f); err != nil {
		return nil, err
	}
	if err := t.finish(bytes); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return t, t.readFlags(f)
}

func newTokenizer(v *vocabulary) *Tokenizer {
	t := &Tokenizer{vocabulary: *v, bos: none, eos: none}
	t.scratch.New = func() any { return &scratch{} }
	return t
}

// finish sets up the tables of all tokens; texts has the text of each token.
func (t *Tokenizer) finish(texts []string) (err error) {
	for _, b := range texts {
		t.bytes = append(t.bytes, b...)
		t.ends = append(t.ends, uint32(len(t.bytes)))
	}
	if t.specials, err = newSpecials(&t.vocabulary); err != nil {
		return err
	}
	t.bytesMax = t.longest()
	t.doubt()
	return nil
}

// nfcShrink is the largest factor by which form C shortens a text, rounded up: the
// 7 bytes of U+1FBE U+0308 U+0301 become the 2 bytes of U+0390.
const nfcShrink = 4

// longest returns bytesMax. It is 0 if some bytes give no token.
func (t *Tokenizer) longest() int {
	n := utf8.UTFMax // one character may become one unknown token
	for id := range t.texts {
		n = max(n, len(t.texts[id]), len(t.Bytes(int32(id))))
	}
	for _, f := range t.flags {
		if f.lstrip || f.rstrip {
			return 0
		}
	}
	unknown := none // the token for bytes without a token
	var byteIDs *[256]int32
	switch e := t.encoder.(type) {
	case *wordPiece, *unigram:
		return 0 // spaces, and words of any length, may give one token or none
	case *bpe:
		if byteIDs = &e.byteIDs; e.nfc {
			n *= nfcShrink
		}
	case *spm:
		byteIDs = &e.byteIDs
	case *charBPE:
		if byteIDs, unknown = &e.byteIDs, e.unknown; e.nfc {
			n *= nfcShrink
		}
		if e.fuse {
			return 0
		}
	}
	if unknown == none && slices.Contains(byteIDs[:], none) {
		return 0
	}
	return n
}

// TokensMin returns a lower bound of the tokens in a text with this many bytes,
// without the bytes of Guards. With it, a text that is far too long is refused
// without encoding it.
func (t *Tokenizer) TokensMin(bytes int) int {
	if t.bytesMax == 0 {
		return 0
	}
	return bytes / t.bytesMax
}

// readFlags reads which tokens are added; addBOS and addEOS hold the
// model's defaults.
func (t *Tokenizer) readFlags(f *gguf.File) (err error) {
	if t.bos, err = t.readID(f, "bos"); err != nil {
		return err
	}
	if t.eos, err = t.readID(f, "eos"); err != nil {
		return err
	}
	for _, flag := range []struct {
		key   string
		given bool
		id    int32
		to    *[]int32
	}{{"tokenizer.ggml.add_bos_token", t.addBOS, t.bos, &t.before}, {"tokenizer.ggml.add_eos_token", t.addEOS, t.eos, &t.after}} {
		add, ok, err := f.Bool(flag.key)
		if err != nil {
			return err
		}
		if !ok {
			add = flag.given
		}
		if add && flag.id == none {
			return fmt.Errorf("%s: key %s: asks for a token, but the file does not say which", f.Name(), flag.key)
		}
		if add {
			*flag.to = []int32{flag.id}
		}
	}
	// RoBERTa, which has other encoders than BERT, puts two tokens between two texts.
	if _, bert := t.encoder.(*wordPiece); !bert {
		t.between = slices.Repeat(t.after, 2)
	}
	return nil
}

// Encode appends the ids of text to dst. Invalid UTF-8 is encoded byte by byte if
// the model has tokens for bytes.
func (t *Tokenizer) Encode(dst []int32, text string, o EncodeOptions) []int32 {
	dst, _ = t.encode(context.Background(), dst, text, o, nil)
	return dst
}

// EncodeContext is Encode, but stops soon after ctx ends and returns its error.
func (t *Tokenizer) EncodeContext(ctx context.Context, dst []int32, text string, o EncodeOptions) ([]int32, error) {
	return t.encode(ctx, dst, text, o, nil)
}

func (t *Tokenizer) encode(ctx context.Context, dst []int32, text string, o EncodeOptions, j *journal) ([]int32, error) {
	s := t.scratch.Get().(*scratch)
	s.ctx, s.work = ctx, 0
	if o.AddSpecial {
		dst = append(dst, t.before...)
	}
	dst = t.pieces(dst, text, true, o, s, j)
	if o.AddSpecial {
		dst = append(dst, t.after...)
	}
	s.ctx = nil
	if cap(s.symbols) <= scratchSymbolsMax {
		t.scratch.Put(s)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return dst, nil
}

// pieces encodes text, special tokens and what lies between them. j, if not nil,
// is told where the text can be taken up again.
func (t *Tokenizer) pieces(dst []int32, text string, atStart bool, o EncodeOptions, s *scratch, j *journal) []int32 {
	whole := len(text)
	for text != "" && !s.stopped(len(text)/16) {
		piece, token, rest, cut := t.specials.split(text, o.ParseSpecial)
		if token.lstrip {
			piece = strings.TrimRightFunc(piece, unicode.IsSpace)
		}
		if o.ParseSpecial {
			piece = Unguard(piece)
		}
		if t.prefix.of(piece, atStart) {
			piece = " " + piece
		}
		if piece != "" {
			dst = t.encoder.encode(dst, piece, s)
		}
		if token.id != none {
			dst = append(dst, token.id)
		}
		if cut {
			j.note(whole-len(rest), len(dst))
		}
		text, atStart = rest, false
	}
	return dst
}

// Size returns the number of tokens in the table.
func (t *Tokenizer) Size() int { return len(t.texts) }

// BOS returns the token for the beginning of text, -1 if the file names none.
func (t *Tokenizer) BOS() int32 { return t.bos }

// EOS returns the token for the end of text, -1 if the file names none.
func (t *Tokenizer) EOS() int32 { return t.eos }

// AddsBOS reports whether AddSpecial puts BOS before the text.
func (t *Tokenizer) AddsBOS() bool { return len(t.before) > 0 && t.before[0] == t.bos }

// Pair appends two encoded texts to dst, with the tokens that the file defines around and between them.
func (t *Tokenizer) Pair(dst, first, second []int32) []int32 {
	between := t.between
	if between == nil {
		between = t.after
	}
	for _, part := range [][]int32{t.before, first, between, second, t.after} {
		dst = append(dst, part...)
	}
	return dst
}

func (t *Tokenizer) valid(id int32) bool { return id >= 0 && int(id) < len(t.texts) }

// Text returns a token's text in the file, also for control tokens; "" for an
// unknown id.
func (t *Tokenizer) Text(id int32) string {
	if !t.valid(id) {
		return ""
	}
	return t.texts[id]
}

// Special returns the token that text always becomes where special tokens are
// parsed, if it is one token.
func (t *Tokenizer) Special(text string) (id int32, ok bool) {
	at, length, token := t.specials.find(text, true)
	return token.id, token.id != none && at == 0 && length == len(text)
}

// Bytes returns the bytes of a token in text, which may be a part of a character.
// It is empty for control tokens and unknown ids. The caller must not change it.
func (t *Tokenizer) Bytes(id int32) []byte {
	if !t.valid(id) {
		return nil
	}
	start, end := uint32(0), t.ends[id]
	if id > 0 {
		start = t.ends[id-1]
	}
	return t.bytes[start:end:end]
}

// IsEnd reports whether a token ends the generation.
func (t *Tokenizer) IsEnd(id int32) bool { return t.stops[id] }

// IsControl reports whether a token is a control token, which is not text.
func (t *Tokenizer) IsControl(id int32) bool { return t.valid(id) && t.isControl(id) }

func (v *vocabulary) isControl(id int32) bool {
	return v.kinds[id] == kindControl || v.kinds[id] == kindUnknown
}

// Decode joins the tokens' text. It drops a space that Encode puts before the text.
func (t *Tokenizer) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.Write(t.Bytes(id))
	}
	if t.strip {
		return strings.TrimPrefix(b.String(), " ")
	}
	return b.String()
}

// ControlStrings lists the texts that ParseSpecial turns into control tokens.
func (t *Tokenizer) ControlStrings() []string {
	var list []string
	for id, text := range t.texts {
		if t.isControl(int32(id)) && text != "" {
			list = append(list, text)
		}
	}
	return list
}
