package cache

import (
	"fmt"
	"slices"
)

// Seq is one open sequence: a page table and the tokens computed into it.
//
//	pages   [ block | block | partial | reserved ]
//	tokens  [0 ······· len ············)
//
// It is valid until Close, which may give the object to a later Open.
type Seq struct {
	salt  string
	pages []int32
	len   int
	hash  uint64 // of the last whole block, or the salt's root
	slot  int    // in Pool.open; none when closed

	claimed    bool
	claimHash  uint64
	claimBlock []int32

	state       int32 // slot; none in a pool without states
	checkpoints []Checkpoint
	windows     []int32   // an entry for each page; none for what was given back
	tables      [][]int32 // pages of the windows
	passed      int       // entries of windows that were given back

	followed  int32 // entry of pages whose checkpoint follows the sequence; none if there is none
	promptEnd int   // the last border of the tokens that it was opened with, or 0
	junction  int   // where the blocks ended that were known then, or 0
}

// Len is how many leading tokens have keys and values.
func (s *Seq) Len() int { return s.len }

// Pages is the page table: token i is in page Pages()[i/PageTokens]. It is
// valid until the next call that takes s.
func (s *Seq) Pages() []int32 { return s.pages }

// Holds reports whether a page is a whole block with this hash.
func (p *Pool) Holds(page int32, hash uint64) bool {
	return p.pages[page].whole && p.pages[page].hash == hash
}

// Own is how many pages only s holds, and for how many of its blocks.
func (p *Pool) Own(s *Seq) (pages, blocks int) {
	for _, id := range s.pages {
		if p.pages[id].refs == 1 {
			blocks++
		}
	}
	pages = blocks
	for _, id := range s.windows {
		if id != none && p.windows.all[id].refs == 1 {
			pages += p.windows.Pages
		}
	}
	return pages, blocks
}

// Lacking is how many more pages s takes on its way to this many tokens.
func (p *Pool) Lacking(s *Seq, tokens int) int {
	blocks := p.pagesFor(tokens)
	pages := max(0, blocks-len(s.pages))
	if p.windows.Pages > 0 {
		most := min(blocks-s.passed, p.windows.blocksMax(p.pageTokens))
		pages += p.windows.Pages * max(0, most-(len(s.windows)-s.passed))
	}
	return pages
}

// Open starts a sequence with the longest cached chain of full blocks of tokens,
// but without the last token. Without tokens it reuses nothing. The pool keeps
// salt, and does not keep tokens. In a pool with states there must be one: see HasState.
func (p *Pool) Open(salt string, tokens []int32) *Seq {
	s := p.newSeq(salt)
	p.openState(s)
	p.begin(s, tokens)
	if s.state != none {
		p.states.totals.Unreached += uint64(max(0, s.junction-s.len))
	}
	return s
}

// begin attaches a new sequence to what is cached of tokens.
func (p *Pool) begin(s *Seq, tokens []int32) {
	s.hash = p.hasher.root(s.salt)
	s.promptEnd = p.reusable(len(tokens)) * p.pageTokens
	p.attach(s, tokens)
}

func (p *Pool) newSeq(salt string) *Seq {
	var s *Seq
	if n := len(p.closed); n > 0 {
		s, p.closed = p.closed[n-1], p.closed[:n-1]
	} else {
		s = &Seq{claimBlock: make([]int32, p.pageTokens), tables: make([][]int32, p.windows.Pages)}
	}
	s.salt, s.slot, s.state, s.followed = salt, len(p.open), none, none
	p.open = append(p.open, s)
	return s
}

