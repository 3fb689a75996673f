package calls

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// literalValue turns a value in Python's spelling, or in one with bare keys and
// strings between escape markers, into JSON.
type literalValue struct {
	state   litState
	after   litState // where a string goes
	open    []byte   // closing brackets of JSON
	some    []bool   // whether each has an element
	quote   byte
	triple  bool
	text    unescaper
	word    []byte
	escape  [][]byte // strings stand between these, "" for Python
	bounds  Limits
	failing bool // a word was none, and became a string
}

type litState uint8

const (
	litValue litState = iota // before a value
	litQuote                 // after the first quote
	litString
	litRaw // in a string between escapes
	litWord
	litItem  // before an element, or the end
	litKey   // before a key, or the end
	litBare  // in a bare key
	litColon // after a key
	litAfter // after an element
	litDone
)

func (v *literalValue) reset(escape [][]byte, l Limits) {
	*v = literalValue{open: v.open[:0], some: v.some[:0], word: v.word[:0], escape: escape, bounds: l}
}

// step reads the beginning of in and appends JSON to dst. ends says whether a
// byte ends a word, beside white space, commas and brackets.
func (v *literalValue) step(b *Bound, dst, in []byte) (n int, out []byte, what progress) {
	switch v.state {
	case litString:
		return v.str(b, dst, in)
	case litRaw:
		return v.raw(b, dst, in)
	case litWord:
		return v.wordStep(dst, in)
	case litBare:
		return v.bare(dst, in)
	case litQuote:
		return v.quotes(dst, in)
	}
	if n = spaces(in); n > 0 {
		return n, dst, on
	}
	switch c := in[0]; v.state {
	case litValue:
		return v.begin(dst, in)
	case litItem:
		if c == ']' || c == ')' {
			return v.pop(dst)
		}
		return v.element(dst, litValue)
	case litKey:
		return v.keyAt(dst, in)
	case litColon:
		if c != ':' {
			return 0, dst, fail
		}
		v.state = litValue
		return 1, append(dst, ':'), on
	case litAfter:
		return v.next(dst, c)
	}
	return 0, dst, fail
}

// finished is what an element that ended leads to.
func (v *literalValue) finished() progress {
	if len(v.open) == 0 {
		v.state = litDone
		return done
	}
	v.state = litAfter
	return on
}

func (v *literalValue) element(dst []byte, next litState) (int, []byte, progress) {
	last := len(v.some) - 1
	if v.some[last] {
		dst = append(dst, ',')
	}
	v.some[last] = true
	v.state = next
	return 0, dst, on
}

func (v *literalValue) pop(dst []byte) (int, []byte, progress) {
	last := len(v.open) - 1
	dst = append(dst, v.open[last])
	v.open, v.some = v.open[:last], v.some[:last]
	return 1, dst, v.finished()
}

func (v *literalValue) next(dst []byte, c byte) (int, []byte, progress) {
	list := v.open[len(v.open)-1] == ']'
	switch {
	case c == ',' && list:
		v.state = litItem
		return 1, dst, on
	case c == ',':
		v.state = litKey
		return 1, dst, on
	case list && (c == ']' || c == ')'), !list && c == '}':
		return v.pop(dst)
	}
	return 0, dst, fail
}

// begin decides by a value's first byte.
func (v *literalValue) begin(dst, in []byte) (int, []byte, progress) {
	c := in[0]
	if n, m := match(in, v.escape, false); m == maybe {
		return 0, dst, wait
	} else if m == yes {
		v.state, v.after = litRaw, litAfter
		return n, append(dst, '"'), on
	}
	switch {
	case c == '[' || c == '(' || c == '{':
		if len(v.open) >= v.bounds.Depth {
			return 0, dst, fail
		}
		v.some = append(v.some, false)
		if c == '{' {
			v.open, v.state = append(v.open, '}'), litKey
			return 1, append(dst, '{'), on
		}
		v.open, v.state = append(v.open, ']'), litItem
		return 1, append(dst, '['), on
	case c == '"' || c == '\'':
		v.quote, v.state, v.after = c, litQuote, litAfter
		return 1, append(dst, '"'), on
	case isWordByte(c):
		v.state, v.word = litWord, v.word[:0]
		return 0, dst, on
	}
	return 0, dst, fail
}

func (v *literalValue) keyAt(dst, in []byte) (int, []byte, progress) {
	c := in[0]
	if c == '}' {
		return v.pop(dst)
	}
	n, m := match(in, v.escape, false)
	switch {
	case m == maybe:
		return 0, dst, wait
	case m == yes:
		_, dst, _ = v.element(dst, litRaw)
		v.after = litColon
		return n, append(dst, '"'), on
	case c == '"' || c == '\'':
		_, dst, _ = v.element(dst, litQuote)
		v.quote, v.after = c, litColon
		return 1, append(dst, '"'), on
	case isWordByte(c) || c > 0x7F && c != code:
		v.word = v.word[:0]
		return v.element(dst, litBare)
	}
	return 0, dst, fail
}

