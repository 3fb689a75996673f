package calls

import (
	"bytes"
	"unicode/utf8"
)

// jsonValue passes a JSON value on byte for byte and finds its end. Three things
// are changed, all of which models get wrong: a control character in a string is
// escaped, a string that holds JSON is unpacked, and brackets that are open where
// the format's own marker stands are closed.
type jsonValue struct {
	state  valueState
	opened []byte // closing brackets
	escape bool
	text   unescaper
	word   []byte
	skip   bool // the value is read and not sent
}

type valueState uint8

const (
	valueStart valueState = iota
	valueOutside
	valueString
	valuePacked
	valueWord
)

func (v *jsonValue) reset(skip bool) {
	*v = jsonValue{opened: v.opened[:0], word: v.word[:0], skip: skip}
}

func (v *jsonValue) send(p *Parser, text []byte) {
	if !v.skip {
		p.args(text)
	}
}

// step reads the beginning of in.
func (v *jsonValue) step(p *Parser, in []byte) (n int, what progress) {
	switch v.state {
	case valueStart:
		return v.first(in)
	case valueWord:
		return v.plain(p, in)
	case valuePacked:
		for n < len(in) {
			c := in[n]
			n++
			if c == '"' && !v.text.pending() {
				p.text = v.text.flush(p.text[:0])
				v.send(p, p.text)
				return n, done
			}
			p.text = p.text[:0]
			if c == code {
				p.text = p.f.literal(p.text, in[n-1:n+1])
				n++
			} else {
				p.text = v.text.add(p.text, c)
			}
			v.send(p, p.text)
		}
		return n, wait
	}
	return v.nested(p, in)
}

// first decides by the value's first byte.
func (v *jsonValue) first(in []byte) (n int, what progress) {
	n = spaces(in)
	if n == len(in) {
		return n, wait
	}
	switch c := in[n]; {
	case c == '{' || c == '[':
		v.state = valueOutside
	case c == '"':
		v.state, n = valuePacked, n+1
		v.text = unescaper{}
	case c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		v.state = valueWord
	default:
		return n, fail
	}
	return n, on
}

// plain reads a number, true, false or null. The last means no arguments.
func (v *jsonValue) plain(p *Parser, in []byte) (n int, what progress) {
	for n < len(in) && isWordByte(in[n]) {
		if len(v.word)+n > p.o.Limits.NameBytes {
			return n, fail
		}
		n++
	}
	v.word = append(v.word, in[:n]...)
	if n == len(in) {
		return n, wait
	}
	if string(v.word) != "null" {
		v.send(p, v.word)
	}
	return n, done
}

func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c == '_'
}

// nested reads an object or a list.
func (v *jsonValue) nested(p *Parser, in []byte) (n int, what progress) {
	from := 0
	for n < len(in) {
		c := in[n]
		if v.state == valueString {
			if c >= 0x20 && c != code {
				n++
				switch {
				case v.escape:
					v.escape = false
				case c == '\\':
					v.escape = true
				case c == '"':
					v.state = valueOutside
				}
				continue
			}
			v.send(p, in[from:n])
			n += v.strange(p, in[n:])
			from = n
			continue
		}
		switch c {
		case '"':
			v.state = valueString
		case '{', '[':
			if len(v.opened) >= p.o.Limits.Depth {
				v.send(p, in[from:n])
				v.close(p)
				return n, fail
			}
			v.opened = append(v.opened, c+2)
		case '}', ']':
			// A bracket of the wrong kind is taken for the right one.
			v.send(p, in[from:n])
			last := len(v.opened) - 1
			v.send(p, v.opened[last:])
			v.opened = v.opened[:last]
			n++
			from = n
			if last == 0 {
				return n, done
			}
			continue
		case '<', '|', code, '`':
			// Only a marker can stand here.
			_, is := match(in[n:], p.f.pats.endAny, false)
			if is == no && c == code {
				is = yes
			}
			if is != no {
				v.send(p, in[from:n])
				if is == maybe {
					return n, wait
				}
				p.result.Fallbacks++
				v.close(p)
				return n, done
			}
		}
		n++
	}
	v.send(p, in[from:n])
	return n, wait
}

