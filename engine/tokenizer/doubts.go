package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/forebay-io/forebay/engine/gguf"
)

// Doubts lists what a model's files leave out or say wrongly about its tokens,
// where there is a default that is nearly always right: what is wrong, and what is
// done. An operator should see them.
func (t *Tokenizer) Doubts() []string { return t.doubts }

// isControlText reports whether a text has the form of control strings.
func isControlText(text string) bool {
	for _, form := range [...][2]string{{"<|", "|>"}, {"<｜", "｜>"}} {
		inner, ok := strings.CutPrefix(text, form[0])
		if inner, closed := strings.CutSuffix(inner, form[1]); ok && closed && inner != "" && !strings.ContainsAny(inner, " \n\t<>") {
			return true
		}
	}
	return false
}

// controlTokens makes control tokens of those that the file calls otherwise: end
// tokens that it calls user-defined, and control strings that it calls normal. As
// normal text they would be cut into pieces wherever a template writes them, and a
// client could not be kept from writing them.
func (v *vocabulary) controlTokens(f *gguf.File) error {
	v.controlEnds()
	named := map[int32]bool{}
	for _, name := range [...]string{"bos", "eos", "eot", "eom"} {
		id, err := v.readID(f, name)
		if err != nil {
			return err
		}
		if id != none && strings.HasPrefix(v.texts[id], "<") && strings.HasSuffix(v.texts[id], ">") {
			named[id] = true
		}
	}
	var first string
	changed := 0
	for id, text := range v.texts {
		if v.kinds[id] != kindNormal || !isControlText(text) && !named[int32(id)] {
			continue
		}
		v.kinds[id] = kindControl
		if changed++; changed == 1 {
			first = fmt.Sprintf("%d, %.60q", id, text)
		}
	}
	if changed > 0 {
		v.doubts = append(v.doubts, fmt.Sprintf("key tokenizer.ggml.token_type calls %d control strings normal text (the first is token %s); they are read as control tokens; convert the model again", changed, first))
	}
	return nil
}

// doubt adds what is known once all tables are there.
func (t *Tokenizer) doubt() {
	if len(t.stops) == 0 {
		t.doubts = append(t.doubts, "no token ends an answer: the model's files name none (eos_token_id), and none has a known text for it; every answer goes on to max_tokens or the end of the context")
	}
	var byteIDs *[256]int32
	switch e := t.encoder.(type) {
	case *bpe:
		byteIDs = &e.byteIDs
	case *spm:
		byteIDs = &e.byteIDs
		if same(t.scores, t.kinds) {
			t.doubts = append(t.doubts, "key tokenizer.ggml.scores gives all tokens of text the same score, so that the order of merges is not known; text is cut otherwise than in training; convert the model again")
		}
	default:
		return
	}
	lost := 0
	for c, id := range byteIDs {
		// Bytes that no character has do not count.
		if id == none && c != 0xC0 && c != 0xC1 && c < 0xF5 {
			lost++
		}
	}
	if lost > 0 {
		t.doubts = append(t.doubts, fmt.Sprintf("%d bytes have no token, and no token stands for unknown text: characters with them are left out of prompts", lost))
	}
}

// same reports whether several tokens of text have scores and all the same one.
func same(scores []float32, kinds []kind) bool {
	n, first := 0, float32(0)
	for id, score := range scores {
		if kinds[id] != kindNormal {
			continue
		}
		if n++; n == 1 {
			first = score
		} else if score != first {
			return false
		}
	}
	return n > 1
}

// needsMerges reports whether some token of text is made of others.
func (v *vocabulary) needsMerges() bool {
	for id, text := range v.texts {
		if _, isByte := parseByte(text); v.kinds[id] == kindNormal && utf8.RuneCountInString(text) > 1 && !isByte {
			return true
		}
	}
	return false
}
