package cache

// Layers with windows see only the newest tokens. Where such a model has other layers too,
// it may keep the keys and values of the two kinds in pages of their own, so that those
// that no token will see again are given back. Then a block has, beside its page, a window:
// Windows.Pages pages for the layers with windows.
//
// An open sequence holds the windows that its next token sees, and those of the tokens that
// it computes. Commit gives back the others. A block keeps its window in the cache until the
// room is needed: those that were given back in passing go first, then those at the ends of
// prompts and sequences in the order of their last use, by turns with blocks. A prompt is attached up to
// the deepest block at which the windows that its next token sees are all there.

// Windows says what layers with windows keep in pages of their own. Its zero value says
// that there are none.
type Windows struct {
	Tokens  int  // a token sees itself and Tokens−1 before it
	Chunked bool // it sees those of its own chunk of Tokens tokens instead
	Pages   int  // pages that a block takes beside its own; 0 means none
	Step    int  // most tokens that Reserve is asked for at once
}

// from is the first token that the token after the first length sees.
func (w *Windows) from(length int) int {
	switch {
	case w.Pages == 0:
		return 0
	case w.Chunked:
		return length - length%w.Tokens
	}
	return max(0, length-w.Tokens+1)
}

// blocksMax is the most windows that a sequence holds.
func (w *Windows) blocksMax(pageTokens int) int {
	return (w.Tokens - 1 + w.Step + 2*(pageTokens-1)) / pageTokens
}

// TokensMax is the longest sequence that holds all its windows; 0 where there are none.
func (w *Windows) TokensMax(pageTokens int) int {
	if w.Pages == 0 {
		return 0
	}
	return w.blocksMax(pageTokens) * pageTokens
}

// PagesFor is the most pages that a sequence holds on its way to this many tokens.
func (w *Windows) PagesFor(tokens, pageTokens int) int {
	blocks := (tokens + pageTokens - 1) / pageTokens
	return blocks + w.Pages*min(blocks, w.blocksMax(pageTokens))
}

// TokensIn is the longest sequence that fits into this many pages.
func (w *Windows) TokensIn(pages, pageTokens int) int {
	blocks := pages / (1 + w.Pages)
	if most := w.blocksMax(pageTokens); blocks >= most {
		blocks = pages - w.Pages*most
	}
	return blocks * pageTokens
}

// window is what the pool knows of one window.
type window struct {
	refs       int32
	of         int32 // page of its block; none before that is whole
	passed     bool  // the list that it is in
	prev, next int32
	used       uint64 // when it was linked, by Pool.uses
}

// windows are the windows of all sequences and blocks. All of it belongs to the loop, but
// page.window, which Match reads under Pool.mu.
type windows struct {
	Windows
	all    []window
	pages  []int32 // Windows.Pages of each
	free   []int32 // windows without pages
	cached int
	// Windows that no sequence holds. The first of a list goes next.
	passed, kept windowList
}

type windowList struct{ oldest, newest int32 }

func newWindows(w Windows, pages int) windows {
	x := windows{Windows: w, passed: windowList{none, none}, kept: windowList{none, none}}
	if w.Pages == 0 {
		return x
	}
	n := pages / w.Pages
	x.all, x.pages, x.free = make([]window, n), make([]int32, n*w.Pages), make([]int32, n)
	for i := range x.free {
		x.free[i] = int32(n - 1 - i)
	}
	return x
}

func (x *windows) pagesOf(id int32) []int32 { return x.pages[int(id)*x.Pages:][:x.Pages] }

// evictNext frees the page, or the window's pages, that are needed least.
func (p *Pool) evictNext() {
	x := &p.windows
	switch kept := x.kept.oldest; {
	case x.passed.oldest != none:
		p.evictWindow(x.passed.oldest)
	case kept != none && (p.oldest == none || x.all[kept].used < p.pages[p.oldest].used):
		p.evictWindow(kept)
	default:
		p.evict(p.oldest)
	}
}

// evictWindow frees a cached window; its block stays.
func (p *Pool) evictWindow(id int32) {
	p.unlinkWindow(id)
	p.setWindow(p.windows.all[id].of, none)
	p.freeWindow(id)
}

// setWindow gives a block a window, or none.
func (p *Pool) setWindow(block, id int32) {
	p.mu.Lock()
	p.pages[block].window = id
	p.mu.Unlock()
}

func (p *Pool) freeWindow(id int32) {
	x := &p.windows
	for _, page := range x.pagesOf(id) {
		p.pages[page].refs = 0
		p.free = append(p.free, page)
	}
	x.free = append(x.free, id)
}

// takeWindow gives out a window with one reference.
func (p *Pool) takeWindow() int32 {
	x := &p.windows
	for len(p.free) < x.Pages {
		p.evictNext()
	}
	id := x.free[len(x.free)-1] // each of the others has pages, and there are enough for one more
	x.free = x.free[:len(x.free)-1]
	for i := range x.pagesOf(id) {
		x.pagesOf(id)[i] = p.take()
	}
	x.all[id] = window{refs: 1, of: none}
	return id
}