// strange passes on a control character or a marker in a string.
func (v *jsonValue) strange(p *Parser, in []byte) (n int) {
	n = 1
	p.text = p.text[:0]
	if v.escape {
		// The escape has no meaning before either.
		p.text = append(p.text, '\\')
		v.escape = false
	}
	if in[0] == code {
		n = 2
		p.text = appendEscaped(p.text, p.f.literal(nil, in[:2]))
	} else {
		p.text = appendEscaped(p.text, in[:1])
	}
	v.send(p, p.text)
	return n
}

// close sends the brackets that are still open.
func (v *jsonValue) close(p *Parser) {
	for i := len(v.opened) - 1; i >= 0; i-- {
		v.send(p, v.opened[i:i+1])
	}
	v.opened = v.opened[:0]
}

// appendEscaped appends text as the inside of a JSON string.
func appendEscaped(dst, text []byte) []byte {
	const hex = "0123456789abcdef"
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// unescaper decodes the inside of a JSON string, or of a Python one, byte by byte.
type unescaper struct {
	python bool
	kind   byte // of the escape: 0 none, '\\' begun, 'u', 'x', 'o'
	left   int  // hexadecimal digits
	value  rune
	high   rune // the first of a surrogate pair
}

// pending reports whether the next byte belongs to an escape.
func (u *unescaper) pending() bool { return u.kind != 0 }

// add appends what c completes.
func (u *unescaper) add(dst []byte, c byte) []byte {
	switch u.kind {
	case 0:
		if c == '\\' {
			u.kind = '\\'
			return dst
		}
		return append(u.flush(dst), c)
	case '\\':
		return u.letter(dst, c)
	}
	digit := bytes.IndexByte([]byte("0123456789abcdef"), c|0x20)
	if c < '0' || digit < 0 {
		u.kind = 0
		return append(append(dst, "\uFFFD"...), c)
	}
	u.value = u.value<<4 | rune(digit)
	if u.left--; u.left > 0 {
		return dst
	}
	u.kind = 0
	return u.point(dst, u.value)
}

// letter decodes the byte after a backslash.
func (u *unescaper) letter(dst []byte, c byte) []byte {
	u.kind = 0
	if c == 'u' || u.python && (c == 'x' || c == 'U') {
		u.kind, u.value, u.left = 'u', 0, 4
		if c == 'x' {
			u.left = 2
		} else if c == 'U' {
			u.left = 8
		}
		return dst
	}
	dst = u.flush(dst)
	if i := bytes.IndexByte([]byte("nrtbf"), c); i >= 0 {
		return append(dst, "\n\r\t\b\f"[i])
	}
	if !u.python || bytes.IndexByte([]byte("\\'\""), c) >= 0 {
		return append(dst, c)
	}
	switch c {
	case '\n':
		return dst
	case '0':
		return append(dst, 0)
	case 'a':
		return append(dst, '\a')
	case 'v':
		return append(dst, '\v')
	}
	return append(dst, '\\', c)
}

// point appends a code point, of which two surrogates are one.
func (u *unescaper) point(dst []byte, r rune) []byte {
	if u.high != 0 && r >= 0xDC00 && r < 0xE000 {
		r = 0x10000 + (u.high-0xD800)<<10 + (r - 0xDC00)
		u.high = 0
		return utf8.AppendRune(dst, r)
	}
	dst = u.flush(dst)
	if r >= 0xD800 && r < 0xDC00 {
		u.high = r
		return dst
	}
	return utf8.AppendRune(dst, r)
}

// flush appends what stands for half a pair that nothing followed.
func (u *unescaper) flush(dst []byte) []byte {
	if u.high != 0 {
		u.high = 0
		return append(dst, "\uFFFD"...)
	}
	return dst
}
