package grammar

// witnessMax bounds the texts that are tried.
const witnessMax = 128

// hasWitness tries whether a text that one member of an intersection matches, or the texts of
// two in a row, are matched by all. It is right where it says true. The search for what all
// match would go through many labels of host names before it came to the end of one.
func (p *pool) hasWitness(r Regex) bool {
	if p.nodes[r].kind != kindAnd {
		return false
	}
	texts := make([][]byte, 0, 4)
	for _, m := range p.each(nil, kindAnd, r) {
		if text, ok := p.witness(nil, m); ok && len(text) > 0 {
			texts = append(texts, text)
		}
	}
	for i, text := range texts {
		if p.matches(r, text) {
			return true
		}
		for j := range texts {
			if i != j && p.matches(r, append(text[:len(text):len(text)], texts[j]...)) {
				return true
			}
		}
	}
	return false
}

// matches says whether r matches text, and notes what it met on the way as alive if it does.
func (p *pool) matches(r Regex, text []byte) bool {
	path := append(p.buffer(), r)
	defer func() { p.release(path) }()
	for _, c := range text {
		if r = p.derive(r, p.class[c]); r == never || p.over != "" {
			return false
		}
		path = append(path, r)
	}
	if !p.nullable(r) {
		return false
	}
	for _, r := range path {
		p.alive[r] = true
	}
	return true
}

// witness appends a text that r matches, and says false where none is plain.
func (p *pool) witness(text []byte, r Regex) ([]byte, bool) {
	if p.nodes[r].nullable {
		return text, true
	}
	if len(text) > witnessMax || !p.spend(1) {
		return nil, false
	}
	n := p.nodes[r]
	switch n.kind {
	case kindSet:
		for _, c := range p.example {
			if p.sets[n.a].has(c) && !p.absent.has(c) {
				return append(text, c), true
			}
		}
	case kindText:
		return append(text, p.text[n.a:n.a+n.b]...), true
	case kindCat:
		if text, ok := p.witness(text, Regex(n.a)); ok {
			return p.witness(text, Regex(n.b))
		}
	case kindOr:
		for _, m := range p.each(nil, kindOr, r) {
			if longer, ok := p.witness(text, m); ok {
				return longer, true
			}
		}
	case kindTimes:
		ok := true
		for i := int32(0); ok && i < n.min; i++ {
			text, ok = p.witness(text, Regex(n.a))
		}
		return text, ok
	case kindLabel:
		return p.labelWitness(text, n), true
	}
	return nil, false
}