// attach moves s forward over cached blocks, with states up to the last that has a
// checkpoint, with windows up to the last where they are there. It gives back reserved pages that these replace.
func (p *Pool) attach(s *Seq, tokens []int32) {
	if s.len%p.pageTokens != 0 {
		return
	}
	from := s.len / p.pageTokens
	known, usable := p.chain(p.tip(s), s.hash, tokens, from, p.reusable(len(tokens)))
	if known > usable && s.junction < s.len+1 {
		s.junction = known * p.pageTokens
	}
	if usable == from {
		return
	}
	p.dropFrom(s, from)
	for i := from; i < usable; i++ {
		want := tokens[i*p.pageTokens : (i+1)*p.pageTokens]
		h := p.hasher.next(s.hash, want)
		id := p.lookup(p.tip(s), h, want)
		p.hold(id)
		p.pages[id].uses++
		s.pages = append(s.pages, id)
		p.attachWindow(s, id, usable*p.pageTokens)
		s.len += p.pageTokens
		s.hash = h
	}
	p.passWindows(s)
	if s.state != none {
		p.restore(s)
	}
}

// chain follows the blocks of tokens from block from on, at most to block n. It returns
// the first that is not known, and the first that cannot be attached: in a pool with
// states the one after the last checkpoint, in a pool with windows the one before which
// some are not there.
func (p *Pool) chain(at cursor, hash uint64, tokens []int32, from, n int) (known, usable int) {
	usable = from
	hole := none // s holds what it sees
	for known = from; known < n; known++ {
		want := tokens[known*p.pageTokens : (known+1)*p.pageTokens]
		hash = p.hasher.next(hash, want)
		if at.page = p.lookup(at, hash, want); at.page == none {
			break
		}
		if p.pages[at.page].window == none {
			hole = known
		}
		if p.goesOn(at.page, known, hole) {
			usable = known + 1
		}
	}
	return known, usable
}

// goesOn reports whether a sequence can go on after block i of its tokens, which is in page,
// where hole is the last one without a window.
func (p *Pool) goesOn(page int32, i, hole int) bool {
	return (p.states.total == 0 || p.pages[page].state != none) && (p.windows.Pages == 0 || p.windowsThere(i, hole))
}

// tip is the place after the last whole block of s.
func (p *Pool) tip(s *Seq) cursor {
	if n := s.len / p.pageTokens; n > 0 {
		return cursor{page: s.pages[n-1], salt: s.salt}
	}
	return cursor{page: none, salt: s.salt}
}

// dropFrom drops the pages of s from entry i on, the last one first, so that the
// tail of a chain is evicted before its head.
func (p *Pool) dropFrom(s *Seq, i int) {
	for j := len(s.pages) - 1; j >= i; j-- {
		p.cutWindow(s)
		p.drop(s.pages[j])
	}
	s.pages = s.pages[:i]
}

// Reserve makes room for n more tokens after s.Len(). Where free pages run out, it
// evicts cached blocks, the least recently used first. It reserves all pages or
// none: ok is false when too few pages are free or cached.
//
// The next token of a forked sequence may fall into a page that it shares. Then the
// sequence gets a page of its own, and a copy is appended to copies. The copies of
// all Reserve calls of a step must be done in their order, before anything is
// written to the pages.
func (p *Pool) Reserve(s *Seq, n int, copies []Copy) (_ []Copy, ok bool) {
	p.mustBeOpen(s, "Reserve")
	if n <= 0 {
		return copies, true
	}
	if copies, ok = p.reservePages(s, n, copies); ok {
		p.planCheckpoints(s, n)
	}
	return copies, ok
}

func (p *Pool) reservePages(s *Seq, n int, copies []Copy) (_ []Copy, ok bool) {
	last := s.len / p.pageTokens // the page that the next token goes to
	split := s.len%p.pageTokens != 0 && p.pages[s.pages[last]].refs > 1
	need := max(0, p.pagesFor(s.len+n)-len(s.pages))
	if split {
		need++
	}
	if need*p.BlockPages() > len(p.free)+p.cachedPages() {
		return copies, false
	}
	if split {
		copies = p.split(s, last, copies)
	}
	for p.pagesFor(s.len+n) > len(s.pages) {
		s.pages = append(s.pages, p.take())
		if p.windows.Pages > 0 {
			p.addWindow(s, p.takeWindow())
		}
	}
	return copies, true
}

