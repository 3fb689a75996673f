package grammar

import "slices"

// Without leaves out bytes: Compile removes every text that has one of them, so
// that the grammar never needs what a vocabulary cannot spell. The bytes of Token
// stay. Empty and Match do not know of it: they are about the whole language.
func (b *Builder) Without(bytes []byte) {
	for _, c := range bytes {
		b.absent.add(c)
	}
}

// Absent says whether Without has left the byte out.
func (g *Grammar) Absent(c byte) bool { return g.pool.absent.has(c) }

// leaveOut removes the bytes from every terminal.
func (b *Builder) leaveOut() {
	if b.absent == (byteSet{}) {
		return
	}
	p := b.pool
	known := map[Regex]Regex{}
	for i := range b.terminals {
		b.terminals[i].re = p.without(b.terminals[i].re, &b.absent, known)
	}
	p.absent = b.absent
	p.set(p.absent) // a class apart
	clear(p.derived)
	clear(p.alive)
	clear(p.relaxed)
	clear(p.chars)
}

// without is r without the texts that hold a byte of absent. A kindNot is left to
// derive.
func (p *pool) without(r Regex, absent *byteSet, known map[Regex]Regex) Regex {
	var heads []Regex // of a chain of kindCat, which may be long
	for p.nodes[r].kind == kindCat {
		heads = append(heads, Regex(p.nodes[r].a))
		r = Regex(p.nodes[r].b)
	}
	cut := p.withoutOne(r, absent, known)
	for i := len(heads) - 1; i >= 0; i-- {
		cut = p.cat(p.withoutOne(heads[i], absent, known), cut)
	}
	return cut
}

func (p *pool) withoutOne(r Regex, absent *byteSet, known map[Regex]Regex) Regex {
	if cut, ok := known[r]; ok {
		return cut
	}
	cut := r
	switch n := p.nodes[r]; n.kind {
	case kindSet:
		s := p.sets[n.a]
		for i := range s {
			s[i] &^= absent[i]
		}
		cut = p.set(s)
	case kindText:
		text := p.text[n.a : n.a+n.b]
		if text[0] != 0xFF && slices.ContainsFunc(text, absent.has) {
			cut = never
		}
	case kindLabel: // a digit may be the only one that goes on
		if slices.ContainsFunc([]byte("-"+punycodeDigits), absent.has) {
			cut = never
		}
	case kindOr, kindAnd:
		list := p.each(nil, n.kind, r)
		for i := range list {
			list[i] = p.without(list[i], absent, known)
		}
		if n.kind == kindOr {
			cut = p.or(list)
		} else {
			cut = p.and(list)
		}
	case kindTimes:
		cut = p.times(p.without(Regex(n.a), absent, known), n.min, n.max)
	}
	known[r] = cut
	return cut
}
