package grammar

import "slices"

// This file takes expressions apart: what is left of one after a byte, its derivative
// (Brzozowski 1964). Bytes that no expression tells apart are one class.

// splitClasses refines the byte classes by the sets and texts that are new.
// A class that is split keeps its number for the bytes that stay, so what is
// known of older expressions stays true.
func (p *pool) splitClasses() {
	if p.example == nil {
		p.example = append(p.example, 0)
	}
	for ; p.splitSets < len(p.sets); p.splitSets++ {
		p.split(&p.sets[p.splitSets])
	}
	for ; p.splitText < len(p.text); p.splitText++ {
		if c := p.text[p.splitText]; !p.single.has(c) {
			p.single.add(c)
			var s byteSet
			s.add(c)
			p.split(&s)
		}
	}
}

func (p *pool) split(s *byteSet) {
	var in, all, moved [256]int
	for c := range 256 {
		all[p.class[c]]++
		if s.has(byte(c)) {
			in[p.class[c]]++
		}
	}
	changed := false
	for c := range 256 {
		k := p.class[c]
		if !s.has(byte(c)) || in[k] == all[k] {
			continue
		}
		if moved[k] == 0 {
			moved[k] = len(p.example)
			p.example = append(p.example, byte(c))
		}
		p.class[c] = uint8(moved[k])
		changed = true
	}
	if !changed {
		return
	}
	for c := 255; c >= 0; c-- {
		p.example[p.class[c]] = byte(c)
	}
}

// derive is what may follow a byte of the class in r.
func (p *pool) derive(r Regex, class uint8) Regex {
	if !p.first[r].has(p.example[class]) {
		return never
	}
	n := p.nodes[r]
	switch n.kind {
	case kindSet:
		return epsilon
	case kindText:
		return p.textTail(n.a, n.b)
	}
	key := uint64(r)<<8 | uint64(class)
	if d, ok := p.derived[key]; ok {
		return d
	}
	if !p.spend(1) {
		return never
	}
	d := p.deriveNode(r, n, class)
	if p.over == "" {
		p.derived[key] = d
	}
	return d
}

func (p *pool) deriveNode(r Regex, n node, class uint8) Regex {
	switch n.kind {
	case kindCat:
		first := p.cat(p.derive(Regex(n.a), class), Regex(n.b))
		if !p.nullable(Regex(n.a)) {
			return first
		}
		return p.or([]Regex{first, p.derive(Regex(n.b), class)})
	case kindOr, kindAnd:
		members := p.each(p.buffer(), n.kind, r)
		p.spend(len(members))
		for i, m := range members {
			members[i] = p.derive(m, class)
		}
		var d Regex
		if n.kind == kindOr {
			d = p.or(members)
		} else {
			d = p.and(members)
		}
		p.release(members)
		return d
	case kindNot:
		if p.absent.has(p.example[class]) {
			return never
		}
		return p.not(p.derive(Regex(n.a), class))
	case kindMultiple:
		return p.multipleAfter(n, class)
	case kindLabel:
		return p.labelAfter(n, class)
	case kindTimes:
		min, max := n.min, n.max
		if min > 0 {
			min--
		}
		if max != Unlimited {
			max--
		}
		return p.cat(p.derive(Regex(n.a), class), p.times(Regex(n.a), min, max))
	}
	return never
}

// relax is r without upper bounds of repetitions: it matches all that r does,
// and has few derivatives, so that it shows soon if both match nothing.
func (p *pool) relax(r Regex) Regex {
	n := p.nodes[r]
	if !n.guarded && n.kind != kindTimes && n.kind != kindCat && n.kind != kindOr && n.kind != kindLabel {
		return r
	}
	if known, ok := p.relaxed[r]; ok {
		return known
	}
	loose := r
	switch n.kind {
	case kindLabel:
		loose = p.looseLabel()
	case kindTimes:
		if n.min > 1 || n.max > 1 {
			loose = p.times(p.relax(Regex(n.a)), min(n.min, 1), Unlimited)
		}
	case kindCat:
		loose = p.cat(p.relax(Regex(n.a)), p.relax(Regex(n.b)))
	case kindOr, kindAnd:
		list := p.each(nil, n.kind, r)
		p.spend(len(list))
		for i := range list {
			list[i] = p.relax(list[i])
		}
		if n.kind == kindAnd {
			loose = p.and(list)
		} else {
			loose = p.or(list)
		}
	}
	if p.over != "" {
		return r
	}
	p.relaxed[r] = loose
	return loose
}

// live says whether r matches anything. Without And and Not that is plain;
// with them its derivatives are searched.
func (p *pool) live(r Regex) bool {
	if r == never {
		return false
	}
	n := p.nodes[r]
	if n.nullable || !n.guarded {
		return true
	}
	if known, ok := p.alive[r]; ok {
		return known
	}
	is := false
	switch n.kind {
	case kindCat:
		is = p.live(Regex(n.a)) && p.live(Regex(n.b))
	case kindOr:
		is = slices.ContainsFunc(p.each(nil, kindOr, r), p.live)
	case kindTimes:
		is = p.live(Regex(n.a))
	default:
		return p.search(r)
	}
	if p.over == "" {
		p.alive[r] = is
	}
	return is
}

// search is live for an And or a Not.
func (p *pool) search(r Regex) bool {
	if loose := p.relax(r); loose != r && !p.live(loose) {
		if p.over == "" {
			p.alive[r] = false
		}
		return false
	}
	if p.hasWitness(r) {
		return true
	}
	seen, queue := map[Regex]bool{r: true}, []Regex{r}
	from := map[Regex]Regex{}
	for len(queue) > 0 {
		q := queue[0]
		queue = queue[1:]
		for class := range p.example {
			d := p.derive(q, uint8(class))
			if !p.spend(1) {
				return false
			}
			if d == never || seen[d] {
				continue
			}
			from[d] = q
			if n := &p.nodes[d]; n.nullable || !n.guarded || p.alive[d] {
				for d, ok := d, true; ok; d, ok = from[d] {
					p.alive[d] = true
				}
				return true
			}
			if known, ok := p.alive[d]; ok && !known {
				continue
			}
			seen[d] = true
			queue = append(queue, d)
		}
	}
	for q := range seen {
		p.alive[q] = false
	}
	return false
}
