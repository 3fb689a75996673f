package cache

import (
	"fmt"
	"math"
	"sync"

	"github.com/forebay-io/forebay/cache/hitmap"
)

// Invariants, each verified by Check under its number:
//
//  1. Every page is exactly one of used (in the table of an open sequence),
//     cached (a block that no sequence holds) or free: used + cached + free = total.
//  2. A page's reference count is the number of open sequences that hold it;
//     no sequence holds a page twice.
//  3. A sequence's table covers its length. Its full pages, and no others, are
//     blocks, each the parent of the next, under the sequence's salt.
//  4. A block's parent is a block, and its hash is chained from its parent's hash
//     and its own tokens. The index holds each block exactly once, and nothing
//     else. No two blocks have the same parent (or salt) and tokens.
//  5. The parent of a cached block is cached or used. In eviction order a block
//     precedes its parent: a chain is evicted from its tail.
//  6. Sequences share an incomplete page only until one writes to it, so they have
//     the same length. Pages beyond a sequence's length belong to it alone.
//  7. A claim belongs to one open sequence and names the block that this sequence
//     computes next; no other claim names that block. So the owner of a claim
//     never waits for another claim, and some sequence can always compute.
//  8. The journal keeps no more changes than its limit.
//  9. Every slot of states is exactly one of free, the state of one open sequence, reserved
//     for one checkpoint of an open sequence, or the checkpoint of one block.
//  10. Every window is free, or has pages that nothing else has. A sequence holds those
//     that its next token sees and no others; they are its blocks' windows. A window that
//     no sequence holds is a block's, and in the list of those that may go.
//  11. A pin is an open sequence of whole blocks, without a state. Pins hold no more than their
//     limits, and a page counts the pins that hold it. In a pool with states each holds the
//     checkpoint at its end, and no other checkpoint is held.

// Config says how large the pool is and what its contents depend on.
type Config struct {
	// Pages is how many pages the model has room for.
	Pages int
	// PageTokens is how many tokens a page holds, 1 to 256.
	PageTokens int
	// Space names everything that changes keys and values besides the tokens:
	// see NewHasher.
	Space string
	// States is how many slots the model has for states; 0 for a model without recurrent
	// layers. StateTokens is the distance of checkpoints in long prompts; 0 means none.
	States      int
	StateTokens int
	// Windows are those of layers that keep them in pages of their own.
	Windows Windows
	// ChangesMax bounds the block changes that the journal keeps; 0 means
	// hitmap.JournalMax. A reader that comes too late for some starts afresh.
	ChangesMax int
	// Pins bounds the prompts that stay in memory.
	Pins PinLimits
	// hashBits cuts block hashes to this many bits; 0 means 64. With fewer bits,
	// hashes collide in tests.
	hashBits int
}

// Counts counts the pages by their state; Used + Cached + Free = Total.
type Counts struct {
	Total  int
	Used   int // held by an open sequence or a pin
	Cached int // of a block or a window that no sequence holds, kept for reuse
	Free   int
}

// Copy asks for a page's contents to be copied.
type Copy struct{ Dst, Src int32 }

// none is the page id that ends a list and the parent of a first block.
const none = -1

// page is what the pool knows of one page. The fields of block are written under
// Pool.mu and read by Match; the other fields belong to the loop.
type page struct {
	block
	state  int32 // slot of the checkpoint after the block, or none; written under Pool.mu
	window int32 // of the block, or none; written under Pool.mu
	refs   int32
	pins   int32  // of refs, those of pins
	uses   uint32 // how often a sequence was attached to it
	used   uint64 // when it was linked, by Pool.uses
	// prev and next link the cached pages; the first is evicted next.
	prev, next int32
}

// block is the identity of a whole computed page. Its tokens are the page's.
type block struct {
	whole   bool
	hash    uint64
	parent  int32  // page of the parent block; none for a first block
	salt    string // of a first block; the others have their parent's
	chained int32  // next block in the same bucket of the index
}

// Pool is the page pool of one loaded model.
type Pool struct {
	// Fixed at construction.
	pageTokens int
	hasher     Hasher

	// mu guards the index and its blocks, which Match reads. The loop is the only
	// writer and holds mu for one block at a time; it reads without mu.
	mu      sync.RWMutex
	pages   []page
	tokens  []int32 // pageTokens for each page
	buckets []int32 // first page of each bucket, a power of two of them

	// Owned by the loop.
	free    []int32
	oldest  int32 // ends of the list of cached pages
	newest  int32
	cached  int
	open    []*Seq
	closed  []*Seq // for reuse
	claims  []*Seq
	journal hitmap.Journal // of all whole blocks
	states  states
	windows windows
	pins    pins
	uses    uint64 // pages and windows that were linked so far
}

