package calls

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"strings"
)

const idLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// idBytesMax bounds an id that the model wrote.
const idBytesMax = 256

// newID returns the model's own id where its format has one, and another one of
// the form that its template accepts otherwise. No two calls have the same.
func (p *Parser) newID(written, name string, index int) string {
	id := written
	if id == "" || len(id) > idBytesMax || p.ids[id] || p.f.IDs == AnyID && !p.f.writesIDs() {
		for attempt := 0; ; attempt++ {
			id = p.f.makeID(p.o.Seed, name, p.o.FirstCall+index, attempt)
			if !p.ids[id] {
				break
			}
		}
	}
	if !p.block.tried {
		p.ids[id] = true
	}
	return id
}

func (f *Format) writesIDs() bool { return len(f.IDKeys) > 0 || f.IDMark != "" }

// makeID makes the id of call number index.
func (f *Format) makeID(seed, name string, index, attempt int) string {
	switch f.IDs {
	case NineID:
		return letters(seed, index, attempt, 9)
	case KimiID:
		return "functions." + name + ":" + strconv.Itoa(index+attempt)
	case CountsID:
		return strconv.Itoa(index + attempt)
	}
	return "call_" + letters(seed, index, attempt, 24)
}

// HistoryID is the id of call number index of a conversation, as the template of f
// accepts it: the one that was written if that has the form, and otherwise one that
// written determines.
func (f *Format) HistoryID(written, name string, index int) string {
	switch f.IDs {
	case NineID:
		if len(written) != 9 || !plainID(written) {
			if written == "" {
				written = strconv.Itoa(index)
			}
			return letters(written, 0, 0, 9)
		}
	case KimiID:
		if !strings.HasPrefix(written, "functions.") && name != "" {
			return f.makeID("", name, index, 0)
		}
	case CountsID:
		if _, err := strconv.Atoi(written); err != nil {
			return f.makeID("", name, index, 0)
		}
	}
	return written
}

func plainID(id string) bool {
	return strings.IndexFunc(id, func(r rune) bool { return !strings.ContainsRune(idLetters, r) }) < 0
}

// letters are n letters and digits that seed and the numbers determine.
func letters(seed string, index, attempt, n int) string {
	data := binary.LittleEndian.AppendUint64([]byte(seed+"\x00"), uint64(index)<<32|uint64(attempt))
	sum := sha256.Sum256(data)
	out := make([]byte, n)
	for i := range out {
		out[i] = idLetters[int(sum[i])%len(idLetters)]
	}
	return string(out)
}
