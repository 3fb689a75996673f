package mask

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"github.com/forebay-io/forebay/engine/grammar"
)

// Vocabulary is what a mask needs of a tokenizer.
type Vocabulary interface {
	Size() int
	Bytes(id int32) []byte
	IsControl(id int32) bool
	IsEnd(id int32) bool
}

// node is a byte of some tokens, in the order of a walk that goes down first.
// 8 bytes: token 24 bits (noToken if none ends here), size of the subtree 24,
// byte 8, depth 8.
type node uint64

const (
	noToken    = 1<<24 - 1
	depthMax   = 255
	tokensMax  = noToken
	safeLevels = grammar.CharsMax
)

func newNode(token int32, size int, c byte, depth int) node {
	return node(uint64(uint32(token)) | uint64(size)<<24 | uint64(c)<<48 | uint64(depth)<<56)
}

func (n node) token() uint32 { return uint32(n) & noToken }
func (n node) size() int     { return int(n >> 24 & noToken) }
func (n node) byte() byte    { return byte(n >> 48) }
func (n node) depth() int    { return int(n >> 56) }

// Trie is a tokenizer's vocabulary in the order that masks are computed in. It
// does not change. Make one a tokenizer.
type Trie struct {
	vocabulary Vocabulary
	words      int        // of a mask
	all        []node     // every token that text or a Token of the grammar may be
	rest       []node     // those that are not safe
	safe       [][]uint64 // by n: safe tokens of at most n characters
	ends       []int32
	missing    []byte // bytes that no token spells
}

type entry struct {
	bytes []byte
	id    int32
}

// NewTrie sorts a vocabulary. Tokens of more than 255 bytes are never allowed,
// nor are those with a byte that no UTF-8 text has.
func NewTrie(v Vocabulary) *Trie {
	size := min(v.Size(), tokensMax)
	t := &Trie{vocabulary: v, words: (v.Size() + 63) / 64}
	var all, rest []entry
	counts := make([]int8, size)
	spelled := singles(v, size)
	for id := range int32(size) {
		if v.IsEnd(id) {
			t.ends = append(t.ends, id)
		}
		e := entry{v.Bytes(id), id}
		switch {
		case v.IsControl(id):
			if id > grammar.TokenMax {
				continue
			}
			b := grammar.TokenBytes(id)
			e.bytes = b[:]
		case len(e.bytes) == 0 || len(e.bytes) > depthMax || bytes.IndexByte(e.bytes, 0xFF) >= 0:
			continue
		}
		all = append(all, e)
		if n := safeChars(e.bytes); n > 0 && n <= safeLevels && !v.IsControl(id) && !slices.ContainsFunc(e.bytes, func(c byte) bool { return !spelled[c] }) {
			counts[id] = int8(n)
		} else {
			rest = append(rest, e)
		}
	}
	for c := range 0xF5 {
		if !spelled[c] && c != 0xC0 && c != 0xC1 {
			t.missing = append(t.missing, byte(c))
		}
	}
	t.all, t.rest = build(all), build(rest)
	t.safe = make([][]uint64, safeLevels+1)
	for n := range t.safe {
		t.safe[n] = make([]uint64, t.words)
		if n > 0 {
			copy(t.safe[n], t.safe[n-1])
		}
		for id, count := range counts {
			if int(count) == n && n > 0 {
				t.safe[n][id>>6] |= 1 << (id & 63)
			}
		}
	}
	return t
}

// Words is the length of a mask: a bit for every token, by id from the lowest
// bit of the first word.
func (t *Trie) Words() int { return t.words }

// Missing is the bytes of UTF-8 that no single token spells. A grammar for this
// vocabulary is built without them (grammar.Builder.Without): it could need one
// where the vocabulary has no way on.
func (t *Trie) Missing() []byte { return t.missing }

// Bytes is the memory that the trie holds.
func (t *Trie) Bytes() int { return 8*(len(t.all)+len(t.rest)) + 8*t.words*len(t.safe) }

// safeChars counts the characters of a text of nothing but safe ones; 0 if any is not.
func safeChars(b []byte) (n int) {
	for i := 0; i < len(b); n++ {
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size <= 1 || !grammar.Safe(r) {
			return 0
		}
		i += size
	}
	return n
}

// singles says which bytes are a token of their own.
func singles(v Vocabulary, size int) (spelled [256]bool) {
	for id := range int32(size) {
		if b := v.Bytes(id); len(b) == 1 && !v.IsControl(id) {
			spelled[b[0]] = true
		}
	}
	return spelled
}

func build(entries []entry) []node {
	slices.SortFunc(entries, func(a, b entry) int {
		if c := bytes.Compare(a.bytes, b.bytes); c != 0 {
			return c
		}
		return int(a.id - b.id)
	})
	var nodes []node
	var open []int // the node at each depth of the token before
	var before []byte
	pop := func(depth int) {
		for len(open) > depth {
			i := open[len(open)-1]
			open = open[:len(open)-1]
			n := nodes[i]
			nodes[i] = newNode(int32(n.token()), len(nodes)-i, n.byte(), n.depth())
		}
	}
	for _, e := range entries {
		shared := 0
		for shared < len(before) && shared < len(e.bytes) && before[shared] == e.bytes[shared] {
			shared++
		}
		if shared == len(e.bytes) { // the same bytes again: a leaf beside the other
			shared--
		}
		pop(shared)
		for d := shared; d < len(e.bytes); d++ {
			open = append(open, len(nodes))
			nodes = append(nodes, newNode(noToken, 1, e.bytes[d], d))
		}
		last := len(nodes) - 1
		nodes[last] = newNode(e.id, 1, nodes[last].byte(), nodes[last].depth())
		before = e.bytes
	}
	pop(0)
	return nodes
}
