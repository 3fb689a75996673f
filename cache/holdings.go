package cache

import (
	"cmp"
	"slices"
)

// Holdings say what the pages hold, for people. Only the loop may ask: it looks at all pages.
type Holdings struct {
	// Prefixes are the beginnings that sequences went on from, those first that saved the
	// most tokens. One that only led to a longer one, as often as that was used, is left out.
	Prefixes []Prefix
	// Salts are the pages of each salt, those first that hold the most.
	Salts []SaltPages
	Pins  []Pin
}

// Prefix is a beginning of prompts.
type Prefix struct {
	Salt   string
	Hash   uint64 // of its last block
	Tokens int
	Uses   int // sequences that found it in memory, since it is there
	Pinned bool
}

// SaltPages counts the pages of a salt.
type SaltPages struct {
	Salt   string
	Used   int // by sequences and pins
	Cached int
	Pinned int // of Used, blocks that pins hold
}

// Holdings lists at most so many prefixes and so many salts.
func (p *Pool) Holdings(most int) Holdings {
	roots, depths := p.roots()
	h := Holdings{Prefixes: p.prefixes(roots, depths, most), Salts: p.saltPages(roots), Pins: slices.Clone(p.pins.list)}
	h.Salts = h.Salts[:min(most, len(h.Salts))]
	return h
}

// roots are the page of the first block of each block's chain, and the number of blocks up to it.
func (p *Pool) roots() (roots, depths []int32) {
	roots, depths = make([]int32, len(p.pages)), make([]int32, len(p.pages))
	var path []int32
	for i := range p.pages {
		path = path[:0]
		id := int32(i)
		for p.pages[id].whole && depths[id] == 0 {
			path = append(path, id)
			if id = p.pages[id].parent; id == none {
				break
			}
		}
		for _, at := range slices.Backward(path) {
			if parent := p.pages[at].parent; parent == none {
				roots[at], depths[at] = at, 1
			} else {
				roots[at], depths[at] = roots[parent], depths[parent]+1
			}
		}
	}
	return roots, depths
}

func (p *Pool) prefixes(roots, depths []int32, most int) (list []Prefix) {
	longer := make([]uint32, len(p.pages)) // the most uses of a block after it
	for i := range p.pages {
		if g := &p.pages[i]; g.whole && g.parent != none {
			longer[g.parent] = max(longer[g.parent], g.uses)
		}
	}
	for i := range p.pages {
		if g := &p.pages[i]; g.whole && g.uses > longer[i] {
			list = append(list, Prefix{
				Salt: p.pages[roots[i]].salt, Hash: g.hash, Tokens: int(depths[i]) * p.pageTokens, Uses: int(g.uses), Pinned: g.pins > 0,
			})
		}
	}
	slices.SortFunc(list, func(a, b Prefix) int {
		return cmp.Or(cmp.Compare(b.Uses*b.Tokens, a.Uses*a.Tokens), cmp.Compare(a.Hash, b.Hash))
	})
	return list[:min(most, len(list))]
}

func (p *Pool) saltPages(roots []int32) (list []SaltPages) {
	of := map[string]*SaltPages{}
	count := func(salt string, pages int, used, pinned bool) {
		c := of[salt]
		if c == nil {
			c = &SaltPages{Salt: salt}
			of[salt] = c
		}
		if !used {
			c.Cached += pages
			return
		}
		if c.Used += pages; pinned {
			c.Pinned += pages
		}
	}
	for i := range p.pages {
		if g := &p.pages[i]; g.whole {
			count(p.pages[roots[i]].salt, 1, g.refs > 0, g.pins > 0)
		}
	}
	for i := range p.windows.all {
		if w := &p.windows.all[i]; w.of != none && p.pages[w.of].window == int32(i) {
			count(p.pages[roots[w.of]].salt, p.windows.Pages, w.refs > 0, false)
		}
	}
	seen := map[int32]bool{} // incomplete pages, which forked sequences share
	for _, s := range p.open {
		for i, id := range s.pages {
			if p.pages[id].whole || seen[id] {
				continue
			}
			seen[id] = true
			if count(s.salt, 1, true, false); len(s.windows) > i && s.windows[i] != none {
				count(s.salt, p.windows.Pages, true, false)
			}
		}
	}
	for _, c := range of {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b SaltPages) int {
		return cmp.Or(cmp.Compare(b.Used+b.Cached, a.Used+a.Cached), cmp.Compare(a.Salt, b.Salt))
	})
	return list
}
