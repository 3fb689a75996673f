package tokenizer

import (
	"fmt"
	"strings"
	"sync"

	"github.com/forebay-io/forebay/engine/gguf"
)

// Guard before a place in a text keeps a control string from beginning there,
// and inside one breaks it; see the package comment. It is a noncharacter.
const Guard = '\uFDD0'

const guardText = string(Guard)

// Escaped text stands for Guards of its own with a second noncharacter.
const escapeText = "\uFDD1"

var (
	escapes   = strings.NewReplacer(guardText, escapeText+"\uFDD2", escapeText, escapeText+"\uFDD3")
	unescapes = strings.NewReplacer(guardText, "", escapeText+"\uFDD2", guardText, escapeText+"\uFDD3", escapeText)
)

// Escape makes the Guards that a user typed characters like any other.
func Escape(text string) string { return escapes.Replace(text) }

// Unguard is the text that the model reads: without Guards, and not escaped.
func Unguard(text string) string { return unescapes.Replace(text) }

// Tokenizer is one model's; it never changes and is safe for concurrent use.
type Tokenizer struct {
	vocabulary
	bytes    []byte   // what the tokens stand for in text, one after another
	ends     []uint32 // where each token's bytes end
	specials specials
	stops    map[int32]bool
	bos, eos int32
	addBOS   bool
	addEOS   bool

	bytesMax int // of text that one token can stand for

	spaced  bool // SPM: a space goes before the text and after special tokens
	encoder encoder
	scratch sync.Pool
}

// encoder is one of the tokenizer models, for text without special tokens.
type encoder interface {
	encode(dst []int32, text string, s *scratch) []int32
}

// EncodeOptions say what besides the text's own characters becomes tokens.
type EncodeOptions struct {
	// AddSpecial adds the tokens that the file asks for at the beginning and end.
	AddSpecial bool
	// ParseSpecial recognises control tokens in the text, and reads it Unguarded.
	ParseSpecial bool
}

// FromGGUF reads a file's tokenizer. It fails, naming it, on a tokenizer
// model or pre-tokenizer that is not known, and on tables that contradict each other.
func FromGGUF(f *gguf.File) (*Tokenizer, error) {
	const key = "tokenizer.ggml.model"
	model, ok, err := f.String(key)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, fmt.Errorf("%s: key %s is missing", f.Name(), key)
	case model != "gpt2" && model != "llama":
		return nil, fmt.Errorf("%s: key %s: tokenizer model %q is not supported; supported are gpt2 and llama", f.Name(), key, model)
	}
	v, err := readVocabulary(f, model == "llama")
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{vocabulary: *v}
	t.scratch.New = func() any { return &scratch{} }
	read := t.readSPM
	if model == "gpt2" {
		read = t.readBPE
	}
	bytes, err := read(f)
	if err != nil {
		return nil, err
	}
	for _, b := range bytes {
		t.bytes = append(t.bytes, b...)
		t.ends = append(t.ends, uint32(len(t.bytes)))
	}
	if t.specials, err = newSpecials(v); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	if t.stops, err = v.readEnds(f); err != nil {
		return nil, err
	}
	t.bytesMax = t.longest()
	return t, t.readFlags(f)
}

// nfcShrink is how many times shorter a text can become in form C: three
// Hangul letters are one syllable.
const nfcShrink = 3

func (t *Tokenizer) longest() int {
	n := 1
	for id := range t.texts {
		n = max(n, len(t.texts[id]), len(t.Bytes(int32(id))))
	}
	if b, ok := t.encoder.(*bpe); ok && b.nfc {
		n *= nfcShrink
	}
	return n
}

// TokensMin is a number of tokens that no text of so many bytes can stay
// below, so that a hopelessly long one need not be encoded to be refused.
func (t *Tokenizer) TokensMin(bytes int) int { return bytes / t.bytesMax }

// readFlags reads which tokens are added; addBOS holds the model's default.
func (t *Tokenizer) readFlags(f *gguf.File) (err error) {
	if t.bos, err = t.readID(f, "bos"); err != nil {
		return err
	}
	if t.eos, err = t.readID(f, "eos"); err != nil {
		return err
	}
	for _, flag := range []struct {
		key string
		add *bool
		id  int32
	}{{"tokenizer.ggml.add_bos_token", &t.addBOS, t.bos}, {"tokenizer.ggml.add_eos_token", &t.addEOS, t.eos}} {
		add, ok, err := f.Bool(flag.key)
		if err != nil {
			return err
		}
		if ok {
			*flag.add = add
		}
		if *flag.add && flag.id == none {
			return fmt.Errorf("%s: key %s: asks for a token, but the file does not say which", f.Name(), flag.key)
		}
	}
	return nil
}

// Encode appends the ids of text to dst. Bytes that are not UTF-8 are encoded
// as they are where the model has tokens for bytes.
func (t *Tokenizer) Encode(dst []int32, text string, o EncodeOptions) []int32 {
	s := t.scratch.Get().(*scratch)
	defer func() {
		if cap(s.symbols) <= scratchSymbolsMax {
			t.scratch.Put(s)
		}
	}()
	if o.AddSpecial && t.addBOS {
		dst = append(dst, t.bos)
	}
	spaced := t.spaced
	for text != "" {
		at, length, id := t.specials.find(text, o.ParseSpecial)
		if piece := text[:at]; piece != "" {
			if o.ParseSpecial {
				piece = Unguard(piece)
			}
			if spaced && piece != "" {
				piece = " " + piece
			}
			dst = t.encoder.encode(dst, piece, s)
			spaced = false
		}
		if length > 0 {
			dst = append(dst, id)
			spaced = t.spaced
		}
		text = text[at+length:]
	}
	if o.AddSpecial && t.addEOS {
		dst = append(dst, t.eos)
	}
	return dst
}

// Size is the number of tokens in the file's table.
func (t *Tokenizer) Size() int { return len(t.texts) }

// BOS and EOS are the file's tokens for beginning and end, -1 where it names none.
func (t *Tokenizer) BOS() int32 { return t.bos }

// EOS is described at BOS.
func (t *Tokenizer) EOS() int32 { return t.eos }

// AddsBOS reports whether AddSpecial puts BOS before the text.
func (t *Tokenizer) AddsBOS() bool { return t.addBOS }

func (t *Tokenizer) valid(id int32) bool { return id >= 0 && int(id) < len(t.texts) }

// Text is a token as the file writes it, control tokens too; "" outside of the table.
func (t *Tokenizer) Text(id int32) string {
	if !t.valid(id) {
		return ""
	}
	return t.texts[id]
}

// Bytes is what a token stands for in text, possibly a part of a character.
// It is empty for control tokens and ids outside of the table. The slice is the
// tokenizer's own and must not be changed.
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

// IsControl reports whether a token is none of the text's.
func (t *Tokenizer) IsControl(id int32) bool { return t.valid(id) && t.isControl(id) }

func (v *vocabulary) isControl(id int32) bool {
	return v.kinds[id] == kindControl || v.kinds[id] == kindUnknown
}

// Decode joins the tokens' text. SPM puts a space before the text when it
// encodes; Decode takes it away again.
func (t *Tokenizer) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.Write(t.Bytes(id))
	}
	if t.spaced {
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
