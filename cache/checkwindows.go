package cache

// checkWindows checks invariant 10.
func (p *Pool) checkWindows() error {
	x := &p.windows
	held := make([]int32, len(x.all))
	for i, s := range p.open {
		if err := p.checkEntries(i, s, held); err != nil {
			return err
		}
	}
	listed := 0
	for _, passed := range []bool{true, false} {
		prev := int32(none)
		for id := x.list(passed).oldest; id != none; prev, id = id, x.all[id].next {
			w := &x.all[id]
			if listed++; listed > len(x.all) || w.prev != prev || w.passed != passed || w.of == none || held[id] != 0 {
				return broken(10, "the list of windows is tangled at %d: %+v, held %d times", id, *w, held[id])
			}
		}
		if x.list(passed).newest != prev {
			return broken(10, "a list of windows ends at %d, not %d", prev, x.list(passed).newest)
		}
	}
	live := len(x.all) - len(x.free)
	for id := range x.all {
		if w := &x.all[id]; held[id] > 0 {
			if listed++; w.refs != held[id] {
				return broken(10, "window %d counts %d references, %d sequences hold it", id, w.refs, held[id])
			}
		}
	}
	if listed != live {
		return broken(10, "%d windows have pages, and %d are cached or held", live, listed)
	}
	return p.checkBlockWindows()
}

// checkEntries checks the entries of one sequence, and counts them in held.
func (p *Pool) checkEntries(i int, s *Seq, held []int32) error {
	x := &p.windows
	if x.Pages == 0 {
		return nil
	}
	if seen := x.from(s.len) / p.pageTokens; len(s.windows) != len(s.pages) || s.passed != seen {
		return broken(10, "sequence %d of %d tokens has %d windows and %d pages, and has given back %d, not %d", i, s.len, len(s.windows), len(s.pages), s.passed, seen)
	}
	for j, id := range s.windows {
		if (id == none) != (j < s.passed) {
			return broken(10, "sequence %d of %d tokens has window %d in entry %d", i, s.len, id, j)
		}
		if id == none {
			continue
		}
		held[id]++
		block := &p.pages[s.pages[j]]
		if block.whole && block.window != id || !block.whole && x.all[id].of != none {
			return broken(10, "sequence %d has window %d in entry %d, whose block has %d", i, id, j, block.window)
		}
		for g, page := range x.pagesOf(id) {
			if s.tables[g][j] != page {
				return broken(10, "sequence %d: table %d has page %d in entry %d, not %d", i, g, s.tables[g][j], j, page)
			}
		}
	}
	return nil
}

func (p *Pool) checkBlockWindows() error {
	for i := range p.pages {
		id := p.pages[i].window
		if id != none && (!p.pages[i].whole || p.windows.all[id].of != int32(i)) {
			return broken(10, "page %d claims window %d", i, id)
		}
	}
	return nil
}

// countWindows counts the pages of windows in held.
func (p *Pool) countWindows(held []int32) {
	free := make([]bool, len(p.windows.all))
	for _, id := range p.windows.free {
		free[id] = true
	}
	for id := range free {
		if !free[id] {
			for _, page := range p.windows.pagesOf(int32(id)) {
				held[page]++
			}
		}
	}
}