// split gives s a copy of its incomplete page i, which others have too.
func (p *Pool) split(s *Seq, i int, copies []Copy) []Copy {
	src, dst := s.pages[i], p.take()
	copy(p.pageArea(dst), p.pageArea(src)[:s.len%p.pageTokens])
	p.drop(src)
	s.pages[i] = dst
	copies = append(copies, Copy{Dst: dst, Src: src})
	if p.windows.Pages == 0 {
		return copies
	}
	old, own := s.windows[i], p.takeWindow()
	for g, page := range p.windows.pagesOf(own) {
		copies = append(copies, Copy{Dst: page, Src: s.tables[g][i]})
	}
	p.pointWindow(s, i, own)
	p.dropWindow(old, false)
	return copies
}

// Commit says that the keys and values of the next tokens are computed. Blocks that
// become full are reusable from then on.
func (p *Pool) Commit(s *Seq, tokens []int32) {
	p.mustBeOpen(s, "Commit")
	if room := len(s.pages)*p.pageTokens - s.len; len(tokens) > room {
		panic(fmt.Sprintf("cache: commit of %d tokens into room for %d: reserve first", len(tokens), room))
	}
	for len(tokens) > 0 {
		i, offset := s.len/p.pageTokens, s.len%p.pageTokens
		id := s.pages[i]
		if p.pages[id].refs != 1 {
			panic("cache: commit into a shared page: reserve after a fork")
		}
		n := copy(p.pageArea(id)[offset:], tokens)
		tokens = tokens[n:]
		if offset+n == p.pageTokens {
			p.complete(s, i)
		}
		s.len += n
	}
	p.passWindows(s)
}

// complete makes entry i of s a block, or moves s to an equal block that exists
// already. It is called before s.len passes the block.
func (p *Pool) complete(s *Seq, i int) {
	p.Unclaim(s)
	id, at := s.pages[i], p.tip(s)
	tokens := p.pageArea(id)
	s.hash = p.hasher.next(s.hash, tokens)
	if same := p.lookup(at, s.hash, tokens); same != none {
		p.hold(same)
		s.pages[i] = same
		p.drop(id)
	} else {
		p.index(id, at, s.hash)
	}
	p.keepWindow(s, i)
	p.keepCheckpoint(s, i)
}

// Fork opens a second sequence with the same tokens. It shares every page that holds
// a token, also the last, incomplete one. In a pool with states there must be one: see
// HasState.
func (p *Pool) Fork(s *Seq) *Seq {
	p.mustBeOpen(s, "Fork")
	f := p.newSeq(s.salt)
	p.openState(f)
	if s.state != none {
		p.states.copies = append(p.states.copies, StateCopy{Dst: f.state, Src: s.state})
	}
	f.len, f.hash = s.len, s.hash
	f.pages = append(f.pages, s.pages[:p.pagesFor(s.len)]...)
	for i, id := range f.pages {
		p.hold(id)
		if p.windows.Pages > 0 {
			if s.windows[i] != none {
				p.holdWindow(s.windows[i])
			}
			p.addWindow(f, s.windows[i])
		}
	}
	f.passed = s.passed
	return f
}

// Close ends a sequence. Its blocks stay cached, its other pages become free, and
// its claim is given up.
func (p *Pool) Close(s *Seq) {
	p.mustBeOpen(s, "Close")
	p.Unclaim(s)
	p.dropFrom(s, 0)
	p.closeState(s)
	last := p.open[len(p.open)-1]
	p.open[s.slot], last.slot = last, s.slot
	p.open = slices.Delete(p.open, len(p.open)-1, len(p.open))
	*s = Seq{slot: none, pages: s.pages, claimBlock: s.claimBlock, state: none, checkpoints: s.checkpoints, windows: s.windows, tables: s.tables}
	p.closed = append(p.closed, s)
}

func (p *Pool) mustBeOpen(s *Seq, verb string) {
	if s.slot >= len(p.open) || s.slot < 0 || p.open[s.slot] != s {
		panic("cache: " + verb + " of a sequence that is not open")
	}
}
