package calls

import "slices"

// jsonMachine reads objects with name and arguments, in a list or one after
// another.
type jsonMachine struct {
	state  jsonState
	list   bool
	nested bool // inside the object "function"
	key    []byte
	text   unescaper
	string []byte
	target byte // what the value of key is: 'n' name, 'a' arguments, 'i' id, 0 nothing
}

type jsonState uint8

const (
	jsonStart   jsonState = iota // a list or an object
	jsonItem                     // an object, or the end of the list
	jsonMember                   // a key, a comma or the end of the object
	jsonKey                      // in a key
	jsonColon                    // before a colon
	jsonValueAt                  // before a value
	jsonText                     // in a string that is a name or an id
	jsonSpan                     // in arguments, or a value of no interest
	jsonBetween                  // after the list, or after an object outside of one
)

func (m *jsonMachine) whole() bool {
	return m.state == jsonBetween || m.state == jsonItem && !m.list
}

func (m *jsonMachine) step(p *Parser, in []byte) (n int, what progress) {
	switch m.state {
	case jsonKey, jsonText:
		return m.readString(p, in)
	case jsonSpan:
		n, what = p.block.value.step(p, in)
		if what == done {
			m.state, what = jsonMember, on
		}
		return n, what
	case jsonBetween:
		return m.between(p, in)
	}
	if n = spaces(in); n > 0 {
		return n, on
	}
	c := in[0]
	switch m.state {
	case jsonStart, jsonItem:
		return m.item(p, c)
	case jsonMember:
		return m.member(p, c)
	case jsonColon:
		if c != ':' {
			return 0, fail
		}
		m.state = jsonValueAt
		return 1, on
	}
	return m.value(p, c)
}

func (m *jsonMachine) item(p *Parser, c byte) (n int, what progress) {
	switch {
	case c == '{':
		p.begin()
		m.state, m.nested = jsonMember, false
	case c == '[' && m.state == jsonStart && !m.list:
		m.list, m.state = true, jsonItem
	case c == ']' && m.list && m.state == jsonItem:
		m.state, m.list = jsonBetween, false
	case c == ',' && m.list && m.state == jsonItem:
	default:
		return 0, fail
	}
	return 1, on
}

func (m *jsonMachine) member(p *Parser, c byte) (n int, what progress) {
	switch {
	case c == '"':
		m.state, m.key, m.text = jsonKey, m.key[:0], unescaper{}
	case c == ',':
	case c == '}' && m.nested:
		m.nested = false
	case c == '}':
		if !p.end() {
			return 0, fail
		}
		m.state = jsonBetween
		if m.list {
			m.state = jsonItem
		}
	default:
		return 0, m.cutShort(p)
	}
	return 1, on
}

// cutShort ends a call whose object lacks its last bracket, where its arguments
// are whole.
func (m *jsonMachine) cutShort(p *Parser) progress {
	c := &p.block.call
	if c.name == "" || c.argBytes+len(c.held) == 0 || p.block.tried || !p.end() {
		return fail
	}
	p.result.Fallbacks++
	m.state = jsonBetween
	return on
}

// value decides by the first byte of a key's value.
func (m *jsonMachine) value(p *Parser, c byte) (n int, what progress) {
	f := p.f
	key := string(m.key)
	m.target = 0
	switch {
	case f.NameIsKey:
		p.block.call.name, m.target = key, 'a'
	case slices.Contains(f.NameKeys, key):
		m.target = 'n'
	case slices.Contains(f.ArgsKeys, key):
		m.target = 'a'
	case slices.Contains(f.IDKeys, key):
		m.target = 'i'
	case key == "function" && c == '{' && !m.nested:
		m.nested, m.state = true, jsonMember
		return 1, on
	case key == "function" && c == '"':
		m.target = 'n'
	}
	switch {
	case c == '"' && (m.target == 'n' || m.target == 'i'):
		m.state, m.string, m.text = jsonText, m.string[:0], unescaper{}
		return 1, on
	case m.target == 'n':
		return 0, fail
	}
	if c := &p.block.call; m.target == 'a' && c.name != "" && !c.started && !p.f.IDLast && !p.start() {
		return 0, fail
	}
	p.block.value.reset(m.target != 'a')
	m.state = jsonSpan
	return 0, on
}

// readString reads a key, a name or an id.
func (m *jsonMachine) readString(p *Parser, in []byte) (n int, what progress) {
	dst := &m.key
	if m.state == jsonText {
		dst = &m.string
	}
	for n < len(in) {
		c := in[n]
		if c == '"' && !m.text.pending() {
			*dst = m.text.flush(*dst)
			return n + 1, m.endString(p)
		}
		if c == code || len(*dst) >= p.o.Limits.NameBytes {
			return n, fail
		}
		*dst = m.text.add(*dst, c)
		n++
	}
	return n, wait
}

func (m *jsonMachine) endString(p *Parser) progress {
	if m.state == jsonKey {
		m.state = jsonColon
		return on
	}
	m.state = jsonMember
	c := &p.block.call
	if m.target == 'i' {
		c.id = string(m.string)
	} else if c.name == "" {
		c.name = string(m.string)
	}
	return on
}

// between reads what stands between two calls outside of a list, or the end.
func (m *jsonMachine) between(p *Parser, in []byte) (n int, what progress) {
	if n = spaces(in); n > 0 {
		return n, on
	}
	if n, v := match(in, p.f.pats.closes, false); v == yes {
		return n, done
	} else if v == maybe {
		return 0, wait
	}
	switch c := in[0]; {
	case c == '{' || c == '[':
		m.state = jsonStart
		return 0, on
	case c == ';' || c == ',':
		return 1, on
	case c == '}' && p.block.any && !p.block.tried:
		// One bracket too many.
		return 1, on
	}
	if p.block.tried {
		return 0, fail
	}
	return 0, done
}
