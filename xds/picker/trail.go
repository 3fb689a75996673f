package picker

import (
	"bytes"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"
)

// chunkBytes is the part of a text whose blocks are remembered together.
const chunkBytes = 1024

// trail remembers which blocks the beginnings of texts have. A text is cut into chunks,
// and each is known by a hash of it and of all before it. Where a block ends in the
// text is taken to be in proportion, so what is said of a text is right to within about
// a chunk; and it is only said of beginnings that are the same to the byte.
type trail struct {
	max int

	mu     sync.Mutex // guards all below
	chunks map[uint64]*chunk
	oldest []uint64 // a ring of hashes, in the order in which they came
	next   int
	rate   float64 // tokens in a byte of text, over recent prompts
}

type chunk struct{ blocks []uint64 }

// rateAtFirst is the rate of English text.
const rateAtFirst = 0.25

func newTrail(chunksMax int) *trail {
	return &trail{max: chunksMax, chunks: map[uint64]*chunk{}, rate: rateAtFirst}
}

// hashes are those of the whole chunks of a text, which lies in parts, for one owner of
// prompts.
func hashes(owner string, text [][]byte) []uint64 {
	all := make([]uint64, 0, lengthOf(text)/chunkBytes)
	last := xxh3.HashString(owner)
	var begun [chunkBytes]byte // a chunk of which a part ends within
	filled := 0
	for _, part := range text {
		if filled > 0 {
			n := copy(begun[filled:], part)
			if filled, part = filled+n, part[n:]; filled < chunkBytes {
				continue
			}
			last = xxh3.HashSeed(begun[:], last)
			all = append(all, last)
		}
		for ; len(part) >= chunkBytes; part = part[chunkBytes:] {
			last = xxh3.HashSeed(part[:chunkBytes], last)
			all = append(all, last)
		}
		filled = copy(begun[:], part)
	}
	return all
}

func lengthOf(text [][]byte) (n int) {
	for _, part := range text {
		n += len(part)
	}
	return n
}

// promptOf is the part of a body from its prompt on. Where a member comes first that
// differs from request to request, what is the same lies behind it.
func promptOf(body [][]byte) [][]byte {
	for _, name := range []string{`"messages"`, `"prompt"`} {
		if rest, ok := from(body, name); ok {
			return rest
		}
	}
	return body
}

// from is a text from the first place of a word on.
func from(text [][]byte, word string) ([][]byte, bool) {
	reach := len(word) - 1               // bytes of a word that may lie in another part
	seam := make([]byte, 0, 2*len(word)) // the last bytes before a part, and then its first
	for i, part := range text {
		before := len(seam)
		seam = append(seam, part[:min(len(part), reach)]...)
		if at := bytes.Index(seam, []byte(word)); at >= 0 {
			return append([][]byte{[]byte(word), part[at+len(word)-before:]}, text[i+1:]...), true
		}
		if at := bytes.Index(part, []byte(word)); at >= 0 {
			return append([][]byte{part[at:]}, text[i+1:]...), true
		}
		if len(part) >= reach {
			seam = append(seam[:0], part[len(part)-reach:]...)
		} else {
			seam = append(seam[:0], seam[max(0, len(seam)-reach):]...)
		}
	}
	return nil, false
}

// find returns the blocks of the beginning that is known, and how many chunks it has.
func (t *trail) find(hashes []uint64) (blocks []uint64, known int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range hashes {
		c := t.chunks[h]
		if c == nil {
			break
		}
		if known == 0 {
			blocks = make([]uint64, 0, len(hashes)*(len(c.blocks)+1))
		}
		blocks = append(blocks, c.blocks...)
		known++
	}
	return blocks, known
}

// tokens estimates how many tokens a text of so many bytes has.
func (t *trail) tokens(textBytes int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int(float64(textBytes) * t.rate)
}

// learn notes the blocks of a whole prompt.
func (t *trail) learn(hashes []uint64, textBytes, tokens int, blocks []uint64) {
	if textBytes == 0 || len(hashes) == 0 {
		return
	}
	const memory = 16 // prompts that the rate is about
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rate += (float64(tokens)/float64(textBytes) - t.rate) / memory
	for i, h := range hashes {
		from, to := i*chunkBytes*len(blocks)/textBytes, (i+1)*chunkBytes*len(blocks)/textBytes
		own := slices.Clone(blocks[from:to]) // so that a chunk keeps no whole prompt
		if c := t.chunks[h]; c != nil {
			c.blocks = own
			continue
		}
		if len(t.oldest) < t.max {
			t.oldest = append(t.oldest, h)
		} else {
			delete(t.chunks, t.oldest[t.next])
			t.oldest[t.next] = h
			t.next = (t.next + 1) % t.max
		}
		t.chunks[h] = &chunk{own}
	}
}