func (p *Pool) holdWindow(id int32) {
	w := &p.windows.all[id]
	if w.refs == 0 {
		p.unlinkWindow(id)
	}
	w.refs++
}

// dropWindow removes a reference. After the last one, a block's window is cached, and any
// other is free.
func (p *Pool) dropWindow(id int32, passed bool) {
	w := &p.windows.all[id]
	w.refs--
	switch {
	case w.refs > 0:
	case w.of == none:
		p.freeWindow(id)
	default:
		p.linkWindow(id, passed)
	}
}

func (x *windows) list(passed bool) *windowList {
	if passed {
		return &x.passed
	}
	return &x.kept
}

func (p *Pool) linkWindow(id int32, passed bool) {
	x := &p.windows
	w, list := &x.all[id], x.list(passed)
	p.uses++
	w.passed, w.used, w.prev, w.next = passed, p.uses, list.newest, none
	if list.newest == none {
		list.oldest = id
	} else {
		x.all[list.newest].next = id
	}
	list.newest = id
	x.cached++
}

func (p *Pool) unlinkWindow(id int32) {
	x := &p.windows
	w := &x.all[id]
	list := x.list(w.passed)
	if w.prev == none {
		list.oldest = w.next
	} else {
		x.all[w.prev].next = w.next
	}
	if w.next == none {
		list.newest = w.prev
	} else {
		x.all[w.next].prev = w.prev
	}
	x.cached--
}

// A sequence has an entry in windows for each of its pages: none for those that it has
// given back. Its tables say the same as pages, one table for each of Windows.Pages; an
// entry that was given back is 0.

// addWindow appends an entry.
func (p *Pool) addWindow(s *Seq, id int32) {
	if p.windows.Pages == 0 {
		return
	}
	s.windows = append(s.windows, id)
	for g := range p.windows.Pages {
		s.tables[g] = append(s.tables[g], 0)
	}
	p.pointWindow(s, len(s.windows)-1, id)
}

// pointWindow makes entry i that of another window.
func (p *Pool) pointWindow(s *Seq, i int, id int32) {
	s.windows[i] = id
	for g := range s.tables {
		s.tables[g][i] = 0
		if id != none {
			s.tables[g][i] = p.windows.pagesOf(id)[g]
		}
	}
}

// cutWindow removes the last entry.
func (p *Pool) cutWindow(s *Seq) {
	if p.windows.Pages == 0 {
		return
	}
	last := len(s.windows) - 1
	if id := s.windows[last]; id != none {
		p.dropWindow(id, false)
	}
	s.windows = s.windows[:last]
	for g := range s.tables {
		s.tables[g] = s.tables[g][:last]
	}
}

// attachWindow appends the entry of a block that s has been attached to, on its way to
// length tokens.
func (p *Pool) attachWindow(s *Seq, block int32, length int) {
	id := p.pages[block].window
	if p.windows.Pages == 0 || (len(s.windows)+1)*p.pageTokens <= p.windows.from(length) {
		id = none
	}
	if id != none {
		p.holdWindow(id)
	}
	p.addWindow(s, id)
}

// keepWindow gives block i of s, which has just been completed, the window of s. An older
// one is equal, and stays.
func (p *Pool) keepWindow(s *Seq, i int) {
	if p.windows.Pages == 0 {
		return
	}
	block, mine := s.pages[i], s.windows[i]
	if older := p.pages[block].window; older != none {
		p.holdWindow(older)
		p.pointWindow(s, i, older)
		p.dropWindow(mine, false)
		return
	}
	p.windows.all[mine].of = block
	p.setWindow(block, mine)
}

// passWindows gives back what the next token of s does not see.
func (p *Pool) passWindows(s *Seq) {
	for seen := p.windows.from(s.len) / p.pageTokens; s.passed < seen; s.passed++ {
		if id := s.windows[s.passed]; id != none {
			p.dropWindow(id, !p.endsIn(s, s.passed))
			p.pointWindow(s, s.passed, none)
		}
	}
}

// endsIn reports whether another sequence that parts from s at the end of its prompt, or
// where it left the blocks that were known, sees tokens of block i.
func (p *Pool) endsIn(s *Seq, i int) bool {
	for _, end := range [...]int{s.promptEnd, s.junction} {
		if i*p.pageTokens < end && p.windows.from(end) < (i+1)*p.pageTokens {
			return true
		}
	}
	return false
}

// windowsThere reports whether a sequence can go on after block i where the last block
// without a window is hole.
func (p *Pool) windowsThere(i, hole int) bool {
	return hole < p.windows.from((i+1)*p.pageTokens)/p.pageTokens
}

// WindowTables are page tables as Pages, one for each of Windows.Pages: token i is in page
// WindowTables()[g][i/PageTokens] of layers with windows. Entries that the next token does
// not see say nothing. They are valid until the next call that takes s.
func (s *Seq) WindowTables() [][]int32 { return s.tables }
