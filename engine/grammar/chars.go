package grammar

import "slices"

// CharsMax is the largest count that Chars tells from no end.
const CharsMax = 64

// charsWork bounds the bytes that are tried to count the characters of one
// lexer; what is not found by then is left to the walk.
const charsWork = 1500

// charStep is where one safe character leads from a lexer, and how many may follow.
type charStep struct {
	known   bool
	all     bool // every safe character may come
	none    bool // no safe character may come
	accepts bool // the terminal may end after some, so that another may go on
	counted bool
	least   int8
	most    int8
	to      []int32
}

// safeShape is a form of UTF-8 characters: ranges of the bytes in turn.
type safeShape [][2]byte

// Safe characters are those that stand for themselves in a JSON string and that a
// pattern's dot takes: every character but the quote, the backslash, those below the
// space, and the two line separators U+2028 and U+2029.
var safeShapes = []safeShape{
	{{0x20, 0x21}}, {{0x23, 0x5B}}, {{0x5D, 0x7F}},
	{{0xC2, 0xDF}, {0x80, 0xBF}},
	{{0xE0, 0xE0}, {0xA0, 0xBF}, {0x80, 0xBF}},
	{{0xE1, 0xE1}, {0x80, 0xBF}, {0x80, 0xBF}},
	{{0xE2, 0xE2}, {0x80, 0x80}, {0x80, 0xA7}},
	{{0xE2, 0xE2}, {0x80, 0x80}, {0xAA, 0xBF}},
	{{0xE2, 0xE2}, {0x81, 0xBF}, {0x80, 0xBF}},
	{{0xE3, 0xEC}, {0x80, 0xBF}, {0x80, 0xBF}},
	{{0xED, 0xED}, {0x80, 0x9F}, {0x80, 0xBF}},
	{{0xEE, 0xEF}, {0x80, 0xBF}, {0x80, 0xBF}},
	{{0xF0, 0xF0}, {0x90, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}},
	{{0xF1, 0xF3}, {0x80, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}},
	{{0xF4, 0xF4}, {0x80, 0x8F}, {0x80, 0xBF}, {0x80, 0xBF}},
}

// Safe says whether c is a safe character.
func Safe(c rune) bool {
	return c >= ' ' && c != '"' && c != '\\' && c != 0x2028 && c != 0x2029
}

// Chars counts the safe characters that may follow in s: any text of at most
// least of them may, if it has no byte that Builder.Without left out. If exact, no
// text of more than least of them may. least is CharsMax where there is no end
// before it, and may be too low otherwise.
func (a *Automaton) Chars(s State) (least int, exact bool, err error) {
	a.begin()
	most := 0
	st := a.states[s]
	for _, t := range a.threads[st.threads.from:st.threads.to] {
		step := a.count(t.lexer)
		least, most = max(least, int(step.least)), max(most, int(step.most))
	}
	a.spent += a.limits.StepWork - a.pool.work
	return least, least == most, a.end()
}

// count finds least and most for a lexer.
func (a *Automaton) count(q int32) charStep {
	for int(q) >= len(a.chars) {
		a.chars = append(a.chars, charStep{})
	}
	if !a.chars[q].counted {
		least, most, ok := CharsMax, CharsMax, a.endless(q)
		if !ok {
			least, most, ok = a.countText(q)
		}
		if !ok {
			least, most = a.countSteps(q)
		}
		c := &a.chars[q]
		c.counted, c.least, c.most = true, int8(least), int8(most)
	}
	return a.chars[q]
}

// endless says whether some terminal of a lexer takes safe characters without end,
// as far as its form shows it.
func (a *Automaton) endless(q int32) bool {
	s := a.lexers[q].parts
	return slices.ContainsFunc(a.lexerParts[s.from:s.to], func(p part) bool { return a.pool.endless(p.rest) })
}

// endless says whether r, which matches something, does so after any safe text, as far as
// its form shows it: x{m,} does if x takes any safe character, also where finitely many
// texts are taken away, as they are from the other names of an object.
func (p *pool) endless(r Regex) bool {
	switch n := p.nodes[r]; n.kind {
	case kindCat:
		return p.endless(Regex(n.a))
	case kindTimes:
		return n.max == Unlimited && p.isChar(Regex(n.a))
	case kindOr:
		members := p.each(p.buffer(), kindOr, r)
		defer p.release(members)
		return slices.ContainsFunc(members, func(m Regex) bool { return !p.nodes[m].guarded && p.endless(m) })
	case kindAnd:
		members := p.each(p.buffer(), kindAnd, r)
		defer p.release(members)
		finite := 0
		for _, m := range members {
			if n := p.nodes[m]; n.kind == kindNot && p.nodes[n.a].finite {
				finite++
			} else if n.kind != kindTimes || !p.endless(m) {
				return false
			}
		}
		return finite < len(members)
	}
	return false
}

