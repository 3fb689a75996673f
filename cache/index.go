package cache

import (
	"math/bits"
	"slices"

	"github.com/forebay-io/forebay/cache/hitmap"
)

// matchBlocksMax is how many blocks Match looks up under one read lock. It
// bounds how long the loop waits for the lock.
const matchBlocksMax = 64

func bucketCount(pages int) int { return 1 << bits.Len(uint(2*pages-1)) }

// Match is how many leading tokens Open would attach at this moment. Any
// goroutine may ask; the answer may be out of date when it arrives. A block is
// evicted after its children, and the children of the page's next block have
// other hashes; so where a block is evicted between two locks, the search ends.
func (p *Pool) Match(salt string, tokens []int32) int {
	n, usable, hole := p.reusable(len(tokens)), 0, none
	at, hash := cursor{page: none, salt: salt}, p.hasher.root(salt)
	for i := 0; i < n; {
		p.mu.RLock()
		for end := min(n, i+matchBlocksMax); i < end; i++ {
			want := tokens[i*p.pageTokens : (i+1)*p.pageTokens]
			h := p.hasher.next(hash, want)
			id := p.lookup(at, h, want)
			if id == none {
				p.mu.RUnlock()
				return usable * p.pageTokens
			}
			at.page, hash = id, h
			if p.pages[id].window == none {
				hole = i
			}
			if p.goesOn(id, i, hole) {
				usable = i + 1
			}
		}
		p.mu.RUnlock()
	}
	return usable * p.pageTokens
}

// reusable is how many full blocks of a prompt may come from the cache. The
// last token of a prompt is always computed, because its logits are needed.
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

// index makes a full page a block, which lookups find.
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
	p.journal.Add(hitmap.Change{Hash: hash})
}

// unindex makes a block an ordinary page again.
func (p *Pool) unindex(id int32) {
	p.mu.Lock()
	link := &p.buckets[p.bucket(p.pages[id].hash)]
	for *link != id {
		link = &p.pages[*link].chained
	}
	*link = p.pages[id].chained
	p.pages[id].block, p.pages[id].uses = block{}, 0
	p.mu.Unlock()
}
