package admission

import "github.com/forebay-io/forebay/cache/hitmap"

// The cache changes while requests wait. Each waiting request watches two blocks
// of its prompt: the first that is not cached, since the request gets cheaper when
// it comes, and the last that is cached, since it gets dearer when that goes.

const (
	watchNext = iota // the first block that is not cached
	watchLast        // the last that is
	watchCount
)

// link is an entry's place in the list of those that watch one block.
type link struct {
	hash           uint64
	previous, next *Entry
	on             bool
}

// prefixes knows which blocks the engine can reuse, and which requests watch
// them.
type prefixes struct {
	cached   hitmap.Set
	watchers [watchCount]map[uint64]*Entry // heads of lists
}

func newPrefixes() prefixes {
	return prefixes{watchers: [watchCount]map[uint64]*Entry{{}, {}}}
}

// watch links e to the blocks on both sides of where its cached part ends.
func (p *prefixes) watch(e *Entry) {
	if e.demand.BlockTokens == 0 {
		return
	}
	n := e.cached / e.demand.BlockTokens
	if n < len(e.demand.Blocks) {
		p.link(e, watchNext, e.demand.Blocks[n])
	}
	if n > 0 && n <= len(e.demand.Blocks) {
		p.link(e, watchLast, e.demand.Blocks[n-1])
	}
}

func (p *prefixes) link(e *Entry, kind int, hash uint64) {
	head := p.watchers[kind][hash]
	e.links[kind] = link{hash: hash, next: head, on: true}
	if head != nil {
		head.links[kind].previous = e
	}
	p.watchers[kind][hash] = e
}

func (p *prefixes) unwatch(e *Entry) {
	for kind := range e.links {
		l := &e.links[kind]
		if !l.on {
			continue
		}
		switch {
		case l.previous != nil:
			l.previous.links[kind].next = l.next
		case l.next != nil:
			p.watchers[kind][l.hash] = l.next
		default:
			delete(p.watchers[kind], l.hash)
		}
		if l.next != nil {
			l.next.links[kind].previous = l.previous
		}
		*l = link{}
	}
}

// change follows one change of the cache, and appends to dst the entries that
// it touches.
func (p *prefixes) change(dst []*Entry, c hitmap.Change) []*Entry {
	p.cached.Apply(c)
	kind := watchNext
	if c.Evicted {
		kind = watchLast
	}
	for e := p.watchers[kind][c.Hash]; e != nil; e = e.links[kind].next {
		dst = append(dst, e)
	}
	return dst
}

// match is how many leading tokens of e's prompt are cached. Where e has no
// blocks, it is what the engine said at first. The last token is always
// computed.
func (p *prefixes) match(e *Entry) int {
	if e.demand.BlockTokens == 0 {
		return e.cached
	}
	n := p.cached.Match(e.demand.Blocks)
	return min(n*e.demand.BlockTokens, max(0, e.demand.PromptTokens-1))
}