// countText counts where a lexer is one terminal of the form x{m,n}y, x takes
// any safe character and y begins with none.
func (a *Automaton) countText(q int32) (least, most int, ok bool) {
	s := a.lexers[q].parts
	if s.to-s.from != 1 {
		return 0, 0, false
	}
	p := a.pool
	n, rest := p.nodes[a.lexerParts[s.from].rest], epsilon
	if n.kind == kindCat {
		n, rest = p.nodes[n.a], Regex(n.b)
	}
	if n.kind != kindTimes || rest == epsilon || !p.isChar(Regex(n.a)) || !p.isOther(rest) {
		return 0, 0, false
	}
	if n.max == Unlimited || n.max > CharsMax {
		return CharsMax, CharsMax, true
	}
	return int(n.max), int(n.max), true
}

// isChar says whether r after any one safe character is at its end.
func (p *pool) isChar(r Regex) bool {
	if known, ok := p.chars[r]; ok {
		return known
	}
	is := true
	for _, shape := range safeShapes {
		is = is && p.leads(r, shape, epsilon)
	}
	p.chars[r] = is
	return is
}

// isOther says whether no safe character can be the first of r.
func (p *pool) isOther(r Regex) bool {
	for _, shape := range safeShapes {
		if !p.leads(r, shape[:1], never) {
			return false
		}
	}
	return true
}

// leads says whether every text of the shape leads from r to one place.
func (p *pool) leads(r Regex, shape safeShape, to Regex) bool {
	var done byteSet // of classes: bytes of one class lead to one place
	for b := int(shape[0][0]); b <= int(shape[0][1]); b++ {
		class := p.class[b]
		if p.absent.has(byte(b)) || done.has(class) {
			continue
		}
		done.add(class)
		d := p.derive(r, class)
		if len(shape) == 1 && d != to || len(shape) > 1 && !p.leads(d, shape[1:], to) {
			return false
		}
	}
	return true
}

// countSteps counts by going on from lexer to lexer.
func (a *Automaton) countSteps(q int32) (least, most int) {
	reached := []int32{q}
	seen := map[int32]bool{q: true}
	tried, accepts := 0, false
	for n := range CharsMax {
		all, none := true, true
		var next []int32
		for _, q := range reached {
			step := a.charStep(q, n > 0, &tried)
			all, none, accepts = all && step.all, none && step.none, accepts || step.accepts
			for _, to := range step.to {
				if !slices.Contains(next, to) {
					next = append(next, to)
				}
			}
			if a.pool.over != "" || !all && !none || tried > charsWork {
				return n, CharsMax
			}
		}
		if none && !accepts {
			return n, n
		}
		if !all {
			return n, CharsMax
		}
		fresh := false
		for _, q := range next {
			if !seen[q] {
				seen[q], fresh = true, true
			}
		}
		if !fresh { // what was reached is reached again for ever
			break
		}
		reached = next
	}
	return CharsMax, CharsMax
}

// charStep follows one character. It may stop where some may come and some
// may not; unless whole is asked for, where the first may not.
func (a *Automaton) charStep(q int32, whole bool, tried *int) charStep {
	for int(q) >= len(a.chars) {
		a.chars = append(a.chars, charStep{})
	}
	if a.chars[q].known {
		return a.chars[q]
	}
	c := charStep{all: true, none: true}
	for _, shape := range safeShapes {
		a.follow(q, shape, &c, tried)
		if !c.all && (!c.none || !whole) {
			c.none = false
			return c
		}
	}
	old := &a.chars[q]
	c.known, c.counted, c.least, c.most = a.pool.over == "", old.counted, old.least, old.most
	*old = c
	return c
}

func (a *Automaton) follow(q int32, shape safeShape, c *charStep, tried *int) {
	var done byteSet // of classes
	for b := int(shape[0][0]); b <= int(shape[0][1]); b++ {
		class := a.pool.class[b]
		if a.pool.absent.has(byte(b)) || done.has(class) {
			continue
		}
		done.add(class)
		*tried++
		to := a.lexerAfter(q, class)
		switch {
		case to == none:
			c.all = false
		case len(shape) > 1:
			c.accepts = c.accepts || a.lexers[to].accepts
			a.follow(to, shape[1:], c, tried)
		default:
			c.none = false
			c.accepts = c.accepts || a.lexers[to].accepts
			if !slices.Contains(c.to, to) {
				c.to = append(c.to, to)
			}
		}
		if !c.all && !c.none {
			return
		}
	}
}