// bare reads a key without quotes.
func (v *literalValue) bare(dst, in []byte) (n int, out []byte, what progress) {
	for n < len(in) && in[n] != ':' {
		if in[n] == code || in[n] == '}' || in[n] == ',' || len(v.word)+n > v.bounds.NameBytes {
			return n, dst, fail
		}
		n++
	}
	v.word = append(v.word, in[:n]...)
	if n == len(in) {
		return n, dst, wait
	}
	dst = append(appendEscaped(append(dst, '"'), bytes.TrimSpace(v.word)), '"')
	v.state = litColon
	return n, dst, on
}

// quotes tells one quote, an empty string and three quotes apart.
func (v *literalValue) quotes(dst, in []byte) (int, []byte, progress) {
	v.text = unescaper{python: true}
	v.triple = false
	v.state = litString
	if in[0] != v.quote {
		return 0, dst, on
	}
	if len(in) == 1 {
		v.state = litQuote
		return 0, dst, wait
	}
	if len(in) > 1 && in[1] == v.quote {
		v.triple = true
		return 2, dst, on
	}
	return v.endString(dst, 1)
}

func (v *literalValue) endString(dst []byte, n int) (int, []byte, progress) {
	dst = append(dst, '"')
	if v.state = v.after; v.after == litAfter {
		return n, dst, v.finished()
	}
	return n, dst, on
}

// str reads the inside of a string in quotes.
func (v *literalValue) str(b *Bound, dst, in []byte) (n int, out []byte, what progress) {
	for n < len(in) {
		c := in[n]
		if c == v.quote && !v.text.pending() {
			length := 1
			if v.triple {
				if len(in) < n+3 {
					return n, dst, wait
				}
				length = 3
			}
			if !v.triple || in[n+1] == c && in[n+2] == c {
				v.word = v.text.flush(v.word[:0])
				return v.endString(appendEscaped(dst, v.word), n+length)
			}
		}
		if c == code {
			dst = appendEscaped(dst, b.literal(nil, in[n:n+2]))
			n += 2
			continue
		}
		v.word = v.text.add(v.word[:0], c)
		dst = appendEscaped(dst, v.word)
		n++
	}
	return n, dst, wait
}

// raw reads a string up to the escape marker.
func (v *literalValue) raw(b *Bound, dst, in []byte) (n int, out []byte, what progress) {
	for ; n < len(in); n++ {
		if in[n] != v.escape[0][0] {
			continue
		}
		length, m := match(in[n:], v.escape, false)
		if m == no {
			continue
		}
		dst = appendEscaped(dst, b.plain(in[:n]))
		if m == maybe {
			return n, dst, wait
		}
		return v.endString(dst, n+length)
	}
	return n, appendEscaped(dst, b.plain(in)), wait
}

// wordStep reads a number or a name.
func (v *literalValue) wordStep(dst, in []byte) (n int, out []byte, what progress) {
	for n < len(in) && isWordByte(in[n]) {
		if len(v.word)+n > v.bounds.NameBytes {
			return n, dst, fail
		}
		n++
	}
	v.word = append(v.word, in[:n]...)
	if n == len(in) {
		return n, dst, wait
	}
	// A prefix of a string, which changes nothing that can be kept.
	if c := in[n]; (c == '"' || c == '\'') && len(v.word) == 1 && bytes.ContainsAny(v.word, "rRbBfFuU") {
		v.quote, v.state, v.after = c, litQuote, litAfter
		return n + 1, append(dst, '"'), on
	}
	out, ok := wordJSON(dst, v.word)
	if !ok {
		v.failing = true
		out = append(appendEscaped(append(dst, '"'), v.word), '"')
	}
	return n, out, v.finished()
}

// wordJSON appends the JSON of a number or a constant.
func wordJSON(dst, word []byte) (out []byte, ok bool) {
	switch string(word) {
	case "True", "true":
		return append(dst, "true"...), true
	case "False", "false":
		return append(dst, "false"...), true
	case "None", "null":
		return append(dst, "null"...), true
	}
	if json.Valid(word) {
		return append(dst, word...), true
	}
	// Python writes numbers in ways that JSON does not have.
	if word[0] < '0' && word[0] != '-' && word[0] != '.' && word[0] != '+' || word[0] > '9' {
		return dst, false
	}
	plain := bytes.ReplaceAll(bytes.TrimPrefix(word, []byte("+")), []byte("_"), nil)
	if json.Valid(plain) {
		return append(dst, plain...), true
	}
	if n, err := strconv.ParseInt(string(plain), 0, 64); err == nil {
		return strconv.AppendInt(dst, n, 10), true
	}
	if f, err := strconv.ParseFloat(string(plain), 64); err == nil && f-f == 0 {
		return strconv.AppendFloat(dst, f, 'g', -1, 64), true
	}
	return dst, false
}

// pythonValue is the JSON of a whole Python literal.
func pythonValue(text []byte) (value []byte, ok bool) {
	var v literalValue
	v.reset(nil, Limits{}.filled())
	in := append(bytes.Clone(text), '\n')
	for len(in) > 0 {
		n, out, what := v.step(nil, value, in)
		value, in = out, in[n:]
		switch what {
		case done:
			return value, len(spacesTrimmed(in)) == 0 && !v.failing
		case fail, wait:
			return nil, false
		}
	}
	return nil, false
}

func spacesTrimmed(in []byte) []byte { return in[spaces(in):] }