// New makes an empty pool.
func New(c Config) (*Pool, error) {
	hasher, err := NewHasher(c.Space, c.PageTokens)
	switch {
	case err != nil:
		return nil, err
	case c.Pages < 1 || c.Pages > math.MaxInt32/pageTokensMax:
		return nil, fmt.Errorf("cache: %d pages; give 1 to %d", c.Pages, math.MaxInt32/pageTokensMax)
	case c.States < 0 || c.States > math.MaxInt32 || c.StateTokens < 0:
		return nil, fmt.Errorf("cache: %d states, kept every %d tokens; give 0 or more of both", c.States, c.StateTokens)
	case c.Windows.Pages < 0 || c.Windows.Pages > 0 && (c.Windows.Tokens < 1 || c.Windows.Step < 1 || c.Windows.Chunked && c.Windows.Tokens%c.PageTokens != 0):
		return nil, fmt.Errorf("cache: windows of %d tokens in %d pages, in steps of %d; give 1 or more of each, and whole pages for chunks", c.Windows.Tokens, c.Windows.Pages, c.Windows.Step)
	case c.ChangesMax < 0:
		return nil, fmt.Errorf("cache: a journal of %d changes; give 0 or more", c.ChangesMax)
	case c.hashBits < 0 || c.hashBits > 64:
		return nil, fmt.Errorf("cache: hashes of %d bits; give 1 to 64, or 0 for all", c.hashBits)
	}
	if err := c.Pins.check(c.Pages, c.States); err != nil {
		return nil, err
	}
	if c.hashBits > 0 {
		hasher.mask >>= 64 - c.hashBits
	}
	p := &Pool{
		pageTokens: c.PageTokens,
		hasher:     hasher,
		pages:      make([]page, c.Pages),
		tokens:     make([]int32, c.Pages*c.PageTokens),
		buckets:    make([]int32, bucketCount(c.Pages)),
		free:       make([]int32, c.Pages),
		oldest:     none,
		newest:     none,
		journal:    hitmap.Journal{Max: c.ChangesMax},
		states:     newStates(c.States, c.StateTokens),
		windows:    newWindows(c.Windows, c.Pages),
		pins:       pins{PinLimits: c.Pins, blocks: map[string]int{}},
	}
	for i := range p.pages {
		p.pages[i].state, p.pages[i].window = none, none
	}
	for i := range p.buckets {
		p.buckets[i] = none
	}
	for i := range p.free {
		p.free[i] = int32(c.Pages - 1 - i) // page 0 is given out first
	}
	return p, nil
}

// Hasher computes the hashes of this pool's blocks. Any goroutine may ask.
func (p *Pool) Hasher() Hasher { return p.hasher }

// Fits reports whether a sequence of this many tokens has room when no other is
// open. The answer never changes. Any goroutine may ask.
func (p *Pool) Fits(tokens int) bool {
	return p.windows.PagesFor(tokens, p.pageTokens) <= len(p.pages)
}

// BlockPages is how many pages the next block of a sequence takes.
func (p *Pool) BlockPages() int { return 1 + p.windows.Pages }

// Counts counts the pages by their state.
func (p *Pool) Counts() Counts {
	total, free, cached := len(p.pages), len(p.free), p.cachedPages()
	return Counts{Total: total, Used: total - free - cached, Cached: cached, Free: free}
}

// cachedPages are those of blocks that no sequence holds, and of windows.
func (p *Pool) cachedPages() int { return p.cached + p.windows.Pages*p.windows.cached }

// Journal is the newest changes to the set of reusable blocks.
func (p *Pool) Journal() hitmap.Journal { return p.journal }

// pagesFor is how many pages hold this many tokens.
func (p *Pool) pagesFor(tokens int) int { return (tokens + p.pageTokens - 1) / p.pageTokens }

// pageArea is the room for the tokens of one page.
func (p *Pool) pageArea(id int32) []int32 {
	start := int(id) * p.pageTokens
	return p.tokens[start : start+p.pageTokens]
}

// take gives out a page with one reference: a free page, or else one of what is evicted
// next. The caller has checked that there is one.
func (p *Pool) take() int32 {
	if len(p.free) == 0 {
		p.evictNext()
	}
	id := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.pages[id].refs = 1
	return id
}

// hold adds a reference.
func (p *Pool) hold(id int32) {
	g := &p.pages[id]
	if g.refs == 0 {
		p.unlink(id)
	}
	g.refs++
}

// drop removes a reference. After the last one, a block is cached and any other
// page is free.
func (p *Pool) drop(id int32) {
	g := &p.pages[id]
	g.refs--
	switch {
	case g.refs > 0:
	case g.whole:
		p.linkNewest(id)
	default:
		p.free = append(p.free, id)
	}
}

// evict frees a cached block.
func (p *Pool) evict(id int32) {
	p.unlink(id)
	p.dropCheckpoint(id)
	if window := p.pages[id].window; window != none { // no sequence holds it without the block
		p.evictWindow(window)
	}
	p.journal.Add(hitmap.Change{Hash: p.pages[id].hash, Evicted: true})
	p.unindex(id)
	p.free = append(p.free, id)
}

func (p *Pool) linkNewest(id int32) {
	g := &p.pages[id]
	p.uses++
	g.used, g.prev, g.next = p.uses, p.newest, none
	if p.newest == none {
		p.oldest = id
	} else {
		p.pages[p.newest].next = id
	}
	p.newest = id
	p.cached++
}

func (p *Pool) unlink(id int32) {
	g := &p.pages[id]
	if g.prev == none {
		p.oldest = g.next
	} else {
		p.pages[g.prev].next = g.next
	}
	if g.next == none {
		p.newest = g.prev
	} else {
		p.pages[g.next].prev = g.prev
	}
	p.cached--
}
