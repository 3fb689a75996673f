package schema

import (
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

type kind uint8

const (
	kindNull kind = iota
	kindFalse
	kindTrue
	kindNumber
	kindString
	kindArray
	kindObject
)

// value is a JSON value with what Go's maps lose: the order of keys, and the
// place in the document, by which refusals and references name it.
type value struct {
	kind    kind
	text    string // a string's characters, or a number as it was written
	items   []*value
	members []member // in the order of the document
	index   map[string]int
	parent  *value
	step    string // the key or index under the parent
	raw     string // the value as it was written
}

type member struct {
	key   string
	value *value
}

func (v *value) get(key string) *value {
	if v == nil || v.kind != kindObject {
		return nil
	}
	if i, ok := v.index[key]; ok {
		return v.members[i].value
	}
	return nil
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// pointer is the JSON pointer of the value in its document, "" for the root.
func (v *value) pointer() string {
	var steps []string
	for ; v != nil && v.parent != nil; v = v.parent {
		steps = append(steps, v.step)
	}
	var b strings.Builder
	for i := len(steps) - 1; i >= 0; i-- {
		b.WriteByte('/')
		b.WriteString(pointerEscapes.Replace(steps[i]))
	}
	return b.String()
}

// decoder reads JSON by RFC 8259, and no more than the limits.
type decoder struct {
	in     string
	at     int
	limits *Limits
}

func decode(text string, limits *Limits) (*value, *Refusal) {
	if len(text) > limits.Bytes {
		return nil, &Refusal{Reason: "the schema has " + strconv.Itoa(len(text)) + " bytes; the limit is " + strconv.Itoa(limits.Bytes)}
	}
	d := &decoder{in: text, limits: limits}
	d.space()
	v, err := d.value(nil, "", 0)
	if err != nil {
		return nil, err
	}
	d.space()
	if d.at != len(d.in) {
		return nil, d.fail("text follows the JSON value")
	}
	return v, nil
}

func (d *decoder) fail(reason string) *Refusal {
	return &Refusal{Reason: "the schema is not JSON: byte " + strconv.Itoa(d.at) + ": " + reason}
}

func (d *decoder) space() {
	for d.at < len(d.in) && strings.IndexByte(" \t\r\n", d.in[d.at]) >= 0 {
		d.at++
	}
}

func (d *decoder) next(c byte) bool {
	d.space()
	if d.at < len(d.in) && d.in[d.at] == c {
		d.at++
		return true
	}
	return false
}

func (d *decoder) value(parent *value, step string, depth int) (*value, *Refusal) {
	v := &value{parent: parent, step: step}
	if depth > d.limits.Nesting {
		r := &Refusal{Reason: "the schema is nested more than " + strconv.Itoa(d.limits.Nesting) + " deep"}
		for ; parent.parent != nil; parent = parent.parent {
			if assertions[parent.step] && parent.parent.kind == kindObject {
				r.Pointer, r.Keyword = parent.pointer(), parent.step
				break
			}
		}
		return nil, r
	}
	if d.at == len(d.in) {
		return nil, d.fail("the text ends where a value is due")
	}
	start := d.at
	var err *Refusal
	switch c := d.in[d.at]; {
	case c == '{':
		err = d.object(v, depth)
	case c == '[':
		err = d.array(v, depth)
	case c == '"':
		v.kind = kindString
		v.text, err = d.string()
	case c == '-' || c >= '0' && c <= '9':
		v.kind = kindNumber
		v.text, err = d.number()
	default:
		err = d.word(v)
	}
	v.raw = d.in[start:d.at]
	return v, err
}

func (d *decoder) word(v *value) *Refusal {
	for word, k := range map[string]kind{"null": kindNull, "true": kindTrue, "false": kindFalse} {
		if strings.HasPrefix(d.in[d.at:], word) {
			d.at += len(word)
			v.kind = k
			return nil
		}
	}
	return d.fail("a value is due")
}

func (d *decoder) object(v *value, depth int) *Refusal {
	v.kind, v.index = kindObject, map[string]int{}
	d.at++
	if d.next('}') {
		return nil
	}
	for {
		d.space()
		if d.at == len(d.in) || d.in[d.at] != '"' {
			return d.fail("a key is due")
		}
		key, err := d.string()
		if err != nil {
			return err
		}
		if !d.next(':') {
			return d.fail("a colon is due")
		}
		if _, twice := v.index[key]; twice {
			return &Refusal{Pointer: v.pointer() + "/" + pointerEscapes.Replace(key), Keyword: key, Reason: "the key is there twice"}
		}
		d.space()
		child, err := d.value(v, key, depth+1)
		if err != nil {
			return err
		}
		v.index[key] = len(v.members)
		v.members = append(v.members, member{key, child})
		if d.next('}') {
			return nil
		}
		if !d.next(',') {
			return d.fail("a comma or } is due")
		}
	}
}

func (d *decoder) array(v *value, depth int) *Refusal {
	v.kind = kindArray
	d.at++
	if d.next(']') {
		return nil
	}
	for {
		d.space()
		child, err := d.value(v, strconv.Itoa(len(v.items)), depth+1)
		if err != nil {
			return err
		}
		v.items = append(v.items, child)
		if d.next(']') {
			return nil
		}
		if !d.next(',') {
			return d.fail("a comma or ] is due")
		}
	}
}

func (d *decoder) number() (string, *Refusal) {
	start := d.at
	digits := func() bool {
		from := d.at
		for d.at < len(d.in) && d.in[d.at] >= '0' && d.in[d.at] <= '9' {
			d.at++
		}
		return d.at > from
	}
	accept := func(set string) bool {
		if d.at < len(d.in) && strings.IndexByte(set, d.in[d.at]) >= 0 {
			d.at++
			return true
		}
		return false
	}
	accept("-")
	if !accept("0") && !digits() {
		return "", d.fail("a digit is due")
	}
	if accept(".") && !digits() {
		return "", d.fail("a digit is due after the point")
	}
	if accept("eE") {
		accept("+-")
		if !digits() {
			return "", d.fail("a digit is due in the exponent")
		}
	}
	return d.in[start:d.at], nil
}

func (d *decoder) string() (string, *Refusal) {
	d.at++
	start := d.at
	for d.at < len(d.in) && d.in[d.at] != '"' && d.in[d.at] != '\\' && d.in[d.at] >= 0x20 {
		d.at++
	}
	if d.at < len(d.in) && d.in[d.at] == '"' {
		s := d.in[start:d.at]
		d.at++
		if !utf8.ValidString(s) {
			return "", d.fail("a string is not UTF-8")
		}
		return s, nil
	}
	b := []byte(d.in[start:d.at])
	for d.at < len(d.in) {
		c := d.in[d.at]
		switch {
		case c == '"':
			d.at++
			if !utf8.Valid(b) {
				return "", d.fail("a string is not UTF-8")
			}
			return string(b), nil
		case c < 0x20:
			return "", d.fail("a control character in a string")
		case c == '\\':
			r, err := d.escape()
			if err != nil {
				return "", err
			}
			b = utf8.AppendRune(b, r)
		default:
			b = append(b, c)
			d.at++
		}
	}
	return "", d.fail("a string does not end")
}

func (d *decoder) escape() (rune, *Refusal) {
	if d.at+1 >= len(d.in) {
		return 0, d.fail("a string does not end")
	}
	c := d.in[d.at+1]
	if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
		d.at += 2
		return rune("\"\\/\b\f\n\r\t"[i]), nil
	}
	r, ok := d.unit()
	if ok && utf16.IsSurrogate(r) {
		low, _ := d.unit()
		r = utf16.DecodeRune(r, low)
		ok = r != utf8.RuneError
	}
	if !ok {
		return 0, d.fail("an escape that JSON does not have, or half of a surrogate pair")
	}
	return r, nil
}

// unit reads one \uXXXX.
func (d *decoder) unit() (rune, bool) {
	if d.at+6 > len(d.in) || d.in[d.at] != '\\' || d.in[d.at+1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(d.in[d.at+2:d.at+6], 16, 16)
	d.at += 6
	return rune(n), err == nil
}

// maxExponent bounds numbers in a schema: beyond it neither doubles nor
// models have a use for them, and exact arithmetic would grow.
const maxExponent = 400

// rational is the exact value of a JSON number, nil when its exponent or its
// digits are beyond maxExponent.
func rational(text string) *big.Rat {
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		e, err := strconv.Atoi(strings.TrimPrefix(text[i+1:], "+"))
		if err != nil || e > maxExponent || e < -maxExponent {
			return nil
		}
	}
	if len(text) > 2*maxExponent {
		return nil
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil
	}
	return r
}
