package calls

import "bytes"

// literalMachine reads name(key=value, …), in a list, or name{key:value, …}.
type literalMachine struct {
	state callState
	list  bool
	value literalValue
	text  []byte
	count int    // arguments of the call
	out   []byte // scratch
}

type callState uint8

const (
	callStart callState = iota
	callName
	callArgument
	callKey
	callValue
	callAfterValue
	callNext // after a call
	callClose
)

func (m *literalMachine) whole() bool {
	return m.state == callClose || m.state == callNext && !m.list
}

func (m *literalMachine) step(p *Parser, in []byte) (n int, what progress) {
	switch m.state {
	case callName:
		return m.name(p, in)
	case callKey:
		return m.key(p, in)
	case callValue:
		n, m.out, what = m.value.step(p.f, m.out[:0], in)
		p.args(m.out)
		if what == done {
			m.state, what = callAfterValue, on
			if m.value.failing {
				p.result.Fallbacks++
				if p.block.tried {
					what = fail
				}
			}
		}
		return n, what
	}
	if n = spaces(in); n > 0 {
		return n, on
	}
	switch m.state {
	case callStart:
		return m.start(p, in)
	case callArgument:
		return m.argument(p, in)
	case callAfterValue:
		if in[0] != ',' && in[0] != m.closing(p) {
			return 0, fail
		}
		m.state = callArgument
		return 0, on
	}
	return m.next(p, in)
}

func (m *literalMachine) closing(p *Parser) byte {
	if p.f.Shape == Braces {
		return '}'
	}
	return ')'
}

func (m *literalMachine) start(p *Parser, in []byte) (n int, what progress) {
	if in[0] == '[' && p.f.Shape == Pythonic && !m.list {
		m.list = true
		return 1, on
	}
	if !p.block.marked && !m.list {
		return 0, fail
	}
	n, v := match(in, p.f.pats.prefix, false)
	if v == maybe {
		return 0, wait
	}
	p.begin()
	m.state, m.text, m.count = callName, m.text[:0], 0
	return n, on
}

// name reads a name up to its bracket.
func (m *literalMachine) name(p *Parser, in []byte) (n int, what progress) {
	bracket := m.closing(p) - 2
	if bracket == ')'-2 {
		bracket = '('
	}
	for n < len(in) && in[n] != bracket {
		if c := in[n]; !isWordByte(c) && c != ':' && c != '/' && c != '$' && c <= 0x7F || c == code || len(m.text)+n > p.o.Limits.NameBytes {
			return n, fail
		}
		n++
	}
	m.text = append(m.text, in[:n]...)
	if n == len(in) {
		return n, wait
	}
	if !plainName(m.text) {
		return n, fail
	}
	p.block.call.name = string(m.text)
	m.state = callArgument
	if !p.start() {
		return n, fail
	}
	return n + 1, on
}

// argument reads the beginning of an argument or the end of the call.
func (m *literalMachine) argument(p *Parser, in []byte) (n int, what progress) {
	c := in[0]
	if c == ',' && m.count > 0 {
		return 1, on
	}
	if c == m.closing(p) {
		if m.count > 0 {
			p.argsString("}")
		}
		m.state = callNext
		if !p.end() {
			return 0, fail
		}
		return 1, on
	}
	if isWordByte(c) && (c < '0' || c > '9') && c != '-' && c != '+' && c != '.' || c > 0x7F && c != code {
		m.state, m.text = callKey, m.text[:0]
		return 0, on
	}
	if p.f.Shape == Braces {
		return 0, fail
	}
	// A value without a name has the name of its place in the schema.
	t := p.tools[p.block.call.name]
	if t == nil || m.count >= len(t.names) || bytes.IndexByte([]byte(`'"[{(-+.0123456789`), c) < 0 {
		return 0, fail
	}
	m.argumentName(p, []byte(t.names[m.count]))
	return 0, on
}

func (m *literalMachine) argumentName(p *Parser, name []byte) {
	m.out = append(m.out[:0], `,"`...)
	if m.count == 0 {
		m.out[0] = '{'
	}
	m.count++
	m.out = append(appendEscaped(m.out, name), `":`...)
	p.args(m.out)
	m.value.reset(p.f.pats.escape, p.o.Limits)
	m.state = callValue
}

// key reads an argument's name.
func (m *literalMachine) key(p *Parser, in []byte) (n int, what progress) {
	sign := byte('=')
	if p.f.Shape == Braces {
		sign = ':'
	}
	for n < len(in) && in[n] != sign {
		c := in[n]
		if !isWordByte(c) && !isSpace(c) && c <= 0x7F || c == code || len(m.text)+n > p.o.Limits.NameBytes {
			return n, fail
		}
		n++
	}
	m.text = append(m.text, in[:n]...)
	if n == len(in) {
		return n, wait
	}
	m.argumentName(p, bytes.TrimSpace(m.text))
	return n + 1, on
}

// next reads what stands after a call.
func (m *literalMachine) next(p *Parser, in []byte) (n int, what progress) {
	n, v := match(in, p.f.pats.closes, false)
	c := in[0]
	switch {
	case v == yes:
		return n, done
	case v == maybe:
		return 0, wait
	case m.state == callNext && m.list && c == ',':
		m.state = callStart
		return 1, on
	case m.state == callNext && m.list && c == ']':
		m.state = callClose
		return 1, on
	case m.state == callNext && !m.list && (c == ',' || c == ';'):
		m.state = callStart
		return 1, on
	case m.state == callNext && !m.list && isWordByte(c):
		m.state = callStart
		return 0, on
	}
	if p.block.tried {
		return 0, fail
	}
	return 0, done
}
