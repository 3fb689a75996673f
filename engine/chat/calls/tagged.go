package calls

import (
	"bytes"
	"encoding/json"
	"strings"
)

// taggedMachine reads a name and arguments between tags. Values have no types:
// the tool's schema says which are strings, and these are sent as they come.
type taggedMachine struct {
	state tagState
	text  []byte // a name, a key, or a value that is not sent as it comes
	kinds kinds
	first bool // the call has no argument yet
	bytes int  // of a value
}

type tagState uint8

const (
	tagCall tagState = iota
	tagName
	tagBody
	tagKey
	tagValueOpen
	tagValue
	tagAfter
)

func (m *taggedMachine) whole() bool { return m.state == tagAfter }

func (m *taggedMachine) step(p *Parser, in []byte) (n int, what progress) {
	switch m.state {
	case tagName:
		return m.name(p, in)
	case tagKey:
		return m.key(p, in)
	case tagValue:
		return m.value(p, in)
	}
	if m.state == tagCall && len(p.f.pats.callOpen) == 0 {
		m.state = tagName
		return 0, on
	}
	if n = spaces(in); n > 0 && m.state != tagValueOpen {
		return n, on
	}
	switch m.state {
	case tagValueOpen:
		return m.valueOpen(p, in)
	case tagBody:
		return m.body(p, in)
	}
	return m.next(p, in)
}

// next reads the beginning of a call, or the end of the block after one.
func (m *taggedMachine) next(p *Parser, in []byte) (n int, what progress) {
	pats := &p.f.pats
	n, v := match(in, pats.callOpen, false)
	if v == yes {
		m.state, m.text = tagName, m.text[:0]
		return n, on
	}
	if m.state == tagCall {
		if v == maybe {
			return 0, wait
		}
		return 0, fail
	}
	n, w := match(in, pats.closes, false)
	switch {
	case w == yes:
		return n, done
	case v == maybe || w == maybe:
		return 0, wait
	}
	return 0, done
}

// name reads the name and what ends it.
func (m *taggedMachine) name(p *Parser, in []byte) (n int, what progress) {
	pats := &p.f.pats
	if !p.block.call.begun {
		p.begin()
		m.first, m.text = true, m.text[:0]
	}
	for ; n < len(in); n++ {
		length, v := match(in[n:], pats.callName, false)
		w := no
		if len(pats.callOpen) == 0 {
			_, w = match(in[n:], pats.nameStop, false)
		}
		if v == maybe || w == maybe {
			m.text = append(m.text, in[:n]...)
			return n, wait
		}
		if v == yes || w == yes {
			m.text = append(m.text, in[:n]...)
			name, _, _ := bytes.Cut(bytes.TrimSpace(m.text), []byte(`"`))
			if v == yes && len(name) == 0 && len(pats.callOpen) == 0 {
				// A line end before the name.
				m.text = m.text[:0]
				return n + length, on
			}
			if !plainName(name) {
				return n, fail
			}
			p.block.call.name = string(name)
			m.state = tagBody
			if !p.start() {
				return n, fail
			}
			return n + length, on
		}
		if in[n] == code || in[n] == '<' || len(m.text)+n > p.o.Limits.NameBytes {
			return n, fail
		}
	}
	m.text = append(m.text, in...)
	return n, wait
}

// body reads the beginning of an argument or the end of the call.
func (m *taggedMachine) body(p *Parser, in []byte) (n int, what progress) {
	pats := &p.f.pats
	n, v := match(in, pats.keyOpen, false)
	if v == yes {
		m.state, m.text = tagKey, m.text[:0]
		return n, on
	}
	n, w := match(in, pats.callEnd, false)
	if w == yes {
		m.endCall(p)
		if len(pats.callOpen) == 0 {
			return n, done
		}
		return n, on
	}
	n, x := match(in, pats.closes, false)
	switch {
	case x == yes:
		m.endCall(p)
		return n, done
	case v == maybe || w == maybe || x == maybe:
		return 0, wait
	}
	m.endCall(p)
	return 0, fail
}

func (m *taggedMachine) endCall(p *Parser) {
	if !m.first {
		p.argsString("}")
	}
	p.end()
	m.state = tagAfter
}

// key reads a key, and with it perhaps an attribute that says whether the value
// is a string.
func (m *taggedMachine) key(p *Parser, in []byte) (n int, what progress) {
	for ; n < len(in); n++ {
		length, v := match(in[n:], p.f.pats.keyEnd, false)
		if v == maybe {
			m.text = append(m.text, in[:n]...)
			return n, wait
		}
		if v == yes {
			m.text = append(m.text, in[:n]...)
			m.argument(p)
			m.state = tagValue
			if p.f.ValueOpen != "" {
				m.state = tagValueOpen
			}
			return n + length, on
		}
		if in[n] == code || len(m.text)+n > p.o.Limits.NameBytes {
			m.endCall(p)
			return n, fail
		}
	}
	m.text = append(m.text, in...)
	return n, wait
}

