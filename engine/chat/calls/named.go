package calls

import (
	"bytes"
	"strings"
)

// namedMachine reads a name, perhaps an id, and arguments as JSON.
type namedMachine struct {
	state  namedState
	before bool // Prefix was looked for
	text   []byte
	json   *jsonMachine // the answer is in the older shape, a list of objects
}

type namedState uint8

const (
	namedStart namedState = iota
	namedName
	namedID
	namedFence
	namedArgs
	namedEnd
)

func (m *namedMachine) whole() bool {
	return m.json != nil && m.json.whole() || m.state == namedEnd
}

func (m *namedMachine) step(p *Parser, in []byte) (n int, what progress) {
	if m.json != nil {
		return m.json.step(p, in)
	}
	switch m.state {
	case namedStart:
		return m.start(p, in)
	case namedName, namedID:
		return m.name(p, in)
	case namedFence:
		return m.fence(p, in)
	case namedArgs:
		n, what = p.block.value.step(p, in)
		if what == done {
			p.end()
			m.state, what = namedEnd, on
		}
		return n, what
	}
	return m.after(p, in)
}

func (m *namedMachine) start(p *Parser, in []byte) (n int, what progress) {
	if n = spaces(in); n > 0 {
		return n, on
	}
	if in[0] == '[' || in[0] == '{' {
		m.json = &jsonMachine{}
		return 0, on
	}
	if !m.before {
		n, v := match(in, p.f.pats.prefix, false)
		if v == maybe {
			return 0, wait
		}
		m.before = true
		return n, on
	}
	p.begin()
	m.state, m.text = namedName, m.text[:0]
	if p.f.IDFirst {
		m.state = namedID
	}
	return 0, on
}

// name reads the name or the id up to the marker after it.
func (m *namedMachine) name(p *Parser, in []byte) (n int, what progress) {
	pats := &p.f.pats
	for ; n < len(in); n++ {
		ends := [3][][]byte{pats.argsMark, pats.nameEnd, pats.idMark}
		for which, list := range ends {
			length, v := match(in[n:], list, false)
			if v == maybe {
				m.text = append(m.text, in[:n]...)
				return n, wait
			}
			if v == yes {
				m.text = append(m.text, in[:n]...)
				return n + length, m.named(p, which == 2)
			}
		}
		// Without its marker the object itself ends the name.
		if in[n] == '{' && m.state == namedName {
			m.text = append(m.text, in[:n]...)
			return n, m.named(p, false)
		}
		if in[n] == code || len(m.text)+n > p.o.Limits.NameBytes {
			return n, fail
		}
	}
	m.text = append(m.text, in...)
	return n, wait
}

// named takes the text up to a marker as name or id.
func (m *namedMachine) named(p *Parser, idNext bool) progress {
	c := &p.block.call
	text := bytes.TrimSpace(m.text)
	if m.state == namedID {
		c.id = string(text)
		if p.f.IDFirst {
			m.state, m.text = namedName, m.text[:0]
			return on
		}
	} else {
		if !plainName(text) {
			return fail
		}
		c.name = string(text)
		if p.f.IDs == KimiID {
			c.name, c.id = kimiName(c.name)
		}
	}
	m.text = m.text[:0]
	if idNext && !p.f.IDFirst && m.state == namedName {
		m.state = namedID
		return on
	}
	if !p.start() {
		return fail
	}
	p.block.value.reset(false)
	m.state = namedFence
	return on
}

// kimiName takes functions.NAME:INDEX apart.
func kimiName(text string) (name, id string) {
	name = text
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		name, id = name[:i], text
	}
	return strings.TrimPrefix(name, "functions."), id
}

var fenceOpen = [][]byte{[]byte("```json"), []byte("```")}

// fence reads what may stand before the arguments.
func (m *namedMachine) fence(p *Parser, in []byte) (n int, what progress) {
	if n = spaces(in); n > 0 {
		return n, on
	}
	n, v := match(in, fenceOpen, false)
	if v == maybe {
		return 0, wait
	}
	if v == no {
		if in[0] != '{' {
			// No arguments at all, or none that are JSON.
			if _, v := match(in, p.f.pats.endAny, false); v == maybe {
				return 0, wait
			} else if v == yes {
				p.end()
				m.state = namedEnd
				return 0, on
			}
		}
		m.state = namedArgs
	}
	return n, on
}

// after reads what may stand after the arguments, up to the call's end.
func (m *namedMachine) after(p *Parser, in []byte) (n int, what progress) {
	if n = spaces(in); n > 0 {
		return n, on
	}
	for _, list := range [2][][]byte{fenceOpen[1:], p.f.pats.closes} {
		n, v := match(in, list, false)
		if v == maybe {
			return 0, wait
		}
		if v == yes {
			if list[0][0] == '`' {
				return n, on
			}
			return n, done
		}
	}
	return 0, done
}
