package cache

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/zeebo/xxh3"
)

// matchBlocksMax is how many blocks Match looks up under one read lock: the
// loop waits for no more.
const matchBlocksMax = 64

func bucketCount(pages int) int { return 1 << bits.Len(uint(2*pages-1)) }

// root is what the first block's hash is chained to.
func (p *Pool) root(salt string) uint64 { return xxh3.HashStringSeed(salt, p.seed) }

// chain is the hash of the block with these tokens after the block with hash
// parent. It is the same on every machine.
func (p *Pool) chain(parent uint64, tokens []int32) uint64 {
	var buf [4 * pageTokensMax]byte
	for i, t := range tokens {
		binary.LittleEndian.PutUint32(buf[4*i:], uint32(t))
	}
	return xxh3.HashSeed(buf[:4*len(tokens)], parent) & p.hashMask
}

// BlockHashes are the chained hashes of the full blocks of tokens. Any
// goroutine may ask.
func (p *Pool) BlockHashes(salt string, tokens []int32) []uint64 {
	hashes := make([]uint64, len(tokens)/p.pageTokens)
	h := p.root(salt)
	for i := range hashes {
		h = p.chain(h, tokens[i*p.pageTokens:(i+1)*p.pageTokens])
		hashes[i] = h
	}
	return hashes
}

// Match is how many leading tokens Open would attach at this moment. Any
// goroutine may ask; the answer may be out of date when it arrives. A block
// that is evicted between two locks takes its children along, and those of the
// page's next block have other hashes, so the search ends there.
func (p *Pool) Match(salt string, tokens []int32) int {
	n := p.reusable(len(tokens))
	at, hash := cursor{page: none, salt: salt}, p.root(salt)
	for i := 0; i < n; {
		p.mu.RLock()
		for end := min(n, i+matchBlocksMax); i < end; i++ {
			want := tokens[i*p.pageTokens : (i+1)*p.pageTokens]
			h := p.chain(hash, want)
			id := p.lookup(at, h, want)
			if id == none {
				p.mu.RUnlock()
				return i * p.pageTokens
			}
			at.page, hash = id, h
		}
		p.mu.RUnlock()
	}
	return n * p.pageTokens
}

// reusable is how many full blocks of a prompt may come from the cache: at
// least its last token is always computed, because its logits are needed.
func (p *Pool) reusable(tokens int) int { return max(0, tokens-1) / p.pageTokens }

// cursor is a place in the tree of blocks: after the block in page, or before
// the first block of salt.
type cursor struct {
	page int32
	salt string
}

// lookup finds the block with these tokens at a place, or none. The hash
// only chooses where to look.
func (p *Pool) lookup(at cursor, hash uint64, tokens []int32) int32 {
	id := p.buckets[p.bucket(hash)]
	for ; id != none; id = p.pages[id].chained {
		b := &p.pages[id].block
		if b.hash == hash && b.parent == at.page &&
			(b.parent != none || b.salt == at.salt) &&
			slices.Equal(p.pageArea(id), tokens) {
			return id
		}
	}
	return none
}

func (p *Pool) bucket(hash uint64) int { return int(hash & uint64(len(p.buckets)-1)) }

// index makes a whole page findable.
func (p *Pool) index(id int32, at cursor, hash uint64) {
	b := block{whole: true, hash: hash, parent: at.page}
	if at.page == none {
		b.salt = at.salt
	}
	first := &p.buckets[p.bucket(hash)]
	p.mu.Lock()
	b.chained = *first
	p.pages[id].block = b
	*first = id
	p.mu.Unlock()
	p.logChange(Change{Hash: hash})
}

// unindex makes a block an ordinary page.
func (p *Pool) unindex(id int32) {
	p.mu.Lock()
	link := &p.buckets[p.bucket(p.pages[id].hash)]
	for *link != id {
		link = &p.pages[*link].chained
	}
	*link = p.pages[id].chained
	p.pages[id].block = block{}
	p.mu.Unlock()
}
