package grammar

import (
	"cmp"
	"slices"
)

// item waits at a place for its symbol. rule ends at a final place; it was
// entered in the row origin, or in the item's own row if that is here.
type item struct {
	pos, count, rule, origin int32
}

const here = -1

func compareItems(a, b item) int {
	return cmp.Or(cmp.Compare(a.pos, b.pos), cmp.Compare(a.count, b.count), cmp.Compare(a.rule, b.rule), cmp.Compare(a.origin, b.origin))
}

// row is what may come after the terminals so far. Rows are interned by their
// kernel, so a row does not know where in the text it is: elements of an
// array share theirs.
type row struct {
	kernel, items span // in Automaton.items
	lexer         int32
	final         bool
	next          int32 // with the same hash
}

type span struct{ from, to int32 }

func (a *Automaton) at(s span) []item { return a.items[s.from:s.to] }

// rowOf interns the row of a kernel: items just after a terminal. It sorts kernel.
func (a *Automaton) rowOf(kernel []item) int32 {
	slices.SortFunc(kernel, compareItems)
	kernel = slices.Compact(kernel)
	h := uint64(14695981039346656037)
	for _, it := range kernel {
		h = mix(mix(h, uint64(uint32(it.pos))<<32|uint64(uint32(it.count))), uint64(uint32(it.rule))<<32|uint64(uint32(it.origin)))
	}
	first, ok := a.rowByHash[h]
	if !ok {
		first = none
	}
	for i := first; i != none; i = a.rows[i].next {
		if slices.Equal(a.at(a.rows[i].kernel), kernel) {
			return i
		}
	}
	if !a.pool.spend(len(kernel)) {
		return none
	}
	mark := len(a.items)
	r := row{kernel: a.keep(kernel), next: first}
	if r.items, r.final = a.close(kernel); a.pool.over != "" {
		a.items = a.items[:mark]
		return none
	}
	id := int32(len(a.rows))
	a.rows = append(a.rows, r)
	a.rowByHash[h] = id
	a.rows[id].lexer = a.startState(r.items)
	return id
}

func mix(h, v uint64) uint64 {
	h = (h ^ v) * 0x9E3779B97F4A7C15
	return h ^ h>>29
}

func (a *Automaton) keep(list []item) span {
	from := int32(len(a.items))
	a.items = append(a.items, list...)
	return span{from, int32(len(a.items))}
}

// close completes and predicts until nothing is new, and keeps what waits for
// a symbol, in the order of symbols.
func (a *Automaton) close(kernel []item) (waiting span, final bool) {
	g := a.g
	a.seen.clear()
	a.open = a.open[:0]
	for _, it := range kernel {
		a.add(it)
	}
	kept := a.waiting[:0]
	for i := 0; i < len(a.open); i++ {
		if len(a.open) > a.limits.Items {
			a.pool.exceed("items of one row of the parser", a.limits.Items)
		}
		if !a.pool.spend(1) {
			break
		}
		it := a.open[i]
		p := &g.positions[it.pos]
		for _, j := range p.jumps {
			a.add(item{j, 0, it.rule, it.origin})
		}
		if p.final || p.counted && it.count >= p.min {
			final = final || it.rule == g.root
			a.complete(it)
		}
		if p.sym == noSymbol || p.counted && p.max != Unlimited && it.count >= p.max {
			continue
		}
		kept = append(kept, it)
		if int(p.sym) >= len(g.terminals) {
			a.add(item{g.starts[int(p.sym)-len(g.terminals)], 0, p.sym, here})
		}
		if g.nullable[p.sym] && !p.counted {
			a.add(item{p.target, 0, it.rule, it.origin})
		}
	}
	a.waiting = kept
	slices.SortFunc(kept, func(x, y item) int {
		return cmp.Or(cmp.Compare(g.positions[x.pos].sym, g.positions[y.pos].sym), compareItems(x, y))
	})
	return a.keep(kept), final
}

func (a *Automaton) add(it item) {
	if a.seen.add(it) {
		a.open = append(a.open, it)
	}
}

// complete moves on what waited for the rule in the row where it was entered.
// A rule entered here matched the empty string, which close has seen to.
func (a *Automaton) complete(it item) {
	if it.origin == here {
		return
	}
	a.eachWaiting(it.origin, it.rule, func(next item) { a.add(next) })
}

// eachWaiting calls visit with what waited in a row for a symbol, moved on past it.
func (a *Automaton) eachWaiting(r, symbol int32, visit func(item)) {
	list := a.at(a.rows[r].items)
	i, _ := slices.BinarySearchFunc(list, symbol, func(it item, s int32) int {
		return cmp.Compare(a.g.positions[it.pos].sym, s)
	})
	a.pool.spend(1)
	for ; i < len(list); i++ {
		it := list[i]
		p := &a.g.positions[it.pos]
		if p.sym != symbol {
			return
		}
		if it.origin == here {
			it.origin = r
		}
		if !p.counted {
			it.pos, it.count = p.target, 0
		} else if p.max != Unlimited || it.count < p.min {
			it.count++
		}
		visit(it)
	}
}

// itemSet is a set that is emptied in constant time.
type itemSet struct {
	slots []item
	marks []uint32
	mark  uint32
	count int
}

func (s *itemSet) clear() {
	s.count = 0
	if s.mark++; s.mark == 0 {
		clear(s.marks)
		s.mark = 1
	}
}

func (s *itemSet) add(it item) bool {
	if 2*s.count >= len(s.slots) {
		s.grow()
	}
	i := s.slot(it)
	if s.marks[i] == s.mark {
		return false
	}
	s.slots[i], s.marks[i] = it, s.mark
	s.count++
	return true
}

func (s *itemSet) slot(it item) int {
	h := mix(uint64(uint32(it.pos))<<32|uint64(uint32(it.count)), uint64(uint32(it.rule))<<32|uint64(uint32(it.origin)))
	i := int(mix(h, 1)>>32) & (len(s.slots) - 1)
	for s.marks[i] == s.mark && s.slots[i] != it {
		i = (i + 1) & (len(s.slots) - 1)
	}
	return i
}

func (s *itemSet) grow() {
	old := *s
	n := max(64, 2*len(s.slots))
	s.slots, s.marks, s.mark = make([]item, n), make([]uint32, n), 1
	for i, m := range old.marks {
		if m == old.mark {
			at := s.slot(old.slots[i])
			s.slots[at], s.marks[at] = old.slots[i], 1
		}
	}
}
