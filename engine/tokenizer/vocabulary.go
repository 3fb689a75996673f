package tokenizer

import (
	"fmt"
	"math"
	"strings"

	"github.com/forebay-io/forebay/engine/gguf"
)

// kind is a token's type, numbered as in GGUF.
type kind uint8

const (
	kindNormal kind = iota + 1
	kindUnknown
	kindControl
	kindUser
	kindUnused
	kindByte
)

// vocabulary is the checked token table of a file.
type vocabulary struct {
	texts  []string
	kinds  []kind
	scores []float32 // SPM only
	// ids finds a token by its text; for duplicates, the lowest id.
	ids    map[string]int32
	flags  map[int32]tokenFlags // of the few tokens that have some
	doubts []string             // see Doubts
}

// tokenFlags says how a special token treats the text around it.
type tokenFlags struct {
	lstrip, rstrip bool // consumes the white space before or after it
	singleWord     bool // does not match inside a word
}

const keyTokens = "tokenizer.ggml.tokens"

func readVocabulary(f *gguf.File, scored bool) (*vocabulary, error) {
	texts, ok, err := f.Strings(keyTokens)
	if err != nil {
		return nil, err
	}
	if !ok || len(texts) == 0 || len(texts) > math.MaxInt32 {
		return nil, fmt.Errorf("%s: key %s: has %d tokens; a model needs some", f.Name(), keyTokens, len(texts))
	}
	v := &vocabulary{texts: texts, ids: make(map[string]int32, len(texts)), flags: map[int32]tokenFlags{}}
	if v.kinds, err = readKinds(f, len(texts)); err != nil {
		return nil, err
	}
	if scored {
		const key = "tokenizer.ggml.scores"
		v.scores, ok, err = f.Floats(key)
		if err != nil {
			return nil, err
		}
		if !ok || len(v.scores) != len(texts) {
			return nil, fmt.Errorf("%s: key %s: has %d values for %d tokens", f.Name(), key, len(v.scores), len(texts))
		}
		for id, score := range v.scores {
			if score != score {
				return nil, fmt.Errorf("%s: key %s: token %d has no number as score", f.Name(), key, id)
			}
		}
	}
	v.index()
	if err := v.controlTokens(f); err != nil {
		return nil, err
	}
	v.phi3Flags(f)
	return v, nil
}

// controlEnds makes end tokens control tokens if the file calls them user-defined.
func (v *vocabulary) controlEnds() {
	_, gemma := v.ids["<end_of_turn>"]
	for _, text := range endTexts {
		// For gemma, </s> is the end tag of struck-out text.
		if id, ok := v.ids[text]; ok && v.kinds[id] == kindUser && !(gemma && text == "</s>") {
			v.kinds[id] = kindControl
		}
	}
}

// index sets ids.
func (v *vocabulary) index() {
	for id, text := range v.texts {
		if text == "" && v.kinds[id] == kindUnused { // a gap between ids
			continue
		}
		if _, dup := v.ids[text]; !dup {
			v.ids[text] = int32(id)
		}
	}
}

// phi3Flags sets rstrip for phi-3's role tokens, as in the model's tokenizer.json.
// GGUF has no key for it.
func (v *vocabulary) phi3Flags(f *gguf.File) {
	if arch, _, _ := f.String("general.architecture"); arch != "phi3" || v.scores == nil {
		return
	}
	for id, text := range v.texts {
		if v.kinds[id] == kindControl && strings.HasPrefix(text, "<|") && text != "<|endoftext|>" {
			v.flags[int32(id)] = tokenFlags{rstrip: true}
		}
	}
}

func readKinds(f *gguf.File, n int) ([]kind, error) {
	const key = "tokenizer.ggml.token_type"
	values, ok, err := f.Ints(key)
	if err != nil {
		return nil, err
	}
	kinds := make([]kind, n)
	if ok && len(values) != n {
		return nil, fmt.Errorf("%s: key %s: has %d values for %d tokens", f.Name(), key, len(values), n)
	}
	for id := range kinds {
		kinds[id] = kindNormal
		if !ok {
			continue
		}
		if values[id] < int64(kindNormal) || values[id] > int64(kindByte) {
			return nil, fmt.Errorf("%s: key %s: token %d has type %d; known are 1 to 6", f.Name(), key, id, values[id])
		}
		kinds[id] = kind(values[id])
	}
	return kinds, nil
}

// none is the id of a missing token.
const none = int32(-1)

// readID reads the id of a special token; none if the key is absent.
func (v *vocabulary) readID(f *gguf.File, name string) (int32, error) {
	key := "tokenizer.ggml." + name + "_token_id"
	id, ok, err := f.Uint(key)
	if err != nil || !ok {
		return none, err
	}
	// Files write 2^32-1 for none.
	if id == math.MaxUint32 {
		return none, nil
	}
	if id >= uint64(len(v.texts)) {
		return none, fmt.Errorf("%s: key %s: is %d, but there are %d tokens", f.Name(), key, id, len(v.texts))
	}
	return int32(id), nil
}

// endTexts lists tokens that end a generation even if no key says so. They are
// control tokens even in GGUF files that call them user-defined.
var endTexts = []string{
	"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|return|>", "<|call|>",
	"<|eom_id|>", "<|eot|>", "<EOT>", "<|end_of_text|>", "<end_of_text>", "<｜end▁of▁sentence｜>",
	"</s>",
}

// readEnds reads the set of tokens that end a generation.
func (v *vocabulary) readEnds(f *gguf.File) (map[int32]bool, error) {
	ends := map[int32]bool{}
	for _, name := range []string{"eos", "eot", "eom"} {
		id, err := v.readID(f, name)
		if err != nil {
			return nil, err
		}
		if id != none {
			ends[id] = true
		}
	}
	for id := range v.endsByText() {
		ends[id] = true
	}
	for id := range ends {
		if v.keepsGoing(id) {
			delete(ends, id)
		}
	}
	return ends, nil
}

// endsByText finds the end tokens of endTexts.
func (v *vocabulary) endsByText() map[int32]bool {
	ends := map[int32]bool{}
	for _, text := range endTexts {
		if id, ok := v.ids[text]; ok && v.kinds[id] == kindControl && !v.keepsGoing(id) {
			ends[id] = true
		}
	}
	return ends
}

// keepsGoing reports whether a token of endTexts does not end a generation of this
// model. In gpt-oss, <|end|> ends only a message; the turn ends with <|return|> or
// <|call|>.
func (v *vocabulary) keepsGoing(id int32) bool {
	has := func(text string) bool {
		id, ok := v.ids[text]
		return ok && v.kinds[id] == kindControl
	}
	return v.texts[id] == "<|end|>" && has("<|return|>") && has("<|call|>")
}
