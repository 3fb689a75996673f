package tokenizer

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
	"unicode/utf8"

	"github.com/forebay-io/forebay/engine/gguf"
)

const keyMerges = "tokenizer.ggml.merges"

// mergeParts are the texts of the two tokens of a merge.
type mergeParts [2]string

// cutMerge cuts at the space between the parts. A part may be a space but not empty.
func cutMerge(text string) (m mergeParts, err error) {
	if text != "" {
		if cut := strings.IndexByte(text[1:], ' ') + 1; cut > 0 {
			return mergeParts{text[:cut], text[cut+1:]}, nil
		}
	}
	return m, fmt.Errorf("%.60q is not two parts", text)
}

// readMerges reads the merges of a file.
func (t *Tokenizer) readMerges(f *gguf.File) ([]mergeParts, error) {
	list, ok, err := f.Strings(keyMerges)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 && t.needsMerges() {
		what := "is empty"
		if !ok {
			what = "is missing"
		}
		return nil, fmt.Errorf("%s: key %s %s, so text would be cut into single characters; convert the model again", f.Name(), keyMerges, what)
	}
	merges := make([]mergeParts, len(list))
	for rank, text := range list {
		if merges[rank], err = cutMerge(text); err != nil {
			return nil, fmt.Errorf("%s: key %s: merge %d: %w", f.Name(), keyMerges, rank, err)
		}
	}
	return merges, nil
}

// read finds the tokens of merges. If a pair occurs twice, the first merge wins.
// at, if not nil, records the bytes at which they join. A merge of two characters
// into a text that is not a token is ignored unless a later merge uses it, because
// encoding would undo it.
func (t *mergeTable) read(list []mergeParts, v *vocabulary, at *joints) error {
	*t = newMergeTable(len(list))
	var parts map[string]bool // parts of all merges; needed for files with contradictions
	var text []byte
	for rank, m := range list {
		l, okL := v.ids[m[0]]
		r, okR := v.ids[m[1]]
		if !okL || !okR {
			continue // no text produces its parts
		}
		text = append(append(text[:0], m[0]...), m[1]...)
		whole, okW := v.ids[string(text)]
		if okW && v.isControl(whole) {
			continue // normal text never produces it
		}
		if !okW && parts == nil {
			parts = map[string]bool{}
			for _, m := range list {
				parts[m[0]], parts[m[1]] = true, true
			}
		}
		if !okW && !parts[string(text)] && utf8.RuneCountInString(m[0]) == 1 && utf8.RuneCountInString(m[1]) == 1 {
			continue
		}
		if !okW {
			return fmt.Errorf("merge %d (%.60q and %.60q) is into something that is no token", rank, m[0], m[1])
		}
		if at != nil && m[0] != "" && m[1] != "" {
			at.note(m[0][len(m[0])-1], m[1][0])
		}
		t.add(l, r, merge{whole, uint32(rank)})
	}
	return nil
}

// mergeTable maps a pair of tokens to its merge. It is a hash table with open
// addressing and a fixed size, one to two thirds full.
type mergeTable struct {
	slots []mergeSlot
	shift uint
}

type mergeSlot struct {
	pair uint64 // both ids, plus 1; 0 in an empty slot
	merge
}

// merge is the token that a pair becomes, and the merge's position in the file.
type merge struct {
	id   int32
	rank uint32
}

func newMergeTable(n int) mergeTable {
	size := bits.Len(uint(n + n/2 + 1))
	return mergeTable{make([]mergeSlot, 1<<size), uint(64 - size)}
}

// mergeHash is random, so that no file can choose its pairs to collide.
var mergeHash = rand.Uint64() | 1

// slot returns the slot of a pair, or the empty slot for it.
func (t *mergeTable) slot(left, right int32) (s *mergeSlot, pair uint64) {
	pair = (uint64(uint32(left))<<32 | uint64(uint32(right))) + 1
	for i := pair * mergeHash >> t.shift; ; i = (i + 1) % uint64(len(t.slots)) {
		if s = &t.slots[i]; s.pair == pair || s.pair == 0 {
			return s, pair
		}
	}
}

// add keeps the first merge of a pair.
func (t *mergeTable) add(left, right int32, m merge) {
	if s, pair := t.slot(left, right); s.pair == 0 {
		*s = mergeSlot{pair, m}
	}
}

func (t *mergeTable) find(left, right int32) (merge, bool) {
	if len(t.slots) == 0 {
		return merge{}, false
	}
	s, pair := t.slot(left, right)
	return s.merge, s.pair == pair
}