// argument sends the key and finds the value's types.
func (m *taggedMachine) argument(p *Parser) {
	key, attribute, _ := strings.Cut(string(m.text), `"`)
	key = strings.TrimSpace(key)
	m.kinds = kindAny
	if t := p.tools[p.block.call.name]; t != nil {
		if k, ok := t.types[key]; ok {
			m.kinds = k
		}
	}
	switch {
	case strings.Contains(attribute, `string="true"`), strings.Contains(attribute, `type="string"`):
		m.kinds = kindString
	case strings.Contains(attribute, `string="false"`), strings.Contains(attribute, `type="`):
		m.kinds = kindAny &^ kindString
	}
	p.text = append(p.text[:0], `,"`...)
	if m.first {
		p.text[0] = '{'
	}
	m.first = false
	p.text = appendEscaped(p.text, []byte(key))
	p.text = append(p.text, `":`...)
	if m.kinds == kindString {
		p.text = append(p.text, '"')
	}
	p.args(p.text)
	m.text, m.bytes = m.text[:0], 0
}

func (m *taggedMachine) valueOpen(p *Parser, in []byte) (n int, what progress) {
	space := spaces(in)
	if space > p.o.Limits.NameBytes {
		m.state = tagValue
		return 0, on
	}
	n, v := match(in[space:], p.f.pats.valueOpen, false)
	if space == len(in) || v == maybe {
		return 0, wait
	}
	m.state = tagValue
	if v != yes {
		return 0, on
	}
	return space + n, on
}

// value reads a value up to its closing tag.
func (m *taggedMachine) value(p *Parser, in []byte) (n int, what progress) {
	pats := &p.f.pats
	if m.bytes == 0 && p.f.Newlines && in[0] == '\n' {
		if _, v := match(in, pats.valueClose, false); v == maybe {
			return 0, wait
		} else if v == no {
			m.bytes = 1
			return 1, on
		}
	}
	from := n
	for ; n < len(in); n++ {
		if in[n] != pats.valueClose[0][0] && in[n] != '\n' {
			continue
		}
		length, v := match(in[n:], pats.valueClose, false)
		if v == no {
			continue
		}
		m.add(p, in[from:n])
		if v == maybe {
			return n, wait
		}
		m.endValue(p)
		m.state = tagBody
		return n + length, on
	}
	m.add(p, in[from:n])
	return n, wait
}

// add takes a piece of a value: a string is sent, another waits for its end.
func (m *taggedMachine) add(p *Parser, text []byte) {
	if len(text) == 0 {
		return
	}
	m.bytes += len(text)
	text = p.f.plain(text)
	if m.kinds != kindString {
		m.text = append(m.text, text...)
		if len(m.text) <= p.o.Limits.HeldBytes {
			return
		}
		// Too long to wait: it is taken for a string.
		m.kinds = kindString
		p.argsString(`"`)
		text = m.text
		p.result.Fallbacks++
	}
	p.text = appendEscaped(p.text[:0], text)
	p.args(p.text)
}

// plain is text with codes as their markers' texts.
func (b *Bound) plain(text []byte) []byte {
	if bytes.IndexByte(text, code) < 0 {
		return text
	}
	return b.literal(nil, text)
}

func (m *taggedMachine) endValue(p *Parser) {
	if m.kinds == kindString {
		p.argsString(`"`)
		return
	}
	value, ok := typedValue(m.text, m.kinds)
	if !ok {
		p.result.Fallbacks++
	}
	p.args(value)
	m.text = m.text[:0]
}

// typedValue is the JSON of a value that was written without a type. ok is false
// if it has none of the types, and is sent as a string.
func typedValue(text []byte, want kinds) (value []byte, ok bool) {
	trimmed := bytes.TrimSpace(text)
	candidate := trimmed
	if want&kindString == 0 || want == kindAny {
		switch string(trimmed) {
		case "True":
			candidate = []byte("true")
		case "False":
			candidate = []byte("false")
		case "None":
			candidate = []byte("null")
		}
	}
	if k := jsonKind(candidate); k&want&^kindString != 0 {
		return compact(candidate), true
	}
	if want&kindString == 0 {
		if k := jsonKind(candidate); k != 0 {
			return compact(candidate), false
		}
		if literal, good := pythonValue(trimmed); good {
			return literal, true
		}
	}
	quoted := append(appendEscaped([]byte{'"'}, text), '"')
	return quoted, want&kindString != 0
}

// compact is valid JSON without line ends, which argument text need not have.
func compact(text []byte) []byte {
	if bytes.IndexByte(text, '\n') < 0 {
		return text
	}
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return text
	}
	return b.Bytes()
}
