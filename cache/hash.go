package cache

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/zeebo/xxh3"
)

// pageTokensMax bounds the tokens of a page.
const pageTokensMax = 256

// Hasher computes the hashes by which blocks are found. It is a value that
// depends on its inputs alone: a process that knows the space and the page size of an
// engine computes the engine's own hashes, on any machine.
//
//	root = hash of the salt, seeded by the space
//	block 0 = hash of its tokens, seeded by root
//	block i = hash of its tokens, seeded by block i-1
type Hasher struct {
	pageTokens int
	seed       uint64
	mask       uint64
}

// NewHasher makes the hasher of one space, with pages of 1 to 256 tokens. Space
// names everything that changes keys and values besides the tokens: the
// model's digest, the type of the cache, the rope settings, the adapter. Block
// hashes of different spaces differ.
func NewHasher(space string, pageTokens int) (Hasher, error) {
	if pageTokens < 1 || pageTokens > pageTokensMax {
		return Hasher{}, fmt.Errorf("cache: %d tokens a page; give 1 to %d", pageTokens, pageTokensMax)
	}
	return Hasher{pageTokens: pageTokens, seed: xxh3.HashString(space), mask: math.MaxUint64}, nil
}

// root is what the hash of a first block is chained to. Prompts with different
// salts share no blocks.
func (h Hasher) root(salt string) uint64 { return xxh3.HashStringSeed(salt, h.seed) }

// next is the hash of the block with these tokens, one page of them, after
// the block with hash parent, or after a root.
func (h Hasher) next(parent uint64, tokens []int32) uint64 {
	var buf [4 * pageTokensMax]byte
	for i, t := range tokens {
		binary.LittleEndian.PutUint32(buf[4*i:], uint32(t))
	}
	return xxh3.HashSeed(buf[:4*len(tokens)], parent) & h.mask
}

// Blocks are the hashes of the full blocks of tokens.
func (h Hasher) Blocks(salt string, tokens []int32) []uint64 {
	hashes := make([]uint64, len(tokens)/h.pageTokens)
	last := h.root(salt)
	for i := range hashes {
		last = h.next(last, tokens[i*h.pageTokens:(i+1)*h.pageTokens])
		hashes[i] = last
	}
	return hashes
}
